package redlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

func TestAReleasedLockStaysForTheRestOfItsMinimum(t *testing.T) {
	for what, handle := range map[string]func(c *redlock.Client, opts ...redlock.Option) redlock.Locker{
		"mutex": func(c *redlock.Client, opts ...redlock.Option) redlock.Locker { return c.Mutex("a", opts...) },
		"group": func(c *redlock.Client, opts ...redlock.Option) redlock.Locker {
			return c.Group([]string{"a", "b"}, opts...)
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l := acquire(t, handle(w.client().Client, redlock.WithMinHold(3*time.Second)))
				time.Sleep(time.Second)
				wantTook(t, 0, func() { release(t, l) })
				wantOver(t, l, redlock.ErrReleased)
				other := handle(w.client().Client)
				time.Sleep(2 * time.Second)
				_, err := other.TryAcquire(t.Context())
				wantErr(t, err, redlock.ErrNotAcquired)
				if !strings.Contains(err.Error(), "rest of its minimum") {
					t.Errorf("the error does not tell why: %v", err)
				}
				time.Sleep(2 * time.Millisecond)
				next, err := other.TryAcquire(t.Context())
				wantErr(t, err, nil)
				if next.Token() <= l.Token() {
					t.Errorf("token %d after %d", next.Token(), l.Token())
				}
			})
		})
	}
}

func TestAMinimumThatHasPassedKeepsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Mutex("a", redlock.WithMinHold(time.Second)))
		time.Sleep(time.Second)
		release(t, l)
		w.wantFree()
	})
}

// A waiter gets the lock when the minimum ends, and not a retry delay later.
func TestAWaiterGetsTheLockWhenTheMinimumEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		start := time.Now()
		release(t, acquire(t, w.client().Mutex("a", redlock.WithMinHold(3*time.Second))))
		acquire(t, w.client().Mutex("a"))
		if d := time.Since(start); d < 3*time.Second || d > 3*time.Second+10*time.Millisecond {
			t.Errorf("after %v", d)
		}
	})
}

// Nothing gives a released lock new life: neither automatic extension, nor an extension whose bytes were late.
func TestNothingExtendsAReleasedLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Mutex("a", redlock.WithMinHold(5*time.Second), redlock.WithAutoExtend(true)))
		late := c.lines[0]
		late.meddle(only(node.Extend, func(*node.Op) fault { return fault{late: 2 * time.Second} }))
		go func() { _ = l.Extend(context.Background(), time.Minute) }()
		synctest.Wait()
		release(t, l)
		time.Sleep(4 * time.Second)
		w.wantLocks(3)
		time.Sleep(2 * time.Second)
		w.wantFree()
	})
}

// The same job on four hosts whose clocks are up to a second apart runs once.
func TestAShortJobRunsOnceOnHostsWithDifferentClocks(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		ran := 0
		for range 4 {
			_, err := redlock.TryDo(t.Context(), w.client().Mutex("job", redlock.WithMinHold(2*time.Second)), func(context.Context) error {
				ran++
				time.Sleep(5 * time.Millisecond)
				return nil
			})
			wantErr(t, err, nil)
			time.Sleep(333 * time.Millisecond)
		}
		if ran != 1 {
			t.Errorf("the job ran %d times", ran)
		}
	})
}

func TestTheMinimumHoldsThroughShutdown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		acquire(t, c.Mutex("a", redlock.WithMinHold(3*time.Second)))
		wantErr(t, c.Close(), nil)
		w.wantLocks(3)
		time.Sleep(3*time.Second + 2*time.Millisecond)
		w.wantFree()
	})
}

func TestAnAttemptThatFailsKeepsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.majority() {
			take(t, n, "a", "other", ttl)
		}
		_, err := w.client().Mutex("a", redlock.WithMinHold(3*time.Second)).TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNotAcquired)
		w.wantLocks(2)
	})
}

func TestMinimumsThatMakeNoSenseAreRefused(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		for _, opts := range [][]redlock.Option{
			{redlock.WithMinHold(time.Millisecond)},
			{redlock.WithMinHold(-time.Second)},
			{redlock.WithMinHold(2 * time.Second), redlock.WithMaxHold(time.Second)},
		} {
			_, err := c.Mutex("a", opts...).TryAcquire(t.Context())
			wantErr(t, err, redlock.ErrInvalid)
		}
	})
}
