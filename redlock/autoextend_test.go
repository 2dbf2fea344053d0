package redlock_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

func TestAnExtendingLeaseOutlivesItsTTL(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a", redlock.WithAutoExtend(true)))
		other := w.client().Mutex("a")
		for range 100 {
			time.Sleep(ttl / 2)
			_, err := other.TryAcquire(t.Context())
			wantErr(t, err, redlock.ErrNotAcquired)
		}
		if !l.AutoExtending() || l.Context().Err() != nil {
			t.Error("the lease ended")
		}
		release(t, l)
		if l.AutoExtending() {
			t.Error("a released lease says that it extends itself")
		}
	})
}

// Leases that were acquired together need not extend together: the interval is the longest that may pass.
func TestExtensionsFollowTheirInterval(t *testing.T) {
	for interval, opt := range map[time.Duration]redlock.Option{
		ttl / 3:     redlock.WithTTL(ttl),
		time.Second: redlock.WithExtendInterval(time.Second),
	} {
		bubble(t, 3, func(t *testing.T, w *world) {
			c := w.client()
			acquire(t, c.Mutex("a", redlock.WithAutoExtend(true), opt))
			last := time.Now()
			time.Sleep(60 * interval)
			extensions := c.sent(node.Extend)
			for _, s := range extensions {
				if d := s.at.Sub(last); d > interval {
					t.Errorf("%v between two extensions, want %v", d, interval)
				}
				last = s.at
			}
			if n := len(extensions); n < 59 || n > 70 {
				t.Errorf("%d extensions in 60 intervals", n)
			}
		})
	}
}

func TestAcquireDoesNotExtendUnlessAsked(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		if l.AutoExtending() {
			t.Error("extends itself")
		}
		time.Sleep(l.Validity() - 1)
		wantHeld(t, l, 1)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantOver(t, l, redlock.ErrLeaseLost)
		if n := len(c.sent(node.Extend)); n != 0 {
			t.Errorf("%d extensions", n)
		}
	})
}

func TestWhatIsUnknownIsNotLost(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // that is a loss
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
				time.Sleep(3 * time.Second)
				for _, n := range w.nodes {
					fail(n)
				}
				time.Sleep(6 * time.Second)
				for _, n := range w.nodes {
					n.Start()
					n.Thaw()
					n.Delay(0)
				}
				time.Sleep(time.Minute)
				if l.Validity() == 0 || l.Context().Err() != nil {
					t.Error("an outage shorter than the TTL ended the lease")
				}
				wantErr(t, l.Verify(t.Context()), nil)
			})
		})
	}
}

func TestTheDeadlineComesWhateverTheNodesDo(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // that is told earlier
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
				for _, n := range w.majority() {
					fail(n)
				}
				wantTook(t, valid(ttl), func() { <-l.Context().Done() })
				wantOver(t, l, redlock.ErrLeaseLost)
				if l.AutoExtending() {
					t.Error("a lost lease says that it extends itself")
				}
			})
		})
	}
}

func TestALossOnAMajorityIsToldWithinOneInterval(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
		time.Sleep(time.Second)
		wipe(w.majority())
		if d := took(func() { <-l.Context().Done() }); d > ttl/3 {
			t.Errorf("told after %v", d)
		}
		wantOver(t, l, redlock.ErrLeaseLost)
		time.Sleep(limit)
		w.wantFree() // nothing was created again, and the minority's keys are gone as well
	})
}

// A rival that tried at the same moment, and gave up, leaves a lease on a bare quorum. It is whole again before the next
// extension is due, and then no longer depends on each of its nodes.
func TestALeaseOnABareQuorumIsSoonWholeAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		take(t, w.nodes[0], "a", "rival", 100*time.Millisecond)
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true), redlock.WithTTL(3*time.Second)))
		w.wantLocks(3) // one of them is the rival's
		time.Sleep(300 * time.Millisecond)
		wipe(w.nodes[2:])
		w.nodes[2].Stop()
		time.Sleep(time.Minute)
		if l.Validity() == 0 {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
	})
}

// What cannot be repaired, since the rival stays, costs a few extensions and no more.
func TestALeaseOnABareQuorumExtendsSeldom(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		take(t, w.nodes[0], "a", "rival", time.Hour)
		c := w.client()
		acquire(t, c.Mutex("a", redlock.WithAutoExtend(true), redlock.WithExtendInterval(time.Second)))
		time.Sleep(time.Minute)
		if n := len(c.sent(node.Extend)); n < 60 || n > 340 {
			t.Errorf("%d extensions in 60 intervals", n)
		}
	})
}

func TestALeaseSurvivesNodesThatForgetOneAfterTheOther(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
		for range 4 {
			for _, n := range w.nodes {
				n.Wipe()
				time.Sleep(2 * ttl / 3)
			}
		}
		w.wantLocks(3)
		wantErr(t, l.Verify(t.Context()), nil)
	})
}

func TestNothingExtendsALeaseThatIsOver(t *testing.T) {
	ends := map[string]func(t *testing.T, w *world, c *peer, l *redlock.Lease){
		"released": func(t *testing.T, _ *world, _ *peer, l *redlock.Lease) { release(t, l) },
		"release failed": func(t *testing.T, _ *world, c *peer, l *redlock.Lease) {
			c.meddle(only(node.Release, answer(node.Failed(context.DeadlineExceeded, false))))
			wantErr(t, l.Release(t.Context()), redlock.ErrNoQuorum)
		},
		"closed":  func(_ *testing.T, _ *world, c *peer, _ *redlock.Lease) { _ = c.Close() },
		"stopped": func(_ *testing.T, _ *world, _ *peer, l *redlock.Lease) { l.StopAutoExtend() },
		"lost":    func(_ *testing.T, w *world, _ *peer, l *redlock.Lease) { wipe(w.nodes); <-l.Context().Done() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client()
				l := acquire(t, c.Mutex("a", redlock.WithAutoExtend(true)))
				time.Sleep(ttl)
				end(t, w, c, l)
				if l.AutoExtending() {
					t.Error("says that it extends itself")
				}
				before := len(c.sent(node.Extend)) + len(c.sent(node.Repair))
				time.Sleep(10 * ttl)
				if n := len(c.sent(node.Extend)) + len(c.sent(node.Repair)); n != before {
					t.Errorf("%d operations after the end", n-before)
				}
				if l.Validity() != 0 {
					t.Errorf("validity %v", l.Validity())
				}
				w.wantFree()
			})
		})
	}
}

func TestAStoppedExtensionLetsTheLeaseEndAtItsDeadline(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
		time.Sleep(time.Second)
		l.StopAutoExtend()
		l.StopAutoExtend()
		wantHeld(t, l, valid(ttl)-time.Second)
		wantTook(t, valid(ttl)-time.Second, func() { <-l.Context().Done() })
	})
}

func TestMaxHoldEndsALeaseHoweverOftenItIsExtended(t *testing.T) {
	for name, opt := range map[string]redlock.Option{
		"extends itself": redlock.WithAutoExtend(true),
		"long TTL":       redlock.WithTTL(time.Hour),
	} {
		for _, hold := range []time.Duration{redlock.MinDuration, time.Second, 30 * time.Second} {
			t.Run(name+" "+hold.String(), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) {
					c := w.client()
					l := acquire(t, c.Mutex("a", opt, redlock.WithMaxHold(hold)))
					if l.Validity() > hold {
						t.Errorf("validity %v, it will be over after %v", l.Validity(), hold)
					}
					time.Sleep(hold / 2)
					_ = l.Extend(t.Context(), time.Hour)
					if l.Validity() > hold/2 {
						t.Errorf("validity %v, it will be over after %v", l.Validity(), hold/2)
					}
					wantTook(t, hold/2, func() { <-l.Context().Done() })
					wantOver(t, l, redlock.ErrLeaseLost)
					w.wantFree()
					wantErr(t, l.Release(t.Context()), redlock.ErrLeaseLost)
				})
			})
		}
	}
}

// WithAutoExtend: leases extend themselves until they are released, lost, or reach WithMaxHold.
func TestAnExtendingLeaseOutlivesAShorterExtension(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
		wantErr(t, l.Extend(t.Context(), time.Second), nil)
		time.Sleep(time.Minute)
		if cause := context.Cause(l.Context()); cause != nil || l.Validity() == 0 {
			t.Errorf("over although every node is well: %v", cause)
		}
	})
}

func TestAnExtendingLeaseKeepsALongerExtension(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
		wantErr(t, l.Extend(t.Context(), time.Hour), nil)
		time.Sleep(time.Minute)
		wantHeld(t, l, valid(time.Hour)-time.Minute)
	})
}

func TestTinyTTLsDoNotLoopHot(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			c := w.tiny(redlock.WithTTL(redlock.MinDuration), redlock.WithAutoExtend(true))
			l := acquire(t, c.Mutex("a"))
			time.Sleep(time.Second)
			wantErr(t, l.Verify(t.Context()), nil)
			if n := len(c.sent(node.Extend)); n > 400 {
				t.Errorf("%d extensions in a second, a third of the TTL is 3.3 ms", n)
			}
			release(t, l)
			w.wantFree()
		})
	})
	for name, fail := range map[string]meddler{"cut": cut, "deaf": deafen, "failing": answer(node.Failed(errLost, false))} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.tiny(redlock.WithTTL(redlock.MinDuration), redlock.WithAutoExtend(true))
				l := acquire(t, c.Mutex("a"))
				c.meddle(fail)
				wantTook(t, valid(redlock.MinDuration), func() { <-l.Context().Done() })
				if n := len(c.sent(node.Extend)); n > 20 {
					t.Errorf("%d rounds in 8 ms", n)
				}
				time.Sleep(time.Minute)
				if n := c.lines[0].calls(); n > 100 {
					t.Errorf("%d calls for a lease of 10 ms", n)
				}
			})
		})
	}
}

func TestFailingExtensionsAreRetriedWithMeasure(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client(redlock.WithAutoExtend(true))
		l := acquire(t, c.Mutex("a", redlock.WithTTL(time.Minute)))
		c.meddle(answer(node.Failed(errLost, false)))
		<-l.Context().Done()
		if n := len(c.sent(node.Extend)); n < 3 || n > 600 {
			t.Errorf("%d rounds in 40 s", n)
		}
	})
}

func TestAPermanentErrorIsNoLossBeforeTheDeadline(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a", redlock.WithAutoExtend(true)))
		c.meddle(answer(node.Failed(errLost, true)))
		time.Sleep(valid(ttl) - 1)
		if err := l.Context().Err(); err != nil {
			t.Fatalf("over before its deadline: %v", context.Cause(l.Context()))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantOver(t, l, redlock.ErrLeaseLost)
	})
}

func TestASuspendEndsTheLeaseAtOnce(t *testing.T) {
	for _, extend := range []bool{false, true} {
		bubble(t, 3, func(t *testing.T, w *world) {
			clock := &jumper{}
			c := w.clientWith(clock, redlock.WithAutoExtend(extend))
			l := acquire(t, c.Mutex("a", redlock.WithTTL(10*time.Minute)))
			idle := acquire(t, c.Mutex("b", redlock.WithTTL(3*time.Hour)))
			time.Sleep(time.Second)
			clock.jump(time.Hour)
			if v := l.Validity(); v != 0 {
				t.Errorf("validity %v after an hour's sleep", v)
			}
			if v := idle.Validity(); v != valid(3*time.Hour)-time.Hour-time.Second && !extend {
				t.Errorf("validity %v of the other lease", v)
			}
			if d := took(func() { <-l.Context().Done() }); d > 100*time.Millisecond {
				t.Errorf("the context ended after %v of running time", d)
			}
			wantOver(t, l, redlock.ErrLeaseLost)
			wantErr(t, l.Extend(t.Context(), ttl), redlock.ErrLeaseLost)
			wantErr(t, l.Verify(t.Context()), redlock.ErrLeaseLost)
			w.wantLocks(3) // b's
		})
	}
}

func TestASuspendCountsAgainstMaxHold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		clock := &jumper{}
		l := acquire(t, w.clientWith(clock).Mutex("a", redlock.WithTTL(3*time.Hour), redlock.WithMaxHold(time.Hour)))
		clock.jump(2 * time.Hour)
		if d := took(func() { <-l.Context().Done() }); d > 100*time.Millisecond {
			t.Errorf("the context ended after %v of running time", d)
		}
	})
}

func TestHeldLeasesNeedNoGoroutines(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client(redlock.WithAutoExtend(true))
		synctest.Wait()
		before := runtime.NumGoroutine()
		for i := range 200 {
			acquire(t, c.Mutex(string(rune('a'+i))))
		}
		time.Sleep(ttl)
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 5 {
			t.Errorf("%d goroutines for 200 idle leases", n)
		}
	})
}
