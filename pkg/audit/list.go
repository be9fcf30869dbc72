package audit

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// Page bounds.
const (
	DefaultPage = 20
	MaxPage     = 100
)

var errCursor = fault.Refuse(fault.Problem{Type: "cursor_invalid", Loc: []any{"query", "cursor"}, Msg: "cursor is not one that this list has given"})

// Filter narrows a list; its zero fields narrow nothing.
type Filter struct {
	Action     string
	ResourceID string
	Since      time.Time // inclusive
	Until      time.Time // exclusive
}

// Page is one page of facts, newest first. Next is empty at the end.
type Page struct {
	Items []models.AuditLog
	Next  string
}

// List reads a page of a department's facts. limit 0 means DefaultPage; it is
// clamped to MaxPage.
func List(ctx context.Context, db *database.DB, tenant models.Tenant, f Filter, cursor string, limit int) (Page, error) {
	return list(tenant.Own(db.Read(ctx)), f, cursor, limit)
}

// ListCompany reads a page of the facts of all of a company's departments.
func ListCompany(ctx context.Context, db *database.DB, companyID string, f Filter, cursor string, limit int) (Page, error) {
	return list(db.Read(ctx).Where("company_id = ?", companyID), f, cursor, limit)
}

func list(query *gorm.DB, f Filter, cursor string, limit int) (Page, error) {
	if limit <= 0 {
		limit = DefaultPage
	}
	limit = min(limit, MaxPage)
	if f.Action != "" {
		query = query.Where("action = ?", f.Action)
	}
	if f.ResourceID != "" {
		query = query.Where("resource_id = ?", f.ResourceID)
	}
	if !f.Since.IsZero() {
		query = query.Where("created_at >= ?", f.Since.UTC())
	}
	if !f.Until.IsZero() {
		query = query.Where("created_at < ?", f.Until.UTC())
	}
	if cursor != "" {
		at, id, err := decodeCursor(cursor)
		if err != nil {
			return Page{}, err
		}
		query = query.Where("(created_at < ? OR (created_at = ? AND id < ?))", at, at, id)
	}
	var rows []models.AuditLog
	err := query.Order("created_at DESC, id DESC").Limit(limit + 1).Find(&rows).Error
	if err != nil {
		return Page{}, fmt.Errorf("list the audit facts: %w", err)
	}
	if len(rows) <= limit {
		return Page{Items: rows}, nil
	}
	rows = rows[:limit]
	return Page{Items: rows, Next: encodeCursor(rows[limit-1])}, nil
}

// A cursor names the last fact of its page by its time and id.
func encodeCursor(row models.AuditLog) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(row.CreatedAt.UnixMicro(), 10) + " " + row.ID))
}

func decodeCursor(cursor string) (time.Time, string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return time.Time{}, "", errCursor
	}
	text, id, found := strings.Cut(string(raw), " ")
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !found || id == "" || micros < 0 || micros > maxMicros {
		return time.Time{}, "", errCursor
	}
	return time.UnixMicro(micros).UTC(), id, nil
}

// maxMicros is the end of the year 9999, the last that a column holds.
const maxMicros = 253_402_300_799_999_999
