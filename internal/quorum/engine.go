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

	mu     sync.Mutex
	busy   int           // operations under way, and withdrawals that no node has answered for yet
	idle   chan struct{} // closed when busy is 0; made by whoever drains
	closed bool
}

// New returns an engine over nodes, which it does not own. factor is the drift factor, see drift.Validity.
func New(nodes []node.Node, clock drift.Clock, factor float64) *Engine {
	return &Engine{nodes: nodes, clock: clock, factor: factor}
}

// Nodes returns the engine's nodes; votes are in their order.
func (e *Engine) Nodes() []node.Node { return e.nodes }

// Enter counts an operation that is under way until Leave: Drain waits for it, and so for what it withdraws.
func (e *Engine) Enter() { e.count(1) }

// Leave ends what Enter began.
func (e *Engine) Leave() { e.count(-1) }

// Drain waits until nothing is under way, and every withdrawal has been answered or given up after its TTL, or ctx
// ends. From then on nothing is retried.
func (e *Engine) Drain(ctx context.Context) {
	e.mu.Lock()
	idle := make(chan struct{})
	if e.busy == 0 {
		close(idle)
	} else {
		e.idle = idle
	}
	e.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
}

// count adds n to what is under way.
func (e *Engine) count(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy += n
	if e.busy == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

func (e *Engine) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// Span is how long a lease of ttl may be trusted, from the start of its round on.
func (e *Engine) Span(ttl time.Duration) time.Duration { return drift.Validity(ttl, 0, e.factor) }

// validity is what is left of ttl in a round that began at start.
func (e *Engine) validity(ttl time.Duration, start drift.Instant) time.Duration {
	return drift.Validity(ttl, e.clock.Since(start), e.factor)
}

// put sends op to every node, in order, and returns the round that counts the answers. Nodes that are marked as
// done count as granted and are not asked. No call is cancelled because another failed.
func (e *Engine) put(op *node.Op, done []bool) *round {
	r := newRound(len(e.nodes))
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
