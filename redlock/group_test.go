package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/nodetest"
	"github.com/redquorum/locks/redlock"
)

func TestAGroupHoldsAllItsNames(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		l := acquire(t, c.Group([]string{"b", "a", "c", "a"}))
		if l.Name() != "a,b,c" || !slices.Equal(l.Names(), []string{"a", "b", "c"}) {
			t.Errorf("name %q, names %q", l.Name(), l.Names())
		}
		w.wantLocks(9)
		wantHeld(t, l, valid(ttl))
		other := w.client()
		for _, name := range l.Names() {
			_, err := other.Mutex(name).TryAcquire(t.Context())
			wantErr(t, err, redlock.ErrNotAcquired)
		}
		time.Sleep(ttl / 2)
		wantErr(t, l.Extend(t.Context(), 2*ttl), nil)
		wantErr(t, l.Verify(t.Context()), nil)
		for _, n := range w.nodes {
			for _, name := range l.Names() {
				if d := left(t, n, name); d != 2*ttl {
					t.Errorf("%s: %q lives for %v", n, name, d)
				}
			}
		}
		release(t, l)
		w.wantFree()
		if litter := w.litter(); len(litter) > 0 {
			t.Errorf("left behind: %q", litter)
		}
	})
}

func TestAGroupCostsAsMuchAsAMutex(t *testing.T) {
	bubble(t, 3, func(_ *testing.T, w *world) {
		c := w.client()
		release(w.t, acquire(w.t, c.Group([]string{"a", "b", "c"})))
		if n := c.lines[0].calls(); n != 2 {
			w.t.Errorf("%d calls to a node for a group, want 2", n)
		}
	})
}

func TestAGroupIsAllOrNothing(t *testing.T) {
	for _, held := range []string{"a", "b", "c"} {
		bubble(t, 3, func(t *testing.T, w *world) {
			c, other := w.client(), w.client()
			l := acquire(t, other.Mutex(held))
			_, err := c.Group([]string{"a", "b", "c"}).TryAcquire(t.Context())
			wantErr(t, err, redlock.ErrNotAcquired)
			e := &redlock.Error{}
			if !errors.As(err, &e) || e.Votes[0].Name != held || !strings.Contains(err.Error(), fmt.Sprintf("%q is held by another", held)) {
				t.Errorf("the error does not name %q: %v", held, err)
			}
			w.wantLocks(3)
			wantErr(t, l.Verify(t.Context()), nil)
			release(t, l)
			acquire(t, c.Group([]string{"a", "b", "c"}))
		})
	}
}

func TestGroupsThatOverlapExcludeEachOther(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Group([]string{"a", "b"}))
		c := w.client()
		_, err := c.Group([]string{"b", "c"}).TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNotAcquired)
		acquire(t, c.Group([]string{"c", "d"}))
		release(t, l)
	})
}

// Whoever locks overlapping groups cannot deadlock, in whatever order they name the members.
func TestGroupsInOppositeOrderDoNotDeadlock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		names := []string{"a", "b", "c", "d"}
		inside := map[string]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 8 {
			c, rng := w.client(), rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for range 20 {
					order := rng.Perm(len(names))
					group := []string{names[order[0]], names[order[1]], names[order[2]]}
					err := redlock.Do(t.Context(), c.Group(group), func(context.Context) error {
						mu.Lock()
						for _, name := range group {
							inside[name]++
							if inside[name] > 1 {
								t.Errorf("two hold %q", name)
							}
						}
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						for _, name := range group {
							inside[name]--
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		w.wantFree()
	})
}

// The counters of the members are apart: the token is above all of them, also on the next lease of each alone.
func TestAGroupsTokenIsAboveThoseOfItsMembers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		last := map[string]int64{}
		rng := rand.New(rand.NewPCG(7, 7))
		for range 200 {
			var l *redlock.Lease
			switch rng.IntN(4) {
			case 0:
				l = acquire(t, c.Mutex("a"))
			case 1:
				l = acquire(t, c.Mutex("b"))
			case 2:
				l = acquire(t, c.Group([]string{"a", "b"}))
			default:
				l = acquire(t, c.Group([]string{"b", "c"}))
			}
			for _, name := range l.Names() {
				if int64(l.Token()) <= last[name] {
					t.Fatalf("token %d of %q after %d", l.Token(), name, last[name])
				}
				last[name] = int64(l.Token())
			}
			release(t, l)
		}
	})
}

func TestAGroupThatLosesOneMemberIsLostAndNamesIt(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Group([]string{"a", "b", "c"}, redlock.WithAutoExtend(true)))
		for _, n := range w.majority() {
			dropName(t, n, l, "b")
		}
		<-l.Context().Done()
		wantOver(t, l, redlock.ErrLeaseLost)
		if cause := context.Cause(l.Context()).Error(); !strings.Contains(cause, `"b"`) || strings.Contains(cause, `"a"`) {
			t.Errorf("the cause does not name the member: %v", cause)
		}
		time.Sleep(limit)
		w.wantFree() // of what was not lost, nothing is kept
	})
}

func TestAGroupIsRepairedAsAWhole(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Group([]string{"a", "b"}))
		dropName(t, w.nodes[0], l, "b")
		wipe(w.nodes[1:2])
		wantErr(t, l.Extend(t.Context(), ttl), redlock.ErrLeaseLost) // two of three nodes do not hold all
		w.wantFree()
	})
	bubble(t, 3, func(t *testing.T, w *world) {
		l := acquire(t, w.client().Group([]string{"a", "b"}))
		dropName(t, w.nodes[0], l, "b")
		wantErr(t, l.Extend(t.Context(), ttl), nil)
		w.wantLocks(6)
	})
}

func TestBadGroupsAreRefusedByTheFirstCall(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.client()
		for _, tt := range []struct {
			names []string
			want  string
		}{
			{nil, "no names"},
			{[]string{"a", ""}, "empty"},
			{[]string{"a", strings.Repeat("x", redlock.MaxNameLen+1)}, "limit is 512"},
		} {
			for _, f := range []func(context.Context) (*redlock.Lease, error){c.Group(tt.names).Acquire, c.Group(tt.names).TryAcquire} {
				_, err := f(t.Context())
				wantErr(t, err, redlock.ErrInvalid)
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %q", err, tt.want)
				}
			}
		}
		names := []string{"b", "a"}
		g := c.Group(names)
		names[0] = "z"
		if l := acquire(t, g); l.Name() != "a,b" {
			t.Errorf("the handle changed with the caller's slice: %q", l.Name())
		}
		l := acquire(t, c.Mutex("a,b")) // no group
		if len(l.Names()) != 1 {
			t.Errorf("a name with a comma became %q", l.Names())
		}
	})
}

func TestAGroupWorksWithoutAMinority(t *testing.T) {
	for name, fail := range faults {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, w *world) {
				for _, n := range w.minority() {
					fail(n)
				}
				l := acquire(t, w.client().Group([]string{"a", "b"}))
				wantErr(t, l.Extend(t.Context(), ttl), nil)
				release(t, l)
			})
		})
	}
}

// dropName removes one of the lease's locks from one node.
func dropName(t testing.TB, n node.Node, l *redlock.Lease, name string) {
	t.Helper()
	nodetest.Ask(n, &node.Op{Kind: node.Release, Keys: []node.Keys{keysOf(t, name)}, Holder: l.Holder()})
}
