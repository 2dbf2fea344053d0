package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/internal/quorum"
)

// The example of design §4: counters A=high, B, C low; a grant by {A, B}, then one by {B, C}.
func TestATokenIsAboveEarlierOnesWhateverTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms, e := masters(3)
		req := request(t, "far ahead")
		high := time.Now().UnixMicro() + 3_600_000_000
		for _, op := range []*node.Op{
			{Kind: node.Acquire, Keys: req.Keys, Holder: "far ahead", TTL: time.Minute, Retain: time.Hour},
			{Kind: node.Raise, Keys: req.Keys, Holder: "far ahead", Token: high, Retain: time.Hour},
			{Kind: node.Release, Keys: req.Keys, Holder: "far ahead"},
		} {
			if v := ask(ms[0], op); v.Verdict != node.Granted {
				t.Fatalf("%v: %+v", op.Kind, v)
			}
		}
		last := high
		for i, down := range []int{2, 0, 1, 0, 2, 1} {
			ms[down].Stop()
			claim, res := e.Acquire(t.Context(), request(t, fmt.Sprint(i)))
			if !res.Won() || claim.Token() <= last {
				t.Fatalf("round %d without node %d: token %d after %d, %+v", i, down, claim.Token(), last, res)
			}
			last = claim.Token()
			claim.Release(t.Context(), 0)
			ms[down].Start()
		}
	})
}

func TestATokenIsRaisedOnlyWhileTheLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, e := puppets(3)
		a := acquire(t.Context(), e, request(t, "a"))
		ps[0].answer(0, granted(100))
		ps[1].answer(0, granted(5))
		synctest.Wait()
		if a.done {
			t.Fatal("a token was handed out that only one node knows")
		}
		if op := ps[1].op(1); op.Kind != node.Raise || op.Token != 100 {
			t.Fatalf("node 1 was asked %+v", op)
		}
		if len(ps[0].asked()) != 1 {
			t.Errorf("node 0 granted the token and was asked %v", ps[0].asked())
		}
		ps[1].answer(1, missing())
		ps[2].answer(0, held("b"))
		ps[2].answer(1, held("b"))
		synctest.Wait()
		if !a.done || a.res.Won() {
			t.Errorf("the lock is gone on a majority: %+v", a)
		}
		finish(ps, e)
	})
}

// A counter that somebody else has brought to the very token does not count: two holders would get one.
func TestATokenThatSomebodyElseReachedIsNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, e := puppets(3)
		a := acquire(t.Context(), e, request(t, "a"))
		ps[0].answer(0, granted(100))
		ps[1].answer(0, granted(5))
		synctest.Wait()
		ps[1].answer(1, node.Vote{Verdict: node.Refused, Reason: node.Outbid, Number: 100, Holders: 2})
		ps[2].answer(0, granted(6))
		ps[2].answer(1, node.Vote{Verdict: node.Refused, Reason: node.Outbid, Number: 120, Holders: 1})
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		raise := ps[1].op(len(ps[1].asked()) - 1)
		if raise.Kind != node.Raise || raise.Token <= 120 || raise.Token > 120+8*3+1 {
			t.Fatalf("the next bid is %+v, want one above 120, with room for three holders", raise)
		}
		for _, p := range ps {
			p.answer(len(p.asked())-1, node.Vote{Verdict: node.Granted})
		}
		synctest.Wait()
		if !a.done || !a.res.Won() || a.claim.Token() != raise.Token {
			t.Errorf("%+v", a)
		}
		a.claim.Withdraw()
		finish(ps, e)
	})
}

func TestATokenEndsWithTheCallerWhileItIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, e := puppets(3)
		ctx, cancel := context.WithCancel(t.Context())
		a := acquire(ctx, e, request(t, "a"))
		ps[0].answer(0, granted(100))
		ps[1].answer(0, granted(5))
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !a.done || !a.res.Interrupted || a.claim != nil {
			t.Errorf("%+v", a)
		}
		finish(ps, e)
	})
}

// Random schedules of messages, over masters whose counters drift apart, with clients whose clocks are anything: the
// tokens increase in the order of the grants, and none is handed out twice (I3). Exclusion is checked on the way (I1).
func TestTokensOverRandomSchedules(t *testing.T) {
	schedules := 1500
	if testing.Short() {
		schedules = 300
	}
	for seed := range uint64(schedules) {
		synctest.Test(t, func(t *testing.T) { runSchedule(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type offClock time.Duration

func (o offClock) Now() drift.Instant { return drift.Instant{Wall: time.Now().Add(time.Duration(o))} }
func (o offClock) Since(i drift.Instant) time.Duration {
	return time.Now().Add(time.Duration(o)).Sub(i.Wall)
}

func runSchedule(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var ms []*memnode.Node
	var nodes []node.Node
	for i := range 3 {
		m := memnode.New(fmt.Sprint(i), 40*time.Millisecond)
		m.Delay(time.Duration(rng.Int64N(int64(10 * time.Millisecond))))
		ms, nodes = append(ms, m), append(nodes, m)
	}
	type grant struct {
		token      int64
		from, till time.Time
	}
	grants := make(chan grant, 1000)
	running := 4
	done := make(chan struct{})
	for client := range running {
		mine := rand.New(rand.NewPCG(seed, uint64(client)))
		e := quorum.New(nodes, offClock(mine.Int64N(int64(4*time.Hour))-int64(2*time.Hour)), 0.01)
		go func() {
			defer func() { done <- struct{}{} }()
			for try := range 12 {
				req := request(t, fmt.Sprintf("%d-%d", client, try))
				req.TTL, req.Limit = 300*time.Millisecond, 50*time.Millisecond
				if claim, res := e.Acquire(context.Background(), req); res.Won() {
					from := time.Now()
					time.Sleep(time.Duration(mine.Int64N(int64(5 * time.Millisecond))))
					grants <- grant{claim.Token(), from, time.Now()}
					claim.Release(context.Background(), 0)
				}
				time.Sleep(time.Duration(mine.Int64N(int64(20 * time.Millisecond))))
			}
			e.Drain(context.Background())
		}()
	}
	go func() { // one master at a time is frozen or stopped
		for range 20 {
			m := ms[rng.IntN(len(ms))]
			m.Delay(time.Duration(rng.Int64N(int64(30 * time.Millisecond))))
			fail, mend := m.Freeze, m.Thaw
			if rng.IntN(2) == 0 {
				fail, mend = m.Stop, m.Start
			}
			fail()
			time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
			mend()
		}
	}()
	for range running {
		<-done
	}
	close(grants)
	var all []grant
	for g := range grants {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b grant) int { return a.from.Compare(b.from) })
	for i, g := range all[:max(0, len(all)-1)] {
		next := all[i+1]
		if next.from.Before(g.till) {
			t.Errorf("two at the same time: %+v, %+v", g, next)
		}
		if next.token <= g.token {
			t.Errorf("token %d after %d", next.token, g.token)
		}
	}
	time.Sleep(2 * time.Second)
	for _, m := range ms {
		if slices.Contains(m.Keys(), "lock:x") {
			t.Errorf("%v keeps the lock: %q", m, m.Keys())
		}
	}
}
