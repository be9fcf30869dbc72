package transporttest

import (
	"fmt"
	"strings"
)

// Canary is in each poison message and must be in no log.
const Canary = "canary-9c1f"

// Poison gives messages that can never be run: no JSON, other JSON, wrong
// arguments, another function, noise of the size that brokers take. None is
// empty, because some brokers take no empty message.
func Poison() [][]byte {
	const function = `"function":"run_edge_worker_deployment"`
	texts := []string{
		`{"job_id":"` + Canary, Canary, `null`, `"` + Canary + `"`, `["` + Canary + `"]`, `{"` + Canary + `":1}`,
		fmt.Sprintf(`{"job_id":"%s",%s,"args":["a","b","%s"]}`, Canary, function, Canary),
		fmt.Sprintf(`{"job_id":"%s",%s,"args":["a","b","c","%s","e"]}`, Canary, function, Canary),
		fmt.Sprintf(`{"job_id":"%s",%s,"args":["","b","c","%s"]}`, Canary, function, Canary),
		fmt.Sprintf(`{"job_id":"",%s,"args":["a","b","%s",""]}`, function, Canary),
		fmt.Sprintf(`{"job_id":"%s",%s,"args":["a",null,"c","%s"]}`, Canary, function, Canary),
		fmt.Sprintf(`{"job_id":"%s",%s,"args":["a",{"x":1},"c","%s"]}`, Canary, function, Canary),
		fmt.Sprintf(`{"job_id":"%s",%s,"args":"%s"}`, Canary, function, Canary),
		fmt.Sprintf(`{"job_id":"%s","function":"os.system","args":["a","b","c","%s"]}`, Canary, Canary),
		fmt.Sprintf(`{"job_id":"another",%s,"args":["a","b","c","%s"]}`, function, Canary),
		fmt.Sprintf(`{"job_id":"%s",%s,"args":["a","b","c","%s"]} {}`, Canary, function, Canary),
		strings.Repeat(`[`, 100_000) + Canary,
		strings.Repeat(Canary, 256<<10/len(Canary)-1),
	}
	raw := make([][]byte, 0, len(texts))
	for _, text := range texts {
		raw = append(raw, []byte(text))
	}
	return raw
}
