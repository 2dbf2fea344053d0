package memnode_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/internal/node/nodetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = time.Second

func TestTheEdgesOfEveryOperation(t *testing.T) {
	nodetest.Table(t, memnode.New("m", limit))
}

// Two of the same must be the same: otherwise the suite itself is at fault.
func TestConformanceWithItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memnode.New("a", limit), memnode.New("b", limit)
		nodetest.Run(t, nodetest.Pair{A: a, B: b, Pass: time.Sleep, Forget: func() { a.Wipe(); b.Wipe() }}, 1, 5000)
	})
}

func acquire(t *testing.T, holder string, ttl time.Duration) *node.Op {
	t.Helper()
	keys, err := node.NewKeys("lock", "x")
	if err != nil {
		t.Fatal(err)
	}
	return &node.Op{Kind: node.Acquire, Keys: []node.Keys{keys}, Holder: holder, TTL: ttl, Floor: time.Now().UnixMicro(), Retain: time.Hour}
}

func TestALockEndsAfterItsLastMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnode.New("m", limit)
		nodetest.Ask(n, acquire(t, "a", 50*time.Millisecond))
		time.Sleep(50 * time.Millisecond)
		if v := nodetest.Ask(n, acquire(t, "b", time.Second)); v.Reason != node.Held || v.TTL != 0 {
			t.Errorf("in its last millisecond: %+v", v)
		}
		time.Sleep(time.Millisecond)
		if v := nodetest.Ask(n, acquire(t, "b", time.Second)); v.Verdict != node.Granted {
			t.Errorf("after it: %+v", v)
		}
	})
}

// The life of a counter is never shortened: not by a shorter idle time, and "never" not at all.
func TestACounterLivesAsLongAsTheLongestThatWasAsked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		retain []time.Duration // of one acquire after the other
		lives  time.Duration   // 0: for ever
	}{
		{"shorter after longer", []time.Duration{time.Hour, time.Minute}, time.Hour},
		{"longer after shorter", []time.Duration{time.Minute, time.Hour}, time.Hour},
		{"for ever, then an hour", []time.Duration{0, time.Hour}, 0},
		{"an hour, then for ever", []time.Duration{time.Hour, 0}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := memnode.New("m", limit)
			for _, retain := range tt.retain {
				op := acquire(t, "a", time.Second)
				op.Retain = retain
				nodetest.Ask(n, op)
			}
			fence := acquire(t, "a", time.Second).Keys[0].Fence
			time.Sleep(max(tt.lives, time.Minute) - time.Second)
			if !slices.Contains(n.Keys(), fence) {
				t.Errorf("%s: the counter is gone early", tt.name)
			}
			time.Sleep(2 * time.Hour)
			if has := slices.Contains(n.Keys(), fence); has != (tt.lives == 0) {
				t.Errorf("%s: three hours later the counter is there: %v", tt.name, has)
			}
		})
	}
}

type recorder struct {
	fate atomic.Uint32
	at   atomic.Int64
}

func (r *recorder) Reply(c *node.Call) {
	r.fate.Store(uint32(c.Fate()) + 1)
	r.at.Store(time.Now().UnixNano())
}

func TestAFrozenMasterRunsLateWhatWasSentToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnode.New("m", limit)
		n.Freeze()
		var r recorder
		start := time.Now()
		n.Put(&node.Call{Op: acquire(t, "a", time.Minute), To: &r})
		time.Sleep(2 * limit)
		if r.fate.Load() != uint32(node.InDoubt)+1 || time.Unix(0, r.at.Load()).Sub(start) != limit {
			t.Errorf("fate %d after %v, want in doubt after %v", r.fate.Load(), time.Unix(0, r.at.Load()).Sub(start), limit)
		}
		if keys := n.Keys(); len(keys) != 0 {
			t.Errorf("a frozen master has %q", keys)
		}
		n.Thaw()
		synctest.Wait()
		if keys := n.Keys(); !slices.Contains(keys, "lock:x") {
			t.Errorf("a thawed master has %q, the acquire was delivered late", keys)
		}
	})
}

func TestDelayIsARoundTripAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnode.New("m", limit)
		n.Delay(100 * time.Millisecond)
		start := time.Now()
		var order []string
		done := make(chan string, 2)
		for _, holder := range []string{"a", "b"} {
			n.Put(&node.Call{Op: acquire(t, holder, time.Minute), To: receiver(func(c *node.Call) { done <- c.Op.Holder })})
		}
		order = append(order, <-done, <-done)
		if d := time.Since(start); d != 100*time.Millisecond || !slices.Equal(order, []string{"a", "b"}) {
			t.Errorf("answers of %q after %v", order, d)
		}
	})
}

type receiver func(c *node.Call)

func (r receiver) Reply(c *node.Call) { r(c) }

func TestAStoppedMasterRefusesAndForgetsNothing(t *testing.T) {
	n := memnode.New("m", limit)
	nodetest.Ask(n, acquire(t, "a", time.Minute))
	n.Stop()
	if v := nodetest.Ask(n, acquire(t, "b", time.Minute)); v.Fate != node.Unsent || v.Err == nil {
		t.Errorf("a stopped master answered %+v", v)
	}
	n.Start()
	if v := nodetest.Ask(n, acquire(t, "b", time.Minute)); v.Reason != node.Held {
		t.Errorf("after the start: %+v", v)
	}
	n.Wipe()
	if v := nodetest.Ask(n, acquire(t, "b", time.Minute)); v.Verdict != node.Granted {
		t.Errorf("after the wipe: %+v", v)
	}
}

func TestWhatIsUnderWayIsInDoubtWhenTheMasterStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnode.New("m", limit)
		n.Delay(100 * time.Millisecond)
		var r recorder
		n.Put(&node.Call{Op: acquire(t, "a", time.Minute), To: &r})
		n.Stop()
		if r.fate.Load() != uint32(node.InDoubt)+1 {
			t.Errorf("fate %d, want in doubt", r.fate.Load())
		}
		time.Sleep(2 * limit)
		_ = n.Close()
		n.Start()
		if v := nodetest.Ask(n, acquire(t, "b", time.Minute)); v.Fate != node.Unsent {
			t.Errorf("a closed master answered %+v", v)
		}
	})
}

// Locks on names that are never asked for again must not stay in memory.
func TestExpiredKeysArePurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnode.New("m", limit)
		for i := range 30_000 {
			op := acquire(t, "a", 10*time.Millisecond)
			op.Keys[0], _ = node.NewKeys("lock", string(rune(i)))
			op.Retain = 10 * time.Millisecond
			nodetest.Ask(n, op)
			if i%1000 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		if size := n.Size(); size > 10_000 {
			t.Errorf("%d keys are kept, all but the last 2,000 have expired", size)
		}
	})
}
