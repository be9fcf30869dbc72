package runtime_test

import (
	"testing"

	"github.com/google/uuid"
)

func BenchmarkCommand(b *testing.B) {
	built := files(b, `[{"id":"nothing","method":"POST","path":"/nothing"}]`, map[string]string{"index.js": `export default { nothing: () => 1 };`})
	w := mustStart(b, built.out.Bundle, b.TempDir())
	for b.Loop() {
		if got := built.command(b, w, "access_policy.get", "{}"); got.status != 200 {
			b.Fatal(got)
		}
	}
}

// A mutation with its receipt.
func BenchmarkMutation(b *testing.B) {
	built := files(b, `[{"id":"nothing","method":"POST","path":"/nothing"}]`, map[string]string{"index.js": `export default { nothing: () => 1 };`})
	w := mustStart(b, built.out.Bundle, b.TempDir())
	for b.Loop() {
		if got := built.mutate(b, w, "secrets.put", uuid.NewString(), putSecret("A", "x")); got.status != 200 {
			b.Fatal(got)
		}
	}
}
