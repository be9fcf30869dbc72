package canonical_test

import (
	"math"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// RFC 8785: keys sorted by UTF-16 code units, no white space, ECMAScript
// numbers, and text as it is.
func TestTransform(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{ "b": 1, "a": [ true, null ] }`:                                                  `{"a":[true,null],"b":1}`,
		`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0]}`: `{"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27,0]}`,
		`"\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\/"`:                                  `"€$\u000f\nA'B\"\\\\\"/"`,
		`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`:      "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}",
		`[9007199254740992]`: `[9007199254740992]`,
		`{"<&>":"<&>"}`:      `{"<&>":"<&>"}`,
	} {
		got, err := canonical.Transform([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
		again, err := canonical.Transform(got)
		if err != nil || string(again) != want {
			t.Errorf("%s is not stable: %s, %v", in, again, err)
		}
	}
	for _, bad := range []string{"", "{", `{"a":1}x`, `{"a":1,"a":2}`, "[1,]"} {
		if got, err := canonical.Transform([]byte(bad)); err == nil {
			t.Errorf("%q became %s", bad, got)
		}
	}
}

// Values of equal content have equal bytes; HTML is not escaped; what JSON
// cannot hold fails.
func TestJSON(t *testing.T) {
	t.Parallel()
	type pair struct {
		B int    `json:"b"`
		A string `json:"a"`
	}
	left, err := canonical.JSON(pair{1, "<&>"})
	right, also := canonical.JSON(map[string]any{"a": "<&>", "b": 1})
	if err != nil || also != nil || string(left) != `{"a":"<&>","b":1}` || string(right) != string(left) {
		t.Errorf("%s %s %v %v", left, right, err, also)
	}
	for _, bad := range []any{math.NaN(), math.Inf(1), make(chan int), func() {}} {
		if _, err := canonical.JSON(bad); err == nil {
			t.Errorf("%T was encoded", bad)
		}
		if _, err := canonical.JSONDigest("d", bad); err == nil {
			t.Errorf("%T was hashed", bad)
		}
	}
}

// Golden digests, and domains that keep them apart.
func TestDigests(t *testing.T) {
	t.Parallel()
	if got := canonical.SHA256(nil); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Error(got)
	}
	if canonical.Digest("a", []byte("b")) != canonical.SHA256([]byte("a\x00b")) {
		t.Error("a digest is not the domain, a NUL byte and the data")
	}
	seen := map[string]bool{}
	for _, c := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"abc", ""}, {"a", "\x00bc"}} {
		seen[canonical.Digest(c[0], []byte(c[1]))] = true
	}
	if len(seen) != 5 {
		t.Error("two domains share a digest")
	}
	got, err := canonical.JSONDigest("d", map[string]int{"b": 1, "a": 2})
	if err != nil || got != canonical.Digest("d", []byte(`{"a":2,"b":1}`)) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestIsSHA256(t *testing.T) {
	t.Parallel()
	good := canonical.SHA256([]byte("x"))
	for s, want := range map[string]bool{
		good: true, "": false, good[:63]: false, good + "a": false, strings.ToUpper(good): false, good + "\n": false, "\n" + good: false,
		good[:63] + "g": false, good[:62] + "é": false, strings.Repeat("0", 64): true,
	} {
		if canonical.IsSHA256(s) != want {
			t.Errorf("%q", s)
		}
	}
}
