package faults

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/test/faults/control"
	"github.com/teamsync/edge-workers/test/faults/failpoint"
	"github.com/teamsync/edge-workers/transports"
)

// Ground is what all stories of a run share.
type Ground struct {
	DB    *database.DB // with its history recorded
	DSN   string
	Redis redis.UniversalClient
	// RedisURL is the same server's.
	RedisURL string
	Node     string // the binary
	Key      ed25519.PublicKey
}

// story is one tenant's way from nothing to a settled deployment.
type story struct {
	t       testing.TB
	ctx     context.Context
	ground  Ground
	config  control.Config
	argv    string
	outside *outside

	// broken, when set, names the guard that a process lacks: the one with the
	// fault, or all of them.
	broken           string
	brokenEverywhere bool

	violations []string
}

func newStory(t testing.TB, ground Ground) *story {
	t.Helper()
	id := strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	s := &story{t: t, ctx: t.Context(), ground: ground}
	s.config = control.Config{
		DSN: ground.DSN, Redis: ground.RedisURL, Store: t.TempDir(), Namespace: "faults-" + id, Key: ground.Key,
		Tenant: models.Tenant{CompanyID: "company-" + id, DepartmentID: "department-" + id},
	}
	s.outside = newOutside(s.wipeRedis)
	t.Cleanup(s.outside.server.Close)
	s.config.Origin = s.outside.server.URL
	raw, err := json.Marshal(s.config)
	s.ok(err)
	s.argv = string(raw)
	directory, owner := tenancy.New(ground.DB), audit.Actor{Type: "user", ID: "user:owner", Method: "bearer_jwt"}
	s.ok(directory.PutCompany(s.ctx, owner, s.config.Tenant.CompanyID, "A company"))
	s.ok(directory.PutDepartment(s.ctx, owner, s.config.Tenant, "A department"))
	return s
}

func (s *story) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// violated notes the breach of an invariant.
func (s *story) violated(invariant, format string, args ...any) {
	s.violations = append(s.violations, invariant+": "+fmt.Sprintf(format, args...))
}

// start starts a node with a failpoint armed; none if point is empty.
func (s *story) start(point, value string, args ...string) *process {
	s.t.Helper()
	env := []string{}
	if point != "" {
		env = append(env, fmt.Sprintf("GOFAIL_FAILPOINTS=%s=return(%q)", point, value))
	}
	if s.broken != "" && (point != "" || s.brokenEverywhere) {
		env = append(env, s.broken)
	}
	p, err := start(s.ground.Node, env, append([]string{s.argv}, args...)...)
	s.ok(err)
	return p
}

// node runs a node without a fault to its end.
func (s *story) node(args ...string) outcome {
	s.t.Helper()
	result, err := s.start("", "", args...).wait()
	s.ok(err)
	if result.Signal != 0 {
		s.t.Fatalf("a node without a fault ended by %s:\n%s", result.Signal, result.Log)
	}
	return result
}

// must is node for what has to succeed.
func (s *story) must(args ...string) {
	s.t.Helper()
	result := s.node(args...)
	if result.Code != 0 {
		s.t.Fatalf("%s: %s\n%s", args[0], result.Reply.Error, result.Log)
	}
}

// wipeRedis deletes all keys of the tenant (I11). What carries only a row's
// id is found by the rows.
func (s *story) wipeRedis() {
	ctx := context.WithoutCancel(s.ctx)
	keys := []string{"edge-workers:settings:" + s.config.Tenant.CompanyID + ":" + s.config.Tenant.DepartmentID}
	var rows []models.Outbox
	err := s.config.Tenant.Own(s.ground.DB.Read(ctx)).Find(&rows).Error
	for _, row := range rows {
		keys = append(keys, "edge-workers:delivery:"+row.ID, "edge-workers:ticket:"+row.TicketID)
	}
	if err == nil {
		err = s.ground.Redis.Del(ctx, keys...).Err()
	}
	if err != nil {
		s.t.Errorf("wipe the tenant's keys: %v", err)
	}
}

// version reads the oldest version; false if there is none.
func (s *story) version() (models.Version, bool) {
	s.t.Helper()
	var rows []models.Version
	s.ok(s.config.Tenant.Own(s.ground.DB.Read(s.ctx)).Order("revision").Limit(1).Find(&rows).Error)
	if len(rows) == 0 {
		return models.Version{}, false
	}
	return rows[0], true
}

// row reads the deployment's row; false if there is none.
func (s *story) row() (models.Outbox, bool) {
	s.t.Helper()
	var rows []models.Outbox
	s.ok(s.config.Tenant.Own(s.ground.DB.Read(s.ctx)).Where("operation = ?", models.OperationDeploy).Order("admission_sequence").Limit(1).Find(&rows).Error)
	if len(rows) == 0 {
		return models.Outbox{}, false
	}
	return rows[0], true
}

func (s *story) revision() string {
	s.t.Helper()
	var workers []models.Worker
	s.ok(s.config.Tenant.Own(s.ground.DB.Read(s.ctx)).Find(&workers).Error)
	if len(workers) != 1 {
		s.t.Fatalf("%d Workers", len(workers))
	}
	return strconv.FormatInt(workers[0].LatestRevision, 10)
}

// reach brings the story to the scene and gives the command of the process
// that is to meet the fault.
func (s *story) reach(scene Scene) []string {
	s.t.Helper()
	if scene == SceneSubmit {
		return []string{"submit", "first"}
	}
	if scene == SceneClean {
		s.abandonSubmission()
		s.passTime()
		return []string{"clean"}
	}
	s.must("submit", "first")
	v, _ := s.version()
	admit := []string{"admit", v.ID, s.revision()}
	if scene == SceneAdmit {
		return admit
	}
	s.must(admit...)
	if scene == SceneSweep {
		s.outside.take() // the message is lost
		s.passTime()
		return []string{"sweep"}
	}
	if scene == SceneRun {
		return s.delivery()
	}
	s.outside.setReadable(false)
	s.outside.loseNextAnswer() // of the upload
	s.must(s.delivery()...)
	s.outside.setReadable(true)
	row, _ := s.row()
	if row.Status != models.OutboxUncertain {
		s.t.Fatalf("the deployment is %s and was to be uncertain", row.Status)
	}
	repair := []string{"repair", row.TicketID, s.revision()}
	if scene == SceneRepair {
		return repair
	}
	s.must(repair...)
	return s.delivery()
}

// abandonSubmission kills a submission whose objects are stored and whose
// version is not committed. That kill is not the cell's fault.
func (s *story) abandonSubmission() {
	s.t.Helper()
	result, err := s.start("submitCommitBefore", failpoint.Kill, "submit", "abandoned").wait()
	s.ok(err)
	if result.Signal == 0 {
		s.t.Fatalf("the submission was not killed: code %d\n%s", result.Code, result.Log)
	}
	s.outside.forgetHits()
}

// delivery takes the one message that waits and gives the command that runs
// it.
func (s *story) delivery() []string {
	s.t.Helper()
	messages := s.outside.take()
	if len(messages) != 1 {
		s.t.Fatalf("%d messages wait instead of one", len(messages))
	}
	return command(messages[0])
}

func command(m transports.Message) []string { return []string{"run", m.Args[0], m.Args[3]} }

// passTime ends the tenant's leases, marks, grace periods and claims.
func (s *story) passTime() {
	s.t.Helper()
	s.ok(passTime(s.ctx, s.ground.DB, s.config.Tenant.CompanyID))
	s.wipeRedis()
}

// maxRounds bounds the recovery; every story ends in less.
const maxRounds = 10

// recover brings the story to its end with processes that meet no fault. What
// no version owns is then no longer stored.
func (s *story) recover() {
	s.t.Helper()
	s.deploy()
	s.clean()
}

// clean lets the grace of the intents pass and runs cleanup sweeps, two at
// once, until no intent is open.
func (s *story) clean() {
	s.t.Helper()
	for range maxRounds {
		var open int64
		s.ok(s.config.Tenant.Own(s.ground.DB.Read(s.ctx)).Model(&models.Outbox{}).
			Where("operation = ? AND status IN ?", models.OperationArtifactCleanup, []models.OutboxStatus{models.OutboxPending, models.OutboxLeased}).Count(&open).Error)
		if open == 0 {
			return
		}
		s.passTime()
		both := []*process{s.start("", "", "clean"), s.start("", "", "clean")}
		for _, p := range both {
			_, err := p.wait() // a sweep that fails leaves the intent open
			s.ok(err)
		}
	}
	s.violated("I7", "an intent is still open after %d rounds of cleanup", maxRounds)
}

// deploy repeats what a client would repeat, lets time pass, sweeps, delivers,
// and repairs once what is uncertain.
func (s *story) deploy() {
	s.t.Helper()
	repaired := false
	for range maxRounds {
		v, submitted := s.version()
		if !submitted {
			s.must("submit", "again")
			continue
		}
		row, admitted := s.row()
		if !admitted {
			s.must("admit", v.ID, s.revision())
			continue
		}
		s.passTime()
		waiting := s.deliverAll()
		row, _ = s.row()
		switch {
		case row.Status.Released() && waiting == 0:
			return
		case row.Status.Released():
		case row.Status != models.OutboxUncertain:
			s.sweep()
		case repaired:
			return
		default:
			repaired = true
			s.repair(row)
		}
	}
	row, _ := s.row()
	s.violated("I1", "the row is still %s after %d rounds of recovery", row.Status, maxRounds)
}

// deliverAll runs every message that waits and gives back to the transport
// what was not acknowledged. It returns how many wait now.
func (s *story) deliverAll() int {
	s.t.Helper()
	waiting := 0
	for _, message := range s.outside.take() {
		result := s.node(command(message)...)
		s.acknowledged(message.Args[0], result)
		if result.Code != 0 {
			waiting++
			s.outside.putBack(message)
		}
	}
	return waiting
}

// acknowledged checks an acknowledgement against the durable state (I9).
func (s *story) acknowledged(outboxID string, result outcome) {
	s.t.Helper()
	if result.Code != 0 {
		return
	}
	row, _ := s.row()
	if row.ID != outboxID || row.Status.Released() || row.Status == models.OutboxUncertain {
		return
	}
	s.violated("I9", "the message was acknowledged while the row was %s", row.Status)
}

// sweep runs the recovery in two processes at once: at most one may win a row
// (I10).
func (s *story) sweep() {
	s.t.Helper()
	before := s.stamps()
	var both [2]*process
	for i := range both {
		both[i] = s.start("", "", "sweep")
	}
	claimed := 0
	for _, p := range both {
		result, err := p.wait()
		s.ok(err)
		claimed += result.Reply.Sweep["claimed"]
	}
	if stamps := s.stamps() - before; claimed != 1 || stamps != 1 {
		s.violated("I10", "two sweeps at once claimed the row %d times and stamped it %d times", claimed, stamps)
	}
}

// stamps counts the marks that sweeps have given the row.
func (s *story) stamps() int {
	s.t.Helper()
	n := 0
	for _, c := range s.history() {
		if c.Kind == string(models.OperationDeploy) && c.Was == c.Became && c.OwnerWas == c.Owner && c.Mark != nil && !sameTime(c.Mark, c.MarkWas) {
			n++
		}
	}
	return n
}

// repair reopens the row, runs what was published, and checks that only reads
// decided (I5).
func (s *story) repair(row models.Outbox) {
	s.t.Helper()
	before := len(puts(s.outside.log()))
	s.must("repair", row.TicketID, s.revision())
	s.passTime()
	s.deliverAll()
	if now := len(puts(s.outside.log())); now != before {
		s.violated("I5", "a repair sent %d PUTs", now-before)
	}
}

func (s *story) history() []Change {
	s.t.Helper()
	changes, err := history(s.ctx, s.ground.DB, s.config.Tenant.CompanyID)
	s.ok(err)
	return changes
}
