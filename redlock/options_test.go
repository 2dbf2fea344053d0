package redlock_test

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/redlock"
)

const forever = redlock.MaxDuration

func TestOddNamesDoNotCollideWithAnything(t *testing.T) {
	names := []string{
		"a", "A", "a ", " a", "a,b", "a:b", "x:fence", "x:redlock:fence", "x", "x}", "{x", "{x}", "{x}y", "y{x}", "{}", "{}x", "}{", "{{x}}",
		"{lock:x}", "{lock:x}:redlock:fence", "lock:x", ":redlock:fence", "{x}:redlock:fence", "x:redlock:gone:y", ":", "*", "?[a]", "\\",
		"naïve", "nai\u0308ve", "ключ", "鍵", "🔒", "\x00", "a\x00b", "\n", "\r\n", "\xff\xfe", "\xed\xa0\x80", "%s%d",
		strings.Repeat("n", redlock.MaxNameLen), strings.Repeat("é", redlock.MaxNameLen/2), strings.Repeat("{", redlock.MaxNameLen),
	}
	for _, prefix := range []string{"lock", "p{q}", "a:b", "é"} {
		bubble(t, 3, func(t *testing.T, w *world) {
			c := w.client(redlock.WithKeyPrefix(prefix))
			leases := make([]*redlock.Lease, len(names))
			for i, name := range names {
				l, err := c.Mutex(name).TryAcquire(t.Context())
				if err != nil {
					t.Fatalf("prefix %q: %v", prefix, err)
				}
				leases[i] = l
			}
			if n := len(w.nodes[0].Keys()); n != 2*len(names) {
				t.Errorf("%d keys for %d names, want a lock and a counter for each", n, len(names))
			}
			for i, l := range leases {
				if l.Name() != names[i] {
					t.Errorf("lease of %q, want %q", l.Name(), names[i])
				}
				wantErr(t, l.Verify(t.Context()), nil)
				release(t, l)
			}
			if n := len(w.nodes[0].Keys()); n != len(names) {
				t.Errorf("%d keys after the release of %d names, want the counters", n, len(names))
			}
		})
	}
}

func TestNamesThatAreNotAcceptableAreRefusedBeforeAnyNodeIsAsked(t *testing.T) {
	tests := []struct{ prefix, name, says string }{
		{"lock", "", "empty"},
		{"lock", strings.Repeat("n", redlock.MaxNameLen+1), "512"},
		{"", "", "empty"},
		{"", "{x}:redlock:fence", "{x}:redlock:fence"},
	}
	for _, test := range tests {
		bubble(t, 3, func(t *testing.T, w *world) {
			c := w.client(redlock.WithKeyPrefix(test.prefix))
			m := c.Mutex(test.name)
			_, err := m.Acquire(t.Context())
			_, err2 := m.TryAcquire(t.Context())
			for _, err := range []error{err, err2} {
				wantErr(t, err, redlock.ErrInvalid, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
				if !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v does not say %q", err, test.says)
				}
				if len(err.Error()) > 1000 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
			}
			if n := c.lines[0].calls(); n != 0 {
				t.Errorf("%d calls for a name that is refused", n)
			}
		})
	}
}

// badOptions are refused both as a client's default and for one lock. The message names the values.
var badOptions = []struct {
	name string
	opt  redlock.Option
	says []string
}{
	{"no TTL", redlock.WithTTL(0), []string{"TTL"}},
	{"negative TTL", redlock.WithTTL(-time.Second), []string{"-1s"}},
	{"bare number as TTL", redlock.WithTTL(30), []string{"30ns", "10ms"}},
	{"TTL just too short", redlock.WithTTL(redlock.MinDuration - 1), []string{"10ms"}},
	{"negative wait", redlock.WithWait(-time.Second), []string{"-1s"}},
	{"bare number as wait", redlock.WithWait(30), []string{"30ns", "10ms"}},
	{"negative extend interval", redlock.WithExtendInterval(-time.Second), []string{"-1s"}},
	{"bare number as extend interval", redlock.WithExtendInterval(30), []string{"30ns"}},
	{"extend interval of the TTL", redlock.WithExtendInterval(ttl), []string{"10s"}},
	{"extend interval above the TTL", redlock.WithExtendInterval(ttl + time.Second), []string{"11s", "10s"}},
	{"extend interval without room for the node timeout", redlock.WithExtendInterval(valid(ttl) - limit + 1), []string{"100ms", "10s"}},
	{"endless extend interval", redlock.WithExtendInterval(forever), []string{"10s"}},
	{"negative max hold", redlock.WithMaxHold(-time.Second), []string{"-1s"}},
	{"bare number as max hold", redlock.WithMaxHold(30), []string{"30ns"}},
	{"negative fence idle TTL", redlock.WithFenceIdleTTL(-time.Second), []string{"-1s"}},
	{"bare number as fence idle TTL", redlock.WithFenceIdleTTL(30), []string{"30ns"}},
	{"negative attempts", redlock.WithRetry(redlock.RetryPolicy{Attempts: -1}), []string{"-1"}},
	{"negative delay", redlock.WithRetry(redlock.RetryPolicy{Delay: -time.Second}), []string{"-1s"}},
	{"bare number as delay", redlock.WithRetry(redlock.RetryPolicy{Delay: 30}), []string{"30ns"}},
	{"negative jitter", redlock.WithRetry(redlock.RetryPolicy{Jitter: -time.Second}), []string{"-1s"}},
	{"jitter above the delay", redlock.WithRetry(redlock.RetryPolicy{Delay: time.Second, Jitter: 2 * time.Second}), []string{"1s", "2s"}},
	{"negative multiplier", redlock.WithRetry(redlock.RetryPolicy{Multiplier: -1}), []string{"-1"}},
	{"no number as multiplier", redlock.WithRetry(redlock.RetryPolicy{Multiplier: math.NaN()}), []string{"NaN"}},
	{"negative max delay", redlock.WithRetry(redlock.RetryPolicy{MaxDelay: -time.Second}), []string{"-1s"}},
}

func TestOptionsThatAreNotAcceptableAreRefusedByNew(t *testing.T) {
	for _, test := range badOptions {
		t.Run(test.name, func(t *testing.T) {
			_, err := redlock.NewOver(threeNodes(), drift.Plain{}, redlock.WithNodeTimeout(limit), test.opt)
			wantInvalid(t, err, test.says)
		})
	}
}

func TestOptionsOfALockThatAreNotAcceptableAreRefusedByItsFirstCall(t *testing.T) {
	for _, test := range badOptions {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				c := w.client()
				m := c.Mutex("a", test.opt)
				_, err := m.Acquire(t.Context())
				wantInvalid(t, err, test.says)
				_, err = m.TryAcquire(t.Context())
				wantInvalid(t, err, test.says)
				wantInvalid(t, redlock.Do(t.Context(), m, nil), test.says)
				ran, err := redlock.TryDo(t.Context(), m, nil)
				wantInvalid(t, err, test.says)
				if n := c.lines[0].calls(); ran || n != 0 {
					t.Errorf("ran: %v, calls: %d", ran, n)
				}
			})
		})
	}
}

func TestOptionsOfAClientThatAreNotAcceptableAreRefused(t *testing.T) {
	tests := []struct {
		name string
		opts []redlock.ClientOption
		says []string
	}{
		{"negative drift", []redlock.ClientOption{redlock.WithDriftFactor(-0.1)}, []string{"-0.1"}},
		{"drift of a half", []redlock.ClientOption{redlock.WithDriftFactor(0.5)}, []string{"0.5"}},
		{"no number as drift", []redlock.ClientOption{redlock.WithDriftFactor(math.NaN())}, []string{"NaN"}},
		{"negative node timeout", []redlock.ClientOption{redlock.WithNodeTimeout(-1)}, []string{"-1ns"}},
		{"bare number as node timeout", []redlock.ClientOption{redlock.WithNodeTimeout(30)}, []string{"30ns"}},
		{"node timeout of the TTL", []redlock.ClientOption{redlock.WithNodeTimeout(ttl)}, []string{"10s"}},
		{"node timeout beside the extend interval", []redlock.ClientOption{
			redlock.WithNodeTimeout(6 * time.Second), redlock.WithExtendInterval(5 * time.Second),
		}, []string{"6s", "5s"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := redlock.NewOver(threeNodes(), drift.Plain{}, test.opts...)
			wantInvalid(t, err, test.says)
		})
	}
}

// What is not set must not be a trap.
func TestNilOptionsDoNotPanic(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, open := range []func() error{
			func() error {
				c, err := redlock.NewOver(threeNodes(), drift.Plain{}, nil)
				if c != nil {
					defer c.Close()
				}
				return err
			},
			func() error { _, err := w.client().Mutex("a", nil).TryAcquire(t.Context()); return err },
		} {
			if err := open(); err != nil && !errors.Is(err, redlock.ErrInvalid) {
				t.Error(err)
			}
		}
		c, err := redlock.NewOver(threeNodes(), drift.Plain{}, redlock.WithLogger(nil))
		if err == nil {
			defer c.Close()
		}
		wantErr(t, err, nil)
	})
}

func TestOptionsOfOneLockDoNotLeak(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client(redlock.WithTTL(2 * time.Second))
		wantHeld(t, acquire(t, c.Mutex("a", redlock.WithTTL(time.Minute), redlock.WithAutoExtend(true))), valid(time.Minute))
		l := acquire(t, c.Mutex("b"))
		wantHeld(t, l, valid(2*time.Second))
		if l.AutoExtending() {
			t.Error("the option of another lock came over")
		}
	})
}

func TestTheLastOfTwoOptionsCounts(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		m := w.client().Mutex("a", redlock.WithTTL(time.Second), redlock.WithTTL(time.Minute))
		wantHeld(t, acquire(t, m), valid(time.Minute))
	})
}

// Whoever means "for ever" writes the greatest duration there is. It is refused, or it works.
func TestTheGreatestDurationDoesNotOverflow(t *testing.T) {
	tests := map[string]redlock.Option{
		"TTL":            redlock.WithTTL(forever),
		"TTL of years":   redlock.WithTTL(forever / 4),
		"wait":           redlock.WithWait(forever),
		"max hold":       redlock.WithMaxHold(forever),
		"fence idle TTL": redlock.WithFenceIdleTTL(forever),
		"delay":          redlock.WithRetry(redlock.RetryPolicy{Delay: forever}),
		"max delay":      redlock.WithRetry(redlock.RetryPolicy{MaxDelay: forever, Multiplier: 1e300}),
		"multiplier":     redlock.WithRetry(redlock.RetryPolicy{Multiplier: math.Inf(1)}),
	}
	for name, opt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				l, err := w.client().Mutex("a", opt).Acquire(t.Context())
				if errors.Is(err, redlock.ErrInvalid) {
					return
				}
				wantErr(t, err, nil)
				time.Sleep(time.Second)
				if l.Validity() < valid(ttl)-time.Second {
					t.Errorf("validity %v", l.Validity())
				}
				w.wantLocks(3)
				token := l.Token()
				release(t, l)
				if next := acquire(t, w.client().Mutex("a")); next.Token() <= token {
					t.Errorf("token %d after %d", next.Token(), token)
				}
			})
		})
	}
}

func TestALongWaitWithTheGreatestDelayEndsWhenTheLockIsFree(t *testing.T) {
	for _, p := range []redlock.RetryPolicy{
		{Delay: forever},
		{Delay: time.Second, Multiplier: 1e300, MaxDelay: forever},
		{Delay: time.Second, Multiplier: math.Inf(1)},
	} {
		bubble(t, 3, func(t *testing.T, w *world) {
			holder := w.client()
			acquire(t, holder.Mutex("a"))
			holder.meddle(cut)
			if d := took(func() { acquire(t, w.client(redlock.WithRetry(p)).Mutex("a")) }); d > ttl+time.Second {
				t.Errorf("acquired after %v", d)
			}
		})
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log strings.Builder
		c := w.client(redlock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		l := acquire(t, c.Mutex("secret-free"))
		_, err := c.Mutex("secret-free").TryAcquire(t.Context())
		time.Sleep(ttl)
		wantOver(t, l, redlock.ErrLeaseLost)
		_ = c.Close()
		synctest.Wait()
		for what, text := range map[string]string{"log": log.String(), "error": err.Error()} {
			if strings.Contains(text, l.Holder()) {
				t.Errorf("the %s shows the holder's id: %s", what, text)
			}
		}
		if !strings.Contains(log.String(), "secret-free") {
			t.Errorf("a lease was lost and the log says nothing: %q", log.String())
		}
	})
}

func threeNodes() []node.Node {
	return []node.Node{memnode.New("n1", limit), memnode.New("n2", limit), memnode.New("n3", limit)}
}

func wantInvalid(t *testing.T, err error, says []string) {
	t.Helper()
	wantErr(t, err, redlock.ErrInvalid, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %s", err, s)
		}
	}
}

// What is beyond all reason must not overflow into its opposite.
func TestDurationsAboveTheGreatestAreRefused(t *testing.T) {
	const endless = time.Duration(math.MaxInt64)
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		for name, opt := range map[string]redlock.Option{
			"TTL": redlock.WithTTL(endless), "wait": redlock.WithWait(endless), "interval": redlock.WithExtendInterval(endless),
			"max hold": redlock.WithMaxHold(endless), "idle TTL": redlock.WithFenceIdleTTL(endless),
			"delay":     redlock.WithRetry(redlock.RetryPolicy{Delay: endless, Jitter: endless}),
			"max delay": redlock.WithRetry(redlock.RetryPolicy{MaxDelay: endless}),
		} {
			_, err := c.Mutex("a", opt).TryAcquire(t.Context())
			if !errors.Is(err, redlock.ErrInvalid) || !strings.Contains(err.Error(), redlock.MaxDuration.String()) {
				t.Errorf("%s: %v", name, err)
			}
		}
		l := acquire(t, c.Mutex("a", redlock.WithTTL(redlock.MaxDuration), redlock.WithFenceIdleTTL(redlock.MaxDuration)))
		wantErr(t, l.Extend(t.Context(), endless), redlock.ErrInvalid)
		wantErr(t, l.Extend(t.Context(), redlock.MaxDuration), nil)
		release(t, l)
	})
}
