package demo

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/locks/fencing"
)

// store is the storage that the workers write to: one value per name, behind a fencing guard.
type store struct {
	guard  *fencing.MemoryGuard
	ledger *ledger

	mu     sync.Mutex
	values map[string]hold // the last write, by name
}

func newStore(l *ledger) *store {
	return &store{guard: fencing.NewMemoryGuard(), ledger: l, values: map[string]hold{}}
}

// put writes under h.name, unless a higher token than h's was there: then the error matches fencing.ErrStale. The
// mutex covers the check and the write, so that no newer writer comes between the two.
func (s *store) put(h hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.guard.Check(context.Background(), h.name, h.token); err != nil {
		return err
	}
	s.values[h.name] = h
	s.ledger.wrote(h)
	return nil
}

// succeeded reports whether somebody has written under name whose lease was granted after the instant at.
func (s *store) succeeded(name string, at time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[name].first > at
}
