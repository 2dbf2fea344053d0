package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/redlock"
)

func TestReleaseFreesEveryNodeAndEndsTheLease(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
		time.Sleep(ttl)
		wantTook(t, 0, func() { release(t, l) })
		wantOver(t, l, redlock.ErrReleased)
		if c := context.Cause(l.Context()); errors.Is(c, redlock.ErrLeaseLost) {
			t.Errorf("cause %v, nothing was lost", c)
		}
		w.wantFree()
		if litter := w.litter(); len(litter) > 0 {
			t.Errorf("left behind: %q", litter)
		}
		acquire(t, w.client().Mutex("a"))
	})
}

func TestReleaseWorksOnACancelledContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.Delay(limit / 2)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l, err := w.client().Mutex("a").Acquire(ctx)
		wantErr(t, err, nil)
		cancel()
		if err := l.Context().Err(); err != nil {
			t.Errorf("the end of the acquire's context ended the lease: %v", err)
		}
		wantErr(t, l.Release(ctx), nil)
		w.wantFree()
	})
}

func TestReleaseTwiceIsHarmless(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		release(t, l)
		next := acquire(t, c.Mutex("a"))
		calls := c.lines[0].calls()
		wantErr(t, l.Release(t.Context()), redlock.ErrReleased, redlock.ErrLeaseLost, redlock.ErrNoQuorum)
		if n := c.lines[0].calls(); n != calls {
			t.Errorf("the second release sent %d calls", n-calls)
		}
		wantErr(t, next.Verify(t.Context()), nil)
		wantOver(t, l, redlock.ErrReleased)
	})
}

func TestManyReleasesAtOnceAreOneRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.Delay(limit / 2)
		}
		l := acquire(t, w.client().Mutex("a"))
		var mu sync.Mutex
		var wg sync.WaitGroup
		var freed int
		for range 20 {
			wg.Go(func() {
				err := l.Release(t.Context())
				wantOver(t, l, redlock.ErrReleased)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					freed++
				} else if !errors.Is(err, redlock.ErrReleased) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if freed != 1 {
			t.Errorf("%d of 20 releases freed the lock", freed)
		}
		w.wantFree()
	})
}

func TestReleaseOfAnExpiredLeaseIsQuickAndSaysLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		for _, n := range w.nodes {
			n.Freeze()
		}
		time.Sleep(ttl + time.Second)
		if d := took(func() { wantErr(t, l.Release(t.Context()), redlock.ErrLeaseLost, redlock.ErrReleased) }); d > limit {
			t.Errorf("took %v", d)
		}
		wantOver(t, l, redlock.ErrLeaseLost)
	})
}

func TestReleaseLeavesTheNextHolderAlone(t *testing.T) {
	tests := map[string]struct {
		lose  func(t *testing.T, w *world, l *redlock.Lease)
		cause error
	}{
		"taken after the expiry": {func(_ *testing.T, _ *world, l *redlock.Lease) { time.Sleep(time.Until(l.Until()) + time.Second) }, redlock.ErrLeaseLost},
		"taken over unnoticed":   {func(t *testing.T, w *world, l *redlock.Lease) { dropAll(t, w.nodes, l) }, redlock.ErrReleased},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l := acquire(t, w.client().Mutex("a"))
				test.lose(t, w, l)
				next := acquire(t, w.client().Mutex("a", redlock.WithTTL(time.Minute)))
				wantErr(t, l.Release(t.Context()), redlock.ErrLeaseLost, redlock.ErrReleased)
				wantOver(t, l, test.cause)
				wantErr(t, next.Verify(t.Context()), nil)
				w.wantLocks(3)
				for _, n := range w.nodes {
					if d := left(t, n, "a"); d != time.Minute {
						t.Errorf("%s keeps the next lease for %v", n, d)
					}
				}
			})
		})
	}
}

func TestReleaseOfALeaseThatAMinorityHasLostIsASuccess(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		for _, n := range w.minority() {
			drop(t, n, l)
			take(t, n, "a", "foreign", time.Minute)
		}
		release(t, l)
		w.wantLocks(2)
	})
}

func TestReleaseOfALeaseThatAMajorityHasLostSaysSo(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		dropAll(t, w.majority(), l)
		wantErr(t, l.Release(t.Context()), redlock.ErrLeaseLost, redlock.ErrReleased, redlock.ErrNoQuorum)
		wantOver(t, l, redlock.ErrReleased) // the release came first, and found the loss
		w.wantFree()
	})
}

func TestReleaseWithAMajorityDownTellsEveryNodesAnswer(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // a wiped node answers
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l := acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true)))
				for _, n := range w.majority() {
					fail(n)
				}
				var err error
				if d := took(func() { err = l.Release(t.Context()) }); d > limit {
					t.Errorf("took %v", d)
				}
				wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrLeaseLost, redlock.ErrReleased)
				var e *redlock.Error
				if !errors.As(err, &e) || e.Op != "release" || e.Name != "a" || len(e.Votes) != 3 {
					t.Fatalf("%#v", err)
				}
				for i, v := range e.Votes {
					if v.Node != w.nodes[i].String() || !strings.Contains(err.Error(), v.Node) {
						t.Errorf("vote %d of %v is %+v", i, err, v)
					}
				}
				wantOver(t, l, redlock.ErrReleased)
				wantErr(t, l.Extend(t.Context(), ttl), redlock.ErrReleased)
			})
		})
	}
}

// Whatever a node was doing while the lease was released: a second after it answers again, nothing is left on it.
func TestReleaseReachesNodesThatComeBack(t *testing.T) {
	tests := map[string]struct{ fail, mend func(n *memnode.Node) }{
		"frozen":  {(*memnode.Node).Freeze, (*memnode.Node).Thaw},
		"stopped": {(*memnode.Node).Stop, (*memnode.Node).Start},
		"slow":    {func(n *memnode.Node) { n.Delay(3 * limit) }, func(n *memnode.Node) { n.Delay(0) }},
	}
	for name, test := range tests {
		for _, when := range []struct{ early, late int }{{1, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 3}} {
			t.Run(fmt.Sprintf("%s: %d before the acquire, %d while held", name, when.early, when.late), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) {
					for _, n := range w.nodes[:when.early] {
						test.fail(n)
					}
					l := acquire(t, w.client().Mutex("a"))
					for _, n := range w.nodes[when.early:max(when.early, when.late)] {
						test.fail(n)
					}
					err := l.Release(t.Context())
					if (when.late > 1) != errors.Is(err, redlock.ErrNoQuorum) {
						t.Errorf("released: %v", err)
					}
					time.Sleep(ttl / 2)
					for _, n := range w.nodes {
						test.mend(n)
					}
					time.Sleep(300 * time.Millisecond)
					w.wantFree()
					time.Sleep(2 * ttl)
					if litter := w.litter(); len(litter) > 0 {
						t.Errorf("left behind: %q", litter)
					}
				})
			})
		}
	}
}

func TestReleaseWhoseAnswersAreLostFreesTheLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		c.meddle(deafen)
		wantErr(t, l.Release(t.Context()), redlock.ErrNoQuorum, redlock.ErrLeaseLost)
		c.meddle(nil)
		next := acquire(t, c.Mutex("a"))
		time.Sleep(ttl / 2) // what is asked again in the background is none of the next lease
		wantErr(t, next.Verify(t.Context()), nil)
	})
}

func TestReleaseWaitsForAnExtensionUnderWay(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		for _, n := range w.nodes {
			n.Delay(limit / 2)
		}
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(t.Context(), 2*ttl) }()
		synctest.Wait()
		wantTook(t, limit, func() { release(t, l) })
		wantErr(t, <-extended, nil)
		wantOver(t, l, redlock.ErrReleased)
		w.wantFree()
	})
}

func TestExtendingAfterTheReleaseBringsNothingBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		for _, n := range w.nodes {
			n.Delay(limit / 2)
		}
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		synctest.Wait()
		wantErr(t, l.Extend(t.Context(), ttl), redlock.ErrReleased, redlock.ErrLeaseLost)
		wantErr(t, <-released, nil)
		wantErr(t, l.Verify(t.Context()), redlock.ErrReleased)
		w.wantFree()
	})
}

func TestReleaseRacingTheDeadlineLeavesNothing(t *testing.T) {
	for early := time.Duration(0); early <= 60*time.Millisecond; early += 10 * time.Millisecond {
		bubble(t, 3, func(t *testing.T, w *world) {
			l := acquire(t, w.client().Mutex("a", redlock.WithTTL(time.Second)))
			for _, n := range w.nodes {
				n.Delay(50 * time.Millisecond)
			}
			time.Sleep(l.Validity() - early)
			if err := l.Release(t.Context()); err != nil {
				wantErr(t, err, redlock.ErrLeaseLost, redlock.ErrNoQuorum)
			}
			wantOver(t, l, nil)
			time.Sleep(limit)
			w.wantFree()
		})
	}
}

func TestVerifyTellsWhatTheNodesHave(t *testing.T) {
	tests := map[string]struct {
		do   func(t *testing.T, w *world, l *redlock.Lease)
		want error
	}{
		"held":               {func(*testing.T, *world, *redlock.Lease) {}, nil},
		"lost on a minority": {func(t *testing.T, w *world, l *redlock.Lease) { dropAll(t, w.minority(), l) }, nil},
		"lost on a majority": {func(t *testing.T, w *world, l *redlock.Lease) { dropAll(t, w.majority(), l) }, redlock.ErrLeaseLost},
		"one lost, one down": {func(t *testing.T, w *world, l *redlock.Lease) {
			drop(t, w.nodes[0], l)
			w.nodes[1].Stop()
		}, redlock.ErrNoQuorum},
		"majority down": {func(_ *testing.T, w *world, _ *redlock.Lease) { w.nodes[0].Freeze(); w.nodes[1].Stop() }, redlock.ErrNoQuorum},
		"run out":       {func(*testing.T, *world, *redlock.Lease) { time.Sleep(ttl) }, redlock.ErrLeaseLost},
		"released":      {func(t *testing.T, _ *world, l *redlock.Lease) { release(t, l) }, redlock.ErrReleased},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l := acquire(t, w.client().Mutex("a"))
				test.do(t, w, l)
				before := len(w.locks())
				err := l.Verify(t.Context())
				wantErr(t, err, test.want)
				switch {
				case errors.Is(err, redlock.ErrLeaseLost), errors.Is(err, redlock.ErrReleased):
					wantOver(t, l, test.want)
				default:
					if l.Validity() == 0 || l.Context().Err() != nil {
						t.Error("a lease that is not known to be lost is over")
					}
					w.wantLocks(before)
				}
			})
		})
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		for _, n := range w.nodes {
			n.Freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit/2)
		defer cancel()
		wantTook(t, limit/2, func() { wantErr(t, l.Verify(ctx), context.DeadlineExceeded) })
		wantHeld(t, l, valid(ttl)-limit/2)
	})
}

func dropAll[N node.Node](t *testing.T, nodes []N, l *redlock.Lease) {
	t.Helper()
	for _, n := range nodes {
		drop(t, n, l)
	}
}

// That a node has nothing to give back does not mean that it held the lock until now.
func TestReleaseOfALeaseThatAMajorityDidNotHaveIsALoss(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.nodes[2].Stop()
		l := acquire(t, w.client().Mutex("a"))
		w.nodes[1].Wipe()
		wantErr(t, l.Release(t.Context()), redlock.ErrLeaseLost)
		w.wantFree()
	})
}

// Three of five nodes have the lease, and two of these fail: it is free on the others, and no more than a minority is down.
func TestReleaseOfALeaseOnABareQuorumWorksWithoutAMinority(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // a wiped node answers: then the lease is lost
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, w *world) {
				for _, n := range w.minority() {
					take(t, n, "a", "foreign", ttl)
				}
				l := acquire(t, w.client().Mutex("a"))
				fail(w.nodes[2])
				fail(w.nodes[3])
				if d := took(func() { release(t, l) }); d > limit {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}
