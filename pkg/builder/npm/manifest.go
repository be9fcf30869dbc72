package npm

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

const manifestName = "package.json"

// manifest is what a package.json says to those who import.
type manifest struct {
	name     string
	module   bool // "type": "module"
	main     string
	esm      string // "module", where bundlers find ES modules
	browser  string
	replaces map[string]string // "browser" as a map; an empty text is an empty module
	exports  any               // nil when there is none
	imports  members
	pure     func(file string) bool // "sideEffects"
	licences []string
}

// readManifests reads every package.json of a package. Its own must be readable;
// others only matter when a folder is imported.
func readManifests(files map[string]string) (map[string]*manifest, error) {
	own, ok := files[manifestName]
	if !ok {
		return nil, errors.New("it has no package.json")
	}
	_, err := parseObject(own)
	if err != nil {
		return nil, fmt.Errorf("its package.json cannot be read: %w", err)
	}
	all := map[string]*manifest{}
	for name, content := range files {
		if path.Base(name) != manifestName {
			continue
		}
		fields, err := parseObject(content)
		if err == nil {
			all[folderOf(name)] = newManifest(fields)
		}
	}
	return all, nil
}

// folderOf gives the folder of a file; "" is the package's own.
func folderOf(name string) string {
	folder := path.Dir(name)
	if folder == "." {
		return ""
	}
	return folder
}

func newManifest(fields members) *manifest {
	m := &manifest{
		name: fields.text("name"), module: fields.text("type") == "module", main: fields.text("main"), esm: fields.text("module"),
		browser: fields.text("browser"), exports: fields.get("exports"), imports: fields.object("imports"),
		pure: purity(fields.get("sideEffects")), licences: licences(fields),
	}
	replaced := fields.object("browser")
	if replaced != nil {
		m.replaces = map[string]string{}
	}
	for _, entry := range replaced {
		target, isText := entry.value.(string)
		if isText || entry.value == false {
			m.replaces[entry.key] = target
		}
	}
	return m
}

// licences reads the licence, in today's spelling or one of the older ones.
func licences(fields members) []string {
	var all []string
	add := func(value any) {
		if named, ok := value.(members); ok {
			value = named.get("type")
		}
		if text, ok := value.(string); ok && strings.TrimSpace(text) != "" {
			all = append(all, strings.TrimSpace(text))
		}
	}
	add(fields.get("license"))
	if len(all) > 0 {
		return all
	}
	add(fields.get("licenses"))
	items, _ := fields.get("licenses").([]any)
	for _, item := range items {
		add(item)
	}
	return all
}

// purity tells which files may be left out when nothing of them is used.
func purity(value any) func(string) bool {
	none := func(string) bool { return false }
	if value == false {
		return func(string) bool { return true }
	}
	items, ok := value.([]any)
	if !ok {
		return none
	}
	var effects []*regexp.Regexp
	for _, item := range items {
		pattern, ok := item.(string)
		if !ok || strings.ContainsAny(pattern, "{[!") || len(effects) >= 200 {
			return none // not understood: everything is kept
		}
		effects = append(effects, glob(pattern))
	}
	return func(file string) bool {
		for _, effect := range effects {
			if effect.MatchString(file) {
				return false
			}
		}
		return true
	}
}

// glob compiles a pattern of sideEffects: * and ? within a folder, ** across
// folders; a pattern without a slash means files of that name anywhere.
func glob(pattern string) *regexp.Regexp {
	pattern = strings.TrimPrefix(pattern, "./")
	if !strings.Contains(pattern, "/") {
		pattern = "**/" + pattern
	}
	pattern = strings.TrimPrefix(pattern, "/")
	var out strings.Builder
	out.WriteString(`\A`)
	for pattern != "" {
		switch {
		case strings.HasPrefix(pattern, "**/"):
			out.WriteString(`(?:.*/)?`)
			pattern = pattern[3:]
		case strings.HasPrefix(pattern, "**"):
			out.WriteString(`.*`)
			pattern = pattern[2:]
		case pattern[0] == '*':
			out.WriteString(`[^/]*`)
			pattern = pattern[1:]
		case pattern[0] == '?':
			out.WriteString(`[^/]`)
			pattern = pattern[1:]
		default:
			out.WriteString(regexp.QuoteMeta(pattern[:1]))
			pattern = pattern[1:]
		}
	}
	out.WriteString(`\z`)
	return regexp.MustCompile(out.String())
}
