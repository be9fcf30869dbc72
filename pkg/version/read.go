package version

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// The answers for rows that the tenant does not have; another tenant's row
// gets the same one (D4).
var (
	ErrNoWorker  = fault.New(fault.NotFound, "Department Worker not found")
	ErrNoVersion = fault.New(fault.NotFound, "Worker version not found")
	errCursor    = fault.Refuse(fault.Problem{Type: "cursor_invalid", Loc: []any{"query", "cursor"}, Msg: "cursor is not one that this list has given"})
)

// Page bounds.
const (
	DefaultPage = 20
	MaxPage     = 100
)

// WorkerOf reads the tenant's Worker.
func WorkerOf(query *gorm.DB, tenant models.Tenant) (models.Worker, error) {
	var rows []models.Worker
	err := tenant.Own(query).Limit(1).Find(&rows).Error
	if err != nil {
		return models.Worker{}, fmt.Errorf("read the Worker: %w", err)
	}
	if len(rows) == 0 {
		return models.Worker{}, ErrNoWorker
	}
	return rows[0], nil
}

// Of reads one of the tenant's versions. The id is compared here once more:
// MariaDB's comparison ignores trailing spaces.
func Of(query *gorm.DB, tenant models.Tenant, id string) (models.Version, error) {
	var rows []models.Version
	err := tenant.Own(query).Where("id = ?", id).Limit(1).Find(&rows).Error
	if err != nil {
		return models.Version{}, fmt.Errorf("read the version: %w", err)
	}
	if len(rows) == 0 || rows[0].ID != id {
		return models.Version{}, ErrNoVersion
	}
	return rows[0], nil
}

// Owners tells which of the object keys the tenant's versions reference, and
// by which version each (S0-77, S1-145). A key counts in either column.
func Owners(query *gorm.DB, tenant models.Tenant, keys []string) (map[string]string, error) {
	var rows []models.Version
	err := tenant.Own(query).Select("id", "project_object_key", "bundle_object_key").
		Where("(project_object_key IN ? OR bundle_object_key IN ?)", keys, keys).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("look for the owners of stored objects: %w", err)
	}
	owners := map[string]string{}
	for _, key := range keys {
		for _, row := range rows {
			if key != "" && (row.ProjectObjectKey == key || row.BundleObjectKey == key) {
				owners[key] = row.ID
			}
		}
	}
	return owners, nil
}

// Page is one page of a list, newest revision first. Next is empty at the end.
type Page struct {
	Items []models.Version
	Next  string
}

// List reads a page of the tenant's versions without their documents. limit 0
// means DefaultPage; it is clamped to MaxPage.
func List(ctx context.Context, db *database.DB, tenant models.Tenant, cursor string, limit int) (Page, error) {
	if limit <= 0 {
		limit = DefaultPage
	}
	limit = min(limit, MaxPage)
	query := tenant.Own(db.Read(ctx)).Omit("sbom", "build_receipt")
	if cursor != "" {
		before, err := decodeCursor(cursor)
		if err != nil {
			return Page{}, err
		}
		query = query.Where("revision < ?", before)
	}
	var rows []models.Version
	err := query.Order("revision DESC").Limit(limit + 1).Find(&rows).Error
	if err != nil {
		return Page{}, fmt.Errorf("list the versions: %w", err)
	}
	if len(rows) <= limit {
		return Page{Items: rows}, nil
	}
	rows = rows[:limit]
	return Page{Items: rows, Next: encodeCursor(rows[limit-1].Revision)}, nil
}

func encodeCursor(revision int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte("r" + strconv.FormatInt(revision, 10)))
}

func decodeCursor(cursor string) (int64, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < 2 || raw[0] != 'r' {
		return 0, errCursor
	}
	revision, err := strconv.ParseInt(string(raw[1:]), 10, 64)
	if err != nil {
		return 0, errCursor
	}
	return revision, nil
}
