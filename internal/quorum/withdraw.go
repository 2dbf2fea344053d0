package quorum

import (
	"context"
	"time"

	"github.com/redquorum/locks/internal/node"
)

// retryPause is the time between two tries to withdraw from a node that gives no answer.
const retryPause = 100 * time.Millisecond

// Release gives the claim back on every node that holds it or may hold it; there its locks stay for rest, without it,
// if that is above 0. It is won when a quorum has nothing of it
// left; a claim that a majority of nodes did not have until now is Refuted. What did not answer is retried in the
// background until it does, for as long as the claim can live there; the end of ctx ends only the waiting.
func (c *Claim) Release(ctx context.Context, rest time.Duration) Result {
	return c.retract(rest).wait(ctx, c.req.Limit)
}

// Withdraw gives the claim back at once, as Release does, and does not wait.
func (c *Claim) Withdraw() { c.retract(0) }

// retract puts a release to every node on which the claim has left something or may yet leave something. The
// others, to which nothing was sent or which refused, have nothing to give back.
func (c *Claim) retract(rest time.Duration) *round {
	r := c.engine.newRound()
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	asked := 0
	for i := range c.traces {
		if c.traces[i].empty() {
			r.absent(i)
		} else {
			asked++
		}
	}
	c.engine.add(asked)
	now := time.Now()
	plain := c.op(node.Release, 0)
	plain.Rest = rest
	withdrawals := make([]withdrawal, len(c.traces))
	for i := range c.traces {
		if _, skipped := r.calls[i].Vote(); skipped {
			continue
		}
		withdrawals[i] = withdrawal{claim: c, round: r, free: now.Add(rest), until: now.Add(c.longest)}
		r.ask(c.engine.nodes[i], i, c.releaseOp(i, plain), &withdrawals[i])
	}
	return r
}

// releaseOp is the release for node i: plain, or one that leaves a mark, if a call that sets the lock may still
// arrive. Where that call is the only one, and turns out to have arrived, there is no need for the mark.
func (c *Claim) releaseOp(i int, plain *node.Op) *node.Op {
	doubts, setters := c.traces[i].count()
	if doubts == 0 {
		return plain
	}
	marked := *plain
	marked.Mark, marked.MarkAlways = c.longest, setters > 1
	return &marked
}

// empty reports whether the node can have nothing of the claim, now and later. A call that is still queued is
// taken back for that.
func (t *trace) empty() bool {
	t.call.Drop()
	_, setters := t.count()
	return setters == 0
}

// count returns how many calls may yet set the lock although they will not be answered, and how many in all did or
// may set it.
func (t *trace) count() (doubts, setters int) {
	doubts, setters = t.doubts, t.doubts
	if t.set {
		setters++
	}
	switch t.call.Fate() {
	case node.InDoubt:
		doubts++
		setters++
	case node.Pending:
		setters++
	case node.Done:
		if v, _ := t.call.Vote(); v.Verdict != node.Refused {
			setters++ // an error may have come after the lock was set
		}
	case node.Unsent:
	}
	return doubts, setters
}

// withdrawal is the release of a claim on one node, until that node has answered.
type withdrawal struct {
	claim *Claim
	round *round    // counts the first answer
	free  time.Time // until then the locks stay, without the claim
	until time.Time // then the claim has expired there
}

// Reply looks at the node's answer, and asks again if it does not settle the matter.
func (w *withdrawal) Reply(c *node.Call) {
	v, _ := c.Vote()
	if w.round != nil {
		w.round.count(v.Verdict)
		w.round = nil
	}
	switch {
	case w.settled(c, v), v.Permanent, !time.Now().Before(w.until), w.claim.engine.over():
		w.claim.engine.add(-1)
	case v.Verdict == node.Unknown:
		time.AfterFunc(retryPause, func() { w.again(c.Node) })
	default: // answered, but only now it is clear that the acquire was not: leave a mark
		w.again(c.Node)
	}
}

// settled reports whether nothing of the claim is left on the node, nor can come there any more. The node answers
// in order: what was put before this release has been answered by now, or never will be.
func (w *withdrawal) settled(c *node.Call, v node.Vote) bool {
	if v.Verdict == node.Unknown {
		return false
	}
	doubts, setters := w.claim.traces[c.Node].count()
	onlyOneCame := v.Verdict == node.Granted && setters == 1
	return doubts == 0 || onlyOneCame || c.Op.Mark > 0
}

func (w *withdrawal) again(i int) {
	plain := w.claim.op(node.Release, 0)
	plain.Rest = max(0, time.Until(w.free))
	op := w.claim.releaseOp(i, plain)
	w.claim.engine.nodes[i].Put(&node.Call{Op: op, Node: i, To: w})
}
