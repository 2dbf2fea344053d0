// Package quorum puts one operation to all nodes, decides by majority, and withdraws what must not stay. It
// knows no Redis, no primitive and no caller: only nodes, votes and holders.
package quorum

import "github.com/redquorum/locks/internal/node"

// Outcome is what a tally says of its round.
type Outcome uint8

// The outcomes of a round.
const (
	Pending Outcome = iota
	Won             // a quorum granted
	Lost            // a quorum can no longer grant
)

// Size is the quorum of n nodes: ⌊n/2⌋+1. Two quorums always share a node. n counts the configured nodes, not
// those that answer.
func Size(n int) int { return n/2 + 1 }

// Tally counts the votes of one round of n nodes. It is a value without I/O, clock or lock.
type Tally struct {
	n                         int
	granted, refused, unknown int
	absent                    int
}

// NewTally returns the tally of a round of n nodes, none of which has voted.
func NewTally(n int) Tally { return Tally{n: n} }

// Add counts one node's vote. Each node votes once.
func (t *Tally) Add(v node.Verdict) {
	switch v {
	case node.Granted:
		t.granted++
	case node.Refused:
		t.refused++
	default:
		t.unknown++
	}
}

// AddAbsent counts a node that never had what the round gives back: it is free, as if it had granted, but it is no
// witness that the others had it, as if it had refused.
func (t *Tally) AddAbsent() { t.absent++ }

// Outcome is Won as soon as a quorum has granted, and Lost as soon as none can. Nodes that were absent help to win,
// but only once it cannot come out any more that too few of the others had it.
func (t Tally) Outcome() Outcome {
	q := Size(t.n)
	switch {
	case t.granted+t.absent >= q && t.granted+t.unknown >= q:
		return Won
	case t.granted+t.absent+t.open() < q, t.Refuted():
		return Lost
	default:
		return Pending
	}
}

// Unreachable reports whether so many nodes gave no usable answer that the rest is no quorum. It tells an outage
// from contention (I7).
func (t Tally) Unreachable() bool { return t.beyondMinority(t.unknown) }

// Refuted reports whether so many nodes refused, or were absent, that no quorum can have granted, whatever the others
// would say. For a lease it is the proof of its loss; what is unknown never is.
func (t Tally) Refuted() bool { return t.beyondMinority(t.refused + t.absent) }

// Settled reports whether no further vote can change what the tally says: a win is settled at once; a loss when
// it is known whether it is Unreachable, Refuted or neither.
func (t Tally) Settled() bool {
	switch {
	case t.Outcome() == Won, t.Unreachable(), t.Refuted(), t.open() == 0:
		return true
	case t.Outcome() == Pending:
		return false
	default:
		return !t.beyondMinority(t.unknown+t.open()) && !t.beyondMinority(t.refused+t.absent+t.open())
	}
}

// open is the number of nodes that have not voted.
func (t Tally) open() int { return t.n - t.granted - t.refused - t.unknown - t.absent }

// beyondMinority reports whether count nodes are more than a round can do without.
func (t Tally) beyondMinority(count int) bool { return count > t.n-Size(t.n) }
