package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func newMaintenance(s *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "maintenance", Short: "Show, begin or end the gates of an edge host; needs a platform admin's token"}
	cmd.AddCommand(
		newMaintenanceStatus(s),
		newGate(s, client.Fence, "Hold deployments while a backup is made", "Begin, and return when the edge host has confirmed", "End, and return when the edge host has confirmed"),
		newGate(s, client.Restore, "Refuse deployments until a restore is checked", "Begin", "End"),
		newResync(s),
	)
	return cmd
}

func newMaintenanceStatus(s *cli) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show what holds deployments", Args: cobra.NoArgs,
		RunE: s.command(func(ctx context.Context, _ []string) error {
			api, err := s.connectAs(operatorOf)
			if err != nil {
				return err
			}
			state, err := api.Maintenance(ctx)
			if err != nil {
				return err
			}
			return s.printGates(state)
		}),
	}
}

func operatorOf(r ready) string { return r.PlatformToken }

func newGate(s *cli, gate client.Gate, short, begin, end string) *cobra.Command {
	cmd := &cobra.Command{Use: string(gate), Short: short}
	set := func(name, short string, do func(*client.Client, context.Context, client.Gate) (gen.Maintenance, bool, error)) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs,
			RunE: s.command(func(ctx context.Context, _ []string) error {
				api, err := s.connectAs(operatorOf)
				if err != nil {
					return err
				}
				state, confirmed, err := do(api, ctx, gate)
				if err != nil {
					return err
				}
				if !confirmed {
					return &failure{
						what: "the edge host has not confirmed the " + string(gate) + "'s " + name, where: s.api.url,
						next: "Look at the edge host's log, then repeat the command.", exit: exitUnreachable,
					}
				}
				return s.printGates(state)
			}),
		}
	}
	cmd.AddCommand(set("begin", begin, (*client.Client).BeginGate), set("end", end, (*client.Client).EndGate))
	return cmd
}

func (s *cli) printGates(state gen.Maintenance) error {
	if s.json {
		return s.printJSON(state)
	}
	fence := orNone(state.FenceID)
	if state.FenceEnding {
		fence += ", its end is not confirmed"
	}
	return s.printf("gate     %s\nfence    %s\nrestore  %s\nresync   %s, epoch %d\n",
		state.Gate, fence, onOff(state.RestorePending), onOff(state.ResyncActive), state.ResyncEpoch)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func newResync(s *cli) *cobra.Command {
	accept := false
	cmd := &cobra.Command{
		Use:   "resync",
		Short: "Compare database and edge host",
		Long:  "Refuses deployments, reads every deployed Worker back from the edge host and lists those that differ.\nWithout any, deployments go on; with some they stay refused, unless --accept is given.",
		Args:  cobra.NoArgs,
		RunE:  s.command(func(ctx context.Context, _ []string) error { return s.resync(ctx, accept) }),
	}
	cmd.Flags().BoolVar(&accept, "accept", false, "end the resync although there are differences")
	return cmd
}

func (s *cli) resync(ctx context.Context, accept bool) error {
	api, err := s.connectAs(operatorOf)
	if err != nil {
		return err
	}
	_, _, err = api.BeginGate(ctx, client.Resync)
	if err != nil {
		return err
	}
	found, err := s.differences(ctx, api)
	if err != nil {
		return err
	}
	err = s.printDifferences(found)
	if err != nil {
		return err
	}
	if len(found) > 0 && !accept {
		return &failure{
			what: strconv.Itoa(len(found)) + " Workers differ, so that deployments stay refused", where: s.api.url,
			next: "Note them for their departments, who submit and deploy them anew, and end with `edgectl maintenance resync --accept`.", exit: exitFailed,
		}
	}
	_, _, err = api.EndGate(ctx, client.Resync)
	return err
}

// differences reads every page, with a line of progress for each.
func (s *cli) differences(ctx context.Context, api *client.Client) ([]gen.MaintenanceDifference, error) {
	found, checked, cursor := []gen.MaintenanceDifference{}, 0, ""
	for {
		page, err := api.Differences(ctx, cursor)
		if err != nil {
			return nil, err
		}
		found, checked = append(found, page.Items...), checked+page.Checked
		_, err = fmt.Fprintf(s.err, "%d Workers compared, %d differ\n", checked, len(found))
		if err != nil || page.NextCursor == nil {
			return found, err
		}
		cursor = *page.NextCursor
	}
}

func (s *cli) printDifferences(found []gen.MaintenanceDifference) error {
	if s.json {
		return s.printJSON(found)
	}
	if len(found) == 0 {
		return s.printf("database and edge host agree\n")
	}
	rows := [][]string{{"COMPANY", "DEPARTMENT", "VERSION", "RESULT", "DETAIL"}}
	for _, d := range found {
		rows = append(rows, []string{d.CompanyID, d.DepartmentID, d.VersionID, string(d.Result), printable(d.Detail)})
	}
	return s.printTable(rows)
}
