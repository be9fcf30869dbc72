package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/project"
)

type deployFlags struct {
	versionID    string
	baseRevision int64
	settings     string // a file
	seenSettings int64
	waitFlags
}

type waitFlags struct {
	wait             bool
	throughUncertain bool
}

func (w *waitFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "follow the deployment until its end; exit 0 only when it is completed")
	cmd.Flags().BoolVar(&w.throughUncertain, "wait-uncertain", false, "with --wait: go on while the deployment is paused and waits for the company's repair")
}

func (w *waitFlags) check() error {
	if w.throughUncertain && !w.wait {
		return usageError("--wait-uncertain needs --wait")
	}
	return nil
}

func newDeploy(s *cli) *cobra.Command {
	var flags deployFlags
	cmd := &cobra.Command{
		Use:   "deploy DIR | deploy --version ID",
		Short: "Submit the project in a folder and deploy it, or deploy a version that exists",
		Args:  cobra.MaximumNArgs(1),
		RunE: s.command(func(ctx context.Context, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if (len(args) == 1) == (flags.versionID != "") {
				return usageError("give either a folder or --version")
			}
			if flags.baseRevision != 0 && flags.versionID == "" {
				return usageError("--base-revision needs --version")
			}
			if flags.seenSettings != unseen && flags.settings == "" {
				return usageError("--settings-revision needs --settings")
			}
			return s.deploy(ctx, args, flags)
		}),
	}
	cmd.Flags().StringVar(&flags.versionID, "version", "", "deploy this version instead of a folder")
	cmd.Flags().Int64Var(&flags.baseRevision, "base-revision", 0, "with --version: the Worker's latest revision as you saw it (default: as it is now)")
	cmd.Flags().StringVar(&flags.settings, "settings", "", "go live with the operation settings in this file; it lists the operations that change (see `edgectl operations set --help`)")
	cmd.Flags().Int64Var(&flags.seenSettings, "settings-revision", unseen, "with --settings: the revision of the live settings as you saw it (default: as it is now)")
	flags.add(cmd)
	return cmd
}

func (s *cli) deploy(ctx context.Context, args []string, flags deployFlags) error {
	api, err := s.connect()
	if err != nil {
		return err
	}
	settings, err := s.deploySettings(ctx, api, flags)
	if err != nil {
		return err
	}
	p := newProgress(s.console)
	defer p.done("stopped")
	var version gen.Version
	var base int64
	if flags.versionID == "" {
		version, err = s.submit(ctx, api, p, args[0])
		base = version.Revision // the Worker's latest revision, unless someone else submits meanwhile
	} else {
		version, base, err = s.chooseVersion(ctx, api, flags)
	}
	if err != nil {
		return err
	}
	p.start("deploy")
	ticket, err := api.DeployWith(ctx, version.ID, base, settings)
	if err != nil {
		return s.undeployed(err, version, base, flags, settings)
	}
	p.done("ticket " + ticket.TicketID)
	if flags.wait {
		return s.follow(ctx, api, p, ticket, version, flags.waitFlags)
	}
	if s.json {
		return s.printJSON(deployment{version, ticket})
	}
	return s.printf("ticket %s is %s; follow it with `edgectl status --ticket %s --wait`\n", ticket.TicketID, ticket.Status, ticket.TicketID)
}

// deployment is the JSON result.
type deployment struct {
	Version gen.Version `json:"version"`
	Ticket  gen.Ticket  `json:"ticket"`
}

func (s *cli) chooseVersion(ctx context.Context, api *client.Client, flags deployFlags) (gen.Version, int64, error) {
	version, err := api.Version(ctx, flags.versionID)
	if err != nil || flags.baseRevision != 0 {
		return version, flags.baseRevision, err
	}
	worker, err := api.Worker(ctx)
	return version, worker.LatestRevision, err
}

func (s *cli) submit(ctx context.Context, api *client.Client, p *progress, folder string) (gen.Version, error) {
	p.start("pack")
	archive, err := project.Pack(folder)
	if err != nil {
		return gen.Version{}, &failure{what: err.Error(), where: folder, next: "Correct the project's folder and try again.", exit: exitFailed}
	}
	p.done(fmt.Sprintf("%d bytes", len(archive)))
	p.start("submit")
	version, err := api.SubmitVersion(ctx, archive, func(done, total int) { p.detail(fmt.Sprintf("npm packages %d/%d", done, total)) })
	if err != nil {
		return gen.Version{}, s.unsubmitted(err, archive)
	}
	if version.ProjectDigest != canonical.SHA256(archive) {
		return gen.Version{}, &failure{
			what: "the stored project is not the one that was sent", where: "version " + version.ID,
			next: "Do not deploy this version. Tell the platform's operators.", exit: exitFailed,
		}
	}
	p.done(fmt.Sprintf("version %s, revision %d, bundle %d bytes", version.ID, version.Revision, version.BundleSize))
	return version, nil
}

// unsubmitted tells of a lost answer instead of sending the project again:
// that could make a second version.
func (s *cli) unsubmitted(err error, archive []byte) error {
	if !client.OutcomeUnknown(err) {
		return err
	}
	f := s.explain(err)
	f.what = "it is not known whether the version was stored: " + f.what
	f.next = "Run `edgectl versions --json`. If the newest version's project_digest is " + canonical.SHA256(archive) +
		", deploy it with `edgectl deploy --version ID --wait`; else run this command again."
	f.exit = exitUnreachable
	return f
}

// deploySettings are the settings to go live with, nil for none. They are read
// before anything is sent.
func (s *cli) deploySettings(ctx context.Context, api *client.Client, flags deployFlags) (gen.OperationSettingsRequest, error) {
	if flags.settings == "" {
		return nil, nil
	}
	object, err := s.readObject(flags.settings)
	if err != nil {
		return nil, err
	}
	return withRevision(object, flags.seenSettings, settingsRevision(ctx, api))
}

// undeployed adds how to ask for the same ticket again.
func (s *cli) undeployed(err error, version gen.Version, base int64, flags deployFlags, settings gen.OperationSettingsRequest) error {
	if !client.OutcomeUnknown(err) {
		return err
	}
	again := fmt.Sprintf("edgectl deploy --version %s --base-revision %d", version.ID, base)
	if flags.settings != "" {
		again += fmt.Sprintf(" --settings %s --settings-revision %d", flags.settings, revisionIn(settings))
	}
	f := s.explain(err)
	f.exit = exitUnreachable
	f.what = "it is not known whether the deployment was accepted: " + f.what
	f.next = "Run `" + again + " --wait`: it gets the same ticket."
	return f
}

// revisionIn is the base revision that was sent: only the same settings get the
// same ticket.
func revisionIn(settings gen.OperationSettingsRequest) int64 {
	var sent struct {
		BaseRevision int64 `json:"base_revision"`
	}
	_ = json.Unmarshal(settings, &sent) // the API has taken it, or may have
	return sent.BaseRevision
}
