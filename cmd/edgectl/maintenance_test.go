package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	gatesText = "gate     fenced\nfence    f1\nrestore  off\nresync   off, epoch 3\n"
	oneDiffer = `{"items":[{"company_id":"c","department_id":"d","worker_id":"w","script_name":"dw-1","version_id":"v","result":"differs","detail":"tag"}],"checked":20,"next_cursor":null}`
	noneYet   = `{"items":[],"checked":50,"next_cursor":"next"}`
	table     = "COMPANY  DEPARTMENT  VERSION  RESULT   DETAIL\nc        d           v        differs  tag\n"
)

// newGated is a backend whose edge host confirms a fence at the third request.
func newGated(t *testing.T, last string) *backend {
	t.Helper()
	b := newBackend(t, "completed")
	gates := `{"scope":"onprem:0123456789ab","gate":"fenced","resync_active":false,"resync_epoch":3,"restore_pending":false,"fence_id":"f1","fence_ending":false}`
	always := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, gates) }
	for _, request := range []string{
		"GET /platform/maintenance", "DELETE /platform/maintenance/fence", "PUT /platform/maintenance/restore", "DELETE /platform/maintenance/restore",
		"PUT /platform/maintenance/resync", "DELETE /platform/maintenance/resync",
	} {
		b.override[request] = always
	}
	asked := 0
	b.override["PUT /platform/maintenance/fence"] = func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusAccepted)
		}
		always(w, r)
	}
	b.override["GET /platform/maintenance/differences"] = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "next" {
			_, _ = io.WriteString(w, last)
			return
		}
		_, _ = io.WriteString(w, noneYet)
	}
	return b
}

// Each command makes its requests and prints what came of it; a fence is asked
// for until it is confirmed, a resync ends over no differences or --accept.
func TestMaintenanceCommands(t *testing.T) {
	t.Parallel()
	const pages = "PUT resync, GET differences, GET differences"
	agreed := `{"items":[],"checked":20,"next_cursor":null}`
	for _, c := range []struct {
		args, last string
		requests   string
		code       int
		out, err   string
	}{
		{"status", agreed, "GET", exitOK, gatesText, ""},
		{"fence begin", agreed, "PUT fence, PUT fence, PUT fence", exitOK, gatesText, ""},
		{"fence end", agreed, "DELETE fence", exitOK, gatesText, ""},
		{"restore begin", agreed, "PUT restore", exitOK, gatesText, ""},
		{"restore end", agreed, "DELETE restore", exitOK, gatesText, ""},
		{"resync", agreed, pages + ", DELETE resync", exitOK, "database and edge host agree\n", "50 Workers compared, 0 differ\n70 Workers compared, 0 differ\n"},
		{"resync --accept", oneDiffer, pages + ", DELETE resync", exitOK, table, "50 Workers compared, 0 differ\n70 Workers compared, 1 differ\n"},
		{"resync", oneDiffer, pages, exitFailed, table, "1 Workers differ"},
	} {
		b := newGated(t, c.last)
		got := against(b).run(t, append([]string{"maintenance"}, strings.Fields(c.args)...)...)
		seen := strings.NewReplacer(" /platform/maintenance/", " ", " /platform/maintenance", "").Replace(strings.Join(b.seen(), ", "))
		if seen != c.requests || got.code != c.code || got.out != c.out || !strings.Contains(got.err, c.err) {
			t.Errorf("%s: %q\n%d %q %q", c.args, seen, got.code, got.out, got.err)
		}
	}
}

// A fence that the edge host never confirms is a failure with a next step.
func TestFenceIsNeverConfirmed(t *testing.T) {
	t.Parallel()
	b := newGated(t, "")
	b.override["PUT /platform/maintenance/fence"] = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprint(w, `{}`)
	}
	got := against(b).run(t, "maintenance", "fence", "begin")
	if got.code != exitUnreachable || !strings.Contains(got.err, "has not confirmed the fence's begin") || len(b.seen()) != 20 {
		t.Errorf("%d %q, %d requests", got.code, got.err, len(b.seen()))
	}
}
