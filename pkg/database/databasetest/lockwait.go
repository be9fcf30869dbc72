package databasetest

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/database"
)

// lockWaitLimit is shorter than the lock wait of the pools, so that a test that
// waits in vain says so before the waiter is given up.
const lockWaitLimit = 4 * time.Second

var threadID = regexp.MustCompile(`thread id (\d+)`)

// AwaitLockWait returns when a transaction of db's own database waits for a
// lock. It reads the engine's report: information_schema.innodb_trx is a copy
// that is not renewed while anyone keeps reading it.
func AwaitLockWait(t testing.TB, db *database.DB) {
	t.Helper()
	err := LockWait(t.Context(), db)
	if err != nil {
		t.Fatalf("nobody waits for a lock: %v", err)
	}
}

// LockWait is AwaitLockWait for a goroutine, which must not end the test.
func LockWait(ctx context.Context, db *database.DB) error {
	ctx, cancel := context.WithTimeout(ctx, lockWaitLimit)
	defer cancel()
	for {
		waits, err := lockWait(ctx, db)
		if err != nil || waits {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func lockWait(ctx context.Context, db *database.DB) (bool, error) {
	var own []string
	err := db.Read(ctx).Raw("SELECT id FROM information_schema.processlist WHERE db = DATABASE()").Scan(&own).Error
	if err != nil {
		return false, err
	}
	var report struct {
		Status string `gorm:"column:Status"`
	}
	err = db.Read(ctx).Raw("SHOW ENGINE INNODB STATUS").Scan(&report).Error
	if err != nil {
		return false, err
	}
	for _, transaction := range strings.Split(report.Status, "---TRANSACTION")[1:] {
		id := threadID.FindStringSubmatch(transaction)
		if id != nil && strings.Contains(transaction, "LOCK WAIT") && slices.Contains(own, id[1]) {
			return true, nil
		}
	}
	return false, nil
}
