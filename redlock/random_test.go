package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/locks/fencing"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/redlock"
)

const (
	longestTTL = 2 * time.Second
	season     = time.Minute // how long a random history lasts
)

// history watches all leases of one world. I1 and I3 are checked at every grant.
type history struct {
	t    *testing.T
	seed uint64

	mu     sync.Mutex
	live   map[string]map[*redlock.Lease]bool // by name, until their release begins
	tokens map[string]fencing.Token
	grants int
}

func (h *history) granted(l *redlock.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[l.Name()] == nil {
		h.live[l.Name()] = map[*redlock.Lease]bool{}
	}
	for other := range h.live[l.Name()] {
		if v := other.Validity(); v > 0 && l.Validity() > 0 {
			h.t.Errorf("seed %d, %v: %q is granted, another lease is valid for %v", h.seed, time.Now(), l.Name(), v)
		}
	}
	if last := h.tokens[l.Name()]; l.Token() <= last {
		h.t.Errorf("seed %d, %v: token %d of %q after %d", h.seed, time.Now(), l.Token(), l.Name(), last)
	}
	h.live[l.Name()][l] = true
	h.tokens[l.Name()] = l.Token()
	h.grants++
}

func (h *history) ended(l *redlock.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live[l.Name()], l)
}

// work acquires, holds and releases until ctx ends.
func (h *history) work(ctx context.Context, c *peer, rnd *rand.Rand) {
	for ctx.Err() == nil {
		ttl := []time.Duration{500 * time.Millisecond, time.Second, longestTTL}[rnd.IntN(3)]
		m := c.Mutex(fmt.Sprint("name", rnd.IntN(2)), redlock.WithTTL(ttl), redlock.WithAutoExtend(rnd.IntN(2) == 0))
		attempt, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Millisecond)
		l, err := m.Acquire(attempt)
		cancel()
		if err != nil {
			continue
		}
		h.granted(l)
		for range rnd.IntN(4) {
			pause(l.Context(), time.Duration(rnd.IntN(600))*time.Millisecond)
			switch rnd.IntN(4) {
			case 0:
				_ = l.Verify(ctx)
			case 1:
				_ = l.Extend(ctx, time.Duration(rnd.IntN(int(ttl/time.Millisecond)-10)+10)*time.Millisecond)
			}
		}
		if rnd.IntN(10) == 0 {
			l.StopAutoExtend() // and forget it
			continue
		}
		h.ended(l)
		_ = l.Release(ctx)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// trouble lets one master at a time fail, with pauses in which every lease has ended or was repaired.
func trouble(ctx context.Context, w *world, clients []*peer, rnd *rand.Rand, wipes bool) {
	for ctx.Err() == nil {
		i := rnd.IntN(len(w.nodes))
		mend := fail(w.nodes[i], i, clients, rnd, wipes)
		pause(ctx, time.Duration(rnd.IntN(4000))*time.Millisecond)
		mend()
		pause(ctx, longestTTL+500*time.Millisecond)
	}
}

func fail(n *memnode.Node, i int, clients []*peer, rnd *rand.Rand, wipes bool) (mend func()) {
	switch rnd.IntN(6) {
	case 0:
		n.Stop()
		return n.Start
	case 1:
		n.Freeze()
		return n.Thaw
	case 2:
		n.Delay(time.Duration(rnd.IntN(int(3 * limit))))
		return func() { n.Delay(0) }
	case 3:
		if wipes {
			n.Wipe()
		}
		return func() {}
	}
	for _, c := range clients { // each has trouble of its own with that node
		c.lines[i].meddle([]meddler{nil, cut, deafen}[rnd.IntN(3)])
	}
	return func() {
		for _, c := range clients {
			c.lines[i].meddle(nil)
		}
	}
}

func TestRandomHistoriesKeepExclusionAndTokensAndLeaveNothing(t *testing.T) {
	tests := map[string]struct {
		nodes int
		wipes bool
		skew  time.Duration
	}{
		"three nodes that forget":                {3, true, 0},
		"five nodes that forget":                 {5, true, 0},
		"three nodes, clocks that are hours off": {3, false, time.Hour},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				seed := rand.Uint64()
				bubble(t, test.nodes, func(t *testing.T, w *world) {
					rnd := rand.New(rand.NewPCG(seed, 5))
					h := &history{t: t, seed: seed, live: map[string]map[*redlock.Lease]bool{}, tokens: map[string]fencing.Token{}}
					var clients []*peer
					for i := range 5 {
						clients = append(clients, w.clientWith(skewed(time.Duration(i-2)*test.skew)))
					}
					ctx, cancel := context.WithTimeout(t.Context(), season)
					defer cancel()
					var wg sync.WaitGroup
					for i, c := range clients {
						wg.Go(func() { h.work(ctx, c, rand.New(rand.NewPCG(seed, uint64(i)))) })
					}
					trouble(ctx, w, clients, rnd, test.wipes)
					wg.Wait()
					h.finish(w)
				})
			}
		})
	}
}

// finish checks what is left when all is over and healthy again.
func (h *history) finish(w *world) {
	h.t.Helper()
	if h.grants < 50 {
		h.t.Errorf("seed %d: only %d grants in %v", h.seed, h.grants, season)
	}
	time.Sleep(longestTTL) // some leases were never released
	w.wantFree()
	if h.t.Failed() {
		h.t.Errorf("seed %d", h.seed)
	}
	time.Sleep(2 * longestTTL)
	if litter := w.litter(); len(litter) > 0 {
		h.t.Errorf("seed %d: left behind: %q", h.seed, litter)
	}
}
