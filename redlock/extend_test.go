package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

func TestExtendSetsTheDeadlineFromBeforeItsFirstSend(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		time.Sleep(5 * time.Second)
		wantErr(t, l.Extend(t.Context(), ttl), nil)
		wantHeld(t, l, valid(ttl))
		for _, n := range w.nodes {
			n.Delay(50 * time.Millisecond)
		}
		wantTook(t, 50*time.Millisecond, func() { wantErr(t, l.Extend(t.Context(), 3*ttl), nil) })
		wantHeld(t, l, valid(3*ttl)-50*time.Millisecond)
	})
}

func TestExtendDoesNotAddUp(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		for range 60 {
			wantErr(t, l.Extend(t.Context(), ttl), nil)
		}
		wantHeld(t, l, valid(ttl))
		c.meddle(cut)
		time.Sleep(ttl + time.Millisecond)
		w.wantFree()
	})
}

func TestAShorterExtensionEndsTheLeaseEarlierAndTheKeysKeepTheirPromise(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		wantErr(t, l.Extend(t.Context(), time.Second), nil)
		wantHeld(t, l, valid(time.Second))
		for _, n := range w.nodes {
			if d := left(t, n, "a"); d != ttl {
				t.Errorf("%s keeps the lock for %v, it had promised %v", n, d, ttl)
			}
		}
		time.Sleep(valid(time.Second))
		synctest.Wait()
		wantOver(t, l, redlock.ErrLeaseLost)
	})
}

func TestExtendOfALeaseThatIsOverFailsAndTouchesNothing(t *testing.T) {
	tests := map[string]struct {
		end  func(t *testing.T, w *world, c *peer, l *redlock.Lease)
		want error
	}{
		"run out": {func(_ *testing.T, _ *world, _ *peer, _ *redlock.Lease) { time.Sleep(ttl) }, redlock.ErrLeaseLost},
		"missing on a majority": {func(t *testing.T, w *world, _ *peer, l *redlock.Lease) {
			dropAll(t, w.majority(), l)
		}, redlock.ErrLeaseLost},
		"missing everywhere": {func(t *testing.T, w *world, _ *peer, l *redlock.Lease) { dropAll(t, w.nodes, l) }, redlock.ErrLeaseLost},
		"wiped":              {func(_ *testing.T, w *world, _ *peer, _ *redlock.Lease) { wipe(w.majority()) }, redlock.ErrLeaseLost},
		"released":           {func(t *testing.T, _ *world, _ *peer, l *redlock.Lease) { release(t, l) }, redlock.ErrReleased},
		"closed":             {func(_ *testing.T, _ *world, c *peer, _ *redlock.Lease) { _ = c.Close() }, redlock.ErrClosed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client()
				l := acquire(t, c.Mutex("a"))
				test.end(t, w, c, l)
				wantErr(t, l.Extend(t.Context(), ttl), test.want)
				wantErr(t, l.Extend(t.Context(), ttl), test.want) // a loss stays one
				wantOver(t, l, test.want)
				time.Sleep(limit)
				w.wantFree()
			})
		})
	}
}

func TestExtendOfAStolenLeaseLeavesTheThiefAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		dropAll(t, w.nodes, l)
		thief := acquire(t, w.client().Mutex("a"))
		wantErr(t, l.Extend(t.Context(), time.Hour), redlock.ErrLeaseLost)
		wantOver(t, l, redlock.ErrLeaseLost)
		for _, n := range w.nodes {
			if d := left(t, n, "a"); d != ttl || !holds(t, n, "a", thief.Holder()) {
				t.Errorf("%s: the thief's key was touched, %v left", n, d)
			}
		}
	})
}

func TestExtendRefusesDurationsThatAreNone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		for _, d := range []time.Duration{0, -1, -time.Hour, 30, redlock.MinDuration - 1, -forever} {
			wantErr(t, l.Extend(t.Context(), d), redlock.ErrInvalid, redlock.ErrLeaseLost)
		}
		if n := len(c.sent(node.Extend)); n != 0 {
			t.Errorf("%d extensions were sent", n)
		}
		wantHeld(t, l, valid(ttl))
	})
}

func TestExtendByTheGreatestDurationDoesNotOverflow(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		if err := l.Extend(t.Context(), forever); err != nil {
			wantErr(t, err, redlock.ErrInvalid, redlock.ErrLeaseLost)
		}
		time.Sleep(time.Second)
		if l.Validity() < valid(ttl)-time.Second {
			t.Errorf("validity %v", l.Validity())
		}
		w.wantLocks(3)
	})
}

func TestExtendRetriesTransientFailures(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // that is a loss
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l := acquire(t, w.client().Mutex("a"))
				for _, n := range w.nodes {
					fail(n)
				}
				time.AfterFunc(2*time.Second, func() {
					for _, n := range w.nodes {
						n.Start()
						n.Thaw()
						n.Delay(0)
					}
				})
				if d := took(func() { wantErr(t, l.Extend(t.Context(), ttl), nil) }); d > 3*time.Second {
					t.Errorf("took %v, the nodes were back after 2 s", d)
				}
				if v := l.Validity(); v < valid(ttl)-limit {
					t.Errorf("validity %v", v)
				}
			})
		})
	}
}

func TestExtendWithoutAnswersEndsWithTheLease(t *testing.T) {
	for name, fail := range map[string]meddler{"nothing arrives": cut, "answers are lost": deafen} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client()
				l := acquire(t, c.Mutex("a"))
				until := l.Until()
				c.meddle(fail)
				if d := took(func() { wantErr(t, l.Extend(t.Context(), time.Hour), redlock.ErrLeaseLost) }); d > valid(ttl)+limit {
					t.Errorf("took %v", d)
				}
				synctest.Wait()
				wantOver(t, l, redlock.ErrLeaseLost)
				if l.Until().After(until) {
					t.Error("a failure moved the deadline to a later time")
				}
				if n := len(c.sent(node.Extend)); n > 200 {
					t.Errorf("%d rounds in ten seconds", n)
				}
			})
		})
	}
}

func TestExtendReturnsAtOnceWhenNoRetryCanHelp(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		denied := errors.New("NOPERM")
		c.meddle(answer(node.Failed(denied, true)))
		var err error
		wantTook(t, 0, func() { err = l.Extend(t.Context(), ttl) })
		wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrLeaseLost)
		wantErr(t, err, denied)
		wantHeld(t, l, valid(ttl))
	})
}

func TestExtendEndsWithItsContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		c.meddle(cut)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantTook(t, time.Second, func() { wantErr(t, l.Extend(ctx, ttl), context.DeadlineExceeded, redlock.ErrLeaseLost) })
		wantHeld(t, l, valid(ttl)-time.Second)
		c.meddle(nil)
		wantErr(t, l.Extend(t.Context(), ttl), nil)
		wantHeld(t, l, valid(ttl))
	})
}

func TestExtendAndVerifyOnAnEndedContextFailEveryTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 20 {
			time.Sleep(time.Millisecond)
			until := l.Until()
			if err := l.Extend(ctx, ttl); !errors.Is(err, context.Canceled) {
				t.Errorf("extension %d: %v", i, err)
			} else if l.Until().After(until) {
				t.Errorf("extension %d failed and moved the deadline", i)
			}
			if err := l.Verify(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("verification %d: %v", i, err)
			}
		}
	})
}

func TestExtendRepairsAMinorityThatLostTheLock(t *testing.T) {
	for _, size := range []int{3, 4, 5} {
		bubble(t, size, func(t *testing.T, w *world) {
			c := w.client()
			l := acquire(t, c.Mutex("a"))
			wipe(w.minority())
			wantErr(t, l.Extend(t.Context(), ttl), nil)
			w.wantLocks(size)
			for _, n := range w.nodes {
				if !holds(t, n, "a", l.Holder()) || left(t, n, "a") > ttl {
					t.Errorf("%s was not repaired", n)
				}
			}
			// Now another minority may forget, and the lease and its tokens survive that.
			wipe(w.nodes[size-len(w.minority()):])
			wantErr(t, l.Extend(t.Context(), ttl), nil)
			wantErr(t, l.Verify(t.Context()), nil)
			release(t, l)
			w.wantFree()
			if next := acquire(t, c.Mutex("a")); next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			}
		})
	}
}

func TestARepairLeavesAForeignHolderAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		drop(t, w.nodes[0], l)
		take(t, w.nodes[0], "a", "foreign", time.Hour)
		wantErr(t, l.Extend(t.Context(), ttl), nil)
		synctest.Wait()
		if !holds(t, w.nodes[0], "a", "foreign") {
			t.Error("a repair took the lock from its holder")
		}
	})
}

// A node that stood still while it should have been repaired must not keep the lock after the release.
func TestALateRepairDoesNotOutliveTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		w.nodes[0].Wipe()
		c.lines[0].meddle(only(node.Repair, func(*node.Op) fault {
			w.nodes[0].Freeze()
			return fault{}
		}))
		wantErr(t, l.Extend(t.Context(), ttl), nil)
		time.Sleep(2 * limit)
		release(t, l)
		time.Sleep(ttl / 2)
		w.nodes[0].Thaw()
		time.Sleep(300 * time.Millisecond)
		w.wantFree()
	})
}

func TestExtensionsDoNotOverlapAndKeepTheToken(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.Delay(10 * time.Millisecond)
		}
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		token := l.Token()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { wantErr(t, l.Extend(t.Context(), ttl), nil) })
		}
		wg.Wait()
		at := c.sent(node.Extend)
		for i := 1; i < len(at); i++ {
			if d := at[i].at.Sub(at[i-1].at); d < 10*time.Millisecond {
				t.Errorf("two rounds within %v, one takes 10 ms", d)
			}
		}
		if l.Token() != token {
			t.Errorf("token %d became %d", token, l.Token())
		}
	})
}

func TestAnExtensionThatTookLongerThanItsTTLFails(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		clock := &jumper{}
		c := w.clientWith(clock)
		l := acquire(t, c.Mutex("a", redlock.WithTTL(time.Hour)))
		c.lines[0].meddle(only(node.Extend, func(*node.Op) fault {
			clock.jump(2 * time.Second)
			return fault{}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Extend(ctx, time.Second); err == nil {
			t.Error("an extension of one second that took two succeeded")
		}
		if v := l.Validity(); v != 0 && v > valid(time.Hour) {
			t.Errorf("validity %v", v)
		}
	})
}

func TestExtendRacingReleaseEndsReleased(t *testing.T) {
	for seed := range uint64(50) {
		bubble(t, 3, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			for _, n := range w.nodes {
				n.Delay(time.Duration(rnd.IntN(20)) * time.Millisecond)
			}
			l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
			var wg sync.WaitGroup
			for range 3 {
				d := time.Duration(rnd.IntN(50)) * time.Millisecond
				wg.Go(func() {
					time.Sleep(d)
					if err := l.Extend(t.Context(), time.Hour); err != nil && !errors.Is(err, redlock.ErrReleased) {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
			time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
			release(t, l)
			wantOver(t, l, redlock.ErrReleased)
			wg.Wait()
			time.Sleep(limit)
			w.wantFree()
		})
	}
}

func wipe[N interface{ Wipe() }](nodes []N) {
	for _, n := range nodes {
		n.Wipe()
	}
}
