package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redquorum/locks/redlock"
)

var errCause = errors.New("the caller's reason")

func TestACancelledContextTouchesNoNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errCause)
		for range 50 {
			for _, acquire := range []func(context.Context) (*redlock.Lease, error){c.Mutex("a").Acquire, c.Mutex("a").TryAcquire} {
				l, err := acquire(ctx)
				if l != nil {
					t.Fatal("a lease on a context that had ended")
				}
				wantErr(t, err, context.Canceled, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
				wantErr(t, err, errCause)
			}
		}
		for _, l := range c.lines {
			if n := l.calls(); n != 0 {
				t.Errorf("%d calls", n)
			}
		}
	})
}

func TestTheEndOfTheContextEndsTheWaitAtOnce(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, w *world)
		class   error
	}{
		"held":    {func(t *testing.T, w *world) { hold(t, w) }, redlock.ErrNotAcquired},
		"stopped": {func(_ *testing.T, w *world) { w.nodes[0].Stop(); w.nodes[1].Stop() }, redlock.ErrNoQuorum},
		"frozen":  {func(_ *testing.T, w *world) { w.nodes[0].Freeze(); w.nodes[1].Freeze() }, redlock.ErrNoQuorum},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				test.prepare(t, w)
				m := w.client(redlock.WithRetry(redlock.RetryPolicy{Delay: time.Hour})).Mutex("a")
				before := len(w.locks())
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(errCause) })
				wantTook(t, time.Second, func() {
					_, err := m.Acquire(ctx)
					wantErr(t, err, context.Canceled, redlock.ErrWaitExpired, redlock.ErrAttemptsExhausted)
					wantErr(t, err, errCause)
					wantErr(t, err, test.class)
				})
				deadline, cancelDeadline := context.WithTimeout(t.Context(), time.Second)
				defer cancelDeadline()
				wantTook(t, time.Second, func() {
					_, err := m.Acquire(deadline)
					wantErr(t, err, context.DeadlineExceeded, redlock.ErrWaitExpired, context.Canceled)
					wantErr(t, err, test.class)
				})
				w.wantLocks(before)
			})
		})
	}
}

func TestADeadlineInterruptsARoundUnderWay(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.Delay(limit)
		}
		for _, acquire := range []func(*redlock.Mutex, context.Context) (*redlock.Lease, error){(*redlock.Mutex).Acquire, (*redlock.Mutex).TryAcquire} {
			ctx, cancel := context.WithTimeout(t.Context(), limit/2)
			wantTook(t, limit/2, func() {
				_, err := acquire(w.client().Mutex("a"), ctx)
				wantErr(t, err, context.DeadlineExceeded)
			})
			cancel()
			time.Sleep(5 * limit)
			w.wantFree()
		}
	})
}

// Whenever the caller gives up, it has either a lease or an error, and with an error nothing stays locked.
func TestCancelAtAnyMomentLeavesALeaseOrNothing(t *testing.T) {
	for _, counters := range []string{"equal", "scattered"} { // scattered ones need a raise
		for at := time.Duration(0); at <= 60*time.Millisecond; at += time.Millisecond {
			bubble(t, 3, func(t *testing.T, w *world) {
				if counters == "scattered" {
					scatterCounters(t, w)
				}
				for i, n := range w.nodes {
					n.Delay(time.Duration(20+2*i) * time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(t.Context(), at)
				defer cancel()
				l, err := w.client().Mutex("a").Acquire(ctx)
				if (l == nil) == (err == nil) {
					t.Fatalf("cancelled after %v: %v, %v", at, l, err)
				}
				if err != nil {
					wantErr(t, err, context.DeadlineExceeded)
				} else {
					wantErr(t, l.Verify(t.Context()), nil)
					release(t, l)
				}
				time.Sleep(2 * limit)
				w.wantFree()
				if litter := w.litter(); len(litter) > 0 {
					t.Errorf("cancelled after %v, left behind: %q", at, litter)
				}
			})
		}
	}
}

func TestAnOwnTimeoutOfANodeIsNotTheCallersDeadline(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.Freeze()
		}
		_, err := w.client().Mutex("a").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNoQuorum, context.DeadlineExceeded, context.Canceled)
	})
}
