package workerd

import (
	"bytes"
	"fmt"
	"regexp"
	"text/template"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// The names inside a configuration. Paths and addresses are given on the
// command line, so the text holds no path and nothing a tenant wrote: the
// bundle is embedded by its file name.
const (
	configFile    = "worker.capnp"
	mainSocket    = "main"
	healthSocket  = "health"
	storageDisk   = "storage"
	egressService = "egress"
)

var configText = template.Must(template.New(configFile).Parse(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .tenant),
    (name = "health", worker = .health),
{{- if .Serving}}
    (name = "storage", disk = (writable = true)),
    (name = "egress", external = (http = (style = proxy, injectRequestHeaders = [(name = "Host", value = "egress")]))),
{{- else}}
    (name = "check", worker = .check),
    (name = "egress", network = (allow = [])),
{{- end}}
  ],
  sockets = [
    (name = "main", http = (), service = "main"),
    (name = "health", http = (), service = "health"),
  ],
  v8Flags = ["--max-heap-size={{.MaxHeapMiB}}"],
  logging = (structuredLogging = true),
);
const tenant :Workerd.Worker = (
  modules = [(name = "{{.Module}}", esModule = embed "{{.Module}}")],
  compatibilityDate = "{{.CompatibilityDate}}",
  globalOutbound = "egress",
  durableObjectNamespaces = [(className = "{{.Class}}", uniqueKey = "{{.UniqueKey}}", enableSql = true)],
  durableObjectStorage = ({{if .Serving}}localDisk = "storage"{{else}}inMemory = void{{end}}),
  bindings = [(name = "{{.Binding}}", durableObjectNamespace = "{{.Class}}")],
);
{{- if not .Serving}}
const check :Workerd.Worker = (
  modules = [
    (name = "check.mjs", esModule = "{{.Check}}"),
    (name = "{{.Module}}", esModule = embed "{{.Module}}"),
  ],
  compatibilityDate = "{{.CompatibilityDate}}",
  globalOutbound = "egress",
);
{{- end}}
const health :Workerd.Worker = (
  modules = [(name = "health.mjs", esModule = "export default { fetch() { return new Response(null, { status: 204 }) } }")],
  compatibilityDate = "2026-11-01",
  globalOutbound = "egress",
);
`))

// checkModule is the main module of a second service in a validation. workerd
// itself starts without a fetch handler and with a class that is no Durable
// Object, and fails at the first request only. Single quotes: the text stands
// in a Cap'n Proto string.
const checkModule = "import * as bundle from '" + provider.MainModule + "'; import { DurableObject } from 'cloudflare:workers';" +
	" const refuse = (text) => { throw new Error('" + checkMark + "' + text); };" +
	" const main = bundle.default, storage = bundle." + provider.StorageClass + ";" +
	" if (typeof (main?.fetch ?? main?.prototype?.fetch) !== 'function') refuse('the bundle has no default export with a fetch handler');" +
	" if (typeof storage !== 'function') refuse('the bundle does not export the Durable Object class " + provider.StorageClass + "');" +
	" if (!(storage.prototype instanceof DurableObject)) refuse('" + provider.StorageClass + " does not extend DurableObject');" +
	" export default { fetch() { return new Response(null, { status: 204 }); } };"

// checkMark stands before the texts of checkModule in an error line.
const checkMark = "edge host check: "

var (
	datePattern = regexp.MustCompile(`\A\d{4}-\d{2}-\d{2}\z`)
	keyPattern  = regexp.MustCompile(`\A[0-9a-f]{1,64}\z`)
)

// workerd sends absolute URLs to a proxy without the Host header that HTTP/1.1
// requires, so one is injected; the proxy goes by the URL alone.

// renderConfig writes the configuration of a serving process or, when serving
// is false, of a validation: storage in memory and no way out.
func renderConfig(compatibilityDate, uniqueKey string, maxHeapMiB int, serving bool) ([]byte, error) {
	if !datePattern.MatchString(compatibilityDate) {
		return nil, fmt.Errorf("compatibility date %q is not YYYY-MM-DD", compatibilityDate)
	}
	if !keyPattern.MatchString(uniqueKey) {
		return nil, fmt.Errorf("storage key %q is not lower-case hex", uniqueKey)
	}
	var out bytes.Buffer
	err := configText.Execute(&out, map[string]any{
		"Serving": serving, "MaxHeapMiB": maxHeapMiB, "Module": provider.MainModule, "CompatibilityDate": compatibilityDate,
		"Class": provider.StorageClass, "Binding": provider.BindingName, "UniqueKey": uniqueKey, "Check": checkModule,
	})
	if err != nil {
		return nil, fmt.Errorf("workerd configuration: %w", err)
	}
	return out.Bytes(), nil
}
