package project

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
)

// maxStream bounds the tar stream itself: the files, and with them the headers
// and padding of MaxFiles files and MaxFolders folders (at most 4 KiB each).
const maxStream = MaxUnpacked + (MaxFiles+MaxFolders)*4096

// errBomb stops the decompressor at maxStream, whatever the headers claim.
var errBomb = errors.New("the unpacked archive exceeds its bound")

// unpack reads the gzip stream and the tar inside it. It allocates what the
// files really contain, never what a header claims. It returns the files and
// leaves every defect in found; it stops early only where reading on is
// impossible or past a bound.
func unpack(raw []byte, found *problems) map[string][]byte {
	if len(raw) == 0 {
		found.archive(archiveInvalid, "", "the archive is empty: 0 bytes were sent")
		return nil
	}
	source := bytes.NewReader(raw)
	zip, err := gzip.NewReader(source)
	if err != nil {
		found.archive(archiveInvalid, "", "the archive is not gzip: send a .tar.gz file")
		return nil
	}
	// One gzip stream and nothing behind it: with more, two readers could see
	// two different projects in one digest.
	zip.Multistream(false)
	stream := &boundedReader{source: zip, left: maxStream}
	u := &unpacker{files: map[string][]byte{}, names: newNames(), found: found}
	if !u.entries(tar.NewReader(stream)) {
		return nil
	}
	u.finish(stream, source)
	return u.files
}

// unpacker holds what was read so far.
type unpacker struct {
	files   map[string][]byte
	names   *names
	found   *problems
	count   int // regular files, refused ones included
	folders int
	size    int // bytes of regular files
}

// entries reads every tar entry. It reports false when the stream cannot be
// read to its end.
func (u *unpacker) entries(reader *tar.Reader) bool {
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			u.broken(err)
			return false
		}
		if u.found.full() || !u.entry(header, reader) {
			return false
		}
	}
}

// entry handles one entry; false means that a bound was crossed.
func (u *unpacker) entry(header *tar.Header, body io.Reader) bool {
	switch {
	case header.Typeflag == tar.TypeXGlobalHeader && harmless(header):
		return true
	case header.Typeflag == tar.TypeDir:
		return u.folder(header.Name)
	case header.Typeflag == tar.TypeReg && !sparse(header):
		return u.file(header, body)
	}
	u.found.archive(archiveUnsupported, header.Name,
		"the archive holds %s: only regular files and folders are accepted", kindOf(header))
	return true
}

func (u *unpacker) folder(name string) bool {
	u.folders++
	if u.folders > MaxFolders {
		u.found.archive(archiveTooLarge, "", "the archive holds more than %d folders", MaxFolders)
		return false
	}
	clean, fault := cleanPath(name, true)
	if fault != "" {
		u.found.archive(archivePathInvalid, name, "%s", fault)
		return true
	}
	if clean != "" {
		u.claim(clean, true)
	}
	return true
}

func (u *unpacker) file(header *tar.Header, body io.Reader) bool {
	u.count++
	if u.count > MaxFiles {
		u.found.archive(archiveTooLarge, "", "the archive holds more than %d files", MaxFiles)
		return false
	}
	// The header's size bounds the body exactly, so this check comes before
	// any byte is read.
	if header.Size > int64(MaxUnpacked-u.size) {
		u.found.archive(archiveTooLarge, header.Name, "the files of the archive exceed 16 MiB unpacked")
		return false
	}
	content, err := io.ReadAll(io.LimitReader(body, header.Size))
	u.size += len(content)
	if err != nil {
		u.broken(err)
		return false
	}
	clean, fault := cleanPath(header.Name, false)
	if fault != "" {
		u.found.archive(archivePathInvalid, header.Name, "%s", fault)
		return true
	}
	if u.claim(clean, false) {
		u.files[clean] = content
	}
	return true
}

// claim takes the name for an entry, or reports why it is taken.
func (u *unpacker) claim(path string, folder bool) bool {
	conflict := u.names.claim(path, folder)
	if conflict == "" {
		return true
	}
	u.found.archive(archiveDuplicate, path, "%s", conflict)
	return false
}

// broken reports a stream that cannot be read on.
func (u *unpacker) broken(err error) {
	switch {
	case errors.Is(err, errBomb):
		u.found.archive(archiveTooLarge, "", "the archive exceeds 16 MiB unpacked")
	case errors.Is(err, io.ErrUnexpectedEOF):
		u.found.archive(archiveInvalid, "", "the archive is truncated")
	case errors.Is(err, gzip.ErrChecksum):
		u.found.archive(archiveInvalid, "", "the archive is damaged: its checksum does not match")
	default:
		u.found.archive(archiveInvalid, "", "the archive is damaged or holds no tar: %v", err)
	}
}

// finish reads to the end of both streams: the gzip checksum is only verified
// there, and nothing may follow but tar's zero padding.
func (u *unpacker) finish(stream *boundedReader, source *bytes.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := stream.Read(buffer)
		if len(bytes.Trim(buffer[:n], "\x00")) > 0 {
			u.found.archive(archiveInvalid, "", "the archive has data after the end of its tar")
			return
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			u.broken(err)
			return
		}
	}
	if source.Len() > 0 {
		u.found.archive(archiveInvalid, "", "the archive has data after the end of its gzip stream")
		return
	}
	if u.count == 0 {
		u.found.archive(archiveInvalid, "", "the archive is empty: it holds no files")
		return
	}
	// Go's reader takes a tar that was cut between two entries for a whole one.
	if stream.zeros < endMark {
		u.found.archive(archiveInvalid, "", "the archive is truncated")
	}
}

// endMark is the length of the zeros that end every tar: two blocks.
const endMark = 1024

// boundedReader fails with errBomb once left bytes were read, and counts the
// zeros that its stream ends with.
type boundedReader struct {
	source io.Reader
	left   int
	zeros  int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBomb
	}
	if len(p) > b.left {
		p = p[:b.left]
	}
	n, err := b.source.Read(p)
	b.left -= n
	tail := n - len(bytes.TrimRight(p[:n], "\x00"))
	if tail == n {
		tail += b.zeros
	}
	b.zeros = tail
	return n, err
}
