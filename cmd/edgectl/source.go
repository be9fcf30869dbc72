package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

func newSource(s *cli) *cobra.Command {
	var output string
	var force bool
	cmd := &cobra.Command{
		Use:   "source VERSION",
		Short: "Download a version's project exactly as it was submitted",
		Args:  cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			return s.source(ctx, args[0], output, force)
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, - for the standard output (default source-rREVISION.tar.gz)")
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	return cmd
}

func (s *cli) source(ctx context.Context, versionID, output string, force bool) error {
	api, err := s.connect()
	if err != nil {
		return err
	}
	version, err := api.Version(ctx, versionID)
	if err != nil {
		return err
	}
	archive, err := api.Source(ctx, versionID)
	if err != nil {
		return err
	}
	if canonical.SHA256(archive) != version.ProjectDigest {
		return &failure{
			what: "what was downloaded is not the version's project: its digest differs", where: "version " + version.ID,
			next: "Try again. If it stays, tell the platform's operators.", exit: exitFailed,
		}
	}
	if output == "-" {
		_, err := s.out.Write(archive)
		if err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
		return nil
	}
	if output == "" {
		output = fmt.Sprintf("source-r%d.tar.gz", version.Revision)
	}
	err = writeFile(output, archive, force)
	if errors.Is(err, fs.ErrExist) {
		return &failure{what: "the file exists already", where: output, next: "Choose another name with -o, or replace it with --force.", exit: exitFailed}
	}
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if s.json {
		return s.printJSON(map[string]any{"file": output, "size": len(archive), "sha256": version.ProjectDigest})
	}
	return s.printf("%s: %d bytes, sha256 %s\n", output, len(archive), version.ProjectDigest)
}

// writeFile writes a whole file or none. A link, unlike a rename, fails for a
// name that is taken.
func writeFile(name string, content []byte, replace bool) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), ".edgectl-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Close())
	if err != nil {
		return err
	}
	if replace {
		return os.Rename(temporary.Name(), name)
	}
	return os.Link(temporary.Name(), name)
}
