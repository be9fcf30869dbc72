// Command gen writes docs/configuration.md from the comments and tags of the
// settings in pkg/config, so that the reference says what the code says.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	source := flag.String("source", "settings.go", "file with the settings")
	out := flag.String("out", "", "file to write; standard output when empty")
	flag.Parse()
	err := run(*source, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(source, out string) error {
	groups, err := read(source)
	if err != nil {
		return err
	}
	text := render(groups)
	if out == "" {
		_, err = os.Stdout.WriteString(text)
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644) // #nosec G306 -- documentation
}
