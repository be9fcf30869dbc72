package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
)

// maxInput is the gateway's bound of an invocation's input in bytes.
const maxInput = 1 << 20

func newInvoke(s *cli) *cobra.Command {
	var input string
	cmd := &cobra.Command{
		Use:   "invoke OPERATION",
		Short: "Call an operation of the department's Worker",
		Args:  cobra.ExactArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			return s.invoke(ctx, args[0], input)
		}),
	}
	cmd.Flags().StringVar(&input, "input", "null", "the input: JSON, @FILE, or - for the standard input")
	return cmd
}

func (s *cli) invoke(ctx context.Context, operationID, input string) error {
	content, err := s.invocationInput(input)
	if err != nil {
		return err
	}
	api, err := s.connect()
	if err != nil {
		return err
	}
	output, err := api.Invoke(ctx, operationID, content)
	if err != nil {
		return s.uninvoked(err)
	}
	output = append(bytes.TrimRight(output, "\n"), '\n')
	return s.printf("%s", output)
}

func (s *cli) invocationInput(input string) ([]byte, error) {
	content := []byte(input)
	name, isFile := strings.CutPrefix(input, "@")
	var err error
	switch {
	case input == "-":
		content, err = s.readInput(maxInput)
	case isFile:
		content, err = readFile(name, maxInput)
	}
	if err != nil {
		return nil, err
	}
	if len(content) > maxInput {
		return nil, usageError("the input is larger than 1 MiB")
	}
	if !json.Valid(content) {
		return nil, usageError("the input is not JSON")
	}
	return content, nil
}

// uninvoked tells of a lost answer: an operation may have done its work.
func (s *cli) uninvoked(err error) error {
	if !client.OutcomeUnknown(err) {
		return err
	}
	f := s.explain(err)
	f.what = "it is not known whether the operation ran: " + f.what
	f.next = "Check what the operation does before you call it again."
	return f
}
