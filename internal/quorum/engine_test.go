package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/internal/node/nodetest"
	"github.com/redquorum/locks/internal/quorum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 500 * time.Millisecond

// puppet is a node that answers as the test says, when the test says.
type puppet struct {
	name string
	hold bool // calls stay queued until the test takes them

	mu    sync.Mutex
	calls []*node.Call
	ops   []*node.Op // of the calls; an answered call forgets its own
	reply func(op *node.Op) node.Vote
}

func (p *puppet) String() string { return p.name }
func (p *puppet) Close() error   { return nil }

func (p *puppet) Put(c *node.Call) {
	p.mu.Lock()
	p.calls, p.ops = append(p.calls, c), append(p.ops, c.Op)
	reply, hold := p.reply, p.hold
	p.mu.Unlock()
	if !hold && c.Send() && reply != nil {
		c.Answer(reply(c.Op))
	}
}

// answer answers the i-th call.
func (p *puppet) answer(i int, v node.Vote) {
	p.mu.Lock()
	c := p.calls[i]
	p.mu.Unlock()
	c.Send()
	c.Answer(v)
}

// asked returns the kinds of the operations that were put, in order.
func (p *puppet) asked() (kinds []node.Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range p.ops {
		kinds = append(kinds, op.Kind)
	}
	return kinds
}

func (p *puppet) op(i int) node.Op {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.ops[i]
}

func puppets(n int) (ps []*puppet, e *quorum.Engine) {
	nodes := make([]node.Node, n)
	for i := range nodes {
		p := &puppet{name: fmt.Sprint(i)}
		ps, nodes[i] = append(ps, p), p
	}
	return ps, quorum.New(nodes, drift.Plain{}, 0.01)
}

func request(t *testing.T, holder string) quorum.Request {
	t.Helper()
	keys, err := node.NewKeys("lock", "x")
	if err != nil {
		t.Fatal(err)
	}
	return quorum.Request{Keys: []node.Keys{keys}, Holder: holder, TTL: 10 * time.Second, Idle: time.Hour, Limit: limit}
}

func granted(number int64) node.Vote { return node.Vote{Verdict: node.Granted, Number: number} }
func held(by string) node.Vote {
	return node.Vote{Verdict: node.Refused, Reason: node.Held, Holder: by, TTL: time.Second}
}
func missing() node.Vote { return node.Vote{Verdict: node.Refused, Reason: node.Missing} }

// attempt runs Acquire beside the test.
type attempt struct {
	claim *quorum.Claim
	res   quorum.Result
	done  bool
	after time.Duration
}

func acquire(ctx context.Context, e *quorum.Engine, req quorum.Request) *attempt {
	a := &attempt{}
	start := time.Now()
	go func() {
		a.claim, a.res = e.Acquire(ctx, req)
		a.after, a.done = time.Since(start), true
	}()
	synctest.Wait()
	return a
}

func TestAWonRoundDoesNotWaitForTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, e := puppets(3)
		a := acquire(t.Context(), e, request(t, "a"))
		ps[0].answer(0, granted(7))
		ps[2].answer(0, granted(7))
		synctest.Wait()
		if !a.done || !a.res.Won() || a.claim.Token() != 7 {
			t.Fatalf("%+v", a)
		}
		if len(ps[1].asked()) != 1 {
			t.Errorf("the slowest was asked %v", ps[1].asked())
		}
	})
}

func TestALostRoundIsDecidedWhenItsReasonIsCertain(t *testing.T) {
	unknown := node.Failed(errors.New("down"), false)
	for _, tt := range []struct {
		name        string
		votes       []node.Vote // by node; what is missing never comes
		after       time.Duration
		unreachable bool
	}{
		{"two refuse", []node.Vote{held("b"), held("b")}, 0, false},
		{"two are down", []node.Vote{unknown, unknown}, 0, true},
		{"one refuses, one is down, one refuses", []node.Vote{held("b"), unknown, held("b")}, 0, false},
		{"one refuses, one is down, one hangs", []node.Vote{held("b"), unknown}, limit, true},
		{"one grants, one refuses, one is down", []node.Vote{granted(1), held("b"), unknown}, 0, false},
		{"all hang", nil, limit, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ps, e := puppets(3)
			a := acquire(t.Context(), e, request(t, "a"))
			for i, v := range tt.votes {
				ps[i].answer(0, v)
			}
			time.Sleep(2 * limit)
			synctest.Wait()
			if !a.done || a.res.Won() || a.claim != nil || a.after != tt.after || a.res.Unreachable() != tt.unreachable {
				t.Errorf("%s: %+v", tt.name, a)
			}
			finish(ps, e)
		})
	}
}

// finish lets every puppet confirm what is still open, so that nothing is retried any more.
func finish(ps []*puppet, e *quorum.Engine) {
	for _, p := range ps {
		p.mu.Lock()
		p.hold, p.reply = false, func(*node.Op) node.Vote { return missing() }
		open := slices.Clone(p.calls)
		p.mu.Unlock()
		for _, c := range open {
			if _, ok := c.Vote(); !ok {
				c.Send()
				c.Answer(missing())
			}
		}
	}
	e.Drain(context.Background())
}

// A lost round is withdrawn wherever it left something or may have, and nowhere else.
func TestALostRoundIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, e := puppets(7)
		ps[6].hold = true
		a := acquire(t.Context(), e, request(t, "a"))
		ps[0].answer(0, granted(7))
		ps[1].answer(0, held("b"))
		ps[2].answer(0, node.Unanswered(errors.New("reset")))
		ps[3].answer(0, node.NotSent(errors.New("refused")))
		ps[4].answer(0, node.Failed(errors.New("MISCONF"), false))
		time.Sleep(2 * limit) // 5 was sent and is silent, 6 is queued
		synctest.Wait()
		if !a.done || a.res.Won() {
			t.Fatalf("%+v", a)
		}
		release := []node.Kind{node.Acquire, node.Release}
		for i, want := range [][]node.Kind{release, release[:1], release, release[:1], release, release, release[:1]} {
			if got := ps[i].asked(); !slices.Equal(got, want) {
				t.Errorf("node %d was asked %v, want %v", i, got, want)
			}
		}
		if ps[6].calls[0].Fate() != node.Unsent {
			t.Error("what was queued was not taken back")
		}
		for i, want := range map[int]time.Duration{0: 0, 2: 10 * time.Second, 4: 0, 5: 0} {
			if op := ps[i].op(1); op.Mark != want || op.Holder != "a" {
				t.Errorf("node %d: release %+v, want a mark of %v: only what was sent in vain can arrive late", i, op, want)
			}
		}
		finish(ps, e)
	})
}

func TestAWithdrawalIsRepeatedUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, e := puppets(1)
		var up atomic.Bool
		ps[0].reply = func(op *node.Op) node.Vote {
			switch {
			case op.Kind == node.Acquire:
				return node.Unanswered(errors.New("reset"))
			case !up.Load():
				return node.NotSent(errors.New("refused"))
			default:
				return missing()
			}
		}
		acquire(t.Context(), e, request(t, "a"))
		time.Sleep(3 * time.Second)
		if n := len(ps[0].asked()); n < 10 {
			t.Errorf("asked %d times in 3 s", n)
		}
		up.Store(true)
		time.Sleep(200 * time.Millisecond)
		n := len(ps[0].asked())
		time.Sleep(time.Minute)
		if len(ps[0].asked()) != n {
			t.Error("it went on after the answer")
		}
		if op := ps[0].op(n - 1); op.Kind != node.Release || op.Mark == 0 || op.MarkAlways {
			t.Errorf("the last release was %+v", op)
		}
		e.Drain(t.Context())
	})
}

func TestAWithdrawalEndsWithTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, e := puppets(1)
		ps[0].reply = func(*node.Op) node.Vote { return node.Unanswered(errors.New("reset")) }
		acquire(t.Context(), e, request(t, "a"))
		start := time.Now()
		e.Drain(t.Context())
		if d := time.Since(start); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("it ended after %v, the TTL is 10 s", d)
		}
	})
}

// What settles a withdrawal depends on what may still arrive.
func TestWhatSettlesAWithdrawal(t *testing.T) {
	lost := node.Unanswered(errors.New("reset"))
	for _, tt := range []struct {
		name     string
		acquire  *node.Vote // nil: comes only after the release was put
		late     node.Vote
		releases []node.Vote
		marks    []bool // of the releases
	}{
		{"answered before", new(granted(1)), node.Vote{}, []node.Vote{granted(0)}, []bool{false}},
		{"in doubt, and had come", new(lost), node.Vote{}, []node.Vote{granted(0)}, []bool{true}},
		{"in doubt, and had not come", new(lost), node.Vote{}, []node.Vote{missing()}, []bool{true}},
		{"under way, then answered", nil, granted(1), []node.Vote{granted(0)}, []bool{false}},
		{"under way, then in doubt, and had not come", nil, lost, []node.Vote{missing(), missing()}, []bool{false, true}},
		{"under way, then in doubt, but had come", nil, lost, []node.Vote{granted(0)}, []bool{false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ps, e := puppets(1)
			ctx, cancel := context.WithCancel(t.Context())
			a := acquire(ctx, e, request(t, "a"))
			if tt.acquire != nil {
				ps[0].answer(0, *tt.acquire)
				synctest.Wait()
				if a.claim != nil {
					a.claim.Withdraw()
				}
			} else {
				cancel() // withdraws at once
				synctest.Wait()
				ps[0].answer(0, tt.late)
			}
			for i, v := range tt.releases {
				ps[0].answer(1+i, v)
				synctest.Wait()
			}
			e.Drain(t.Context())
			cancel()
			var marks []bool
			for i := 1; i < len(ps[0].asked()); i++ {
				marks = append(marks, ps[0].op(i).Mark > 0)
			}
			if !slices.Equal(marks, tt.marks) {
				t.Errorf("%s: releases with marks %v, want %v", tt.name, marks, tt.marks)
			}
		})
	}
}

func TestALeaseThatIsUsedUpWhileItIsAcquiredIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ms []*memnode.Node
		var nodes []node.Node
		for i := range 3 {
			m := memnode.New(fmt.Sprint(i), time.Minute)
			m.Delay(600 * time.Millisecond)
			ms, nodes = append(ms, m), append(nodes, m)
		}
		e := quorum.New(nodes, drift.Plain{}, 0.01)
		req := request(t, "a")
		req.TTL, req.Limit = 500*time.Millisecond, time.Second
		claim, res := e.Acquire(t.Context(), req)
		if claim != nil || !res.Late || res.Won() {
			t.Fatalf("%v %+v", claim, res)
		}
		time.Sleep(time.Second)
		for _, m := range ms {
			if slices.Contains(m.Keys(), "lock:x") {
				t.Errorf("%v keeps the lock", m)
			}
		}
	})
}

// masters returns an engine over in-memory masters.
func masters(n int) (ms []*memnode.Node, e *quorum.Engine) {
	var nodes []node.Node
	for i := range n {
		m := memnode.New(fmt.Sprint(i), limit)
		ms, nodes = append(ms, m), append(nodes, m)
	}
	return ms, quorum.New(nodes, drift.Plain{}, 0.01)
}

func TestOnlyNodesThatLostTheLeaseAreRepairedAndOnlyByAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms, e := masters(3)
		claim, res := e.Acquire(t.Context(), request(t, "a"))
		if !res.Won() {
			t.Fatalf("%+v", res)
		}
		ms[0].Wipe()
		if res := claim.Extend(t.Context(), 10*time.Second); !res.Won() {
			t.Fatalf("%+v", res)
		}
		if res := claim.Extend(t.Context(), 10*time.Second); !res.Won() || !slices.Contains(ms[0].Keys(), "lock:x") {
			t.Errorf("a quorum confirmed, and node 0 has %q", ms[0].Keys())
		}
		ms[0].Wipe()
		ms[1].Wipe()
		if res := claim.Extend(t.Context(), 10*time.Second); res.Won() || !res.Refuted() {
			t.Errorf("a majority has lost it: %+v", res)
		}
		if strings.Contains(fmt.Sprint(ms[0].Keys(), ms[1].Keys()), "lock:x ") || len(ms[0].Keys())+len(ms[1].Keys()) > 0 {
			t.Errorf("a lost lease was created again: %q %q", ms[0].Keys(), ms[1].Keys())
		}
		claim.Withdraw()
		if keys := ms[2].Keys(); slices.Contains(keys, "lock:x") {
			t.Errorf("the rest was not withdrawn: %q", keys)
		}
	})
}

// ask is a shorthand for operations beside the engine.
func ask(m *memnode.Node, op *node.Op) node.Vote { return nodetest.Ask(m, op) }
