package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/project"
)

func newInit(s *cli) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Write a small project that can be deployed at once",
		Args:  cobra.ExactArgs(1),
		RunE: s.command(func(_ context.Context, args []string) error {
			return s.init(args[0], name)
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "the project's name (default: the folder's)")
	return cmd
}

func (s *cli) init(folder, name string) error {
	if name == "" {
		absolute, err := filepath.Abs(folder)
		if err != nil {
			return err
		}
		name = filepath.Base(absolute)
	}
	err := project.Scaffold(folder, name)
	if err != nil {
		return &failure{what: err.Error(), where: folder, next: "Choose an empty or new folder.", exit: exitFailed}
	}
	if s.json {
		return s.printJSON(map[string]any{"folder": folder, "name": name})
	}
	return s.printf("created %s; deploy it with `edgectl deploy %s --wait`\n", folder, folder)
}
