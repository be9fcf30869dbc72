package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// prefix is that of this product's own variables: an unknown one is a mistake.
const prefix = "EDGE_WORKERS_"

// Binary names the process that reads the settings, in its error messages.
type Binary string

// The processes of the control plane.
const (
	// API answers requests. With the legacy transport it does everything else
	// too.
	API Binary = "api"
	// Deployer does deployments.
	Deployer Binary = "deployer"
	// Reconciler runs the recovery sweeps.
	Reconciler Binary = "reconciler"
)

// Environment turns the entries of os.Environ into a map.
func Environment(entries []string) map[string]string { return env.ToMap(entries) }

// Load reads and checks the settings of one process. An empty variable counts
// as unset. The error names every faulty variable, and never a secret's value.
func Load(environment map[string]string, binary Binary) (Settings, error) {
	var settings Settings
	err := parse(environment, &settings)
	if err != nil {
		return Settings{}, err
	}
	err = settings.check(binary)
	if err != nil {
		return Settings{}, fmt.Errorf("settings of the %s: %w", binary, err)
	}
	return settings, nil
}

// parse fills settings, a pointer to Settings or HostSettings.
func parse(environment map[string]string, settings any) error {
	err := errors.Join(unknown(environment), untidy(environment))
	if err != nil {
		return err
	}
	if environment == nil {
		// The library would read the process's environment instead.
		environment = map[string]string{}
	}
	err = env.ParseWithOptions(settings, env.Options{Environment: environment})
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	return nil
}

// Variables gives the name of every variable that Load or LoadHost reads, sorted.
func Variables() []string {
	var names []string
	eachField(func(field reflect.StructField) { names = append(names, field.Tag.Get("env")) })
	slices.Sort(names)
	return names
}

// eachField visits every setting once; some groups serve several processes.
func eachField(visit func(reflect.StructField)) {
	seen := map[reflect.Type]bool{}
	for _, settings := range []reflect.Type{reflect.TypeFor[Settings](), reflect.TypeFor[HostSettings]()} {
		for i := range settings.NumField() {
			group := settings.Field(i).Type
			if seen[group] {
				continue
			}
			seen[group] = true
			for j := range group.NumField() {
				visit(group.Field(j))
			}
		}
	}
}

// elsewhere are variables of edgectl, which a developer may have set in the
// shell that starts a process.
var elsewhere = []string{"EDGE_WORKERS_API_URL", "EDGE_WORKERS_TOKEN"}

// serviceLink matches the variables that Kubernetes sets in each pod for each
// service, such as EDGE_WORKERS_API_SERVICE_HOST: nobody wrote them.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)?)$`)

// unknown refuses variables with our prefix that are no settings: a setting
// with a misspelt name would silently keep its default.
func unknown(environment map[string]string) error {
	known := Variables()
	var all []error
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		if !strings.HasPrefix(name, prefix) || slices.Contains(known, name) || slices.Contains(elsewhere, name) || serviceLink.MatchString(name) {
			continue
		}
		near := nearest(name, known)
		if near == "" {
			all = append(all, fmt.Errorf("%s is not a setting", name))
			continue
		}
		all = append(all, fmt.Errorf("%s is not a setting; did you mean %s?", name, near))
	}
	return errors.Join(all...)
}

// untidy refuses white space around a value. It is never meant, is not seen,
// and makes a secret or an address a wrong one: a file's last line end most often.
func untidy(environment map[string]string) error {
	var all []error
	for _, name := range Variables() {
		value := environment[name]
		if value != strings.TrimSpace(value) {
			all = append(all, fmt.Errorf("%s begins or ends with white space", name))
		}
	}
	return errors.Join(all...)
}

// nearest gives the known name that differs least from name, or "" when none
// is near enough to be what was meant.
func nearest(name string, known []string) string {
	const near = 4 // more changes make it another word
	best, distance := "", near+1
	for _, candidate := range known {
		changes := edits(name, candidate)
		if changes < distance {
			best, distance = candidate, changes
		}
	}
	return best
}

// edits counts the insertions, deletions and replacements between two names.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
