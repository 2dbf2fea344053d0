package quorum

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
)

// Request says what to acquire.
type Request struct {
	Keys   []node.Keys   // of the names, sorted
	Holder string        // the id of this attempt, never used before
	TTL    time.Duration // of the lock on every node
	Idle   time.Duration // how long the fence counter outlives the lease; 0: for ever
	Limit  time.Duration // how long a round waits for answers
}

// Claim is what one holder has, or may have, on the nodes, from the first send until the last withdrawal was
// answered. Its methods must not run at the same time.
type Claim struct {
	engine  *Engine
	req     Request
	token   int64
	longest time.Duration // the longest TTL that was put to a node

	mu     sync.Mutex // for late answers to an extension, which repair the claim beside its methods
	traces []trace    // by node
	gone   bool       // it was given back: nothing sets it again
}

// trace is what a node may hold of a claim.
type trace struct {
	call   *node.Call // the last call that sets the lock there: the acquire, or a repair
	set    bool       // an earlier one set it
	doubts int        // earlier ones that may yet set it
	lost   bool       // the node answered an extension that it has nothing of the claim
}

// Token is the fencing token.
func (c *Claim) Token() int64 { return c.token }

// Longest is the longest TTL that was put to a node: what is not released is gone by then.
func (c *Claim) Longest() time.Duration { return c.longest }

// Acquire puts one attempt to all nodes: design §3 and §4. If it is won, the claim is held for Result.Span
// from Result.Start on, and its token is settled. If it is not, whatever it left or may have left is being withdrawn,
// and there is no claim.
func (e *Engine) Acquire(ctx context.Context, req Request) (*Claim, Result) {
	c := &Claim{engine: e, req: req, longest: req.TTL, traces: make([]trace, len(e.nodes))}
	start := e.clock.Now() // before the first send (I4)
	op := c.op(node.Acquire, req.TTL)
	op.Floor = start.Wall.UnixMicro()
	r := e.put(op, nil)
	for i := range r.calls {
		c.traces[i].call = &r.calls[i]
	}
	res := r.wait(ctx, req.Limit)
	if res.Won() {
		res = c.settleToken(ctx, r, res, start)
	}
	if res.Won() {
		res = e.timed(res, req.TTL, start)
	}
	if !res.Won() {
		c.Withdraw()
		return nil, res
	}
	return c, res
}

// timed completes the result of a round that was won: a lease of which nothing is left is no lease.
func (e *Engine) timed(res Result, ttl time.Duration, start drift.Instant) Result {
	res.Start, res.Span, res.Left = start, e.Span(ttl), e.validity(ttl, start)
	res.Late = res.Left <= 0
	return res
}

// settleToken makes the highest number that was granted the token, once it is the counter of a quorum (I3): at
// once if a quorum granted just that number, else by raising the counters of the others while the lock is held
// there. A counter that somebody else has brought to the token or past it does not count, or two holders would
// get one token; then a higher one is tried.
func (c *Claim) settleToken(ctx context.Context, acquired *round, res Result, start drift.Instant) Result {
	e := c.engine
	token, agreed := highestNumber(acquired)
	if count(agreed) >= Size(len(agreed)) {
		c.token = token
		return res
	}
	for {
		c.token = token
		r := e.put(c.op(node.Raise, 0), agreed)
		res = r.wait(ctx, c.req.Limit)
		if res.Won() {
			return res
		}
		r.drop()
		counter, others := highestBid(res.Votes)
		if counter == 0 || e.validity(c.req.TTL, start) <= 0 {
			return res
		}
		// Two holders that raise each other's counters in step would never end: leave room, and wait.
		token, agreed = counter+1+rand.Int64N(8*int64(others+1)), nil
		if !sleep(ctx, rand.N(time.Millisecond)) {
			res.Interrupted = true
			return res
		}
	}
}

// highestNumber returns the highest number that a node has granted, and the nodes that granted it.
func highestNumber(acquired *round) (number int64, nodes []bool) {
	nodes = make([]bool, len(acquired.calls))
	for i := range acquired.calls {
		v, ok := acquired.calls[i].Vote()
		switch {
		case !ok || v.Verdict != node.Granted || v.Number < number:
		case v.Number > number:
			clear(nodes)
			number = v.Number
			fallthrough
		default:
			nodes[i] = true
		}
	}
	return number, nodes
}

func count(nodes []bool) (n int) {
	for _, is := range nodes {
		if is {
			n++
		}
	}
	return n
}

// highestBid returns the highest counter of the nodes that refused a raise for it, 0 if none did, and how many
// other holders they know.
func highestBid(votes []node.Vote) (counter int64, others int32) {
	for _, v := range votes {
		if v.Reason == node.Outbid {
			counter, others = max(counter, v.Number), max(others, v.Holders)
		}
	}
	return counter, others
}

// Extend asks for ttl from now. It is won only by a quorum that still holds the claim; what it did on a minority
// does no harm. Where a node has lost the claim, a win repairs it.
func (c *Claim) Extend(ctx context.Context, ttl time.Duration) Result {
	e := c.engine
	c.longest = max(c.longest, ttl)
	start := e.clock.Now()
	x := &extension{claim: c, round: e.newRound(), repair: c.op(node.Repair, ttl)}
	op := c.op(node.Extend, ttl)
	for i, n := range e.nodes {
		x.round.ask(n, i, op, x)
	}
	res := x.round.wait(ctx, c.req.Limit)
	if res.Won() {
		return e.timed(res, ttl, start)
	}
	x.round.drop()
	return res
}

// extension is an extension under way. Once a quorum has confirmed it, it sets the claim again on every node that has
// lost it, also where that comes out later. A repair is no vote.
type extension struct {
	claim  *Claim
	round  *round
	repair *node.Op
}

// Reply counts the answer of one node, and repairs what can be repaired by now.
func (x *extension) Reply(call *node.Call) {
	v, _ := call.Vote()
	x.round.count(v.Verdict)
	c := x.claim
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.Verdict != node.Unknown {
		c.traces[call.Node].lost = v.Reason == node.Missing
	}
	if c.gone || !x.round.won() {
		return
	}
	for i := range c.traces {
		if t := &c.traces[i]; t.lost && t.replace(x.repair, i) {
			c.engine.nodes[i].Put(t.call)
		}
	}
}

// Torn reports whether a node answered that it does not have the claim, and was not repaired: an extension may do that.
func (c *Claim) Torn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.traces, func(t trace) bool {
		v, _ := t.call.Vote()
		return t.lost || v.Verdict == node.Refused
	})
}

// Verify asks the nodes whether they still hold the claim.
func (c *Claim) Verify(ctx context.Context) Result {
	r := c.engine.put(c.op(node.Verify, 0), nil)
	res := r.wait(ctx, c.req.Limit)
	if !res.Won() {
		r.drop()
	}
	return res
}

// op is a step of this claim.
func (c *Claim) op(kind node.Kind, ttl time.Duration) *node.Op {
	op := &node.Op{Kind: kind, Keys: c.req.Keys, Holder: c.req.Holder, TTL: ttl, Token: c.token}
	if c.req.Idle > 0 {
		op.Retain = c.longest + c.req.Idle
	}
	return op
}

// replace puts a repair in the place of the last call, and remembers what that may have left. It returns false while
// the last one is still under way.
func (t *trace) replace(op *node.Op, i int) bool {
	v, answered := t.call.Vote()
	if !answered {
		return false
	}
	switch {
	case v.Fate == node.InDoubt:
		t.doubts++
	case v.Verdict == node.Granted:
		t.set = true
	}
	t.call, t.lost = &node.Call{Op: op, Node: i, To: ignored{}}, false
	return true
}

// ignored receives answers that nobody waits for; the call remembers them.
type ignored struct{}

// Reply does nothing.
func (ignored) Reply(*node.Call) {}

// sleep waits for d; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
