package client

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
)

// Progress is told how many of a submission's npm packages are there.
type Progress func(done, total int)

// headerProgress is httpapi.HeaderProgress.
const headerProgress = "X-Edge-Workers-Progress"

// watch lets progress hear the interim answers of a request.
func watch(request *http.Request, progress Progress) *http.Request {
	if progress == nil {
		return request
	}
	request.Header.Set(headerProgress, "interim")
	return request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			var done, total int
			n, err := fmt.Sscanf(header.Get(headerProgress), "packages;done=%d;total=%d", &done, &total)
			if err == nil && n == 2 && done >= 0 && done <= total {
				progress(done, total)
			}
			return nil // an interim answer of another kind is none of ours
		},
	}))
}
