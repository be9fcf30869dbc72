package config

import (
	"errors"
	"net/url"
	"path/filepath"
)

func (n NPM) check() error {
	var faults []error
	base, err := url.Parse(n.Registry)
	if err != nil || (base.Scheme != "https" && base.Scheme != "http") || base.Hostname() == "" ||
		base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		// The value may hold a password, so it is not repeated.
		faults = append(faults, errors.New("EDGE_WORKERS_NPM_REGISTRY is not the http or https URL of a registry, without user, query and fragment"))
	}
	if n.CacheDir != "" && !filepath.IsAbs(n.CacheDir) {
		faults = append(faults, errors.New("EDGE_WORKERS_NPM_CACHE_DIR is not an absolute path"))
	}
	return errors.Join(faults...)
}
