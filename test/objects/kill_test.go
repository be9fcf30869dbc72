package objects

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/tenancy"
)

// kills is how many processes are killed; `make test-s3` asks for a thousand.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("EDGE_TEST_KILLS")
	if text == "" {
		return 24
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("EDGE_TEST_KILLS: %v", err)
	}
	return n
}

// S0-62, S0-63, S0-89: processes that submit are killed with SIGKILL at random
// moments. Afterwards, counted from the bucket and the database: no object
// without an owner, no version without its objects, no intent lost. In the
// second half sweeps run all the while over intents that are due at once. What
// a killed process had on its way may arrive after such a sweep; as ever, it is
// found by the one that follows the grace.
func TestKilledSubmissions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := kills(t)
	killed := w.kill(n / 2)
	for len(w.intents(models.OutboxPending)) == 0 { // all died between two submissions
		n++
		killed += w.kill(1)
	}
	objects, open := len(w.list()), len(w.intents(models.OutboxPending))
	w.covered()
	stop := w.sweepAlways()
	killed += w.kill(n - killed)
	stop()
	w.covered()
	w.sweepAll()
	w.settled()
	t.Logf("%d processes killed, %d submissions cut off in the first half with %d objects stored; at the end %d versions, %d objects, %d intents",
		killed, open, objects, len(w.versions()), len(w.list()), len(w.intents("")))
	if killed != n || len(w.versions()) == 0 {
		t.Errorf("killed %d of %d: the test saw nothing", killed, n)
	}
}

// world is a database, a bucket and a tenant.
type world struct {
	*testing.T
	submission submission
	db         *database.DB
	outbox     *outbox.Outbox
	list       func() []string // the bucket's keys
	random     *rand.Rand
}

// newWorld uses the real service where there is one, else a server in this
// process.
func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := databasetest.MySQLURL(t)
	w := &world{T: t, db: databasetest.Open(t, database.Params{URL: dsn})}
	id := uuid.NewString()[:8]
	w.submission = submission{DSN: dsn, Tenant: models.Tenant{CompanyID: "company-" + id, DepartmentID: "department-" + id}}
	if Available() {
		bucket := NewBucket(t)
		w.submission.Store = place{bucket.Endpoint, bucket.Name, bucket.key, bucket.secret}
		w.list = func() []string { return bucket.List(t) }
	} else {
		server := artifacttest.StartS3(t, artifacttest.S3Params{Bucket: "bucket", Region: region, AccessKeyID: "key", SecretAccessKey: "secret", Plain: true})
		w.submission.Store = place{server.URL(), "bucket", "key", "secret"}
		w.list = func() []string {
			var keys []string
			for key := range server.Objects() {
				keys = append(keys, key)
			}
			return keys
		}
	}
	w.outbox = outbox.New(w.db, outbox.CloudScope(namespace))
	directory := tenancy.New(w.db)
	w.ok(directory.PutCompany(t.Context(), owner, w.submission.Tenant.CompanyID, "A company"))
	w.ok(directory.PutDepartment(t.Context(), owner, w.submission.Tenant, "A department"))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w.random = rand.New(rand.NewPCG(seed, seed))
	return w
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// kill starts n submitting processes, four at a time, and kills each at a
// random moment of its third or fourth submission. It returns how many died by
// that.
func (w *world) kill(n int) int {
	w.Helper()
	lives := make(chan float64, n) // in submissions
	for range n {
		lives <- 2 * w.random.Float64()
	}
	close(lives)
	var mu sync.Mutex
	killed := 0
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for life := range lives {
				if w.liveAndDie(life) {
					mu.Lock()
					killed++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return killed
}

// liveAndDie reports whether a process that submitted died by SIGKILL.
func (w *world) liveAndDie(life float64) bool {
	text, err := json.Marshal(w.submission)
	if err != nil {
		w.Error(err)
		return false
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), submitterVariable+"="+string(text))
	var complaint strings.Builder
	command.Stderr = &complaint
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		w.Error(err)
		return false
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		var one int64 // one submission, in microseconds
		one, err = strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		<-time.After(time.Duration(life * float64(one) * float64(time.Microsecond)))
	}
	killErr := command.Process.Kill()
	waitErr := command.Wait()
	var exit *exec.ExitError
	if err == nil && killErr == nil && errors.As(waitErr, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return true
		}
	}
	w.Errorf("a submitter did not live to be killed: %v, %v, %v: %s", err, killErr, waitErr, complaint.String())
	return false
}

// makeDue makes every open intent due, and ends the lease of every other sweep.
func (w *world) makeDue() error {
	return w.db.Tx(context.Background(), func(tx *database.Tx) error {
		return tx.Exec(`UPDATE edge_worker_outbox SET next_attempt_at = IF(status = 'pending', '2020-01-01 00:15:00', NULL),
			lease_expires_at = IF(status = 'leased', '2020-01-01 00:00:00', NULL)
			WHERE operation = 'artifact_cleanup' AND status IN ('pending', 'leased')`).Error
	})
}

// passTime ends the grace, the pause or the lease of every open intent.
func (w *world) passTime() error {
	return w.db.Tx(context.Background(), func(tx *database.Tx) error {
		return tx.Exec(`UPDATE edge_worker_outbox SET created_at = '2020-01-01 00:00:00', next_attempt_at = IF(status = 'pending', '2020-01-01 00:15:00', NULL),
			lease_expires_at = IF(status = 'leased', '2020-01-01 00:00:00', NULL)
			WHERE operation = 'artifact_cleanup' AND status IN ('pending', 'leased')`).Error
	})
}

func (w *world) cleaner() *reconcile.Cleaner {
	w.Helper()
	store, err := w.submission.Store.open(nil)
	w.ok(err)
	return w.cleanerOn(store)
}

func (w *world) cleanerOn(store artifact.Store) *reconcile.Cleaner {
	w.Helper()
	c, err := reconcile.NewCleaner(reconcile.CleanupParams{
		DB: w.db, Outbox: w.outbox, Store: func() (artifact.Store, error) { return store, nil }, Owner: "sweep-" + uuid.NewString()[:8], Log: slog.New(slog.DiscardHandler),
	})
	w.ok(err)
	return c
}

// sweepAlways runs sweeps over intents that are due at once until what it
// returns is called.
func (w *world) sweepAlways() func() {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	var group sync.WaitGroup
	for range 2 {
		cleaner := w.cleaner()
		group.Go(func() {
			for ctx.Err() == nil {
				err := w.makeDue()
				if err == nil {
					_, err = cleaner.RunOnce(ctx, time.Minute)
				}
				if err != nil && ctx.Err() == nil {
					w.Error(err)
				}
				<-time.After(50 * time.Millisecond) // the store has other work too
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// sweepAll sweeps until no intent is open.
func (w *world) sweepAll() {
	w.Helper()
	cleaner := w.cleaner()
	for range 1000 {
		if len(w.intents(models.OutboxPending))+len(w.intents(models.OutboxLeased)) == 0 {
			return
		}
		w.ok(w.passTime())
		_, err := cleaner.RunOnce(w.Context(), time.Minute)
		w.ok(err)
	}
	w.Error("intents stay open")
}

// intents lists the cleanup rows of a status; all for "".
func (w *world) intents(status models.OutboxStatus) []models.Outbox {
	w.Helper()
	query := w.submission.Tenant.Own(w.db.Read(w.Context())).Where("operation = ?", models.OperationArtifactCleanup)
	if status != "" {
		query = query.Where("status = ?", status)
	}
	var rows []models.Outbox
	w.ok(query.Find(&rows).Error)
	return rows
}

func (w *world) versions() []models.Version {
	w.Helper()
	var rows []models.Version
	w.ok(w.submission.Tenant.Own(w.db.Read(w.Context())).Select("id", "artifact_id", "project_object_key", "bundle_object_key").Find(&rows).Error)
	return rows
}

// covered checks that every object has a version or an open intent. The
// objects are listed first: what comes later is not looked for.
func (w *world) covered() {
	w.Helper()
	objects := w.list()
	spoken := map[string]bool{}
	for _, v := range w.versions() {
		spoken[v.ProjectObjectKey], spoken[v.BundleObjectKey] = true, true
	}
	for _, row := range slices.Concat(w.intents(models.OutboxPending), w.intents(models.OutboxLeased)) {
		payload, err := outbox.DecodeCleanup(row)
		w.ok(err)
		for _, key := range payload.Keys() {
			spoken[key] = true
		}
	}
	for _, key := range objects {
		if !spoken[key] {
			w.Errorf("nothing speaks of %s", key)
		}
	}
}

// settled checks the end: the bucket holds the versions' objects and nothing
// else, and each submission that began has one intent with its end.
func (w *world) settled() {
	w.Helper()
	stored := map[string]bool{}
	for _, key := range w.list() {
		stored[key] = true
	}
	adopted := map[string]string{}
	for _, v := range w.versions() {
		adopted[outbox.CleanupDedupeKey(v.ArtifactID)] = v.ID
		for _, key := range []string{v.ProjectObjectKey, v.BundleObjectKey} {
			if !stored[key] {
				w.Errorf("version %s lacks %s", v.ID, key)
			}
			delete(stored, key)
		}
	}
	for key := range stored {
		w.Errorf("orphan %s", key)
	}
	for _, row := range w.intents("") {
		want := models.OutboxCompleted
		if adopted[row.DedupeKey] != "" {
			want = models.OutboxCancelled
		}
		if row.Status != want || row.VersionID != adopted[row.DedupeKey] {
			w.Errorf("the intent %s is %s and points to %q", row.DedupeKey, row.Status, row.VersionID)
		}
		delete(adopted, row.DedupeKey)
	}
	for key := range adopted {
		w.Errorf("the intent %s is lost", key)
	}
}
