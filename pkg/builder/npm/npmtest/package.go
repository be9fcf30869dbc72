package npmtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Package is one published version.
type Package struct {
	Name, Version string
	Tarball       []byte
}

// Make packs a package of the given files. A package.json with its name and
// version is added if there is none.
func Make(name, version string, files map[string]string) Package {
	all := maps.Clone(files)
	if all == nil {
		all = map[string]string{}
	}
	if _, ok := all["package.json"]; !ok {
		all["package.json"] = fmt.Sprintf(`{"name":%q,"version":%q}`, name, version)
	}
	var entries []Entry
	for _, path := range slices.Sorted(maps.Keys(all)) {
		entries = append(entries, Entry{Name: "package/" + path, Body: all[path]})
	}
	return Package{name, version, Pack(entries...)}
}

// Entry is one entry of a tarball, exactly as given.
type Entry struct {
	Name, Body string
	Type       byte // a tar type; 0 is a file
	Link       string
}

// Pack makes a tarball.
func Pack(entries ...Entry) []byte {
	var out bytes.Buffer
	size := 0
	for _, e := range entries {
		size += len(e.Body)
	}
	level := gzip.BestSpeed
	if size > 8<<20 {
		level = gzip.HuffmanOnly // some tests pack much, which must not take long
	}
	zip, err := gzip.NewWriterLevel(&out, level)
	if err != nil {
		panic(err) // the level is valid
	}
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		header := &tar.Header{Typeflag: e.Type, Name: e.Name, Linkname: e.Link, Size: int64(len(e.Body)), Mode: 0o644}
		if e.Type == 0 {
			header.Typeflag = tar.TypeReg
		}
		err = archive.WriteHeader(header)
		if err == nil && e.Body != "" {
			_, err = archive.Write([]byte(e.Body))
		}
		if err != nil {
			panic(err) // the test's own mistake
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// ID is name@version.
func (p Package) ID() string { return p.Name + "@" + p.Version }

// Integrity is the package's, as lock files spell it.
func (p Package) Integrity() string {
	sum := sha512.Sum512(p.Tarball)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (p Package) path() string {
	short := p.Name[strings.LastIndexByte(p.Name, '/')+1:]
	return "/" + p.Name + "/-/" + short + "-" + p.Version + ".tgz"
}

// Resolved is the package's address in npm's registry.
func (p Package) Resolved() string { return "https://registry.npmjs.org" + p.path() }

// Fields are those of a lock file's entry; an empty value takes one away.
type Fields map[string]any

// Lock writes a lock file: the root's fields under "", those of each package by
// its path. Installed adds a package's own.
func Lock(packages map[string]Fields) string {
	text, err := json.MarshalIndent(map[string]any{"name": "n", "lockfileVersion": 3, "requires": true, "packages": packages}, "", "  ")
	if err != nil {
		panic(err) // the test's own mistake
	}
	return string(text)
}

// Installed are the fields of a package in a lock file, with changes.
func Installed(p Package, changes Fields) Fields {
	fields := Fields{"version": p.Version, "resolved": p.Resolved(), "integrity": p.Integrity()}
	for key, value := range changes {
		fields[key] = value
		if value == nil {
			delete(fields, key)
		}
	}
	return fields
}

// Project gives the package.json and the package-lock.json of a project that
// depends on packages, each installed at the top.
func Project(packages ...Package) map[string]string {
	wanted := Fields{}
	locked := map[string]Fields{}
	for _, p := range packages {
		wanted[p.Name] = p.Version
		locked["node_modules/"+p.Name] = Installed(p, nil)
	}
	locked[""] = Fields{"dependencies": wanted}
	text, err := json.Marshal(Fields{"dependencies": wanted})
	if err != nil {
		panic(err) // the test's own mistake
	}
	return map[string]string{"package.json": string(text), "package-lock.json": Lock(locked)}
}
