package s3store

import "time"

// The limits of every client (S0-27 to S0-30). They are constants of the code:
// no variable and no file changes them.
const (
	// connectTimeout bounds the TCP connect, and again the TLS handshake.
	connectTimeout = 5 * time.Second
	// readTimeout bounds the silence on a connection in either direction, and
	// the wait for a response's headers. An exchange that moves, however
	// slowly, goes on.
	readTimeout = 20 * time.Second
	// maxAttempts of one call, the first one included: two retries.
	maxAttempts = 3
	// maxBackoff bounds the pause before a retry. The service may ask for up
	// to 5 s more.
	maxBackoff = 2 * time.Second
	// callTimeout bounds one call with its retries, and for a read the body
	// too. It is above three attempts that each use up every limit, 90 s, so
	// only a peer that drips a byte now and then ever meets it.
	callTimeout = 105 * time.Second
	// settleTimeout bounds the read that settles a Put of unknown outcome.
	settleTimeout = 30 * time.Second
)

// MaxDuration is the longest that any method of a Store takes: a Put whose
// outcome must be read back.
const MaxDuration = callTimeout + settleTimeout

// limits are the above as values, which a test shortens.
type limits struct {
	connect, read, call, settle time.Duration
	backoff                     time.Duration
	attempts                    int
}

var production = limits{
	connect: connectTimeout, read: readTimeout, call: callTimeout, settle: settleTimeout,
	backoff: maxBackoff, attempts: maxAttempts,
}
