package figures

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStages(t *testing.T) {
	t.Parallel()
	const text = `# TYPE edge_workers_deploy_stage_seconds histogram
edge_workers_deploy_stage_seconds_sum{stage="lease"} 0.25
edge_workers_deploy_stage_seconds_count{stage="lease"} 1
edge_workers_deploy_stage_seconds_sum{stage="upload"} 2
edge_workers_deploy_stage_seconds_count{stage="upload"} 1
# TYPE other histogram
other_sum{stage="fence"} 9
other_count{stage="fence"} 1
`
	stages, err := parseStages(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	spent := stages.Since(Stages{"upload": time.Second})
	if len(spent) != 2 || spent["lease"] != 250*time.Millisecond || spent["upload"] != time.Second {
		t.Errorf("stages = %v", spent)
	}
	if spent.Own() != 250*time.Millisecond {
		t.Errorf("own = %v", spent.Own())
	}
	if got := spent.Longest(); !slices.Equal(got, []string{"upload", "lease"}) {
		t.Errorf("longest = %v", got)
	}
	_, err = parseStages(strings.NewReader("no metrics {"))
	if err == nil {
		t.Error("nonsense was read")
	}
}

func TestMedians(t *testing.T) {
	t.Parallel()
	all := []Submission{
		{Whole: 30, Bundling: 10, Writing: 1}, {Whole: 10, Bundling: 30, Writing: 3}, {Whole: 20, Bundling: 20, Writing: 2},
	}
	middle := Submissions(all)
	if middle.Whole != 20 || middle.Bundling != 20 || middle.Writing != 2 {
		t.Errorf("medians = %+v", middle)
	}
	if got := (Submission{Whole: 33, Bundling: 20, Writing: 2}).Ratio(); got != 1.5 {
		t.Errorf("ratio = %v", got)
	}
}

// The bare work is the real one: a bundle with the runtime and the project's
// own code, and both objects in a store.
func TestBareWork(t *testing.T) {
	t.Parallel()
	bare, err := NewBare("../../examples/orders", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bare.Close() }()
	bundle, took, err := bare.bundle()
	if err != nil || took <= 0 {
		t.Fatalf("%v, %v", took, err)
	}
	for _, part := range []string{"TeamSyncDepartmentStorage", "There is no product"} {
		if !strings.Contains(string(bundle), part) {
			t.Errorf("the bundle has no %q", part)
		}
	}
	for range 2 { // each time under a new name: nothing is overwritten or spared
		bundling, writing, err := bare.Once(t.Context())
		if err != nil || bundling <= 0 || writing <= 0 {
			t.Errorf("%v, %v, %v", bundling, writing, err)
		}
	}
	if bare.writes != 2 {
		t.Errorf("%d writes", bare.writes)
	}
}
