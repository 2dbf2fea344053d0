package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redquorum/locks/fencing"
)

// Store is a small storage that refuses late writers. Its mutex covers the check and the write, so that no newer
// writer comes between the two.
type Store struct {
	guard *fencing.MemoryGuard

	mu     sync.Mutex
	values map[string]string
}

// Put writes value under key if no later holder of the lock named key has written.
func (s *Store) Put(ctx context.Context, key, value string, token fencing.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.guard.Check(ctx, key, token); err != nil {
		return err
	}
	s.values[key] = value
	return nil
}

// One worker is paused past the end of its lease and wakes up when the next one has already written. The tokens
// are those of their leases (Lease.Token in package redlock).
func ExampleMemoryGuard() {
	ctx := context.Background()
	store := &Store{guard: fencing.NewMemoryGuard(), values: make(map[string]string)}
	const paused, next fencing.Token = 33, 34

	fmt.Println("paused:", store.Put(ctx, "report", "draft", paused))
	fmt.Println("next:  ", store.Put(ctx, "report", "final", next))

	err := store.Put(ctx, "report", "draft, again", paused)
	fmt.Println("paused:", err)
	fmt.Println("stale: ", errors.Is(err, fencing.ErrStale))
	fmt.Println("stored:", store.values["report"])
	// Output:
	// paused: <nil>
	// next:   <nil>
	// paused: fencing: stale token: "report": 33 is lower than 34, the highest seen
	// stale:  true
	// stored: final
}
