package redlock

import "context"

// Mutex is a lock of one name: at most one lease at a time. It is a handle: cheap, without state of its own, safe
// for concurrent use. Every acquire yields a lease of its own; a mutex is not re-entrant, so that a second acquire
// by the same caller waits like anybody else's.
type Mutex struct{ target target }

// Mutex returns a handle of the lock called name. It does no I/O. A name or an option that is not acceptable is
// reported by the handle's first call: names have 1 to 512 bytes, any bytes.
func (c *Client) Mutex(name string, opts ...Option) *Mutex {
	return &Mutex{target: newTarget(c, []string{name}, opts)}
}

// Acquire waits until it holds the lock, ctx ends, the limit of WithWait is reached, or the attempts of
// WithRetry are used up. Neither contention nor an outage ends the wait; an answer that no retry can mend, such
// as a wrong password, from so many nodes that a quorum is impossible, does.
//
// On success the lease is held on a quorum of nodes, with the validity that Lease.Validity tells, and its fencing
// token is higher than every earlier one of the name. On failure nothing stays locked, and there is no lease. The
// error matches ErrNotAcquired or ErrNoQuorum, after the last attempt; and the context's error, ErrWaitExpired,
// ErrAttemptsExhausted, ErrClosed or ErrInvalid, by what ended the wait.
//
// ctx limits only the acquiring. Its end does not end the lease; see Do for that.
func (m *Mutex) Acquire(ctx context.Context) (*Lease, error) { return m.target.acquire(ctx) }

// TryAcquire makes one attempt, within the time that one node may take, and never waits for a holder. (Where nodes were
// wiped or clients' clocks are behind, settling the token may take as long again.) Results are those of Acquire:
// ErrNotAcquired if somebody else holds the lock, or got a part of it at the same time, or if the nodes were too slow
// for the TTL; ErrNoQuorum if it cannot be known.
func (m *Mutex) TryAcquire(ctx context.Context) (*Lease, error) { return m.target.try(ctx) }
