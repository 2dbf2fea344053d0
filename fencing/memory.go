package fencing

import (
	"context"
	"fmt"
	"sync"
)

// MemoryGuard is a Guard for storage that lives in this process: a cache, a file that one process writes, a test.
// It is safe for concurrent use, and its zero value is ready.
//
// It remembers every name for as long as it lives, since a forgotten name would accept a stale token again. It
// grows with the number of different names, by some tens of bytes and the name itself for each, and never with the
// number of checks; where names have no bound (one per order, say), the guard should not outlive the storage that
// it protects. It forgets everything when the process ends: storage that outlives the process needs a guard that
// does so too.
type MemoryGuard struct {
	mu      sync.Mutex
	highest map[string]Token
}

var _ Guard = (*MemoryGuard)(nil)

// NewMemoryGuard returns a guard that has seen no token yet. It cannot fail.
func NewMemoryGuard() *MemoryGuard {
	return &MemoryGuard{}
}

// Check accepts t if no higher token was accepted for name, and remembers it; see Guard.
//
// On failure nothing changes. The error matches ErrStale, and tells the name, t and the highest token seen, if that
// one is higher than t. It matches ctx.Err() if ctx had already ended; a check that has begun never waits for
// anything but other checks, so ctx is not looked at again. A token that is not positive is refused with an error
// that matches neither, whatever was seen: no lease has such a token, so it is a mistake in the caller.
//
// Checks of one name are strictly ordered. To write without being overtaken, hold a lock of your own over the check
// and the write.
func (g *MemoryGuard) Check(ctx context.Context, name string, t Token) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("fencing: %q: token %d not checked: %w", name, t, err)
	}
	if t <= 0 {
		return fmt.Errorf("fencing: %q: %d is not a token: tokens are positive", name, t)
	}
	if seen := g.raise(name, t); seen > t {
		return fmt.Errorf("%w: %q: %d is lower than %d, the highest seen", ErrStale, name, t, seen)
	}
	return nil
}

// raise lifts the highest token of name to t, if t is higher, and returns the highest.
func (g *MemoryGuard) raise(name string, t Token) Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	if seen := g.highest[name]; seen >= t {
		return seen
	}
	if g.highest == nil {
		g.highest = make(map[string]Token)
	}
	g.highest[name] = t
	return t
}
