package artifacttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/canonical"
)

// Factory makes an empty backend that lives as long as the test.
type Factory func(t testing.TB) artifact.Backend

// Owner is the tenant that the suite stores for.
var Owner = artifact.Tenant{CompanyID: "company-a", DepartmentID: "department-a"}

// Foreigners are tenants that must never reach Owner's objects: another
// department of the company, another company, and a moved boundary.
var Foreigners = []artifact.Tenant{
	{CompanyID: "company-a", DepartmentID: "department-b"},
	{CompanyID: "company-b", DepartmentID: "department-a"},
	{CompanyID: "company-ad", DepartmentID: "epartment-a"},
}

// NewObject makes a valid object of Owner with the given content.
func NewObject(kind artifact.Kind, id string, content []byte) artifact.Object {
	return artifact.Object{Tenant: Owner, Kind: kind, ArtifactID: id, Digest: canonical.SHA256(content), Content: content}
}

// fixture is one backend behind the fence, with its calls counted.
type fixture struct {
	store   *artifact.Fenced
	backend *Counting
}

func newFixture(t testing.TB, factory Factory) fixture {
	t.Helper()
	counting := Count(factory(t))
	return fixture{store: artifact.NewFenced(counting), backend: counting}
}

// put stores the object and returns its key.
func (f fixture) put(t testing.TB, object artifact.Object) string {
	t.Helper()
	err := f.store.Put(t.Context(), object)
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	key, err := object.Key()
	if err != nil {
		t.Fatalf("key: %v", err)
	}
	return key
}

func (f fixture) wantContent(t testing.TB, object artifact.Object) {
	t.Helper()
	key, err := object.Key()
	if err != nil {
		t.Fatalf("key: %v", err)
	}
	got, err := f.store.Get(t.Context(), object.Tenant, object.Kind, key, 0)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if !bytes.Equal(got, object.Content) {
		t.Fatalf("stored %d bytes differ from the %d bytes put", len(got), len(object.Content))
	}
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// Run runs the conformance suite: what every backend must do behind the fence.
// The rule ids are those of S0.
func Run(t *testing.T, factory Factory) {
	t.Run("stores exactly what was put (S0-32 S0-35 S0-36 S0-39 S0-52 S0-53)", func(t *testing.T) { testRoundTrip(t, factory) })
	t.Run("attributes (S0-37 S0-40 S0-42)", func(t *testing.T) { testAttributes(t, factory) })
	t.Run("sizes (S0-38 S0-41)", func(t *testing.T) { testSizes(t, factory) })
	t.Run("refuses before writing", func(t *testing.T) { testPutRefusals(t, factory) })
	t.Run("fence (S0-44 S0-45 S0-46 S0-47)", func(t *testing.T) { testFence(t, factory) })
	t.Run("read bounds (S0-48)", func(t *testing.T) { testReadBounds(t, factory) })
	t.Run("immutable (S0-52)", func(t *testing.T) { testImmutable(t, factory) })
	t.Run("delete", func(t *testing.T) { testDelete(t, factory) })
	t.Run("unavailable", func(t *testing.T) { testUnavailable(t, factory) })
	t.Run("cancelled", func(t *testing.T) { testCancelled(t, factory) })
	t.Run("concurrent equal puts", func(t *testing.T) { testConcurrent(t, factory) })
	t.Run("racing different puts (S0-52)", func(t *testing.T) { testRacing(t, factory) })
}

func testRoundTrip(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	for _, kind := range []artifact.Kind{artifact.Project, artifact.Bundle} {
		object := NewObject(kind, "artifact-1", []byte("\x00\xff exact bytes of "+string(kind)+"\r\n"))
		key := f.put(t, object)
		f.wantContent(t, object)
		if !strings.HasSuffix(key, "."+kind.Extension()) {
			t.Errorf("%s key %q lacks its extension", kind, key)
		}
		last := f.backend.Calls()[len(f.backend.Calls())-1]
		if last != (Call{Method: "get", Key: key}) {
			t.Errorf("backend saw %v, want a get of %q", last, key)
		}
	}
	missing := NewObject(artifact.Project, "artifact-2", []byte("never stored"))
	key, _ := missing.Key()
	_, err := f.store.Get(t.Context(), Owner, artifact.Project, key, 0)
	wantError(t, "get of a missing object", err, artifact.ErrNotFound)
	_, err = f.backend.Stat(t.Context(), key)
	wantError(t, "stat of a missing object", err, artifact.ErrNotFound)
}

func testAttributes(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	for _, kind := range []artifact.Kind{artifact.Project, artifact.Bundle} {
		object := NewObject(kind, "artifact-1", []byte("content"))
		info, err := f.backend.Stat(t.Context(), f.put(t, object))
		if err != nil {
			t.Fatalf("stat: %v", err)
		}
		want := map[string]string{"sha256digest": object.Digest}
		if info.ContentType != kind.ContentType() || !maps.Equal(info.Metadata, want) {
			t.Errorf("%s attributes %+v, want content type %q and metadata %v", kind, info.Attributes, kind.ContentType(), want)
		}
		if info.Size != int64(len(object.Content)) {
			t.Errorf("%s size %d, want %d", kind, info.Size, len(object.Content))
		}
	}
}

func testSizes(t *testing.T, factory Factory) {
	for kind, max := range map[artifact.Kind]int64{artifact.Project: 2097152, artifact.Bundle: 5242880} {
		t.Run(string(kind), func(t *testing.T) {
			f := newFixture(t, factory)
			for _, size := range []int64{0, max + 1} {
				err := f.store.Put(t.Context(), NewObject(kind, "refused", make([]byte, size)))
				wantError(t, fmt.Sprintf("put of %d bytes", size), err, artifact.ErrInvalid)
			}
			if calls := f.backend.Calls(); len(calls) != 0 {
				t.Errorf("refused sizes reached the backend: %v", calls)
			}
			for _, size := range []int64{1, max} {
				object := NewObject(kind, "accepted", bytes.Repeat([]byte{'x'}, int(size)))
				f.put(t, object)
				f.wantContent(t, object)
			}
			if n := f.backend.Count("put"); n != 2 {
				t.Errorf("%d puts, want 2", n)
			}
		})
	}
}

func testPutRefusals(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	content := []byte("content")
	good := NewObject(artifact.Project, "artifact-1", content)
	cases := map[string]struct {
		change func(*artifact.Object)
		want   error
	}{
		"digest of other content": {func(o *artifact.Object) { o.Digest = canonical.SHA256([]byte("other")) }, artifact.ErrMismatch},
		"digest in upper case":    {func(o *artifact.Object) { o.Digest = strings.ToUpper(o.Digest) }, artifact.ErrInvalid},
		"no digest":               {func(o *artifact.Object) { o.Digest = "" }, artifact.ErrInvalid},
		"unknown kind":            {func(o *artifact.Object) { o.Kind = "source" }, artifact.ErrInvalid},
		"no artifact id":          {func(o *artifact.Object) { o.ArtifactID = "" }, artifact.ErrInvalid},
		"slash in artifact id":    {func(o *artifact.Object) { o.ArtifactID = "a/b" }, artifact.ErrInvalid},
		"dots in artifact id":     {func(o *artifact.Object) { o.ArtifactID = ".." }, artifact.ErrInvalid},
		"newline in artifact id":  {func(o *artifact.Object) { o.ArtifactID = "a\n" }, artifact.ErrInvalid},
		"long artifact id":        {func(o *artifact.Object) { o.ArtifactID = strings.Repeat("a", 65) }, artifact.ErrInvalid},
		"no company":              {func(o *artifact.Object) { o.Tenant.CompanyID = "" }, artifact.ErrInvalid},
		"no department":           {func(o *artifact.Object) { o.Tenant.DepartmentID = "" }, artifact.ErrInvalid},
		"separator in company":    {func(o *artifact.Object) { o.Tenant.CompanyID = "a\x00b" }, artifact.ErrInvalid},
	}
	for name, c := range cases {
		object := good
		c.change(&object)
		wantError(t, name, f.store.Put(t.Context(), object), c.want)
	}
	if calls := f.backend.Calls(); len(calls) != 0 {
		t.Errorf("refused objects reached the backend: %v", calls)
	}
	f.put(t, good)
	if n := f.backend.Count("put"); n != 1 {
		t.Errorf("the control put made %d backend puts, want 1", n)
	}
}

// ForeignKeys gives keys that Owner may neither read nor delete as kind
// Project, each derived from a valid own key.
func ForeignKeys(ownKey string) map[string]string {
	digest := strings.Repeat("a", 64)
	prefix := "edge-workers/" + Owner.Prefix() + "/project/"
	keys := map[string]string{
		"empty":                 "",
		"no root":               strings.TrimPrefix(ownKey, "edge-workers/"),
		"leading slash":         "/" + ownKey,
		"other kind":            strings.Replace(ownKey, "/project/", "/bundle/", 1),
		"prefix only":           prefix,
		"sub folder":            prefix + "x/" + digest + "-id.tar.gz",
		"traversal":             prefix + "../bundle/" + digest + "-id.mjs",
		"traversal to root":     prefix + "../../../" + ownKey,
		"encoded slash":         prefix + "..%2f" + digest + "-id.tar.gz",
		"backslash":             prefix + "..\\" + digest + "-id.tar.gz",
		"extension of a bundle": prefix + digest + "-id.mjs",
		"no extension":          prefix + digest + "-id",
		"short digest":          prefix + digest[1:] + "-id.tar.gz",
		"trailing newline":      ownKey + "\n",
		"NUL":                   ownKey + "\x00",
		"upper case prefix":     strings.Replace(ownKey, Owner.Prefix(), strings.ToUpper(Owner.Prefix()), 1),
		"shortened prefix":      strings.Replace(ownKey, Owner.Prefix(), Owner.Prefix()[:31], 1),
	}
	for i, tenant := range Foreigners {
		keys[fmt.Sprintf("tenant %d", i)] = strings.Replace(ownKey, Owner.Prefix(), tenant.Prefix(), 1)
	}
	return keys
}

func testFence(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Project, "artifact-1", []byte("owned"))
	key := f.put(t, object)
	before := len(f.backend.Calls())

	for name, foreign := range ForeignKeys(key) {
		_, err := f.store.Get(t.Context(), Owner, artifact.Project, foreign, 0)
		wantError(t, "get "+name, err, artifact.ErrForeignKey)
		err = f.store.Delete(t.Context(), Owner, artifact.Project, foreign)
		wantError(t, "delete "+name, err, artifact.ErrForeignKey)
	}
	for _, tenant := range Foreigners {
		_, err := f.store.Get(t.Context(), tenant, artifact.Project, key, 0)
		wantError(t, "get by a foreign tenant", err, artifact.ErrForeignKey)
		err = f.store.Delete(t.Context(), tenant, artifact.Project, key)
		wantError(t, "delete by a foreign tenant", err, artifact.ErrForeignKey)
	}
	_, err := f.store.Get(t.Context(), Owner, artifact.Bundle, key, 0)
	wantError(t, "get as the other kind", err, artifact.ErrForeignKey)
	_, err = f.store.Get(t.Context(), Owner, "source", key, 0)
	wantError(t, "get as an unknown kind", err, artifact.ErrInvalid)
	err = f.store.Delete(t.Context(), artifact.Tenant{}, artifact.Project, key)
	wantError(t, "delete by no tenant", err, artifact.ErrInvalid)

	if calls := f.backend.Calls()[before:]; len(calls) != 0 {
		t.Errorf("fenced calls reached the backend: %v", calls)
	}
	f.wantContent(t, object) // the control: the own key is read, and unchanged
	err = f.store.Delete(t.Context(), Owner, artifact.Project, key)
	if err != nil || f.backend.Count("delete") != 1 {
		t.Errorf("own delete: %v, %d backend deletes, want 1", err, f.backend.Count("delete"))
	}
}

func testReadBounds(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Bundle, "artifact-1", []byte("0123456789"))
	key := f.put(t, object)
	_, err := f.store.Get(t.Context(), Owner, artifact.Bundle, key, 9)
	wantError(t, "get with a bound one under the size", err, artifact.ErrTooLarge)
	_, err = f.store.Get(t.Context(), Owner, artifact.Bundle, key, -1)
	wantError(t, "get with a negative bound", err, artifact.ErrInvalid)
	for _, max := range []int64{0, 10, 11, 1 << 40} {
		got, err := f.store.Get(t.Context(), Owner, artifact.Bundle, key, max)
		if err != nil || !bytes.Equal(got, object.Content) {
			t.Errorf("get with bound %d: %q, %v", max, got, err)
		}
	}
}

func testImmutable(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Bundle, "artifact-1", []byte("first"))
	key := f.put(t, object)
	f.put(t, object) // an equal object again is fine
	attributes := artifact.Attributes{ContentType: artifact.Bundle.ContentType(), Metadata: map[string]string{artifact.MetadataDigest: object.Digest}}
	for _, other := range []string{"fIrst", "longer than the first", "f"} {
		err := f.backend.Put(t.Context(), key, []byte(other), attributes)
		wantError(t, "put of other content", err, artifact.ErrExists)
	}
	attributes.Metadata = map[string]string{artifact.MetadataDigest: strings.Repeat("0", 64)}
	err := f.backend.Put(t.Context(), key, object.Content, attributes)
	wantError(t, "put with another digest", err, artifact.ErrExists)
	f.wantContent(t, object)

	sibling := NewObject(artifact.Bundle, "artifact-2", []byte("second"))
	f.put(t, sibling)
	f.wantContent(t, object)
	f.wantContent(t, sibling)
}

func testDelete(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Project, "artifact-1", []byte("content"))
	sibling := NewObject(artifact.Project, "artifact-2", []byte("content"))
	key := f.put(t, object)
	f.put(t, sibling)
	for range 2 { // the second delete finds nothing and succeeds
		err := f.store.Delete(t.Context(), Owner, artifact.Project, key)
		if err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	_, err := f.store.Get(t.Context(), Owner, artifact.Project, key, 0)
	wantError(t, "get after delete", err, artifact.ErrNotFound)
	f.wantContent(t, sibling)
	f.put(t, object)
	f.wantContent(t, object)
}

func testUnavailable(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Project, "artifact-1", []byte("content"))
	key := f.put(t, object)
	cause := errors.New("connection reset by peer")
	f.backend.FailWith(cause)
	err := f.store.Put(t.Context(), object)
	wantError(t, "put", err, artifact.ErrUnavailable)
	wantError(t, "put keeps the cause", err, cause)
	_, err = f.store.Get(t.Context(), Owner, artifact.Project, key, 0)
	wantError(t, "get", err, artifact.ErrUnavailable)
	err = f.store.Delete(t.Context(), Owner, artifact.Project, key)
	wantError(t, "delete", err, artifact.ErrUnavailable)
	f.backend.FailWith(nil)
	f.wantContent(t, object)
}

func testCancelled(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Project, "artifact-1", []byte("content"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, "put", f.store.Put(ctx, object), context.Canceled)
	key, _ := object.Key()
	_, err := f.store.Get(t.Context(), Owner, artifact.Project, key, 0)
	wantError(t, "get after a cancelled put", err, artifact.ErrNotFound)
	f.put(t, object)
	_, err = f.store.Get(ctx, Owner, artifact.Project, key, 0)
	wantError(t, "get", err, context.Canceled)
	wantError(t, "delete", f.store.Delete(ctx, Owner, artifact.Project, key), context.Canceled)
	f.wantContent(t, object)
}

func testConcurrent(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Bundle, "artifact-1", bytes.Repeat([]byte("content"), 1000))
	var group sync.WaitGroup
	failures := make(chan error, 8)
	for range cap(failures) {
		group.Go(func() { failures <- f.store.Put(t.Context(), object) })
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			t.Errorf("concurrent put: %v", err)
		}
	}
	f.wantContent(t, object)
}

// testRacing: of many writers of one key with different contents one wins, the
// others are told so, and the winner's content stays.
func testRacing(t *testing.T, factory Factory) {
	f := newFixture(t, factory)
	object := NewObject(artifact.Bundle, "artifact-1", []byte("content"))
	key, err := object.Key()
	if err != nil {
		t.Fatal(err)
	}
	attributes := artifact.Attributes{ContentType: object.Kind.ContentType(), Metadata: map[string]string{artifact.MetadataDigest: object.Digest}}
	failures := make([]error, 16)
	content := func(i int) []byte { return fmt.Appendf(nil, "content %02d", i) }
	var group sync.WaitGroup
	for i := range failures {
		group.Go(func() { failures[i] = f.backend.Put(t.Context(), key, content(i), attributes) })
	}
	group.Wait()
	winners := []int{}
	for i, err := range failures {
		if err == nil {
			winners = append(winners, i)
			continue
		}
		wantError(t, "put of a loser", err, artifact.ErrExists)
	}
	if len(winners) != 1 {
		t.Fatalf("%d of %d writers won", len(winners), len(failures))
	}
	got, err := f.store.Get(t.Context(), Owner, object.Kind, key, 0)
	if err != nil || !bytes.Equal(got, content(winners[0])) {
		t.Errorf("stored is %q, %v, the winner is %d", got, err, winners[0])
	}
}
