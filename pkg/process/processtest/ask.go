package processtest

import (
	"io"
	"net/http"
	"time"
)

// readyEvery is the pause between two questions: short, because how soon a
// program is ready is also measured.
const readyEvery = time.Millisecond

// Get asks one of the program's servers.
func (p *Process) Get(server, path string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.URL(server)+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", path, err, p.Log())
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	return response.StatusCode, string(body)
}

// AwaitReadiness waits until the program answers /readyz with the status: 200
// once it is ready, 503 once it has taken notice of a stop.
func (p *Process) AwaitReadiness(status int) {
	p.t.Helper()
	for limit := time.After(patience); ; {
		got, body := p.Get("metrics", "/readyz")
		if got == status {
			return
		}
		select {
		case <-time.After(readyEvery):
		case <-limit:
			p.t.Fatalf("readyz is %d %s, not %d:\n%s", got, body, status, p.Log())
		}
	}
}
