package redlock

import (
	"context"
	"slices"
)

// Group is a lock of several names at once: all of them or none. Each name excludes mutexes and other groups on the
// same name. It is a handle like a Mutex.
type Group struct{ target target }

// Group returns a handle of the lock on all names. It does no I/O. The order of names does not matter, and a name that
// is given twice counts once; callers that lock overlapping groups cannot deadlock. No names, a name or an option that is
// not acceptable, and names in different slots where a node is a cluster, are reported by the handle's first call.
//
// A group costs as many round trips as a mutex: a node takes all names in one step or none.
func (c *Client) Group(names []string, opts ...Option) *Group {
	if len(names) == 0 {
		return &Group{target{err: invalid("acquire", "", "a group of no names; pass at least one")}}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return &Group{target: newTarget(c, slices.Compact(names), opts)}
}

// Acquire waits until it holds all names, as Mutex.Acquire does for one.
//
// The lease is one: its fencing token is higher than every earlier one of each of the names, its validity ends for
// all of them at once, and it is lost as a whole when a majority of nodes has lost any of the names; the error tells
// which. On failure nothing stays locked, and the votes of the error tell which name was held by another.
func (g *Group) Acquire(ctx context.Context) (*Lease, error) { return g.target.acquire(ctx) }

// TryAcquire makes one bounded attempt, as Mutex.TryAcquire does.
func (g *Group) TryAcquire(ctx context.Context) (*Lease, error) { return g.target.try(ctx) }
