package redlock_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/locks/fencing"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/nodetest"
	"github.com/redquorum/locks/redlock"
)

func TestTokensIncreaseOverDifferentQuorums(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		var last fencing.Token
		for i := range 30 {
			down := w.nodes[i%3]
			down.Stop()
			l := acquire(t, c.Mutex("a"))
			if l.Token() <= last {
				t.Errorf("round %d: token %d after %d", i, l.Token(), last)
			}
			last = l.Token()
			down.Start()
			release(t, l)
			time.Sleep(ttl + time.Second)
		}
	})
}

// The counters are far apart: what max-of-INCR alone gives would go back from 101 to 7.
func TestTokensIncreaseOverCountersThatDriftedApart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		ahead := int64(1) << 52
		lift := &node.Op{Kind: node.Acquire, Keys: []node.Keys{keysOf(t, "a")}, Holder: "other", TTL: time.Second, Floor: time.Now().UnixMicro(), Retain: time.Hour}
		if v := nodetest.Ask(w.nodes[0], lift); v.Verdict != node.Granted {
			t.Fatal(v)
		}
		nodetest.Ask(w.nodes[0], &node.Op{Kind: node.Raise, Keys: []node.Keys{keysOf(t, "a")}, Holder: "other", Token: ahead, Retain: time.Hour})
		time.Sleep(2 * time.Second)
		c := w.client()
		var last fencing.Token
		for i := range 9 {
			w.nodes[i%3].Stop()
			l := acquire(t, c.Mutex("a"))
			if l.Token() <= last || (i == 1 && int64(l.Token()) <= ahead) {
				t.Errorf("round %d: token %d after %d", i, l.Token(), last)
			}
			last = l.Token()
			w.nodes[i%3].Start()
			release(t, l)
			time.Sleep(ttl)
		}
	})
}

func TestTokensIncreaseThoughAMinorityForgets(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		c := w.client()
		var last fencing.Token
		for i := range 50 {
			l := acquire(t, c.Mutex("a"))
			if l.Token() <= last {
				t.Errorf("round %d: token %d after %d", i, l.Token(), last)
			}
			last = l.Token()
			w.nodes[i%5].Wipe()
			w.nodes[(i+1)%5].Wipe()
			if i%2 == 0 {
				wantErr(t, l.Extend(t.Context(), ttl), nil)
			}
			release(t, l)
		}
	})
}

func TestTokensIncreaseWhateverTheClientsClocksSay(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		offs := []time.Duration{0, time.Hour, -time.Hour, -24 * 365 * time.Hour, 24 * 365 * time.Hour, -time.Microsecond}
		var clients []*peer
		for _, off := range offs {
			clients = append(clients, w.clientWith(skewed(off)))
		}
		rnd := rand.New(rand.NewPCG(1, 1))
		var last fencing.Token
		for i := range 200 {
			k := rnd.IntN(len(clients))
			l := acquire(t, clients[k].Mutex("a"))
			if l.Token() <= last {
				t.Errorf("round %d, clock off by %v: token %d after %d", i, offs[k], l.Token(), last)
			}
			last = l.Token()
			release(t, l)
			if rnd.IntN(3) == 0 {
				time.Sleep(time.Duration(rnd.IntN(1000)) * time.Microsecond)
			}
		}
	})
}

func TestTokensAreUniqueUnderContention(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var last fencing.Token
		var wg sync.WaitGroup
		for i := range 6 {
			c := w.clientWith(skewed(time.Duration(i-3) * time.Second))
			for k, line := range c.lines {
				d := time.Duration((i+k)%3+1) * time.Millisecond
				line.meddle(func(*node.Op) fault { return fault{delay: d} })
			}
			wg.Go(func() {
				for range 20 {
					l := acquire(t, c.Mutex("a"))
					mu.Lock()
					if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					last = l.Token()
					mu.Unlock()
					release(t, l)
				}
			})
		}
		wg.Wait()
	})
}

func TestACounterOutlivesItsLastLeaseByTheIdleTTL(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client(redlock.WithFenceIdleTTL(time.Minute))
		l := acquire(t, c.Mutex("a"))
		release(t, l)
		time.Sleep(time.Minute)
		if n := len(w.litter()) + len(w.keys(isFence)); n != 3 {
			t.Errorf("%d counters after the idle TTL since the release, want 3: it counts from the end of the lease", n)
		}
		time.Sleep(ttl + time.Second)
		if left := w.keys(func(string) bool { return true }); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if next := acquire(t, c.Mutex("a")); next.Token() <= l.Token() {
			t.Errorf("token %d after %d, whose counter had expired", next.Token(), l.Token())
		}
	})
}

func TestACounterDoesNotExpireWhileTheLockIsHeld(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		acquire(t, w.client(redlock.WithFenceIdleTTL(redlock.MinDuration), redlock.WithAutoExtend(true)).Mutex("a"))
		for range 200 {
			time.Sleep(ttl / 7)
			if n := len(w.keys(isFence)); n != 3 {
				t.Fatalf("%d counters while the lock is held", n)
			}
		}
	})
}

func TestACounterThatNeverExpiresStaysSo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		release(t, acquire(t, w.client(redlock.WithFenceIdleTTL(0)).Mutex("a")))
		l := acquire(t, w.client(redlock.WithFenceIdleTTL(time.Second)).Mutex("a"))
		wantErr(t, l.Extend(t.Context(), time.Second), nil)
		release(t, l)
		time.Sleep(10 * 365 * 24 * time.Hour)
		if n := len(w.keys(isFence)); n != 3 {
			t.Errorf("%d counters after ten years, want 3", n)
		}
	})
}

func TestAShorterIdleTTLDoesNotShortenACounter(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		release(t, acquire(t, w.client(redlock.WithFenceIdleTTL(time.Hour)).Mutex("a")))
		release(t, acquire(t, w.client(redlock.WithFenceIdleTTL(time.Second)).Mutex("a")))
		time.Sleep(time.Hour - time.Second)
		if n := len(w.keys(isFence)); n != 3 {
			t.Errorf("%d counters, want 3", n)
		}
	})
}

func TestTheTokenStaysWhileTheLeaseLives(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
		token := l.Token()
		for i := range 12 {
			w.nodes[i%3].Wipe()
			wantErr(t, l.Extend(t.Context(), ttl), nil)
			time.Sleep(ttl / 2)
		}
		release(t, l)
		if l.Token() != token {
			t.Errorf("token %d became %d", token, l.Token())
		}
	})
}

func TestATokenCostsNoExtraRoundTripWhereNobodyContends(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		for range 10 {
			release(t, acquire(t, c.Mutex("a")))
		}
		for i, l := range c.lines {
			if l.calls() != 20 {
				t.Errorf("%s: %d calls for ten leases, want an acquire and a release for each", w.nodes[i], l.calls())
			}
		}
	})
}

func TestALockWithoutATokenIsNotKept(t *testing.T) {
	tests := map[string]struct {
		raise meddler
		want  error
	}{
		"raise fails":           {answer(node.Failed(errLost, false)), redlock.ErrNoQuorum},
		"raise cannot be sent":  {cut, redlock.ErrNoQuorum},
		"raise is not answered": {deafen, redlock.ErrNoQuorum},
		"lock is gone":          {answer(node.Vote{Verdict: node.Refused, Reason: node.Missing, Fate: node.Done}), redlock.ErrNotAcquired},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				scatterCounters(t, w)
				c := w.client()
				c.meddle(only(node.Raise, test.raise))
				l, err := c.Mutex("a").TryAcquire(t.Context())
				if len(c.lines[0].sent(node.Raise))+len(c.lines[1].sent(node.Raise)) == 0 {
					t.Fatal("nothing was raised, the counters agree")
				}
				if l != nil {
					t.Errorf("a lease with token %d", l.Token())
				}
				wantErr(t, err, test.want)
				time.Sleep(2 * limit)
				w.wantFree()
			})
		})
	}
}

// The raise, and all that follows it, arrives when the lock has long had another holder.
func TestALateRaiseCannotOutbidTheSuccessor(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		scatterCounters(t, w)
		slow := w.client(redlock.WithTTL(time.Second))
		var stuck atomic.Bool
		slow.meddle(func(op *node.Op) fault {
			if op.Kind == node.Raise || stuck.Load() {
				stuck.Store(true)
				return fault{late: 2 * time.Second}
			}
			return fault{}
		})
		_, err := slow.Mutex("a").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNoQuorum)
		l := acquire(t, w.client().Mutex("a"))
		time.Sleep(3 * time.Second)
		wantErr(t, l.Verify(t.Context()), nil)
		release(t, l)
		if next := acquire(t, w.client().Mutex("a")); next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
	})
}

// scatterCounters makes every node's counter another.
func scatterCounters(t *testing.T, w *world) {
	t.Helper()
	for i, n := range w.nodes {
		floor := time.Now().Add(time.Duration(i) * 100 * time.Millisecond).UnixMicro()
		nodetest.Ask(n, &node.Op{Kind: node.Acquire, Keys: []node.Keys{keysOf(t, "a")}, Holder: "x", TTL: time.Second, Floor: floor, Retain: time.Hour})
		nodetest.Ask(n, &node.Op{Kind: node.Release, Keys: []node.Keys{keysOf(t, "a")}, Holder: "x"})
	}
}

func TestAStaleWriterIsRefused(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		guard := fencing.NewMemoryGuard()
		stale := acquire(t, w.client().Mutex("a"))
		wantErr(t, guard.Check(t.Context(), "a", stale.Token()), nil)
		wantErr(t, guard.Check(t.Context(), "a", stale.Token()), nil) // a holder may write twice
		time.Sleep(2 * ttl)
		next := acquire(t, w.client().Mutex("a"))
		wantErr(t, guard.Check(t.Context(), "a", next.Token()), nil)
		wantErr(t, guard.Check(t.Context(), "a", stale.Token()), fencing.ErrStale)
	})
}

func TestHoldersAreUnique(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		c, d := w.client(), w.client()
		seen := map[string]bool{}
		for range 500 {
			for _, m := range []*redlock.Mutex{c.Mutex("a"), d.Mutex("a")} {
				l := acquire(t, m)
				if seen[l.Holder()] {
					t.Fatalf("holder %s twice", l.Holder())
				}
				seen[l.Holder()] = true
				release(t, l)
			}
		}
	})
}
