package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/redlock"
)

// classes are all that an error can be told apart by.
var classes = map[string]error{
	"not acquired": redlock.ErrNotAcquired,
	"no quorum":    redlock.ErrNoQuorum,
	"lost":         redlock.ErrLeaseLost,
	"released":     redlock.ErrReleased,
	"wait":         redlock.ErrWaitExpired,
	"attempts":     redlock.ErrAttemptsExhausted,
	"closed":       redlock.ErrClosed,
	"invalid":      redlock.ErrInvalid,
	"canceled":     context.Canceled,
	"deadline":     context.DeadlineExceeded,
	"cause":        errCause,
	"node":         errLost,
}

// situation is one way to fail, and all classes that its error matches.
type situation struct {
	name string
	op   string
	fail func(t *testing.T, w *world, c *peer) error
	want []string
}

func situations() []situation {
	try := func(t *testing.T, c *peer, opts ...redlock.Option) error {
		t.Helper()
		_, err := c.Mutex("a", opts...).TryAcquire(t.Context())
		return err
	}
	wait := func(ctx context.Context, c *peer, opts ...redlock.Option) error {
		_, err := c.Mutex("a", opts...).Acquire(ctx)
		return err
	}
	broken, denied := answer(node.Failed(errLost, false)), answer(node.Failed(errLost, true))
	once := redlock.WithRetry(redlock.RetryPolicy{Attempts: 1})
	return []situation{
		{"held", "acquire", func(t *testing.T, w *world, c *peer) error { hold(t, w); return try(t, c) }, []string{"not acquired"}},
		{"outage", "acquire", func(t *testing.T, _ *world, c *peer) error { c.meddle(broken); return try(t, c) }, []string{"no quorum", "node"}},
		{"one held, one down, one free", "acquire", func(t *testing.T, w *world, c *peer) error {
			take(t, w.nodes[0], "a", "foreign", time.Hour)
			c.lines[1].meddle(broken)
			return try(t, c)
		}, []string{"not acquired", "node"}},
		{"two held, one down", "acquire", func(t *testing.T, w *world, c *peer) error {
			hold(t, w)
			c.lines[2].meddle(broken)
			return try(t, c)
		}, []string{"not acquired"}},
		{"one held, two down", "acquire", func(t *testing.T, w *world, c *peer) error {
			hold(t, w)
			c.lines[0].meddle(broken)
			c.lines[1].meddle(broken)
			return try(t, c)
		}, []string{"no quorum", "node"}},
		{"wait over, held", "acquire", func(t *testing.T, w *world, c *peer) error {
			hold(t, w)
			return wait(t.Context(), c, redlock.WithWait(time.Second))
		}, []string{"not acquired", "wait"}},
		{"wait over, outage", "acquire", func(t *testing.T, _ *world, c *peer) error {
			c.meddle(broken)
			return wait(t.Context(), c, redlock.WithWait(time.Second))
		}, []string{"no quorum", "wait", "node"}},
		{"attempts used up, held", "acquire", func(t *testing.T, w *world, c *peer) error {
			hold(t, w)
			return wait(t.Context(), c, once)
		}, []string{"not acquired", "attempts"}},
		{"attempts used up, outage", "acquire", func(t *testing.T, _ *world, c *peer) error {
			c.meddle(broken)
			return wait(t.Context(), c, once)
		}, []string{"no quorum", "attempts", "node"}},
		{"cancelled, held", "acquire", func(t *testing.T, w *world, c *peer) error {
			hold(t, w)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return wait(ctx, c)
		}, []string{"not acquired", "canceled"}},
		{"cancelled with a cause, held", "acquire", func(t *testing.T, w *world, c *peer) error {
			hold(t, w)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errCause) })
			return wait(ctx, c)
		}, []string{"not acquired", "canceled", "cause"}},
		{"deadline, outage", "acquire", func(t *testing.T, _ *world, c *peer) error {
			c.meddle(broken)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
			defer cancel()
			return wait(ctx, c)
		}, []string{"no quorum", "deadline", "cause", "node"}},
		{"permanent", "acquire", func(t *testing.T, _ *world, c *peer) error {
			c.meddle(denied)
			return wait(t.Context(), c)
		}, []string{"no quorum", "node"}},
		{"closed", "acquire", func(t *testing.T, _ *world, c *peer) error { _ = c.Close(); return try(t, c) }, []string{"closed"}},
		{"closed while waiting", "acquire", func(t *testing.T, w *world, c *peer) error {
			hold(t, w)
			time.AfterFunc(time.Second, func() { _ = c.Close() })
			return wait(t.Context(), c)
		}, []string{"closed", "not acquired"}},
		{"invalid", "acquire", func(t *testing.T, _ *world, c *peer) error { return try(t, c, redlock.WithTTL(1)) }, []string{"invalid"}},
		{"extend: invalid", "extend", func(t *testing.T, _ *world, c *peer) error {
			return acquire(t, c.Mutex("a")).Extend(t.Context(), 1)
		}, []string{"invalid"}},
		{"extend: permanent", "extend", func(t *testing.T, _ *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			c.meddle(denied)
			return l.Extend(t.Context(), ttl)
		}, []string{"no quorum", "node"}},
		{"extend: lost", "extend", func(t *testing.T, w *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			wipe(w.nodes)
			return l.Extend(t.Context(), ttl)
		}, []string{"lost"}},
		{"extend: deadline, outage", "extend", func(t *testing.T, _ *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			c.meddle(broken)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
			defer cancel()
			return l.Extend(ctx, ttl)
		}, []string{"no quorum", "deadline", "cause", "node"}},
		{"extend: released", "extend", func(t *testing.T, _ *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			release(t, l)
			return l.Extend(t.Context(), ttl)
		}, []string{"released"}},
		{"extend: closed", "extend", func(t *testing.T, _ *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			_ = c.Close()
			return l.Extend(t.Context(), ttl)
		}, []string{"closed"}},
		{"verify: outage", "verify", func(t *testing.T, _ *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			c.meddle(broken)
			return l.Verify(t.Context())
		}, []string{"no quorum", "node"}},
		{"verify: lost", "verify", func(t *testing.T, w *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			wipe(w.nodes)
			return l.Verify(t.Context())
		}, []string{"lost"}},
		{"release: outage", "release", func(t *testing.T, _ *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			c.meddle(broken)
			return l.Release(t.Context())
		}, []string{"no quorum", "node"}},
		{"release: lost", "release", func(t *testing.T, w *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			wipe(w.nodes)
			return l.Release(t.Context())
		}, []string{"lost"}},
		{"release: again", "release", func(t *testing.T, _ *world, c *peer) error {
			l := acquire(t, c.Mutex("a"))
			release(t, l)
			return l.Release(t.Context())
		}, []string{"released"}},
		{"shutdown: outage", "shutdown", func(t *testing.T, _ *world, c *peer) error {
			acquire(t, c.Mutex("a"))
			c.meddle(broken)
			return c.Shutdown(t.Context())
		}, []string{"no quorum", "node"}},
	}
}

// I7: whatever fails can be told from everything else by errors.Is.
func TestEveryFailureMatchesItsClassesAndNoOther(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				err := s.fail(t, w, w.client())
				want := map[string]bool{}
				for _, c := range s.want {
					want[c] = true
				}
				for name, class := range classes {
					if name == "node" && !want[name] {
						continue // what a minority said may be told
					}
					if errors.Is(err, class) != want[name] {
						t.Errorf("%v: matches %q: %v", err, name, !want[name])
					}
				}
				var e *redlock.Error
				if !errors.As(err, &e) {
					t.Fatalf("%T is no *Error", err)
				}
				if wantName := map[bool]string{true: "", false: "a"}[s.op == "shutdown"]; e.Op != s.op || e.Name != wantName {
					t.Errorf("op %q of %q, want %q of %q", e.Op, e.Name, s.op, wantName)
				}
				if !strings.Contains(err.Error(), s.op) {
					t.Errorf("%v does not say what was tried", err)
				}
			})
		})
	}
}

func TestAFailedRoundListsEveryNodesAnswerInOrder(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		take(t, w.nodes[0], "a", "the-holders-secret", time.Hour)
		c.lines[1].meddle(answer(node.Failed(errLost, false)))
		w.nodes[2].Freeze()
		_, err := c.Mutex("a").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrNotAcquired)
		var e *redlock.Error
		if !errors.As(err, &e) || len(e.Votes) != 3 {
			t.Fatalf("%#v", err)
		}
		for i, want := range []redlock.Vote{redlock.VoteRefused, redlock.VoteUnknown, redlock.VoteUnknown} {
			v := e.Votes[i]
			if v.Node != w.nodes[i].String() || v.Vote != want || (v.Reason != "") != (want == redlock.VoteRefused) || (v.Err != nil) != (want == redlock.VoteUnknown) {
				t.Errorf("vote %d is %+v, want %s", i, v, want)
			}
			if !strings.Contains(err.Error(), v.Node) {
				t.Errorf("%v does not name %s", err, v.Node)
			}
		}
		if !errors.Is(e.Votes[1].Err, errLost) || !errors.Is(err, errLost) {
			t.Errorf("%v hides the error of n2", err)
		}
		if strings.Contains(fmt.Sprintf("%v %+v", err, e.Votes), "the-holders-secret") {
			t.Errorf("%v shows the holder", err)
		}
	})
}

type detailed struct{ code int }

func (d *detailed) Error() string { return fmt.Sprint("code ", d.code) }

func TestErrorsOfNodesAreFoundByType(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		c.lines[1].meddle(answer(node.Failed(fmt.Errorf("wrapped: %w", &detailed{7}), false)))
		c.lines[2].meddle(answer(node.Failed(errLost, false)))
		_, err := c.Mutex("a").TryAcquire(t.Context())
		var d *detailed
		if !errors.As(err, &d) || d.code != 7 {
			t.Errorf("%v hides the error of a node", err)
		}
	})
}

func TestWhatNoRetryCanMendComesBackAtOnce(t *testing.T) {
	denied := answer(node.Failed(errLost, true))
	t.Run("from a majority", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			c := w.client()
			c.lines[0].meddle(denied)
			c.lines[2].meddle(denied)
			wantTook(t, 0, func() {
				_, err := c.Mutex("a").Acquire(t.Context())
				wantErr(t, err, redlock.ErrNoQuorum)
				wantErr(t, err, errLost)
			})
			if n := len(c.lines[1].sent(node.Acquire)); n != 1 {
				t.Errorf("%d attempts", n)
			}
			w.wantFree()
		})
	})
	t.Run("from a minority it is a detail", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			c := w.client()
			c.lines[0].meddle(denied)
			l := acquire(t, c.Mutex("a"))
			wantErr(t, l.Extend(t.Context(), ttl), nil)
			release(t, l)
		})
	})
	t.Run("from one, and an outage of another, is waited for", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			c := w.client()
			c.lines[0].meddle(denied)
			w.nodes[1].Stop()
			time.AfterFunc(10*time.Second, w.nodes[1].Start)
			acquire(t, c.Mutex("a"))
		})
	})
}
