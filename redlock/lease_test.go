package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

func TestALeaseCanBeLookedAtFromEverywhereWhileItEnds(t *testing.T) {
	ends := map[string]func(c *peer, l *redlock.Lease){
		"release":  func(_ *peer, l *redlock.Lease) { _ = l.Release(context.Background()) },
		"close":    func(c *peer, _ *redlock.Lease) { _ = c.Close() },
		"deadline": func(_ *peer, l *redlock.Lease) { <-l.Context().Done() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				for _, n := range w.nodes {
					n.Delay(time.Millisecond)
				}
				c := w.client()
				l := acquire(t, c.Mutex("a", redlock.WithTTL(time.Second)))
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						over := false
						for range 100 {
							err := l.Context().Err()
							valid, until, cause := l.Validity(), l.Until(), context.Cause(l.Context())
							if over && (valid != 0 || err == nil || cause == nil || until.After(time.Now())) {
								t.Errorf("a lease that was over came back: %v, %v, %v", valid, err, cause)
							}
							over = over || valid == 0 && err != nil
							_, _, _, _ = l.Holder(), l.Token(), l.Names(), l.AutoExtending()
							time.Sleep(15 * time.Millisecond)
						}
					})
					wg.Go(func() {
						for range 50 {
							_ = l.Verify(t.Context())
							l.StopAutoExtend()
							time.Sleep(time.Millisecond)
						}
					})
				}
				time.Sleep(500 * time.Millisecond)
				end(c, l)
				wg.Wait()
				wantOver(t, l, nil)
			})
		})
	}
}

func TestListenersHearOfTheEndEarlyOrLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		early, late := make(chan error, 1), make(chan error, 1)
		listen := func(heard chan error) {
			context.AfterFunc(l.Context(), func() { heard <- context.Cause(l.Context()) })
		}
		listen(early)
		time.Sleep(ttl)
		listen(late)
		wantTook(t, 0, func() {
			wantErr(t, <-early, redlock.ErrLeaseLost)
			wantErr(t, <-late, redlock.ErrLeaseLost)
		})
	})
}

func TestAChildsEndDoesNotEndTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := w.client().Mutex("a").Acquire(context.WithValue(ctx, ctxKey{}, "kept"))
		wantErr(t, err, nil)
		if l.Context().Value(ctxKey{}) != "kept" {
			t.Error("the values of the acquire's context are gone")
		}
		child, stop := context.WithCancel(l.Context())
		stop()
		<-child.Done()
		time.Sleep(2 * time.Second)
		wantHeld(t, l, valid(ttl)-2*time.Second)
	})
}

func TestTheNamesOfALeaseAreACopy(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a"))
		l.Names()[0] = "other"
		if l.Name() != "a" || l.Names()[0] != "a" {
			t.Errorf("lease of %q", l.Names())
		}
		release(t, l)
		w.wantFree()
	})
}

func TestUntilOfALeaseThatIsOverIsTheTimeOfItsEnd(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		released, ran := acquire(t, c.Mutex("a")), acquire(t, c.Mutex("b"))
		start := time.Now()
		time.Sleep(time.Second)
		release(t, released)
		time.Sleep(time.Minute)
		if d := released.Until().Sub(start); d != time.Second {
			t.Errorf("released after %v, want 1s", d)
		}
		if d := ran.Until().Sub(start); d != valid(ttl) {
			t.Errorf("ran out after %v, want %v", d, valid(ttl))
		}
	})
}

// §7: a later short extension whose answers are lost must not leave us trusting an older, longer one, nor the reverse.
func TestALeaseIsNeverTrustedLongerThanAQuorumKeepsIt(t *testing.T) {
	for seed := range uint64(30) {
		bubble(t, 3, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			c := w.client()
			l := acquire(t, c.Mutex("a"))
			for range 30 {
				for _, line := range c.lines {
					line.meddle([]meddler{nil, nil, cut, deafen}[rnd.IntN(4)])
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
				_ = l.Extend(ctx, time.Duration(rnd.IntN(4000)+10)*time.Millisecond)
				cancel()
				time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
				if l.Validity() == 0 {
					return
				}
				if kept := keptByQuorum(t, w, l); l.Validity() >= kept {
					t.Fatalf("seed %d: trusted for %v, a quorum keeps it for %v", seed, l.Validity(), kept)
				}
			}
		})
	}
}

// keptByQuorum is how long a quorum of nodes still keeps the lease.
func keptByQuorum(t *testing.T, w *world, l *redlock.Lease) time.Duration {
	t.Helper()
	var kept []time.Duration
	for _, n := range w.nodes {
		if holds(t, n, l.Name(), l.Holder()) {
			kept = append(kept, left(t, n, l.Name()))
		}
	}
	slices.Sort(kept)
	if q := len(w.majority()); len(kept) >= q {
		return kept[len(kept)-q]
	}
	return 0
}

// I4, with latencies, lost answers and extensions by hand and by itself.
func TestTheDeadlineLiesBeforeTheExpiryOnAQuorum(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		bubble(t, 3, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 6))
			c := w.client(redlock.WithTTL(time.Second), redlock.WithAutoExtend(true))
			for _, line := range c.lines {
				d := time.Duration(rnd.IntN(int(limit))) + 1
				lineRnd := rand.New(rand.NewPCG(seed, uint64(d)))
				line.meddle(func(op *node.Op) fault {
					if op.Kind == node.Extend && lineRnd.IntN(3) == 0 {
						return fault{late: d}
					}
					return fault{delay: d}
				})
			}
			l := acquire(t, c.Mutex("a"))
			for i := 0; l.Validity() > 0 && i < 500; i++ {
				if rnd.IntN(10) == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(200))*time.Millisecond)
					_ = l.Extend(ctx, time.Duration(rnd.IntN(2000)+10)*time.Millisecond)
					cancel()
				}
				time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
				if v := l.Validity(); v > 0 && v >= keptByQuorum(t, w, l) {
					t.Fatalf("seed %d: trusted for %v, a quorum keeps it for %v", seed, v, keptByQuorum(t, w, l))
				}
			}
			time.Sleep(4 * limit) // for what is under way
		})
	}
}

func TestASuspendWhileAnExtensionIsUnderWayEndsTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		clock := &jumper{}
		c := w.clientWith(clock)
		l := acquire(t, c.Mutex("a"))
		for _, n := range w.nodes {
			n.Delay(limit / 2)
		}
		time.AfterFunc(limit/4, func() { clock.jump(time.Minute) })
		err := l.Extend(t.Context(), ttl)
		if v := l.Validity(); v != 0 {
			t.Errorf("validity %v after a minute's sleep", v)
		}
		if d := took(func() { <-l.Context().Done() }); d > 100*time.Millisecond {
			t.Errorf("the context ended after %v of running time", d)
		}
		wantOver(t, l, redlock.ErrLeaseLost)
		wantErr(t, err, redlock.ErrLeaseLost)
	})
}

func TestASuspendEndsTheBodyOfDo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		clock := &jumper{}
		c := w.clientWith(clock)
		err := redlock.Do(t.Context(), c.Mutex("a"), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			clock.jump(time.Hour)
			if d := took(func() { <-ctx.Done() }); d > 100*time.Millisecond {
				t.Errorf("the body's context ended after %v of running time", d)
			}
			return nil
		})
		wantErr(t, err, redlock.ErrLeaseLost)
		w.wantFree()
	})
}

// The same handle serves everybody, and every acquire has a lease of its own.
func TestOneHandleForManyGoroutines(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a")
		var wg sync.WaitGroup
		var mu sync.Mutex
		holders := map[string]bool{}
		for range 20 {
			wg.Go(func() {
				l := acquire(t, m)
				mu.Lock()
				if holders[l.Holder()] {
					t.Error("two leases with one holder")
				}
				holders[l.Holder()] = true
				mu.Unlock()
				time.Sleep(time.Millisecond)
				if err := l.Release(t.Context()); err != nil && !errors.Is(err, redlock.ErrReleased) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		w.wantFree()
	})
}
