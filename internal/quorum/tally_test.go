package quorum_test

import (
	"slices"
	"testing"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/quorum"
)

// absent is the mark of a node that has nothing to give back and is not asked.
const absent = node.Verdict(9)

// twin judges a round by the plainest means: it looks at every way in which the open votes could still fall.
type twin struct{ votes []node.Verdict } // of the nodes that have voted

func count(votes []node.Verdict, v node.Verdict) (n int) {
	for _, vote := range votes {
		if vote == v {
			n++
		}
	}
	return n
}

type judgement struct {
	outcome              quorum.Outcome
	unreachable, refuted bool
}

func final(votes []node.Verdict) judgement {
	minority := len(votes) - (len(votes)/2 + 1)
	j := judgement{outcome: quorum.Lost}
	j.unreachable = count(votes, node.Unknown) > minority
	j.refuted = count(votes, node.Refused)+count(votes, absent) > minority
	if count(votes, node.Granted)+count(votes, absent) > len(votes)/2 && !j.refuted {
		j.outcome = quorum.Won
	}
	return j
}

// futures returns what the round can still become.
func (w twin) futures(n int) map[judgement]bool {
	if len(w.votes) == n {
		return map[judgement]bool{final(w.votes): true}
	}
	all := map[judgement]bool{}
	for _, v := range []node.Verdict{node.Unknown, node.Granted, node.Refused} {
		for j := range (twin{append(slices.Clip(w.votes), v)}).futures(n) {
			all[j] = true
		}
	}
	return all
}

func compare(t *testing.T, n int, votes []node.Verdict) {
	t.Helper()
	tally := quorum.NewTally(n)
	for _, v := range votes {
		if v == absent {
			tally.AddAbsent()
		} else {
			tally.Add(v)
		}
	}
	futures := twin{votes}.futures(n)
	outcomes, unreachable, refuted := map[quorum.Outcome]bool{}, map[bool]bool{}, map[bool]bool{}
	for j := range futures {
		outcomes[j.outcome], unreachable[j.unreachable], refuted[j.refuted] = true, true, true
	}
	want := quorum.Pending
	if len(outcomes) == 1 {
		for want = range outcomes {
			continue
		}
	}
	if got := tally.Outcome(); got != want {
		t.Errorf("n=%d %v: outcome %v, want %v", n, votes, got, want)
	}
	if got, sure := tally.Unreachable(), !unreachable[false]; got != sure {
		t.Errorf("n=%d %v: unreachable %v, want %v", n, votes, got, sure)
	}
	if got, sure := tally.Refuted(), !refuted[false]; got != sure {
		t.Errorf("n=%d %v: refuted %v, want %v", n, votes, got, sure)
	}
	// Settled: a win, a proof, or nothing left that the open votes could decide.
	decided := want == quorum.Won || !unreachable[false] || !refuted[false] ||
		want == quorum.Lost && len(unreachable) == 1 && len(refuted) == 1
	if got := tally.Settled(); got != decided {
		t.Errorf("n=%d %v: settled %v, want %v", n, votes, got, decided)
	}
}

func TestTallyAgreesWithItsPlainTwin(t *testing.T) {
	var walk func(n int, votes []node.Verdict)
	walk = func(n int, votes []node.Verdict) {
		compare(t, n, votes)
		if len(votes) == n {
			return
		}
		for _, v := range []node.Verdict{node.Unknown, node.Granted, node.Refused, absent} {
			walk(n, append(slices.Clip(votes), v))
		}
	}
	for n := 1; n <= 7; n++ {
		walk(n, nil)
	}
}

// Two quorums of the same nodes share one: otherwise two leases could exclude each other and both hold.
func TestTwoQuorumsMeet(t *testing.T) {
	for n := 1; n <= 100; n++ {
		if q := quorum.Size(n); 2*q <= n || 2*(q-1) > n {
			t.Errorf("the quorum of %d nodes is %d", n, q)
		}
	}
}

func FuzzTally(f *testing.F) {
	f.Add(uint8(3), []byte{1, 1})
	f.Add(uint8(5), []byte{2, 0, 1, 2, 0})
	f.Fuzz(func(t *testing.T, size uint8, raw []byte) {
		n := int(size)%9 + 1
		votes := make([]node.Verdict, 0, n)
		for _, b := range raw[:min(len(raw), n)] {
			votes = append(votes, []node.Verdict{node.Unknown, node.Granted, node.Refused, absent}[b%4])
		}
		compare(t, n, votes)
	})
}
