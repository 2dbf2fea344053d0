package redlock_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/redlock"
)

// faults are the ways in which a minority may fail.
var faults = map[string]func(n *memnode.Node){
	"stopped": (*memnode.Node).Stop,
	"frozen":  (*memnode.Node).Freeze,
	"slow":    func(n *memnode.Node) { n.Delay(3 * limit) },
	"wiped":   (*memnode.Node).Wipe,
}

func TestASoleContenderHoldsEveryNode(t *testing.T) {
	for n := 1; n <= 5; n++ {
		bubble(t, n, func(t *testing.T, w *world) {
			l := acquire(t, w.client().Mutex("a"))
			wantHeld(t, l, valid(ttl))
			w.wantLocks(n)
			for _, node := range w.nodes {
				if !holds(t, node, "a", l.Holder()) {
					t.Errorf("%s does not know the holder", node)
				}
			}
			if l.Name() != "a" || len(l.Names()) != 1 || l.Names()[0] != "a" {
				t.Errorf("lease of %q, %q", l.Name(), l.Names())
			}
			release(t, l)
			w.wantFree()
		})
	}
}

func TestValidityIsCountedFromBeforeTheFirstSend(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.Delay(60 * time.Millisecond)
		}
		m := w.client().Mutex("a")
		var l *redlock.Lease
		wantTook(t, 60*time.Millisecond, func() { l = acquire(t, m) })
		wantHeld(t, l, valid(ttl)-60*time.Millisecond)
	})
}

func TestValidityIsCountedFromBeforeTheFirstSendThoughATokenTookASecondRound(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		scatterCounters(t, w)
		for _, n := range w.nodes {
			n.Delay(60 * time.Millisecond)
		}
		m := w.client().Mutex("a")
		var l *redlock.Lease
		wantTook(t, 120*time.Millisecond, func() { l = acquire(t, m) })
		wantHeld(t, l, valid(ttl)-120*time.Millisecond)
	})
}

func TestTheDriftFactorShortensTheValidity(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		wantHeld(t, acquire(t, w.client(redlock.WithDriftFactor(0)).Mutex("a")), ttl-2*time.Millisecond)
		wantHeld(t, acquire(t, w.client(redlock.WithDriftFactor(0.2)).Mutex("b")), 8*time.Second-2*time.Millisecond)
	})
}

func TestOfManyContendersExactlyOneWins(t *testing.T) {
	for _, contenders := range []int{2, 3, 10} {
		bubble(t, 3, func(t *testing.T, w *world) {
			var wg sync.WaitGroup
			var won atomic.Int32
			for i := range contenders {
				c := w.client()
				// Every client has another node next door.
				for k, l := range c.lines {
					d := time.Duration((i+k)%3+1) * time.Millisecond
					l.meddle(func(*node.Op) fault { return fault{delay: d} })
				}
				wg.Go(func() {
					_, err := c.Mutex("a").TryAcquire(t.Context())
					if err == nil {
						won.Add(1)
						return
					}
					wantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d of %d contenders won", won.Load(), contenders)
			}
		})
	}
}

func TestRacersWinSoonAlsoWithOneNodeDown(t *testing.T) {
	for _, down := range []int{0, 1} {
		bubble(t, 3, func(t *testing.T, w *world) {
			for _, n := range w.nodes[:down] {
				n.Stop()
			}
			clients := []*peer{w.client(), w.client(), w.client()}
			for i, c := range clients {
				for k, l := range c.lines {
					d := time.Duration((i+k)%3+1) * time.Millisecond
					l.meddle(func(*node.Op) fault { return fault{delay: d} })
				}
			}
			for range 30 {
				start, first := time.Now(), make(chan time.Duration, len(clients))
				var wg sync.WaitGroup
				for _, c := range clients {
					wg.Go(func() {
						l := acquire(t, c.Mutex("a"))
						first <- time.Since(start)
						release(t, l)
					})
				}
				wg.Wait()
				if d := <-first; d > time.Second {
					t.Errorf("nobody won for %v", d)
				}
			}
		})
	}
}

func TestAHundredTasksNeverOverlap(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for i, n := range w.nodes {
			n.Delay(time.Duration(i+1) * time.Millisecond)
		}
		clients := []*peer{w.client(), w.client(), w.client(), w.client()}
		var wg sync.WaitGroup
		var inside atomic.Int32
		for i := range 100 {
			wg.Go(func() {
				l := acquire(t, clients[i%len(clients)].Mutex("a"))
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d tasks at once", n)
				}
				time.Sleep(5 * time.Millisecond)
				inside.Add(-1)
				release(t, l)
			})
		}
		wg.Wait()
		time.Sleep(limit)
		w.wantFree()
	})
}

func TestNamesDoNotBlockEachOther(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		for i := range 50 {
			wantTook(t, 0, func() { acquire(t, c.Mutex(fmt.Sprint(i))) })
		}
		w.wantLocks(150)
	})
}

func TestEverythingWorksWithAMinorityDown(t *testing.T) {
	for name, fail := range faults {
		for _, size := range []int{3, 4, 5, 7} {
			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) {
				bubble(t, size, func(t *testing.T, w *world) {
					c := w.client()
					for _, n := range w.minority() {
						fail(n)
					}
					wantTook(t, 0, func() {
						l := acquire(t, c.Mutex("a"))
						wantHeld(t, l, valid(ttl))
						wantErr(t, l.Verify(t.Context()), nil)
						wantErr(t, l.Extend(t.Context(), 2*ttl), nil)
						wantHeld(t, l, valid(2*ttl))
						release(t, l)
					})
				})
			})
		}
	}
}

func TestAMajorityDownIsNoQuorum(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // a wiped node answers
		}
		for _, size := range []int{1, 2, 3, 4, 5} {
			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) {
				bubble(t, size, func(t *testing.T, w *world) {
					c := w.client()
					for _, n := range w.nodes[:(size+1)/2] { // half of an even number is enough
						fail(n)
					}
					l, err := c.Mutex("a").TryAcquire(t.Context())
					if l != nil {
						t.Error("a lease without a quorum")
					}
					wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrNotAcquired)
				})
			})
		}
	}
}

func TestAHangingMajorityEndsATryWithinTheNodeTimeout(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		for _, n := range w.majority() {
			n.Freeze()
		}
		if d := took(func() { _, _ = c.Mutex("a").TryAcquire(t.Context()) }); d > limit {
			t.Errorf("a try took %v, one node may take %v", d, limit)
		}
	})
}

func TestARoundThatUsedUpTheLeaseIsLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		clock := &jumper{}
		c := w.clientWith(clock, redlock.WithRetry(redlock.RetryPolicy{Attempts: 3}))
		c.lines[0].meddle(only(node.Acquire, func(*node.Op) fault {
			clock.jump(ttl) // the machine sleeps while the round is under way
			return fault{}
		}))
		for _, acquire := range []func(*testing.T) (*redlock.Lease, error){
			func(t *testing.T) (*redlock.Lease, error) { return c.Mutex("a").TryAcquire(t.Context()) },
			func(t *testing.T) (*redlock.Lease, error) { return c.Mutex("a").Acquire(t.Context()) },
		} {
			if l, err := acquire(t); l != nil || err == nil {
				t.Errorf("a lease that is over: %v, %v", l, err)
			}
			w.wantFree()
		}
	})
}

func TestAFailedAcquireLeavesNothingOnTheNodesThatItWon(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		take(t, w.nodes[0], "a", "other", time.Minute)
		take(t, w.nodes[1], "a", "other", time.Minute)
		_, err := c.Mutex("a").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
		w.wantLocks(2)
	})
}

func TestAFailedAcquireLeavesNothingOnTheNodesThatItMayHaveWon(t *testing.T) {
	tests := map[string]struct{ fail, mend func(n *memnode.Node) }{
		"frozen":             {(*memnode.Node).Freeze, (*memnode.Node).Thaw},
		"too slow":           {func(n *memnode.Node) { n.Delay(3 * limit) }, func(n *memnode.Node) { n.Delay(0) }},
		"answers just late":  {func(n *memnode.Node) { n.Delay(limit + 1) }, func(n *memnode.Node) { n.Delay(0) }},
		"answers just there": {func(n *memnode.Node) { n.Delay(limit) }, func(n *memnode.Node) { n.Delay(0) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client()
				take(t, w.nodes[2], "a", "other", time.Hour)
				test.fail(w.nodes[0])
				test.fail(w.nodes[1])
				if l, err := c.Mutex("a").TryAcquire(t.Context()); err == nil {
					_ = l.Release(t.Context()) // an answer at the very limit may count
				}
				time.Sleep(10 * limit)
				test.mend(w.nodes[0])
				test.mend(w.nodes[1])
				time.Sleep(time.Second)
				w.wantLocks(1)
				time.Sleep(ttl)
				if litter := w.litter(); len(litter) > 0 {
					t.Errorf("left after the TTL: %q", litter)
				}
			})
		})
	}
}

func TestGrantsWhoseAnswersAreLostAreUndoneAndTheNextOneWins(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		c.meddle(only(node.Acquire, deafen))
		_, err := c.Mutex("a").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrNotAcquired)
		w.wantFree()
		wantTook(t, 0, func() { acquire(t, w.client().Mutex("a")) })
	})
}

func TestAForeignKeyBlocksOnlyOnAMajority(t *testing.T) {
	t.Run("on a minority neither blocks nor is touched", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			take(t, w.nodes[0], "a", "foreign", time.Hour)
			c := w.client()
			l := acquire(t, c.Mutex("a"))
			wantErr(t, l.Extend(t.Context(), 2*ttl), nil)
			release(t, l)
			synctest.Wait()
			if !holds(t, w.nodes[0], "a", "foreign") || left(t, w.nodes[0], "a") != time.Hour {
				t.Error("the foreign key was touched")
			}
			w.wantLocks(1)
		})
	})
	t.Run("on a majority blocks until it ends", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			for _, n := range w.majority() {
				take(t, n, "a", "foreign", time.Second)
			}
			c := w.client()
			_, err := c.Mutex("a").TryAcquire(t.Context())
			wantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
			if d := took(func() { acquire(t, c.Mutex("a")) }); d < time.Second || d > 1100*time.Millisecond {
				t.Errorf("acquired after %v, the foreign key ended after 1 s", d)
			}
		})
	})
}

func TestAMutexIsNotReentrant(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a")
		acquire(t, m)
		l, err := m.TryAcquire(t.Context())
		if l != nil {
			t.Error("a second lease")
		}
		wantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
	})
}

func TestALockIsFreeAfterItsTTLWithoutRelease(t *testing.T) {
	for _, d := range []time.Duration{10 * time.Millisecond, time.Second, time.Hour} {
		bubble(t, 3, func(t *testing.T, w *world) {
			holder := w.tiny()
			l := acquire(t, holder.Mutex("a", redlock.WithTTL(d)))
			holder.meddle(cut)
			other := w.client().Mutex("a")
			time.Sleep(d - time.Millisecond)
			_, err := other.TryAcquire(t.Context())
			if !errors.Is(err, redlock.ErrNotAcquired) {
				t.Errorf("TTL %v, a millisecond before its end: %v", d, err)
			}
			time.Sleep(2 * time.Millisecond)
			acquire(t, other)
			wantOver(t, l, redlock.ErrLeaseLost)
		})
	}
}

func TestALeaseThatRanOutIsWithdrawnAtItsDeadline(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		acquire(t, w.client().Mutex("a"))
		time.Sleep(valid(ttl) - 1)
		w.wantLocks(3)
		time.Sleep(time.Nanosecond)
		w.wantFree()
	})
}

func TestATTLIsCutToMilliseconds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithTTL(time.Second+999*time.Microsecond)))
		if v := l.Validity(); v > valid(time.Second) {
			t.Errorf("validity %v, more than the nodes' second is worth", v)
		}
	})
}

func TestPrefixesIsolate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		acquire(t, w.client().Mutex("a"))
		acquire(t, w.client(redlock.WithKeyPrefix("")).Mutex("a"))
		acquire(t, w.client(redlock.WithKeyPrefix("other")).Mutex("a"))
		_, err := w.client(redlock.WithKeyPrefix("lock")).Mutex("a").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNotAcquired)
		_, err = w.client(redlock.WithKeyPrefix("")).Mutex("lock:a").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNotAcquired) // as documented, the key is PREFIX:NAME
	})
}
