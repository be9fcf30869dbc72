package downgrade

import (
	"encoding/json"
	"fmt"
	"strings"
)

// traces names each place of the control plane that holds the text: tables,
// Redis keys, messages, and the log of the task and the edge host.
func (s *system) traces(text string) string {
	s.T.Helper()
	var hits []string
	look := func(where, content string) {
		if strings.Contains(content, text) {
			hits = append(hits, where)
		}
	}
	look("log", s.log.String())
	messages, err := json.Marshal(s.Published.Messages())
	s.must(err)
	look("messages", string(messages))
	s.lookInTables(look)
	s.lookInRedis(look)
	return strings.Join(hits, " ")
}

func (s *system) lookInTables(look func(where, content string)) {
	s.T.Helper()
	db := s.DB.Read(s.T.Context())
	var tables []string
	s.must(db.Raw("SHOW TABLES").Scan(&tables).Error)
	if len(tables) < 5 {
		s.T.Errorf("only %d tables", len(tables))
	}
	for _, table := range tables {
		var rows []map[string]any
		s.must(db.Table(table).Find(&rows).Error)
		for _, row := range rows {
			for column, value := range row {
				if raw, ok := value.([]byte); ok {
					value = string(raw)
				}
				look(table+"."+column, fmt.Sprint(value))
			}
		}
	}
}

func (s *system) lookInRedis(look func(where, content string)) {
	s.T.Helper()
	ctx := s.T.Context()
	keys := s.Redis.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		look("redis", key)
		switch kind := s.Redis.Type(ctx, key).Val(); kind {
		case "string":
			look("redis", s.Redis.Get(ctx, key).Val())
		case "hash":
			look("redis", fmt.Sprint(s.Redis.HGetAll(ctx, key).Val()))
		case "set":
			look("redis", fmt.Sprint(s.Redis.SMembers(ctx, key).Val()))
		case "zset":
			look("redis", fmt.Sprint(s.Redis.ZRange(ctx, key, 0, -1).Val()))
		case "list":
			look("redis", fmt.Sprint(s.Redis.LRange(ctx, key, 0, -1).Val()))
		case "none": // it ran out meanwhile
		default:
			s.T.Errorf("key %s is of kind %s", key, kind)
		}
	}
	s.must(keys.Err())
}
