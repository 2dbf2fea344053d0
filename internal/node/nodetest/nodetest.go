// Package nodetest holds every node.Node to the same state machines: whatever one node answers to a sequence of
// operations, the other answers too.
package nodetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/node"
)

// Ask puts op to n and waits for the answer.
func Ask(n node.Node, op *node.Op) node.Vote {
	w := make(waiter, 1)
	n.Put(&node.Call{Op: op, To: w})
	return <-w
}

type waiter chan node.Vote

func (w waiter) Reply(c *node.Call) {
	v, _ := c.Vote()
	w <- v
}

// Pair is two nodes that must be equal, under clocks that show the same time.
type Pair struct {
	A, B node.Node
	// Pass lets time pass, for both.
	Pass func(d time.Duration)
	// Forget makes both lose all keys.
	Forget func()
}

// The TTLs of the suite are far apart, and far from the time that its steps take: an answer never hangs on a
// millisecond.
const (
	short   = 400 * time.Millisecond
	long    = 30 * time.Second
	passing = 600 * time.Millisecond
	slack   = 150 * time.Millisecond // between the answers of the two about what is left of a TTL
)

// Run puts steps random operations to both nodes and compares every answer.
func Run(t *testing.T, p Pair, seed uint64, steps int) {
	t.Helper()
	t.Logf("seed %d", seed)
	s := &sequence{rng: rand.New(rand.NewPCG(seed, seed)), salt: fmt.Sprintf("%x", seed)}
	for step := range steps {
		switch s.rng.IntN(100) {
		case 0:
			p.Pass(passing)
			continue
		case 1:
			p.Forget()
			continue
		}
		op := s.next(time.Now())
		a, b := Ask(p.A, op), Ask(p.B, op)
		if problem := differ(op, a, b); problem != "" {
			t.Fatalf("seed %d, step %d: %s\noperation %+v\n%v: %+v\n%v: %+v", seed, step, problem, *op, p.A, a, p.B, b)
		}
		s.learn(a)
	}
}

// sequence makes operations of a few holders on a few names, so that they meet.
type sequence struct {
	rng   *rand.Rand
	salt  string
	token int64 // the highest number seen
}

func (s *sequence) next(now time.Time) *node.Op {
	op := &node.Op{
		Kind:   node.Kind(1 + s.rng.IntN(int(node.Verify))),
		Keys:   s.names(),
		Holder: fmt.Sprintf("holder-%d", s.rng.IntN(3)),
		TTL:    pick(s.rng, short, long),
		Floor:  now.UnixMicro() + pick[int64](s.rng, 0, 0, 500_000, -500_000, 3_600_000_000, -3_600_000_000),
		Token:  s.token + pick[int64](s.rng, -1_000_000, 1_000_000, 5_000_000),
		Retain: pick(s.rng, 0, short, long, long),
	}
	if op.Kind == node.Release {
		op.Mark = pick(s.rng, 0, 0, short, long)
		op.MarkAlways = s.rng.IntN(2) == 0
		op.Rest = pick(s.rng, 0, 0, 0, short, long)
	}
	return op
}

// names returns one of three names, or as a group two of them or all.
func (s *sequence) names() (names []node.Keys) {
	for {
		for i := range 3 {
			if s.rng.IntN(2) == 0 {
				continue
			}
			keys, err := node.NewKeys("conformance", fmt.Sprintf("%s{%d}", s.salt, i))
			if err != nil {
				panic(err)
			}
			names = append(names, keys)
		}
		if len(names) > 0 {
			return names
		}
	}
}

// learn keeps the tokens near the counters, and a second away from them: two nodes' clocks are not read at the
// same microsecond. The edge itself is Table's.
func (s *sequence) learn(v node.Vote) { s.token = max(s.token, v.Number) }

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// differ says in what two answers differ. Numbers drawn from the nodes' own clocks may differ by the time between
// the two askings.
func differ(op *node.Op, a, b node.Vote) string {
	switch {
	case a.Err != nil || b.Err != nil:
		return "an error"
	case a.Verdict != b.Verdict || a.Reason != b.Reason:
		return "the verdicts differ"
	case a.Holder != b.Holder || a.Holders != b.Holders || a.Which != b.Which:
		return "the holders differ"
	case (a.TTL < 0) != (b.TTL < 0) || (a.TTL-b.TTL).Abs() > slack:
		return "the TTLs differ"
	case (a.Number-b.Number) > slack.Microseconds() || (b.Number-a.Number) > slack.Microseconds():
		return "the numbers differ"
	case op.Kind == node.Acquire && a.Verdict == node.Granted && a.Number <= 0:
		return "granted without a number"
	}
	return ""
}
