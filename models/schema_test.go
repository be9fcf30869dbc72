package models_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
)

// column is one column as the database describes it.
type column struct {
	table, name, kind string
	nullable          bool
	fallback          *string // the server default
	key, generated    bool
}

func (c column) text() bool {
	return strings.Contains(c.kind, "text") || strings.Contains(c.kind, "blob")
}

var tableNames = []string{"companies", "departments", "edge_workers", "edge_worker_versions", "edge_worker_outbox", "edge_worker_audit_logs", "edge_worker_maintenance"}

func isSQLite(db *gorm.DB) bool { return db.Name() == "sqlite" }

func scan[T any](t *testing.T, db *gorm.DB, sql string, args ...any) []T {
	t.Helper()
	var rows []T
	err := db.Raw(sql, args...).Scan(&rows).Error
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

func columns(t *testing.T, db *gorm.DB, table string) []column {
	t.Helper()
	type row struct {
		Name     string
		Kind     string
		Nullable bool
		Fallback *string
		IsKey    bool
		Extra    int
	}
	query := `SELECT column_name AS name, column_type AS kind, is_nullable = 'YES' AS nullable, column_default AS fallback,
		column_key = 'PRI' AS is_key, (extra LIKE '%GENERATED%') AS extra
		FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position`
	if isSQLite(db) {
		query = `SELECT name, lower(type) AS kind, "notnull" = 0 AS nullable, dflt_value AS fallback, pk > 0 AS is_key, hidden AS extra FROM pragma_table_xinfo(?)`
	}
	var out []column
	for _, r := range scan[row](t, db, query, table) {
		fallback := r.Fallback
		if fallback != nil && *fallback == "NULL" { // MariaDB's spelling of none
			fallback = nil
		}
		out = append(out, column{table, r.Name, r.Kind, r.Nullable, fallback, r.IsKey, r.Extra != 0})
	}
	if len(out) == 0 {
		t.Fatalf("table %s has no columns", table)
	}
	return out
}

// indexes returns name → columns in order, unique ones with a leading "U ".
func indexes(t *testing.T, db *gorm.DB, table string) map[string]string {
	t.Helper()
	type row struct {
		Name   string
		Col    string
		Unique bool
	}
	query := `SELECT index_name AS name, column_name AS col, non_unique = 0 AS "unique" FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = ? AND index_name <> 'PRIMARY' ORDER BY index_name, seq_in_index`
	if isSQLite(db) {
		query = `SELECT l.name AS name, i.name AS col, l."unique" AS "unique" FROM pragma_index_list(?) l, pragma_index_info(l.name) i
			WHERE l.origin <> 'pk' ORDER BY l.name, i.seqno`
	} else {
		query = strings.ReplaceAll(query, `"`, "`")
	}
	out := map[string]string{}
	for _, r := range scan[row](t, db, query, table) {
		prefix := ""
		if r.Unique {
			prefix = "U "
		}
		if out[r.Name] != "" {
			out[r.Name] += "," + r.Col
			continue
		}
		out[r.Name] = prefix + r.Col
	}
	return out
}

// foreignKeys returns "table.column → table (delete rule)" of every table.
func foreignKeys(t *testing.T, db *gorm.DB) []string {
	t.Helper()
	if !isSQLite(db) {
		return scan[string](t, db, `SELECT CONCAT(k.table_name, '.', k.column_name, ' → ', k.referenced_table_name, ' (', r.delete_rule, ')')
			FROM information_schema.key_column_usage k JOIN information_schema.referential_constraints r
			ON r.constraint_schema = k.table_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name
			WHERE k.table_schema = DATABASE() AND k.referenced_table_name IS NOT NULL ORDER BY 1`)
	}
	var out []string
	for _, table := range tableNames {
		out = append(out, scan[string](t, db, fmt.Sprintf(`SELECT '%s.' || "from" || ' → ' || "table" || ' (' || on_delete || ')' FROM pragma_foreign_key_list('%s')`, table, table))...)
	}
	slices.Sort(out)
	return out
}

// S3-01, S3-04, S3-12, S3-14, S3-15, S3-24, S3-25, S3-26, S3-35, S3-37, S3-38,
// S3-42, S3-43, S3-44, S3-54, S3-61, S3-62, S3-63: every named index and
// constraint with its columns in order, and no other.
func TestSchemaIndexes(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]string{
		"edge_workers": {
			"uq_edge_worker_department":         "U department_id",
			"uq_edge_worker_script_name":        "U script_name",
			"ix_edge_worker_company_department": "company_id,department_id",
		},
		"edge_worker_versions": {
			"uq_edge_worker_version_revision": "U worker_id,revision",
			"ix_edge_worker_version_tenant":   "company_id,department_id,worker_id",
			"ix_edge_worker_version_state":    "company_id,department_id,state",
		},
		"edge_worker_outbox": {
			"uq_edge_worker_outbox_dedupe":                    "U operation,dedupe_key",
			"uq_edge_worker_outbox_ticket":                    "U ticket_id",
			"uq_edge_worker_outbox_active_deployment_worker":  "U active_deployment_worker_id",
			"ix_edge_worker_outbox_pending":                   "status,next_attempt_at",
			"ix_edge_worker_outbox_tenant":                    "company_id,department_id,status",
			"ix_edge_worker_outbox_worker_operation_sequence": "worker_id,operation,admission_sequence",
		},
		"edge_worker_audit_logs": {
			"ix_edge_worker_audit_tenant_created": "company_id,department_id,created_at",
			"ix_edge_worker_audit_resource":       "resource_type,resource_id",
		},
		"edge_worker_maintenance": {},
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for table, indexesWanted := range want {
			got := indexes(t, db.Read(context.Background()), table)
			for name, cols := range indexesWanted {
				if got[name] != cols {
					t.Errorf("%s: index %s = %q, want %q", table, name, got[name], cols)
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("%s: unexpected indexes %v", table, got)
			}
		}
	})
}

// S3-06 to S3-09: each NOT NULL column that is neither TEXT nor key has a
// literal default or now(); TEXT is nullable and has none. S3-19, S3-29, S3-64.
func TestSchemaDefaults(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		checked := 0
		for _, table := range tableNames {
			for _, c := range columns(t, db.Read(context.Background()), table) {
				checked++
				checkColumn(t, c)
			}
		}
		if checked < 80 {
			t.Fatalf("only %d columns were read back", checked)
		}
		for _, c := range columns(t, db.Read(context.Background()), "edge_worker_audit_logs") {
			if c.name == "updated_at" {
				t.Error("edge_worker_audit_logs has updated_at")
			}
		}
	})
}

func checkColumn(t *testing.T, c column) {
	t.Helper()
	where := c.table + "." + c.name
	switch {
	case c.key || c.generated:
	case c.text():
		if !c.nullable || c.fallback != nil {
			t.Errorf("%s: TEXT must be nullable without a default", where)
		}
	case c.nullable:
		if c.fallback != nil {
			t.Errorf("%s: nullable with default %s", where, *c.fallback)
		}
	case c.fallback == nil:
		t.Errorf("%s: NOT NULL without a server default", where)
	case strings.HasPrefix(c.kind, "datetime"):
		f := strings.ToLower(*c.fallback)
		if !strings.HasPrefix(f, "current_timestamp(6)") && !strings.HasPrefix(f, "strftime('%y-%m-%d %h:%m:%f000+00:00','now')") {
			t.Errorf("%s: timestamp default %s is not now", where, *c.fallback)
		}
	default:
		if strings.ContainsAny(*c.fallback, "()") {
			t.Errorf("%s: default %s is no literal", where, *c.fallback)
		}
	}
	if where == "edge_workers.script_name" && c.kind != "varchar(63)" {
		t.Errorf("script_name is %s", c.kind)
	}
	if where == "edge_worker_versions.state" && strings.Trim(*c.fallback, `'"`) != "uploading" {
		t.Errorf("state defaults to %s", *c.fallback)
	}
}

// S3-70, S3-71, S3-72: exactly these foreign keys on the five tables, and the
// minimal departments table's own.
func TestSchemaForeignKeys(t *testing.T) {
	t.Parallel()
	want := []string{
		"departments.company_id → companies (CASCADE)",
		"edge_worker_versions.worker_id → edge_workers (CASCADE)",
		"edge_workers.company_id → companies (CASCADE)",
		"edge_workers.department_id → departments (CASCADE)",
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		got := foreignKeys(t, db.Read(context.Background()))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("foreign keys\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// S3-02, S3-03: a second run issues no DDL, and an existing table that lacks
// a column keeps lacking it.
func TestSchemaIsCreateOnly(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(testing.TB) string{"mysql": func(t testing.TB) string { return databasetest.MySQLURL(t) }, "sqlite": databasetest.SQLiteURL} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var ddl []string
			db := databasetest.Bare(t, database.Params{URL: url(t), Trace: func(sql string) {
				head := strings.ToUpper(strings.TrimSpace(sql))
				if strings.HasPrefix(head, "CREATE") || strings.HasPrefix(head, "ALTER") || strings.HasPrefix(head, "DROP") {
					mu.Lock()
					defer mu.Unlock()
					ddl = append(ddl, head)
				}
			}})
			ctx := context.Background()
			err := db.Read(ctx).Exec("CREATE TABLE edge_worker_maintenance (scope varchar(64) PRIMARY KEY)").Error
			if err != nil {
				t.Fatal(err)
			}
			err = db.CreateMissing(ctx)
			if err != nil {
				t.Fatal(err)
			}
			created := len(ddl)
			if created < len(tableNames) {
				t.Fatalf("only %d DDL statements were seen", created) // the positive control
			}
			err = db.CreateMissing(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(ddl) != created {
				t.Errorf("the second run issued DDL: %v", ddl[created:])
			}
			for _, s := range ddl {
				if strings.HasPrefix(s, "ALTER") {
					t.Errorf("issued %s", s)
				}
			}
			if got := len(columns(t, db.Read(ctx), "edge_worker_maintenance")); got != 1 {
				t.Errorf("the old table has %d columns now", got)
			}
		})
	}
}

// Several processes may create the schema at once.
func TestSchemaConcurrentCreation(t *testing.T) {
	t.Parallel()
	url := databasetest.MySQLURL(t)
	errs := make(chan error, 6)
	for range cap(errs) {
		go func() {
			db, err := database.Open(context.Background(), database.Params{URL: url})
			if err != nil {
				errs <- err
				return
			}
			err = db.CreateMissing(context.Background())
			_ = db.Close()
			errs <- err
		}()
	}
	for range cap(errs) {
		err := <-errs
		if err != nil {
			t.Error(err)
		}
	}
}
