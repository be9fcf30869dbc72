// Package sample is the small project that the fault matrix deploys.
package sample

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
)

const manifest = `{"schema_version": 1, "name": "echo", "language": "javascript", "entry": "src/index.js",
	"compatibility_date": "2026-01-01", "operations": [{"id": "echo.say", "method": "POST", "path": "/say"}]}`

// Archive packs the project as a .tar.gz; text makes its bundle differ.
func Archive(text string) ([]byte, error) {
	var buffer bytes.Buffer
	zip := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zip)
	for _, file := range [][2]string{
		{"src/index.js", fmt.Sprintf("export default { 'echo.say': (input) => ({ said: input, by: %q }) };\n", text)},
		{"worker.json", manifest},
	} {
		err := archive.WriteHeader(&tar.Header{Name: file[0], Mode: 0o644, Size: int64(len(file[1])), Typeflag: tar.TypeReg})
		if err != nil {
			return nil, err
		}
		_, err = archive.Write([]byte(file[1]))
		if err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), zip.Close())
	return buffer.Bytes(), err
}
