package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
)

// Engine puts rounds to a fixed set of nodes. Its methods are safe for concurrent use.
type Engine struct {
	nodes  []node.Node
	clock  drift.Clock
	factor float64
	timers sync.Pool // *time.Timer, stopped: every round takes one

	mu       sync.Mutex
	busy     int // operations under way, and withdrawals that no node has answered for yet
	draining bool
	closed   bool
	drained  chan struct{} // closed with it
}

// New returns an engine over nodes, which it does not own. factor is the drift factor, see drift.Validity.
func New(nodes []node.Node, clock drift.Clock, factor float64) *Engine {
	return &Engine{nodes: nodes, clock: clock, factor: factor, drained: make(chan struct{})}
}

// Nodes returns the engine's nodes; votes are in their order.
func (e *Engine) Nodes() []node.Node { return e.nodes }

// Enter counts an operation that is under way until Leave: Drain waits for it, and so for what it withdraws. It
// returns false if the engine is drained: then the operation must not begin, and there is nothing to leave.
func (e *Engine) Enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.busy++
	return true
}

// Leave ends what Enter began.
func (e *Engine) Leave() { e.add(-1) }

// add adds n to what is under way.
func (e *Engine) add(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy += n
	if e.busy == 0 && e.draining {
		e.shut()
	}
}

// Drain waits until nothing is under way, and every withdrawal has been answered or given up after its TTL, or ctx
// ends. From then on nothing begins and nothing is retried.
func (e *Engine) Drain(ctx context.Context) {
	e.mu.Lock()
	e.draining = true
	if e.busy == 0 {
		e.shut()
	}
	e.mu.Unlock()
	select {
	case <-e.drained:
	case <-ctx.Done():
		e.mu.Lock()
		e.shut()
		e.mu.Unlock()
	}
}

// shut ends the engine, once. The caller holds mu.
func (e *Engine) shut() {
	if !e.closed {
		e.closed = true
		close(e.drained)
	}
}

func (e *Engine) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// Span is how long a lease of ttl may be trusted, from the start of its round on.
func (e *Engine) Span(ttl time.Duration) time.Duration { return drift.Validity(ttl, 0, e.factor) }

// timer returns a timer that fires after d.
func (e *Engine) timer(d time.Duration) *time.Timer {
	if t, ok := e.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// spare takes a timer back.
func (e *Engine) spare(t *time.Timer) {
	t.Stop()
	e.timers.Put(t)
}

// validity is what is left of ttl in a round that began at start.
func (e *Engine) validity(ttl time.Duration, start drift.Instant) time.Duration {
	return drift.Validity(ttl, e.clock.Since(start), e.factor)
}

// put sends op to every node, in order, and returns the round that counts the answers. Nodes that are marked as
// done count as granted and are not asked. No call is cancelled because another failed.
func (e *Engine) put(op *node.Op, done []bool) *round {
	r := e.newRound()
	for i := range done {
		if done[i] {
			r.skip(i)
		}
	}
	if r.over() {
		return r
	}
	for i, n := range e.nodes {
		if done == nil || !done[i] {
			r.ask(n, i, op, r)
		}
	}
	return r
}
