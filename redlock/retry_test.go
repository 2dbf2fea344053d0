package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

// hold lets somebody hold the lock for as long as the bubble lives.
func hold(t *testing.T, w *world) *redlock.Lease {
	t.Helper()
	return acquire(t, w.client().Mutex("a", redlock.WithTTL(24*time.Hour)))
}

func TestOneAttemptMeansOne(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		hold(t, w)
		c := w.client(redlock.WithRetry(redlock.RetryPolicy{Attempts: 1}))
		wantTook(t, 0, func() {
			_, err := c.Mutex("a").Acquire(t.Context())
			wantErr(t, err, redlock.ErrAttemptsExhausted, redlock.ErrWaitExpired, redlock.ErrNoQuorum)
			wantErr(t, err, redlock.ErrNotAcquired)
		})
		if n := len(c.sent(node.Acquire)); n != 1 {
			t.Errorf("%d attempts", n)
		}
		w.wantLocks(3)
	})
}

func TestATryIsOneRoundWhereOneHolderIsNamed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		hold(t, w)
		c := w.client()
		wantTook(t, 0, func() {
			_, err := c.Mutex("a").TryAcquire(t.Context())
			wantErr(t, err, redlock.ErrNotAcquired, redlock.ErrAttemptsExhausted, redlock.ErrWaitExpired)
		})
		if n := len(c.sent(node.Acquire)); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// attempts returns the times between the attempts of one Acquire.
func attempts(t *testing.T, p redlock.RetryPolicy) (gaps []time.Duration) {
	t.Helper()
	bubble(t, 3, func(t *testing.T, w *world) {
		hold(t, w)
		c := w.client()
		_, err := c.Mutex("a", redlock.WithRetry(p)).Acquire(t.Context())
		wantErr(t, err, redlock.ErrAttemptsExhausted)
		at := c.sent(node.Acquire)
		for i := 1; i < len(at); i++ {
			gaps = append(gaps, at[i].at.Sub(at[i-1].at))
		}
	})
	return gaps
}

func TestDelaysStayInTheirBounds(t *testing.T) {
	tests := map[string]struct {
		policy redlock.RetryPolicy
		want   func(i int) (low, high time.Duration)
	}{
		"defaults": {redlock.RetryPolicy{Attempts: 50}, func(int) (low, high time.Duration) { return 100 * time.Millisecond, 300 * time.Millisecond }},
		"own delay": {redlock.RetryPolicy{Attempts: 50, Delay: time.Second}, func(int) (low, high time.Duration) {
			return 500 * time.Millisecond, 1500 * time.Millisecond
		}},
		"little jitter": {redlock.RetryPolicy{Attempts: 50, Delay: time.Second, Jitter: redlock.MinDuration}, func(int) (low, high time.Duration) {
			return 990 * time.Millisecond, 1010 * time.Millisecond
		}},
		"growing": {redlock.RetryPolicy{Attempts: 10, Delay: 100 * time.Millisecond, Jitter: redlock.MinDuration, Multiplier: 2, MaxDelay: time.Hour},
			func(i int) (low, high time.Duration) {
				d := 100 * time.Millisecond << i
				return d * 9 / 10, d * 11 / 10
			}},
		"capped": {redlock.RetryPolicy{Attempts: 20, Delay: time.Second, Jitter: redlock.MinDuration, Multiplier: 3, MaxDelay: 2 * time.Second},
			func(i int) (low, high time.Duration) {
				d := time.Second * time.Duration(min(i+1, 2))
				return d * 99 / 100, d * 101 / 100
			}},
		"capped by default": {redlock.RetryPolicy{Attempts: 20, Delay: time.Second, Jitter: redlock.MinDuration, Multiplier: 10},
			func(i int) (low, high time.Duration) {
				d := []time.Duration{time.Second, 5 * time.Second}[min(i, 1)]
				return d * 95 / 100, d * 105 / 100
			}},
		"delay above the default cap": {redlock.RetryPolicy{Attempts: 20, Delay: time.Minute, Jitter: redlock.MinDuration, Multiplier: 10},
			func(int) (low, high time.Duration) { return 59 * time.Second, 61 * time.Second }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gaps := attempts(t, test.policy)
			if len(gaps) != test.policy.Attempts-1 {
				t.Fatalf("%d attempts, want %d", len(gaps)+1, test.policy.Attempts)
			}
			for i, d := range gaps {
				if low, high := test.want(i); d < low || d > high {
					t.Errorf("delay %d is %v, want %v to %v", i, d, low, high)
				}
			}
		})
	}
}

func TestWaitLimitAndAttemptsWhicheverComesFirst(t *testing.T) {
	policy := redlock.RetryPolicy{Attempts: 5, Delay: time.Second, Jitter: redlock.MinDuration}
	bubble(t, 3, func(t *testing.T, w *world) {
		hold(t, w)
		m := w.client(redlock.WithRetry(policy))
		wantTook(t, 2500*time.Millisecond, func() {
			_, err := m.Mutex("a", redlock.WithWait(2500*time.Millisecond)).Acquire(t.Context())
			wantErr(t, err, redlock.ErrWaitExpired, redlock.ErrAttemptsExhausted, redlock.ErrNoQuorum, context.DeadlineExceeded)
			wantErr(t, err, redlock.ErrNotAcquired)
		})
		d := took(func() {
			_, err := m.Mutex("a", redlock.WithWait(time.Hour)).Acquire(t.Context())
			wantErr(t, err, redlock.ErrAttemptsExhausted, redlock.ErrWaitExpired)
		})
		if d < 3900*time.Millisecond || d > 4100*time.Millisecond {
			t.Errorf("five attempts took %v", d)
		}
	})
}

func TestAWaitThatEndsInAnOutageSaysSo(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // a wiped node answers
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				for _, n := range w.majority() {
					fail(n)
				}
				wantTook(t, 3*time.Second, func() {
					_, err := w.client(redlock.WithWait(3 * time.Second)).Mutex("a").Acquire(t.Context())
					wantErr(t, err, redlock.ErrWaitExpired, redlock.ErrNotAcquired, context.DeadlineExceeded)
					wantErr(t, err, redlock.ErrNoQuorum)
				})
			})
		})
	}
}

func TestAcquireGoesOnThroughAnOutage(t *testing.T) {
	for name, fail := range faults {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				for _, n := range w.nodes {
					fail(n)
				}
				time.AfterFunc(time.Minute, func() {
					for _, n := range w.nodes {
						n.Start()
						n.Thaw()
						n.Delay(0)
					}
				})
				var l *redlock.Lease
				c := w.client()
				if d := took(func() { l = acquire(t, c.Mutex("a")) }); d > time.Minute+6*time.Second {
					t.Errorf("acquired after %v, the nodes were back after a minute", d)
				}
				if v := l.Validity(); v < valid(ttl)-limit {
					t.Errorf("validity %v counts the wait", v)
				}
				if n := len(c.sent(node.Acquire)); n > 400 {
					t.Errorf("%d attempts in a minute", n)
				}
				wantErr(t, l.Verify(t.Context()), nil)
			})
		})
	}
}

func TestWaitingIsNotLimitedByTheTTLNorDoesItUseItUp(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := hold(t, w)
		time.AfterFunc(40*time.Second, func() { _ = l.Release(context.Background()) })
		c := w.client(redlock.WithTTL(time.Second), redlock.WithWait(time.Minute))
		wantHeld(t, acquire(t, c.Mutex("a")), valid(time.Second))
	})
}

func TestAWaiterGetsInSoonAfterTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for range 20 {
			l := hold(t, w)
			got := make(chan time.Time, 1)
			go func() {
				next := acquire(t, w.client().Mutex("a"))
				got <- time.Now()
				release(t, next)
			}()
			time.Sleep(time.Second)
			release(t, l)
			if d := took(func() { <-got }); d > 300*time.Millisecond {
				t.Errorf("got in %v after the release", d)
			}
			synctest.Wait()
		}
	})
}

func TestAWaiterTriesWhenTheHoldersTTLEnds(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, w *world){
		"a client that died": func(t *testing.T, w *world) {
			c := w.client(redlock.WithTTL(3 * time.Second))
			acquire(t, c.Mutex("a"))
			c.meddle(cut)
		},
		"a foreign client": func(t *testing.T, w *world) {
			for _, n := range w.nodes {
				take(t, n, "a", "foreign", 3*time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				take(t, w)
				c := w.client(redlock.WithRetry(redlock.RetryPolicy{Delay: time.Hour}))
				if d := took(func() { acquire(t, c.Mutex("a")) }); d > 3100*time.Millisecond {
					t.Errorf("acquired after %v, the holder's TTL was 3 s", d)
				}
				if n := len(c.sent(node.Acquire)); n > 10 {
					t.Errorf("%d attempts", n)
				}
			})
		})
	}
}

func TestWaitingForATinyTTLDoesNotLoopHot(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		acquire(t, w.tiny(redlock.WithTTL(redlock.MinDuration), redlock.WithAutoExtend(true)).Mutex("a"))
		c := w.client(redlock.WithWait(10 * time.Second))
		_, err := c.Mutex("a").Acquire(t.Context())
		wantErr(t, err, redlock.ErrNotAcquired)
		if n := len(c.sent(node.Acquire)); n > 2000 {
			t.Errorf("%d attempts in ten seconds", n)
		}
	})
}

func TestTriesOfAHeldNameWithASlowNodeAreBounded(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		hold(t, w)
		w.nodes[0].Delay(5 * limit)
		c := w.client()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if d := took(func() {
					_, err := c.Mutex("a").TryAcquire(t.Context())
					wantErr(t, err, redlock.ErrNotAcquired)
				}); d > 0 {
					t.Errorf("a try took %v, two nodes answer at once", d)
				}
			})
		}
		wg.Wait()
	})
}

// Two others share the nodes, so that no holder is named by a quorum and the try is repeated.
func TestATryIsBoundedWhereTheNodesAreSplit(t *testing.T) {
	for _, delay := range []time.Duration{0, limit / 10, limit * 6 / 10, limit * 9 / 10} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				take(t, w.nodes[0], "a", "x", time.Hour)
				take(t, w.nodes[1], "a", "y", time.Hour)
				for _, n := range w.nodes {
					n.Delay(delay)
				}
				c := w.client()
				if d := took(func() {
					_, err := c.Mutex("a").TryAcquire(t.Context())
					wantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
				}); d > limit {
					t.Errorf("a try took %v, one node may take %v", d, limit)
				}
				if n := len(c.sent(node.Acquire)); n > 20 {
					t.Errorf("%d rounds", n)
				}
				time.Sleep(limit)
				w.wantLocks(2)
			})
		})
	}
}

func TestCallsThatWereNeverSentNeedNoCleanUp(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		c.meddle(func(*node.Op) fault { return fault{delay: limit / 2} }) // they wait in a queue of the client's
		ctx, cancel := context.WithTimeout(t.Context(), limit/4)
		defer cancel()
		_, err := c.Mutex("a").Acquire(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(limit)
		if keys := w.keys(func(string) bool { return true }); len(keys) > 0 {
			t.Errorf("left behind: %q", keys)
		}
	})
}

func TestWaitersOfOneNameDoNotFloodTheNodes(t *testing.T) {
	for _, majorityDown := range []bool{false, true} {
		t.Run(fmt.Sprintf("majority down: %v", majorityDown), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				hold(t, w)
				if majorityDown {
					for _, n := range w.majority() {
						n.Stop()
					}
				}
				c := w.client(redlock.WithWait(time.Minute))
				_, err := c.Mutex("a").Acquire(t.Context())
				wantErr(t, err, redlock.ErrWaitExpired)
				if n := len(c.lines[2].sent(node.Acquire)); n > 330 {
					t.Errorf("%d attempts in a minute", n)
				}
			})
		})
	}
}

// An attempt of which nothing was left when it was won says nothing about the next.
func TestALateAttemptDoesNotEndTheWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		clock := &jumper{}
		slow := w.clientWith(clock)
		slow.lines[0].meddle(only(node.Acquire, func(*node.Op) fault { // once: the process sleeps while the answers come
			slow.lines[0].meddle(nil)
			clock.jump(time.Minute)
			return fault{}
		}))
		lease, err := slow.Mutex("a", redlock.WithWait(5*time.Second)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v := lease.Validity(); v != valid(ttl) {
			t.Errorf("validity %v, want %v", v, valid(ttl))
		}
	})
}

// A dead client's leftover on one node, with another down, splits every attempt: that must not be polled hot.
func TestALeftoverOnAMinorityIsPolledAsTheRetryPolicySays(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		take(t, w.nodes[0], "a", "dead", time.Minute)
		w.nodes[2].Stop()
		c := w.client(redlock.WithRetry(redlock.RetryPolicy{Delay: 2 * time.Second, Jitter: time.Millisecond}))
		_, err := c.Mutex("a", redlock.WithWait(20*time.Second)).Acquire(t.Context())
		wantErr(t, err, redlock.ErrWaitExpired)
		if n := len(c.sent(node.Acquire)); n > 20 {
			t.Errorf("%d attempts in 20 s, the delay is 2 s", n)
		}
	})
}
