package edgehost

import (
	"time"

	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// settings is the result of GET …/settings.
type settings struct {
	Bindings           []provider.Binding `json:"bindings"`
	CompatibilityDate  string             `json:"compatibility_date"`
	CompatibilityFlags []string           `json:"compatibility_flags"`
	Tags               []string           `json:"tags"`
}

// details is the result of GET …/scripts/{name}.
type details struct {
	CreatedOn         time.Time `json:"created_on"`
	ModifiedOn        time.Time `json:"modified_on"`
	DispatchNamespace string    `json:"dispatch_namespace"`
	Script            summary   `json:"script"`
}

// summary is one script; PUT gives it too.
type summary struct {
	ID                 string                `json:"id"`
	ETag               string                `json:"etag"`
	CreatedOn          time.Time             `json:"created_on"`
	ModifiedOn         time.Time             `json:"modified_on"`
	HasModules         bool                  `json:"has_modules"`
	Handlers           []string              `json:"handlers"`
	CompatibilityDate  string                `json:"compatibility_date"`
	CompatibilityFlags []string              `json:"compatibility_flags"`
	Tags               []string              `json:"tags"`
	Exports            map[string]liveExport `json:"exports"`
}

// liveExport is an export with the state that reads show.
type liveExport struct {
	provider.Export
	State string `json:"state"`
}

type uploaded struct {
	summary
	StartupTimeMS int64 `json:"startup_time_ms"`
}

// listed is a row of GET …/scripts.
type listed struct {
	ID         string    `json:"id"`
	CreatedOn  time.Time `json:"created_on"`
	ModifiedOn time.Time `json:"modified_on"`
	Tags       []string  `json:"tags"`
}

func summarize(script scriptstore.Script) summary {
	exports := map[string]liveExport{}
	for class, export := range script.Release.Exports {
		exports[class] = liveExport{Export: export, State: "created"}
	}
	return summary{
		ID: script.Name, ETag: script.Version, CreatedOn: script.CreatedOn, ModifiedOn: script.ModifiedOn,
		HasModules: true, Handlers: []string{"fetch"}, CompatibilityDate: script.Release.CompatibilityDate,
		CompatibilityFlags: script.Release.CompatibilityFlags, Tags: script.Release.Tags, Exports: exports,
	}
}
