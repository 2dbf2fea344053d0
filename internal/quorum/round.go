package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
)

// round is one operation put to all nodes. The nodes' own goroutines count the votes as they come in (Reply),
// so a round needs no goroutine, and a straggler costs none: see "Fan-out" in docs/algorithm.md.
type round struct {
	engine *Engine
	calls  []node.Call // by node

	mu      sync.Mutex
	tally   Tally
	settled bool          // votes no longer count
	decided chan struct{} // closed when settled
	silence error         // what is said of a node that has not answered
}

var errNotAwaited = errors.New("its answer was not waited for")

func (e *Engine) newRound() *round {
	n := len(e.nodes)
	return &round{engine: e, calls: make([]node.Call, n), tally: NewTally(n), decided: make(chan struct{}), silence: errNotAwaited}
}

// ask puts op to node i, which answers to.
func (r *round) ask(n node.Node, i int, op *node.Op, to node.Receiver) {
	r.calls[i].Op, r.calls[i].Node, r.calls[i].To = op, i, to
	n.Put(&r.calls[i])
}

// skip counts node i as granted without asking it: there is nothing to do.
func (r *round) skip(i int) {
	r.calls[i].Preset(node.Vote{Verdict: node.Granted})
	r.count(node.Granted)
}

// absent counts node i, which is not asked, as one that has nothing to give back. It comes before all that are asked.
func (r *round) absent(i int) {
	r.calls[i].Preset(node.Vote{Verdict: node.Refused, Reason: node.Missing})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.AddAbsent()
}

// drop takes back what was not sent yet.
func (r *round) drop() {
	for i := range r.calls {
		r.calls[i].Drop()
	}
}

// over reports whether the round is decided.
func (r *round) over() bool {
	select {
	case <-r.decided:
		return true
	default:
		return false
	}
}

// won reports whether the round is decided and won, whatever time it took.
func (r *round) won() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.Outcome() == Won
}

// Reply counts the answer of one node. It is called by the node.
func (r *round) Reply(c *node.Call) {
	v, _ := c.Vote()
	r.count(v.Verdict)
}

// count adds the vote of a node, once for each node.
func (r *round) count(v node.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return
	}
	r.tally.Add(v)
	if r.tally.Settled() {
		r.settled = true
		close(r.decided)
	}
}

// wait returns when the round is decided, at the latest after limit: what has not answered by then is unknown.
// It also returns when ctx ends.
func (r *round) wait(ctx context.Context, limit time.Duration) Result {
	if r.over() {
		return r.result() // spare the timer
	}
	timer := r.engine.timer(limit)
	defer r.engine.spare(timer)
	select {
	case <-r.decided:
	case <-timer.C:
		r.settle(fmt.Errorf("no answer within %v", limit))
	case <-ctx.Done():
		r.settle(errors.New("no answer before the call ended"))
		res := r.result()
		res.Interrupted = res.Outcome() != Won
		return res
	}
	return r.result()
}

// settle counts who has not answered as unknown, and why.
func (r *round) settle(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return
	}
	for r.tally.open() > 0 {
		r.tally.Add(node.Unknown)
	}
	r.settled, r.silence = true, why
	close(r.decided)
}

// Result is what came of a round.
type Result struct {
	Tally
	Votes       []node.Vote   // by node, if the round was not won
	Interrupted bool          // the context ended before the round was decided
	Late        bool          // a quorum granted, but nothing of the lease was left
	Start       drift.Instant // of an acquire or extension that was won: taken before the first send
	Span        time.Duration // how long that may be trusted, from Start on
	Left        time.Duration // and from now on
}

// Won reports whether the round was won in time.
func (r Result) Won() bool { return r.Outcome() == Won && !r.Late }

func (r *round) result() Result {
	r.mu.Lock()
	res, silence := Result{Tally: r.tally}, r.silence
	r.mu.Unlock()
	if res.Outcome() != Won {
		res.Votes = r.votes(silence)
	}
	return res
}

// votes returns every node's answer so far.
func (r *round) votes(silence error) []node.Vote {
	votes := make([]node.Vote, len(r.calls))
	for i := range r.calls {
		v, ok := r.calls[i].Vote()
		if !ok {
			v = node.Unanswered(silence)
		}
		votes[i] = v
	}
	return votes
}
