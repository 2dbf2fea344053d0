package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

func TestCloseReleasesWhatIsHeld(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c, other := w.client(), w.client()
		var leases []*redlock.Lease
		for i := range 20 {
			leases = append(leases, acquire(t, c.Mutex(fmt.Sprint(i), redlock.WithAutoExtend(i%2 == 0))))
		}
		kept := acquire(t, other.Mutex("other"))
		wantTook(t, 0, func() { wantErr(t, c.Close(), nil) })
		for _, l := range leases {
			wantOver(t, l, redlock.ErrClosed)
			if cause := context.Cause(l.Context()); errors.Is(cause, redlock.ErrLeaseLost) {
				t.Errorf("cause %v, nothing was lost", cause)
			}
		}
		w.wantLocks(3)
		wantHeld(t, kept, valid(ttl))
		wantErr(t, kept.Verify(t.Context()), nil)
		acquire(t, other.Mutex("0"))
	})
}

func TestNothingWorksOnAClosedClient(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		held, released := acquire(t, c.Mutex("a")), acquire(t, c.Mutex("b"))
		release(t, released)
		wantErr(t, c.Close(), nil)
		calls := c.lines[0].calls()
		_, err := c.Mutex("c").Acquire(t.Context())
		wantErr(t, err, redlock.ErrClosed)
		_, err = c.Mutex("c").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrClosed)
		wantErr(t, held.Extend(t.Context(), ttl), redlock.ErrClosed)
		wantErr(t, held.Verify(t.Context()), redlock.ErrClosed)
		if err := held.Release(t.Context()); !errors.Is(err, redlock.ErrClosed) && !errors.Is(err, redlock.ErrReleased) {
			t.Errorf("release after close: %v", err)
		}
		wantErr(t, released.Release(t.Context()), redlock.ErrReleased)
		if n := c.lines[0].calls(); n != calls {
			t.Errorf("%d calls by a closed client", n-calls)
		}
	})
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		acquire(t, c.Mutex("a"))
		wantErr(t, c.Close(), nil)
		w.wantFree()
		wantErr(t, c.Close(), nil)
		wantErr(t, c.Shutdown(t.Context()), nil)
	})
}

func TestASecondCloseWaitsForTheFirst(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		acquire(t, c.Mutex("a"))
		for _, n := range w.nodes {
			n.Delay(limit / 2)
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { wantTook(t, limit/2, func() { wantErr(t, c.Close(), nil) }) })
		}
		wg.Wait()
		w.wantFree()
	})
}

func TestCloseEndsWaitersAtOnce(t *testing.T) {
	tests := map[string]func(t *testing.T, w *world){
		"held":   func(t *testing.T, w *world) { hold(t, w) },
		"outage": func(_ *testing.T, w *world) { w.nodes[0].Stop(); w.nodes[1].Stop() },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				prepare(t, w)
				c := w.client(redlock.WithRetry(redlock.RetryPolicy{Delay: time.Hour}))
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						wantTook(t, time.Second, func() {
							_, err := c.Mutex("a").Acquire(t.Context())
							wantErr(t, err, redlock.ErrClosed, context.Canceled)
						})
					})
				}
				time.Sleep(time.Second)
				wantErr(t, c.Close(), nil)
				wg.Wait()
			})
		})
	}
}

func TestCloseWhileNothingAnswersIsBounded(t *testing.T) {
	for name, fail := range faults {
		if name == "wiped" {
			continue // a wiped node answers
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client(redlock.WithAutoExtend(true))
				l := acquire(t, c.Mutex("a"))
				for _, n := range w.majority() {
					fail(n)
				}
				if d := took(func() { wantErr(t, c.Close(), redlock.ErrNoQuorum) }); d > 2*limit {
					t.Errorf("took %v", d)
				}
				wantOver(t, l, redlock.ErrClosed)
				wantErr(t, c.Close(), nil)
			})
		})
	}
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a"))
		for _, n := range w.nodes {
			n.Freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit/2)
		defer cancel()
		wantTook(t, limit/2, func() { wantErr(t, c.Shutdown(ctx), context.DeadlineExceeded) })
		wantOver(t, l, redlock.ErrClosed)
	})
}

func TestCloseDuringAnAcquireLeavesALeaseThatIsOverOrNothing(t *testing.T) {
	for at := time.Duration(0); at <= 80*time.Millisecond; at += 2 * time.Millisecond {
		bubble(t, 3, func(t *testing.T, w *world) {
			scatterCounters(t, w) // so that it takes a raise as well
			for i, n := range w.nodes {
				n.Delay(time.Duration(30+2*i) * time.Millisecond)
			}
			c := w.client()
			got := make(chan error, 1)
			go func() {
				l, err := c.Mutex("a").Acquire(t.Context())
				if err == nil {
					<-l.Context().Done()
					wantOver(t, l, redlock.ErrClosed)
				}
				got <- err
			}()
			time.Sleep(at)
			_ = c.Close()
			if err := <-got; err != nil {
				wantErr(t, err, redlock.ErrClosed)
			}
			time.Sleep(2 * limit)
			w.wantFree()
			if t.Failed() {
				t.Fatalf("closed after %v", at)
			}
		})
	}
}

func TestCloseDuringAReleaseOrAnExtension(t *testing.T) {
	ops := map[string]func(*redlock.Lease, context.Context) error{
		"release": (*redlock.Lease).Release,
		"extend":  func(l *redlock.Lease, ctx context.Context) error { return l.Extend(ctx, ttl) },
		"verify":  (*redlock.Lease).Verify,
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client()
				l := acquire(t, c.Mutex("a"))
				for _, n := range w.nodes {
					n.Delay(limit / 2)
				}
				got := make(chan error, 1)
				go func() { got <- op(l, t.Context()) }()
				time.Sleep(limit / 4)
				wantErr(t, c.Close(), nil)
				if err := <-got; err != nil {
					wantErr(t, err, redlock.ErrClosed, redlock.ErrLeaseLost)
				}
				wantOver(t, l, nil)
				w.wantFree()
			})
		})
	}
}

func TestCloseUnderLoadLeavesNothing(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, 3, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 4))
			for _, n := range w.nodes {
				n.Delay(time.Duration(rnd.IntN(20)) * time.Millisecond)
			}
			c := w.client(redlock.WithAutoExtend(true))
			var wg sync.WaitGroup
			for i := range 20 {
				hold := time.Duration(rnd.IntN(50)) * time.Millisecond
				wg.Go(func() {
					for {
						l, err := c.Mutex(fmt.Sprint(i % 5)).Acquire(t.Context())
						if err != nil {
							wantErr(t, err, redlock.ErrClosed)
							return
						}
						time.Sleep(hold)
						_ = l.Release(t.Context())
					}
				})
			}
			time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
			if err := c.Close(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			wg.Wait()
			time.Sleep(limit)
			w.wantFree()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

func TestCloseStopsAskingNodesThatDoNotAnswer(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		w.nodes[0].Freeze()
		for range 10 {
			release(t, acquire(t, c.Mutex("a")))
		}
		_ = c.Close()
		synctest.Wait()
		calls := c.lines[0].calls()
		time.Sleep(time.Minute)
		if n := c.lines[0].calls() - calls; n != 0 {
			t.Errorf("%d calls by a closed client", n)
		}
		w.nodes[0].Thaw()
		w.wantFree()
	})
}

// The lease has just come to its end, and an extension of it, or its withdrawal, is still under way.
func TestCloseAfterALossLeavesNoGoroutineAndNoLock(t *testing.T) {
	tests := map[string]redlock.Option{
		"max hold": redlock.WithMaxHold(500 * time.Millisecond),
		"deadline": redlock.WithExtendInterval(redlock.MinDuration),
	}
	for name, opt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				before := goleak.IgnoreCurrent()
				c := w.client(redlock.WithTTL(time.Second), redlock.WithAutoExtend(true), redlock.WithExtendInterval(redlock.MinDuration))
				l := acquire(t, c.Mutex("a", opt))
				for _, n := range w.nodes {
					n.Delay(limit / 2)
				}
				if name == "deadline" {
					c.meddle(only(node.Extend, deafen))
				}
				<-l.Context().Done()
				wantErr(t, c.Close(), nil)
				synctest.Wait()
				if err := goleak.Find(before); err != nil {
					t.Errorf("a closed client: %v", err)
				}
				time.Sleep(4 * limit) // not yet the TTL
				w.wantFree()
			})
		})
	}
}

// The client closes the nodes that it was given; a line of ours counts that.
func TestCloseClosesItsNodes(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		l := &countingCloser{line: &line{Node: w.nodes[0]}}
		c, err := redlock.NewOver([]node.Node{l}, &jumper{})
		wantErr(t, err, nil)
		_ = c.Close()
		_ = c.Close()
		if l.closed != 1 {
			t.Errorf("closed %d times", l.closed)
		}
	})
}

type countingCloser struct {
	*line
	closed int
}

func (c *countingCloser) Close() error { c.closed++; return nil }
