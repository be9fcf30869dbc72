package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/pkg/version"
)

// The staging command and its audit fact (S2-093).
const (
	operationStage = "operation_settings.stage"
	actionStaged   = "operation_settings.staged"
)

// Supports checks what the live release decides about settings that are given
// with a deployment of target (D13). No release is live: live is nil.
func Supports(live *models.Version, target models.Version) error {
	switch {
	case live == nil:
		return errLiveRequired
	case !takesSettings(*live) || !takesSettings(target):
		return errSettingsUnsupported
	case live.ReleaseGeneration == target.ReleaseGeneration:
		// Its table would take the live one's place before the deployment.
		return errSameRelease
	}
	return nil
}

func takesSettings(v models.Version) bool {
	return builder.Policy(v.BuilderPolicy).AtLeast(settingsFeature.since)
}

// Stage puts the operation settings of the release target beside those of the
// live one, where they wait for the first request that target accepts: the
// request's over the live table, or the live table as it is (S2-089 to S2-103).
// When there is nothing to take along it sends no command that changes
// anything (S2-041). The caller has the department's turn, and has checked
// Supports when there is a request.
func (d *Desk) Stage(ctx context.Context, by By, worker models.Worker, target models.Version, request *settings.TableRequest) error {
	if worker.CurrentVersionID == "" {
		return nil
	}
	of, err := serving(d.p.DB.Read(ctx), by.Tenant, worker)
	if err != nil {
		return err
	}
	if !takesSettings(of.version) || !takesSettings(target) || of.generation == target.ReleaseGeneration {
		return nil
	}
	ids, err := version.Operations(target)
	if err != nil {
		return err
	}
	now, left, err := d.tables(ctx, of, by)
	if err != nil {
		return err
	}
	// What a former attempt left for this release would go live with it.
	if request == nil && now == nil && (left == nil || left.ReleaseGeneration != target.ReleaseGeneration) {
		return nil
	}
	if now == nil {
		now = &settings.Table{}
	}
	err = d.stageable(ctx, of, by, request, *now, ids)
	if err != nil {
		return err
	}
	return d.stage(ctx, by, of, staging{generation: target.ReleaseGeneration, base: now.Revision, wanted: request.Over(*now, ids)})
}

// stageable checks the request against the live table and the target's
// manifest.
func (d *Desk) stageable(ctx context.Context, of release, by By, request *settings.TableRequest, now settings.Table, ids []string) error {
	if request == nil {
		return nil
	}
	problems := strangers(*request, ids, "operation_id is not present in the target release manifest", "body", "operation_settings") // S2-098
	if len(problems) > 0 {
		return fault.Refuse(problems...)
	}
	if request.BaseRevision != now.Revision {
		return errSettingsStale
	}
	return d.knownAccounts(ctx, of, by, *request, "body", "operation_settings")
}

// staging is one table on its way to be staged.
type staging struct {
	generation string
	base       int64
	wanted     settings.Wanted
}

func (s staging) payload() map[string]any {
	return map[string]any{
		"releaseGeneration": s.generation, "liveRevision": s.base,
		"defaultServiceAccountId": s.wanted.DefaultServiceAccountID, "operations": s.wanted.Operations,
	}
}

// is checks that a table is the one that was sent.
func (s staging) is(table settings.Table) bool {
	rows := map[string]settings.WantedRow{}
	for id, row := range table.Operations {
		rows[id] = settings.WantedRow{Access: row.Access, ServiceAccountID: row.ServiceAccountID}
	}
	return table.State == "staged" && table.ReleaseGeneration == s.generation && table.Revision == s.base+1 &&
		same(table.DefaultServiceAccountID, s.wanted.DefaultServiceAccountID) &&
		maps.EqualFunc(rows, s.wanted.Operations, func(a, b settings.WantedRow) bool {
			return a.Access == b.Access && same(a.ServiceAccountID, b.ServiceAccountID)
		})
}

func same(a, b *string) bool { return a == b || (a != nil && b != nil && *a == *b) }

// stage sends the table once, finds out by the receipt what became of it when
// the answer does not tell, and records the fact. Nothing of it serves anybody
// until a deployment of its release has succeeded.
func (d *Desk) stage(ctx context.Context, by By, of release, s staging) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("mutation id: %w", err)
	}
	digest, err := control.CommandDigest(operationStage, s.payload())
	if err != nil {
		return err
	}
	query := control.ReceiptQuery{MutationID: id.String(), CommandDigest: digest}
	result, err := d.p.Channel.Call(ctx, of.command(by, operationStage, id.String(), s.payload()))
	if err != nil {
		result, err = d.whatBecame(ctx, by, of, query, err)
	}
	if err != nil {
		return err
	}
	if settings.Conflicts(result) {
		return errSettingsStale
	}
	table, err := settings.ReadTable(readChange(result).Current)
	if err != nil || !s.is(table) {
		return errUnknown.Because(errors.Join(errors.New("the staged settings are not those that were sent"), err))
	}
	err = d.recordStaging(ctx, by, of, id.String(), digest)
	if err != nil {
		return err
	}
	answer, err := d.p.Channel.Call(ctx, of.command(by, control.ReceiptAck, "", query.Payload()))
	if err == nil {
		err = control.CheckAcknowledged(answer)
	}
	if err != nil {
		d.p.Log.WarnContext(ctx, "receipt of staged settings left with the Worker", "error", err)
	}
	return nil
}

// whatBecame asks for the receipt of a staging whose answer was cause.
func (d *Desk) whatBecame(ctx context.Context, by By, of release, query control.ReceiptQuery, cause error) (json.RawMessage, error) {
	var unreached *control.UnreachableError
	if errors.As(cause, &unreached) && unreached.NotSent {
		return nil, errUnreachable.Because(cause)
	}
	var no *control.RefusedError
	if errors.As(cause, &no) {
		return nil, refused(no)
	}
	raw, err := d.p.Channel.Call(ctx, of.command(by, control.ReceiptGet, "", query.Payload()))
	if err != nil {
		return nil, errUnknown.Because(errors.Join(cause, err))
	}
	receipt, err := control.DecodeReceipt(raw, operationStage, query)
	switch {
	case err != nil:
		return nil, errUnknown.Because(errors.Join(cause, err))
	case !receipt.Found:
		return nil, errUnreachable.Because(cause)
	}
	return receipt.Result, nil
}

// recordStaging writes the staging's fact. Its id makes it one fact, also when
// the commit's acknowledgement is lost.
func (d *Desk) recordStaging(ctx context.Context, by By, of release, mutationID, digest string) error {
	write := func(tx *database.Tx) error {
		return audit.Write(tx, audit.Fact{
			ID: audit.ID(actionStaged, mutationID), Tenant: by.Tenant, Actor: by.Actor, Action: actionStaged,
			ResourceType: settings.ResourceType, ResourceID: of.worker.ID, Result: audit.Succeeded, Digest: digest,
		})
	}
	err := d.p.DB.Tx(ctx, write)
	var unknown *database.CommitUnknownError
	if errors.As(err, &unknown) {
		err = d.p.DB.Tx(ctx, write)
	}
	if err != nil {
		return fmt.Errorf("record the staged settings: %w", err)
	}
	return nil
}
