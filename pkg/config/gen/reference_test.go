package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/config"
)

func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	groups, err := read("../settings.go")
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != render(groups) {
		t.Error("docs/configuration.md differs from the settings: run go generate ./pkg/config")
	}
}

func TestReferenceHasEveryVariable(t *testing.T) {
	t.Parallel()
	groups, err := read("../settings.go")
	if err != nil {
		t.Fatal(err)
	}
	text := render(groups)
	for _, name := range config.Variables() {
		if !strings.Contains(text, "\n### "+name+"\n") {
			t.Errorf("%s is not explained", name)
		}
	}
	if strings.Count(text, "\n### ") != len(config.Variables()) {
		t.Error("the reference explains what is no variable")
	}
	for _, line := range []string{"| [`EDGE_WORKERS_PROVIDER`](#edge_workers_provider) | `cloudflare` |", "Secret."} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q", line)
		}
	}
}

func TestSettingsThatCannotBeExplained(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, source, want string }{
		{"no settings", "package c\ntype Settings struct { A A }\n", "no settings"},
		{"no tag", "package c\ntype A struct {\n// It is.\nX string\n// It is.\nY string `env:\"Y\"`\n}\n", "X: no tag"},
		{"another tag", "package c\ntype A struct {\n// It is.\nX string `json:\"X\"`\n}\n", "X needs an env tag and a comment"},
		{"no comment", "package c\ntype A struct {\nX string `env:\"X\"`\n}\n", "X needs an env tag and a comment"},
		{"no Go", "pakage", "parse the settings"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "settings.go")
			err := os.WriteFile(path, []byte(c.source), 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_, err = read(path)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want %q", err, c.want)
			}
		})
	}
}

func TestRunWritesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.md")
	err := run("../settings.go", path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "<!-- Code generated") {
		t.Errorf("%.40q, %v", text, err)
	}
	err = run("missing.go", path)
	if err == nil {
		t.Error("a missing source is no error")
	}
}
