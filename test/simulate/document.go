package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . -write ../../docs

// The files of the document, within its folder.
const (
	documentName = "scaling.md"
	pictureName  = "scaling.svg"
)

// part is one table of the document. It stands between two comments with its
// name.
type part struct{ name, title, text string }

// generated is all of the document that the simulation makes.
type generated struct {
	tables  []part
	picture string
}

func generate() (generated, error) {
	all, err := runAll()
	if err != nil {
		return generated{}, err
	}
	return generated{
		tables: []part{
			{"deployers", "Deployer replicas, a provider without a limit", deployerTable(all.deployers)},
			{"tokens", "API tokens of the provider", tokenTable(all.tokens)},
			{"faults", "Lost messages and deployers that die", faultTable(all.faults)},
			{"growth", "From a thousand departments to a million (arithmetic)", growth()},
		},
		picture: picture(all.deployers[:3]),
	}, nil
}

func opening(name string) string { return "<!-- simulate: " + name + " -->\n" }

const closing = "<!-- end -->\n"

// fill puts each table into its place in the document.
func (g generated) fill(document string) (string, error) {
	for _, p := range g.tables {
		before, rest, found := strings.Cut(document, opening(p.name))
		_, after, closed := strings.Cut(rest, closing)
		if !found || !closed {
			return "", fmt.Errorf("%s has no place for the table %q: it needs the lines %q and %q", documentName, p.name, opening(p.name), closing)
		}
		document = before + opening(p.name) + "\n" + p.text + "\n" + closing + after
	}
	return document, nil
}

// write writes the document's tables and its picture.
func write(folder string) error {
	g, err := generate()
	if err != nil {
		return err
	}
	name := filepath.Join(folder, documentName)
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	document, err := g.fill(string(old))
	if err != nil {
		return err
	}
	err = os.WriteFile(name, []byte(document), 0o644) // #nosec G306 G703 -- documentation, in the folder that its author names
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, pictureName), []byte(g.picture), 0o644) // #nosec G306 G703 -- documentation, in the folder that its author names
}
