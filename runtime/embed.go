// Package runtime embeds the Worker runtime: the module that is bundled into
// every Edge Worker in front of the author's code, and the types for authors
// (decision D9). Its TypeScript sources are in src/.
package runtime

import (
	"bytes"
	_ "embed"
)

//go:generate go run ./gen

//go:embed dist/runtime.mjs
var module string

//go:embed dist/dispatcher.mjs
var dispatcher string

//go:embed tombstone/tombstone.mjs
var tombstone []byte

//go:embed types/index.d.ts
var authorTypes string

// Module returns the text of the runtime: one ES module that imports
// "cloudflare:workers" and exports createWorker, defineWorker and
// OperationError.
func Module() string { return module }

// Dispatcher returns the text of the dispatcher Worker: one ES module without
// imports, to be uploaded to the cloud with the dispatch namespace of the
// Workers bound as DISPATCHER. Its source is in dispatcher/.
func Dispatcher() string { return dispatcher }

// Tombstone returns the text of the module that takes the place of a retired
// Worker's script (D18): it answers 410 to everything and keeps the storage class,
// so that the stored data stay.
func Tombstone() []byte { return bytes.Clone(tombstone) }

// AuthorTypes returns the declarations of "@teamsync/edge-worker".
func AuthorTypes() string { return authorTypes }
