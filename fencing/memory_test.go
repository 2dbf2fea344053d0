package fencing_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/redquorum/locks/fencing"
)

// A step is one check and what must come of it.
type step struct {
	name  string
	token fencing.Token
	want  verdict
}

type verdict int

const (
	accepted verdict = iota
	stale
	notAToken
)

// judge sorts the answer of a guard; it fails the test for an answer that is none of the three.
func judge(tb testing.TB, err error) verdict {
	tb.Helper()
	switch {
	case err == nil:
		return accepted
	case errors.Is(err, fencing.ErrStale):
		return stale
	case strings.Contains(err.Error(), "is not a token"):
		return notAToken
	default:
		tb.Fatalf("unexpected error: %v", err)
		return 0
	}
}

func TestMemoryGuard(t *testing.T) {
	t.Parallel()
	tests := map[string][]step{
		"the first token of a name is accepted, however low": {
			{"a", 1, accepted},
		},
		"a higher token is accepted, a lower one refused for good": {
			{"a", 33, accepted},
			{"a", 34, accepted},
			{"a", 33, stale},
			{"a", 33, stale},
			{"a", 35, accepted},
		},
		"a holder may check its own token again": {
			{"a", 7, accepted},
			{"a", 7, accepted},
			{"a", 6, stale},
			{"a", 7, accepted},
		},
		"a refused token is not remembered": {
			{"a", 5, accepted},
			{"a", 4, stale},
			{"a", 5, accepted},
		},
		"each name has tokens of its own": {
			{"a", 100, accepted},
			{"b", 1, accepted},
			{"", 2, accepted},
			{"a", 99, stale},
			{"b", 2, accepted},
			{"", 1, stale},
		},
		"what is not positive is no token, and not stale": {
			{"a", 0, notAToken},
			{"a", -1, notAToken},
			{"a", math.MinInt64, notAToken},
			{"a", 1, accepted},
			{"a", 0, notAToken},
			{"a", -1, notAToken},
		},
		"the greatest number is a token": {
			{"a", math.MaxInt64, accepted},
			{"a", math.MaxInt64, accepted},
			{"a", math.MaxInt64 - 1, stale},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard := fencing.NewMemoryGuard()
			for i, s := range steps {
				if got := judge(t, guard.Check(t.Context(), s.name, s.token)); got != s.want {
					t.Errorf("step %d: Check(%q, %d): verdict %d, want %d", i, s.name, s.token, got, s.want)
				}
			}
		})
	}
}

func TestMemoryGuardZeroValue(t *testing.T) {
	t.Parallel()
	var guard fencing.MemoryGuard
	if err := guard.Check(t.Context(), "a", 2); err != nil {
		t.Fatalf("first check: %v", err)
	}
	if err := guard.Check(t.Context(), "a", 1); !errors.Is(err, fencing.ErrStale) {
		t.Fatalf("lower token: %v, want ErrStale", err)
	}
}

func TestMemoryGuardErrorsTellWhatWasSeen(t *testing.T) {
	t.Parallel()
	guard := fencing.NewMemoryGuard()
	if err := guard.Check(t.Context(), "orders/17", 34); err != nil {
		t.Fatal(err)
	}
	const (
		wantStale = `fencing: stale token: "orders/17": 33 is lower than 34, the highest seen`
		wantZero  = `fencing: "orders/17": 0 is not a token: tokens are positive`
	)
	if err := guard.Check(t.Context(), "orders/17", 33); err == nil || err.Error() != wantStale {
		t.Errorf("stale: got  %v\nwant %s", err, wantStale)
	}
	if err := guard.Check(t.Context(), "orders/17", 0); err == nil || err.Error() != wantZero {
		t.Errorf("zero: got  %v\nwant %s", err, wantZero)
	}
}

// A check with a context that ended decides nothing: neither does it say stale, nor does it remember the token.
func TestMemoryGuardContextEnded(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()

	guard := fencing.NewMemoryGuard()
	if err := guard.Check(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{cancelled, expired} {
		for _, token := range []fencing.Token{1, 2, 3} {
			err := guard.Check(ctx, "a", token)
			if !errors.Is(err, ctx.Err()) || errors.Is(err, fencing.ErrStale) {
				t.Errorf("Check(%d) = %v, want only %v", token, err, ctx.Err())
			}
		}
	}
	if err := guard.Check(t.Context(), "a", 2); err != nil {
		t.Errorf("the token 3 was remembered: %v", err)
	}
}

// Under the storage's own lock the accepted tokens never fall, whoever gets in when.
func TestMemoryGuardOrdersConcurrentWriters(t *testing.T) {
	t.Parallel()
	const writers, tokens = 8, 500
	var (
		guard   = fencing.NewMemoryGuard()
		storage sync.Mutex
		last    fencing.Token
		wg      sync.WaitGroup
	)
	for w := range writers {
		rng := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			for _, i := range rng.Perm(tokens) {
				token := fencing.Token(i + 1)
				storage.Lock()
				switch err := guard.Check(t.Context(), "a", token); {
				case err == nil && token < last:
					t.Errorf("%d was accepted after %d", token, last)
				case err == nil:
					last = token
				case token >= last:
					t.Errorf("%d was refused after %d: %v", token, last, err)
				}
				storage.Unlock()
			}
		})
	}
	wg.Wait()
	if last != tokens {
		t.Errorf("the last token accepted is %d, want %d", last, tokens)
	}
}

// Without any lock around it the guard stays consistent: the highest token always wins, and names do not mix.
// The race detector looks on.
func TestMemoryGuardConcurrentChecks(t *testing.T) {
	t.Parallel()
	const tokens = 500
	names := []string{"a", "b", "c"}
	guard := fencing.NewMemoryGuard()
	var wg sync.WaitGroup
	for range 4 {
		for _, name := range names {
			wg.Go(func() {
				for i := range tokens {
					err := guard.Check(t.Context(), name, fencing.Token(i+1))
					if err != nil && !errors.Is(err, fencing.ErrStale) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
	}
	wg.Wait()
	for _, name := range names {
		if err := guard.Check(t.Context(), name, tokens); err != nil {
			t.Errorf("%s: the highest token was refused: %v", name, err)
		}
		if err := guard.Check(t.Context(), name, tokens-1); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: a lower token: %v, want ErrStale", name, err)
		}
	}
}

// FuzzMemoryGuard runs a sequence of checks, two bytes each (a name, a token), against a model that keeps the whole
// history and looks through it every time.
func FuzzMemoryGuard(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 0, 1})
	f.Add([]byte{0, 5, 1, 4, 0, 5, 1, 3})
	f.Add([]byte{2, 0, 2, 255, 2, 127, 2, 128})
	f.Fuzz(func(t *testing.T, data []byte) {
		guard := fencing.NewMemoryGuard()
		var history []step
		for i := 0; i+1 < len(data); i += 2 {
			s := step{name: string(rune('a' + data[i]%4)), token: fencing.Token(int8(data[i+1]))}
			s.want = model(history, s.name, s.token)
			if got := judge(t, guard.Check(t.Context(), s.name, s.token)); got != s.want {
				t.Fatalf("after %v: Check(%q, %d): verdict %d, want %d", history, s.name, s.token, got, s.want)
			}
			history = append(history, s)
		}
	})
}

// model decides like a guard, in the plainest way: from all that was accepted before.
func model(history []step, name string, token fencing.Token) verdict {
	if token <= 0 {
		return notAToken
	}
	for _, s := range history {
		if s.name == name && s.want == accepted && s.token > token {
			return stale
		}
	}
	return accepted
}
