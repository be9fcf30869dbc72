package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// cli is one run of the command line.
type cli struct {
	console
	json bool
	api  apiFlags
}

// run executes one command line and gives its exit code.
func run(ctx context.Context, args []string, c console) int {
	s := &cli{console: c}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var f *failure
	if !errors.As(err, &f) { // only cobra itself returns anything else
		f = &failure{what: err.Error(), next: "Run `edgectl --help` or `edgectl COMMAND --help`.", exit: exitUsage}
	}
	f.print(c.err, s.json)
	return f.exit
}

func newRoot(s *cli) *cobra.Command {
	root := &cobra.Command{
		Use:           "edgectl",
		Short:         "Make, deploy, call and inspect your department's Edge Worker",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	s.addAPIFlags(root)
	root.PersistentFlags().BoolVar(&s.json, "json", false, "write the result, and an error, as JSON")
	root.AddCommand(
		newInit(s), newDeploy(s), newStatus(s), newVersions(s), newSource(s), newInvoke(s),
		newAccess(s), newConfig(s), newOperations(s), newSecrets(s), newAccounts(s), newAudit(s), newMaintenance(s), newToken(s), newDev(s), newDispatcher(s),
	)
	return root
}

// command gives a cobra run function whose errors are all explained: see explain.
func (s *cli) command(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := do(cmd.Context(), args)
		if err == nil {
			return nil
		}
		return s.explain(err)
	}
}

func (s *cli) printJSON(value any) error {
	encoder := json.NewEncoder(s.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (s *cli) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.out, format, args...)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (s *cli) readInput(limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(s.in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the standard input: %w", err)
	}
	return content, nil
}

// readFile reads a file that the user names, and of one that is larger one byte
// more than the limit.
func readFile(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name) // #nosec G304 -- the user names the file
	if err != nil {
		return nil, usageError("the input cannot be read: %v", err)
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	err = errors.Join(err, file.Close())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}
