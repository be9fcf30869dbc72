package project

import (
	"archive/tar"
	"strings"
)

// kindOf names an entry that is refused.
func kindOf(header *tar.Header) string {
	switch header.Typeflag {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeSymlink:
		return "a symbolic link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a named pipe"
	case tar.TypeXGlobalHeader:
		return "a global header that changes other entries"
	}
	if sparse(header) {
		return "a sparse file"
	}
	return "an entry of an unknown kind"
}

// sparse reports any of the sparse forms: their claimed size is not what the
// archive holds.
func sparse(header *tar.Header) bool {
	if header.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// harmless reports a global header that only carries a comment, as `git
// archive` writes it. Any other record would mean something to other readers
// that it does not mean to this one.
func harmless(header *tar.Header) bool {
	for key := range header.PAXRecords {
		if key != "comment" {
			return false
		}
	}
	return true
}
