package edgehost

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
)

// controlRoutes serves the script API: the paths, the envelope and the error
// codes of the cloud provider, as far as the client uses them (S2-156).
func (h *Host) controlRoutes() http.Handler {
	const scripts = "/client/v4/accounts/{account}/workers/dispatch/namespaces/{namespace}/scripts"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"ok"}` + "\n"))
	})
	mux.HandleFunc("GET /edge-host/v1/capacity", h.guarded(h.getCapacity))
	mux.HandleFunc("GET /edge-host/v1/fence", h.guarded(h.getFence))
	mux.HandleFunc("PUT /edge-host/v1/fence/{id}", h.guarded(h.putFence))
	mux.HandleFunc("DELETE /edge-host/v1/fence/{id}", h.guarded(h.deleteFence))
	mux.HandleFunc("GET "+scripts, h.scoped(h.listScripts))
	mux.HandleFunc("PUT "+scripts+"/{name}", h.scoped(h.putScript))
	mux.HandleFunc("GET "+scripts+"/{name}", h.scoped(h.getDetails))
	mux.HandleFunc("DELETE "+scripts+"/{name}", h.scoped(h.deleteScript))
	mux.HandleFunc("GET "+scripts+"/{name}/settings", h.scoped(h.getSettings))
	mux.HandleFunc("/", h.guarded(func(http.ResponseWriter, *http.Request) error {
		return &refusal{http.StatusNotFound, codeRoute, messageRoute}
	}))
	return mux
}

type handler func(http.ResponseWriter, *http.Request) error

// guarded checks the token in constant time and answers errors.
func (h *Host) guarded(next handler) http.HandlerFunc {
	want := sha256.Sum256([]byte(h.p.Token))
	return func(w http.ResponseWriter, r *http.Request) {
		token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(token))
		if !isBearer || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			writeRefusal(w, &refusal{http.StatusUnauthorized, codeAuth, messageAuth})
			return
		}
		if err := next(w, r); err != nil {
			h.refuse(w, r, err)
		}
	}
}

// scoped also checks account, namespace and the script's name.
func (h *Host) scoped(next handler) http.HandlerFunc {
	return h.guarded(func(w http.ResponseWriter, r *http.Request) error {
		if r.PathValue("account") != h.p.Account || r.PathValue("namespace") != h.p.Namespace {
			return &refusal{http.StatusNotFound, codeRoute, messageRoute}
		}
		if name := r.PathValue("name"); name != "" && !scriptstore.ValidName(name) {
			return &refusal{http.StatusBadRequest, codeBadName, messageBadName}
		}
		return next(w, r)
	})
}

func (h *Host) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer, known := errors.AsType[*refusal](err)
	rejected, isRejected := errors.AsType[*workerd.Rejected](err)
	switch {
	case known:
	case isRejected:
		answer = &refusal{http.StatusBadRequest, codeRejected, rejected.Message}
	case notFound(err):
		answer = &refusal{http.StatusNotFound, codeNotFound, messageNotFound}
	case errors.Is(err, errCapacity):
		answer = &refusal{http.StatusInsufficientStorage, codeCapacity, messageCapacity}
	case errors.Is(err, errHasStorage):
		answer = &refusal{http.StatusBadRequest, codeHasStorage, err.Error()}
	case errors.Is(err, errClosed), errors.Is(err, context.Canceled):
		answer = &refusal{http.StatusServiceUnavailable, codeInternal, messageStopping}
	default:
		h.p.Logger.Error("script API request failed", "method", r.Method, "script", r.PathValue("name"), "error", err.Error())
		answer = &refusal{http.StatusInternalServerError, codeInternal, messageInternal}
	}
	writeRefusal(w, answer)
}

func (h *Host) getCapacity(w http.ResponseWriter, _ *http.Request) error {
	capacity, err := h.Capacity()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(capacity)
}

func (h *Host) putScript(w http.ResponseWriter, r *http.Request) error {
	select {
	case h.fleet.uploads <- struct{}{}:
		defer func() { <-h.fleet.uploads }()
	default:
		w.Header().Set("Retry-After", "5")
		return &refusal{http.StatusTooManyRequests, codeBusy, messageBusy}
	}
	release, bundle, err := readUpload(w, r, h.p.Limits)
	if err != nil {
		return err
	}
	if err := h.fleet.fence.enter(); err != nil {
		return err
	}
	defer h.fleet.fence.leave()
	begun := time.Now()
	script, err := h.fleet.deploy(r.Context(), r.PathValue("name"), release, bundle)
	if err != nil {
		return err
	}
	h.p.Logger.Info("script uploaded", "script", script.Name, "version", script.Version, "milliseconds", time.Since(begun).Milliseconds())
	writeResult(w, uploaded{summary: summarize(script), StartupTimeMS: time.Since(begun).Milliseconds()}, nil)
	return nil
}

func (h *Host) getSettings(w http.ResponseWriter, r *http.Request) error {
	script, err := h.fleet.store.Get(r.PathValue("name"))
	if err != nil {
		return err
	}
	release := script.Release
	writeResult(w, settings{
		Bindings: release.Bindings, CompatibilityDate: release.CompatibilityDate,
		CompatibilityFlags: release.CompatibilityFlags, Tags: release.Tags,
	}, nil)
	return nil
}

func (h *Host) getDetails(w http.ResponseWriter, r *http.Request) error {
	script, err := h.fleet.store.Get(r.PathValue("name"))
	if err != nil {
		return err
	}
	writeResult(w, details{
		CreatedOn: script.CreatedOn, ModifiedOn: script.ModifiedOn, DispatchNamespace: h.p.Namespace, Script: summarize(script),
	}, nil)
	return nil
}

func (h *Host) deleteScript(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if err := h.fleet.fence.enter(); err != nil {
		return err
	}
	defer h.fleet.fence.leave()
	if err := h.fleet.remove(r.Context(), name, r.URL.Query().Get("force") == "true"); err != nil {
		return err
	}
	h.p.Logger.Info("script deleted", "script", name)
	writeResult(w, nil, nil)
	return nil
}

// listScripts pages by name; the cursor is the last name of the page before.
func (h *Host) listScripts(w http.ResponseWriter, r *http.Request) error {
	limit := 100
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return &refusal{http.StatusBadRequest, codeRejected, "limit must be 1 to 1000"}
		}
		limit = n
	}
	names, err := h.fleet.store.List()
	if err != nil {
		return err
	}
	cursor := r.URL.Query().Get("cursor")
	names = slices.DeleteFunc(names, func(name string) bool { return name <= cursor })
	next := ""
	if len(names) > limit {
		names = names[:limit]
		next = names[limit-1]
	}
	rows := []listed{}
	for _, name := range names {
		script, err := h.fleet.store.Get(name)
		if notFound(err) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		rows = append(rows, listed{ID: name, CreatedOn: script.CreatedOn, ModifiedOn: script.ModifiedOn, Tags: script.Release.Tags})
	}
	writeResult(w, rows, map[string]any{"count": len(rows), "cursor": next})
	return nil
}
