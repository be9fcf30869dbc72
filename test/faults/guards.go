package faults

// Control is one positive control: a node that lacks a guard, the cell that
// shows it, and the invariant that must be reported as violated.
type Control struct {
	Guard      string
	Cell       Cell
	Everywhere bool // every process of the story lacks the guard, not only the one with the fault
	Invariant  string
}

// Controls shows for each invariant that the checker can fail.
var Controls = []Control{
	{"publication", cell(SceneAdmit, "admitCommit", Kill, After), true, "I1"},
	{"lease", cell(SceneRun, "settle", Stall, Before), false, "I2"},
	{"lease", cell(SceneRun, "settle", Stall, Before), false, "audit"},
	{"terminal row", cell(SceneRun, "claimDone", Error, After), true, "I3"},
	{"one upload", cell(SceneRun, "claimDone", Error, After), false, "I4"},
	{"reads only", cell(SceneRepair, "repairCommit", Error, Before), true, "I5"},
	{"intent first", cell(SceneSubmit, "submitProject", Kill, After), false, "I7"},
	{"late writer", cell(SceneSubmit, "submitBundle", Stall, Before), true, "I7"},
	{"attempts", cell(SceneRun, "claimDone", Error, After), false, "I8"},
	{"acknowledgement", cell(SceneRun, "fence", Error, After), false, "I9"},
	{"mark", cell(SceneSweep, "recoveryClaim", Error, Before), true, "I10"},
	{"probe", cell(SceneRun, "claimDone", Error, After), false, "truth"},
	{"fence", cell(SceneRun, "upload", Error, After), false, "truth"},
}

func cell(scene Scene, step string, mode Mode, side Side) Cell {
	for _, c := range Cells() {
		if c.Scene == scene && c.Step.Name == step && c.Mode == mode && c.Side == side {
			return c
		}
	}
	return Cell{}
}

// Guards are what a broken node can lack. One that stands in several places
// has several entries.
var Guards = []Guard{
	{"publication", "pkg/admission/admission.go",
		`err = publisher.Publish(`, `if failpoint.Broken("publication") { return nil }; err = publisher.Publish(`},
	{"lease", "pkg/outbox/lease.go",
		"if rows != 1 {\n\t\treturn ErrLeaseLost", "if rows != 1 && !failpoint.Broken(\"lease\") {\n\t\treturn ErrLeaseLost"},
	{"lease", "pkg/outbox/held.go",
		`tx.NowSQL(), tx.ForUpdate())`,
		`map[bool]string{false: tx.NowSQL(), true: "'1970-01-01' OR o.id = '" + lease.OutboxID + "'"}[failpoint.Broken("lease")], tx.ForUpdate())`},
	{"lease", "pkg/database/tx.go",
		`if result.RowsAffected != 1 {`, `if result.RowsAffected != 1 && !failpoint.Broken("lease") {`},
	{"terminal row", "pkg/outbox/lease.go",
		`case row.Status.Released() ||`, `case !failpoint.Broken("terminal row") && row.Status.Released() ||`},
	{"terminal row", "pkg/deploy/task.go",
		`return len(rows) == 0 || rows[0].Status.Released()`, `return len(rows) == 0 || !failpoint.Broken("terminal row") && rows[0].Status.Released()`},
	{"one upload", "pkg/deploy/work.go",
		`err = target.Upload(ctx, r.release)`, `err = target.Upload(ctx, r.release); if failpoint.Broken("one upload") { err = target.Upload(ctx, r.release) }`},
	{"reads only", "pkg/deploy/work.go",
		"r.mirror(ctx, ticket.Deploying)\n\treturn r.confirm(",
		"if failpoint.Broken(\"reads only\") {\n" +
			"\t\tr.release.Bundle, _ = r.readObject(ctx, \"bundle\", r.version.BundleObjectKey, r.version.BundleSize, r.version.BundleDigest)\n" +
			"\t\t_ = target.Upload(ctx, r.release)\n\t}\n\tr.mirror(ctx, ticket.Deploying)\n\treturn r.confirm("},
	{"intent first", "pkg/version/submit.go",
		`err := s.p.Outbox.CreateCleanupIntent(ctx, l.intent)`,
		`var err error; if !failpoint.Broken("intent first") { err = s.p.Outbox.CreateCleanupIntent(ctx, l.intent) }`},
	{"late writer", "pkg/outbox/cleanup.go",
		"models.OutboxLeased, models.OutboxCompleted}).\n\t\t\tUpdateColumns(",
		"models.OutboxLeased, map[bool]models.OutboxStatus{false: models.OutboxCompleted, true: \"never\"}[failpoint.Broken(\"late writer\")]}).\n\t\t\tUpdateColumns("},
	// One object after the other, so that the stop finds the first one stored.
	{"late writer", "pkg/version/submit.go",
		`group.Go(func() error { return s.put(ctx, object) })`,
		`if failpoint.Broken("late writer") { if err := s.put(ctx, object); err != nil { return err }; continue }; group.Go(func() error { return s.put(ctx, object) })`},
	{"attempts", "pkg/outbox/lease.go",
		`attempts++`, `if !failpoint.Broken("attempts") { attempts++ }`},
	{"acknowledgement", "pkg/deploy/settle.go",
		`return fmt.Errorf("%w: %w", ErrRetry, out.cause)`,
		`if failpoint.Broken("acknowledgement") { return nil }; return fmt.Errorf("%w: %w", ErrRetry, out.cause)`},
	{"mark", "pkg/outbox/recover.go",
		`candidates(tx.SkipLocked())`, `candidates(func() *gorm.DB { if failpoint.Broken("mark") { return tx.DB }; return tx.SkipLocked() }())`},
	{"mark", "pkg/outbox/recover.go",
		`models.OutboxPending, now, now.Add(-c.Grace)`,
		`models.OutboxPending, func() time.Time { if failpoint.Broken("mark") { return now.Add(time.Hour) }; return now }(), now.Add(-c.Grace)`},
	{"probe", "pkg/deploy/work.go",
		`err = gate.wait(ctx)`, `if !failpoint.Broken("probe") { err = gate.wait(ctx) }`},
	{"fence", "pkg/deploy/ladder.go",
		"func (r *run) undecided(code string, err error) outcome {\n\tif r.fenced() {",
		"func (r *run) undecided(code string, err error) outcome {\n\tif r.fenced() && !failpoint.Broken(\"fence\") {"},
}
