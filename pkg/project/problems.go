package project

import (
	"fmt"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// The machine-readable types of the problems that this package reports.
const (
	archiveInvalid     = "archive_invalid"           // not one whole gzip stream with one tar in it
	archiveTooLarge    = "archive_too_large"         // unpacked bytes, files or folders over the bound
	archivePathInvalid = "archive_path_invalid"      // a path that could leave the folder or is not portable
	archiveUnsupported = "archive_entry_unsupported" // a link, device or other special entry
	archiveDuplicate   = "archive_duplicate_name"    // two entries for one name
	manifestMissing    = "manifest_missing"
	manifestInvalid    = "manifest_invalid"
	manifestDuplicate  = "manifest_duplicate_key"
	manifestConflict   = "manifest_operation_conflict" // same id, or two patterns for one request
	manifestSchema     = "manifest_schema_invalid"     // an input_schema or output_schema is unusable
	manifestEntry      = "manifest_entry_invalid"
	manifestDate       = "manifest_compatibility_date_invalid"
)

// problems collects what is wrong, up to MaxProblems.
type problems struct {
	list []fault.Problem
}

func (p *problems) add(kind string, loc []any, format string, args ...any) {
	if p.full() {
		return
	}
	p.list = append(p.list, fault.Problem{Type: kind, Loc: loc, Msg: fmt.Sprintf(format, args...)})
}

// archive adds a problem of one entry; an empty name means the archive itself.
func (p *problems) archive(kind, name, format string, args ...any) {
	loc := []any{"archive"}
	if name != "" {
		loc = append(loc, printable(name))
	}
	p.add(kind, loc, format, args...)
}

func (p *problems) full() bool { return len(p.list) >= MaxProblems }

// fault returns nil when nothing was found.
func (p *problems) fault() error {
	if len(p.list) == 0 {
		return nil
	}
	return fault.Refuse(p.list...)
}
