package liveplane_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// checkSecrecy looks for the values of secrets, keys, passwords and salts
// wherever they must not be, and for what must be there (S1-171 to S1-173,
// S1-243 to S1-247, S3-59, S3-60).
func (w *world) checkSecrecy(sent []liveplane.Sent) {
	tables, redis, log, reads := w.tables(), w.inRedis(), w.log(), ""
	for _, s := range sent {
		if s.MutationID == "" {
			reads += s.Operation + string(s.Payload) + "\n"
		}
	}
	places := map[string]string{"tables": tables, "Redis": redis, "log": log, "commands that change nothing": reads}
	for name, text := range places {
		for _, canary := range append(w.canaries.items, "ewk_") {
			if strings.Contains(text, canary) {
				w.T.Errorf("%q is in the %s", canary, name)
			}
		}
	}
	if len(w.canaries.items) < 5 {
		w.T.Errorf("%d canaries", len(w.canaries.items))
	}
	kept := 0
	for _, canary := range w.canaries.items {
		if strings.Contains(tables, canonical.SHA256([]byte(canary))) {
			kept++
		}
	}
	if kept == 0 || !strings.Contains(log, w.Worker().ID) || !strings.Contains(redis, w.releases[0].ID) || !strings.Contains(reads, "control.receipt.get") {
		w.T.Errorf("the search would find nothing: %d digests, %d bytes of log, %d of Redis, %d of reads", kept, len(log), len(redis), len(reads))
	}
}

// tables is all that the database holds, as text.
func (w *world) tables() string {
	db := w.DB.Read(context.Background())
	var names []string
	w.Must(db.Raw("SHOW TABLES").Scan(&names).Error)
	out := ""
	for _, name := range names {
		var rows []map[string]any
		w.Must(db.Table(name).Find(&rows).Error)
		for _, row := range rows {
			for column, value := range row {
				if raw, isBytes := value.([]byte); isBytes {
					value = string(raw)
				}
				out += fmt.Sprintf("%s.%s: %v\n", name, column, value)
			}
		}
	}
	return out
}

// inRedis is every key with its value, as text. The server may be shared: keys
// of others come and go.
func (w *world) inRedis() string {
	ctx := context.Background()
	out := ""
	keys := w.Redis.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		out += key + ": "
		var value any
		switch kind := w.Redis.Type(ctx, key).Val(); kind {
		case "string":
			value = w.Redis.Get(ctx, key).Val()
		case "hash":
			value = w.Redis.HGetAll(ctx, key).Val()
		case "list":
			value = w.Redis.LRange(ctx, key, 0, -1).Val()
		case "set":
			value = w.Redis.SMembers(ctx, key).Val()
		case "zset":
			value = w.Redis.ZRangeArgs(ctx, redis.ZRangeArgs{Key: key, Start: 0, Stop: -1}).Val()
		case "none":
		default:
			w.T.Errorf("nobody looks into a %s of Redis", kind)
		}
		out += fmt.Sprintln(value)
	}
	w.Must(keys.Err())
	return out
}

// log is what was logged, and what callers were told.
func (w *world) log() string {
	out := w.logged.String()
	for _, c := range w.changes {
		if c.err != nil {
			out += c.err.Error() + "\n"
		}
	}
	return out
}
