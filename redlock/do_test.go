package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

var errBody = errors.New("the body's own")

type ctxKey struct{}

func TestDoRunsUnderALeaseThatExtendsItselfAndReleases(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		ctx := context.WithValue(t.Context(), ctxKey{}, "kept")
		var lease *redlock.Lease
		err := redlock.Do(ctx, c.Mutex("a"), func(ctx context.Context) error {
			l, ok := redlock.FromContext(ctx)
			if !ok || !l.AutoExtending() || l.Name() != "a" || l.Token() <= 0 {
				t.Errorf("lease %v, %v", l, ok)
			}
			if ctx.Value(ctxKey{}) != "kept" || l.Context().Value(ctxKey{}) != "kept" {
				t.Error("the values of the caller's context are gone")
			}
			time.Sleep(5 * ttl)
			lease = l
			return ctx.Err()
		})
		wantErr(t, err, nil)
		wantOver(t, lease, redlock.ErrReleased)
		w.wantFree()
	})
}

func TestDoReturnsTheBodysErrorUnchanged(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a")
		for _, want := range []error{nil, errBody, redlock.ErrNotAcquired, redlock.ErrLeaseLost, fmt.Errorf("wrapped: %w", errBody)} {
			if err := redlock.Do(t.Context(), m, func(context.Context) error { return want }); err != want { //nolint:errorlint // unchanged
				t.Errorf("Do returned %v, the body %v", err, want)
			}
			ran, err := redlock.TryDo(t.Context(), m, func(context.Context) error { return want })
			if !ran || err != want { //nolint:errorlint // unchanged
				t.Errorf("TryDo returned %v, %v, the body %v", ran, err, want)
			}
		}
		w.wantFree()
	})
}

func TestDoDoesNotRunTheBodyWithoutTheLock(t *testing.T) {
	held := func(t *testing.T, w *world, _ *peer) { acquire(t, w.client().Mutex("a", redlock.WithAutoExtend(true))) }
	down := func(_ *testing.T, w *world, _ *peer) { w.nodes[0].Freeze(); w.nodes[1].Stop() }
	closed := func(_ *testing.T, _ *world, c *peer) { _ = c.Close() }
	tests := map[string]struct {
		name    string
		prepare func(t *testing.T, w *world, c *peer)
		do, try error // of Do and of TryDo
	}{
		"held":    {"a", held, redlock.ErrNotAcquired, nil},
		"outage":  {"a", down, redlock.ErrNoQuorum, redlock.ErrNoQuorum},
		"closed":  {"a", closed, redlock.ErrClosed, redlock.ErrClosed},
		"invalid": {"", func(*testing.T, *world, *peer) {}, redlock.ErrInvalid, redlock.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client(redlock.WithWait(time.Second))
				test.prepare(t, w, c)
				body := func(context.Context) error { t.Error("the body ran"); return nil }
				wantErr(t, redlock.Do(t.Context(), c.Mutex(test.name), body), test.do)
				ran, err := redlock.TryDo(t.Context(), c.Mutex(test.name), body)
				if ran {
					t.Error("TryDo says that it ran")
				}
				wantErr(t, err, test.try)
			})
		})
	}
}

func TestTryDoOfACancelledContextIsAnErrorAndNoSkip(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ran, err := redlock.TryDo(ctx, w.client().Mutex("a"), func(context.Context) error { return nil })
		if ran {
			t.Error("ran")
		}
		wantErr(t, err, context.Canceled)
		w.wantFree()
	})
}

func TestDoReleasesWhenTheBodyPanics(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a")
		for _, value := range []any{"value", errBody} {
			func() {
				defer func() {
					if r := recover(); r != value {
						t.Errorf("recovered %v, want %v", r, value)
					}
					w.wantFree()
				}()
				_ = redlock.Do(t.Context(), m, func(context.Context) error { panic(value) })
			}()
		}
	})
}

func TestDoReleasesWhenTheBodyPanicsAndTheNodesAreDown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a")
		defer func() {
			if r := recover(); r != "value" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = redlock.Do(t.Context(), m, func(context.Context) error {
			for _, n := range w.nodes {
				n.Freeze()
			}
			panic("value")
		})
	})
}

func TestDoReleasesWhenTheBodysGoroutineExits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = redlock.Do(t.Context(), w.client().Mutex("a"), func(context.Context) error {
				runtime.Goexit()
				return nil
			})
			t.Error("Do returned")
		}()
		<-done
		w.wantFree()
	})
}

func TestTheBodysContextEndsWithTheCallers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		cause := errors.New("the caller's reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		var body error
		wantTook(t, time.Second, func() {
			body = redlock.Do(ctx, w.client().Mutex("a"), func(ctx context.Context) error {
				<-ctx.Done()
				if l, _ := redlock.FromContext(ctx); l.Validity() == 0 {
					t.Error("the lease ended before the body did")
				}
				wantErr(t, ctx.Err(), context.Canceled)
				wantErr(t, context.Cause(ctx), cause)
				return ctx.Err()
			})
		})
		wantErr(t, body, context.Canceled, redlock.ErrLeaseLost)
		w.wantFree()
	})
}

func TestDoTellsThatTheLeaseWasLost(t *testing.T) {
	ends := map[string]struct {
		opts []redlock.Option
		lose func(w *world)
	}{
		"majority wiped":   {nil, func(w *world) { wipe(w.majority()) }},
		"everything hangs": {nil, func(w *world) { w.nodes[0].Freeze(); w.nodes[1].Freeze(); w.nodes[2].Freeze() }},
		"max hold":         {[]redlock.Option{redlock.WithMaxHold(time.Second)}, func(*world) {}},
		"no extension":     {[]redlock.Option{redlock.WithAutoExtend(false)}, func(*world) {}},
	}
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				m := w.client().Mutex("a", test.opts...)
				for _, body := range []error{nil, errBody} {
					err := redlock.Do(t.Context(), m, func(ctx context.Context) error {
						test.lose(w)
						<-ctx.Done()
						wantErr(t, context.Cause(ctx), redlock.ErrLeaseLost)
						return body
					})
					if body != nil {
						wantErr(t, err, body)
					} else {
						wantErr(t, err, redlock.ErrLeaseLost)
					}
					for _, n := range w.nodes {
						n.Thaw()
					}
					time.Sleep(time.Second)
					w.wantFree()
				}
			})
		})
	}
}

func TestDoJoinsTheErrorOfTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a")
		for _, body := range []error{nil, errBody} {
			err := redlock.Do(t.Context(), m, func(context.Context) error {
				w.nodes[0].Stop()
				w.nodes[1].Stop()
				return body
			})
			wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrLeaseLost)
			if body != nil && !errors.Is(err, body) {
				t.Errorf("%v hides the body's error", err)
			}
			w.nodes[0].Start()
			w.nodes[1].Start()
			time.Sleep(time.Second)
			w.wantFree()
		}
	})
}

func TestAReleaseInsideTheBodyIsHarmless(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		err := redlock.Do(t.Context(), c.Mutex("a"), func(ctx context.Context) error {
			l, _ := redlock.FromContext(ctx)
			release(t, l)
			return nil
		})
		wantErr(t, err, nil)
		if n := len(c.sent(node.Release)); n != 1 {
			t.Errorf("%d releases", n)
		}
	})
}

func TestClosingTheClientEndsTheBodysContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		_ = redlock.Do(t.Context(), c.Mutex("a"), func(ctx context.Context) error {
			go c.Close()
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), redlock.ErrClosed)
			return nil
		})
		w.wantFree()
	})
}

func TestNestedLeasesAreFoundInnermostFirst(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		name := func(ctx context.Context) string {
			l, ok := redlock.FromContext(ctx)
			if !ok {
				return "none"
			}
			return l.Name()
		}
		if n := name(t.Context()); n != "none" {
			t.Errorf("outside: %q", n)
		}
		err := redlock.Do(t.Context(), c.Mutex("outer"), func(outer context.Context) error {
			_, err := redlock.TryDo(outer, c.Mutex("inner"), func(inner context.Context) error {
				if name(inner) != "inner" || name(outer) != "outer" {
					t.Errorf("inside: %q and %q", name(inner), name(outer))
				}
				return nil
			})
			if name(outer) != "outer" {
				t.Errorf("after the inner: %q", name(outer))
			}
			return err
		})
		wantErr(t, err, nil)
	})
}

func TestTheInnerBodyEndsWhenTheOuterLeaseIsLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		err := redlock.Do(t.Context(), c.Mutex("outer", redlock.WithMaxHold(time.Second)), func(outer context.Context) error {
			return redlock.Do(outer, c.Mutex("inner"), func(inner context.Context) error {
				wantTook(t, time.Second, func() { <-inner.Done() })
				wantErr(t, context.Cause(inner), redlock.ErrLeaseLost)
				return context.Cause(inner)
			})
		})
		wantErr(t, err, redlock.ErrLeaseLost)
		synctest.Wait()
		w.wantFree()
	})
}

func TestDoGivesTheLockToTheNextAtOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a")
		wantTook(t, 0, func() {
			for range 100 {
				wantErr(t, redlock.Do(t.Context(), m, func(context.Context) error { return nil }), nil)
			}
		})
	})
}
