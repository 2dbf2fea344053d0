package quorum

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
)

// served is a node with a goroutine that answers, as a lane has.
type served chan *node.Call

func (s served) Put(c *node.Call) { s <- c }
func (s served) String() string   { return "served" }

func (s served) Close() error {
	close(s)
	return nil
}

func (s served) serve() {
	for c := range s {
		c.Send()
		c.Answer(node.Vote{Verdict: node.Granted, Number: 1})
	}
}

// forwarder hands the answer of one call to a goroutine that waits for it.
type forwarder chan node.Verdict

func (f forwarder) Reply(c *node.Call) {
	v, _ := c.Vote()
	f <- v.Verdict
}

// BenchmarkFanOut compares the two ways to collect the votes of a round: counted by the goroutines that serve the nodes,
// and by an errgroup with a goroutine for each node. The reason for the choice is in docs/algorithm.md.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{3, 5} {
		nodes := make([]node.Node, n)
		for i := range nodes {
			s := make(served, 1024)
			go s.serve()
			nodes[i] = s
			b.Cleanup(func() { _ = s.Close() })
		}
		e := New(nodes, drift.Plain{}, 0.01)
		op := &node.Op{Kind: node.Verify}
		name := string(rune('0' + n))
		b.Run("N="+name+"/counted by the node", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if res := e.put(op, nil).wait(context.Background(), time.Minute); !res.Won() {
					b.Fatal(res)
				}
			}
		})
		b.Run("N="+name+"/errgroup", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !collect(nodes, op) {
					b.Fatal("lost")
				}
			}
		})
	}
}

// collect is a round with a goroutine for each node, which ends with the decision.
func collect(nodes []node.Node, op *node.Op) bool {
	votes, decided := make(chan node.Verdict, len(nodes)), make(chan struct{})
	calls, answers := make([]node.Call, len(nodes)), make([]forwarder, len(nodes))
	for i, n := range nodes { // in order, before any goroutine runs
		answers[i] = make(forwarder, 1)
		calls[i].Op, calls[i].To = op, answers[i]
		n.Put(&calls[i])
	}
	var g errgroup.Group
	for i := range nodes {
		g.Go(func() error {
			select {
			case v := <-answers[i]:
				votes <- v
			case <-decided:
			}
			return nil
		})
	}
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	tally := NewTally(len(nodes))
	for tally.Outcome() == Pending {
		select {
		case v := <-votes:
			tally.Add(v)
		case <-timer.C:
			return false
		}
	}
	close(decided)
	return tally.Outcome() == Won
}
