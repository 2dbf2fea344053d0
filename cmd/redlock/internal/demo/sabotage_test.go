package demo

import (
	"testing"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
)

type mailbox []node.Vote

func (m *mailbox) Reply(c *node.Call) {
	v, _ := c.Vote()
	*m = append(*m, v)
}

func ask(t *testing.T, n node.Node, kind node.Kind, holder string) node.Vote {
	t.Helper()
	keys, err := node.NewKeys("lock", "orders")
	if err != nil {
		t.Fatal(err)
	}
	var m mailbox
	n.Put(&node.Call{Op: &node.Op{Kind: kind, Keys: []node.Keys{keys}, Holder: holder, TTL: time.Minute, Floor: 42}, To: &m})
	if len(m) != 1 {
		t.Fatalf("%d answers", len(m))
	}
	return m[0]
}

func TestTheLies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sabotage      sabotage
		first, second node.Vote // of two holders that want the same lock
	}{
		{breakToken, node.Vote{Verdict: node.Granted, Number: 1}, node.Vote{Verdict: node.Refused, Reason: node.Held}},
		{breakQuorum, node.Vote{Verdict: node.Granted}, node.Vote{Verdict: node.Granted, Number: 42}},
	} {
		master := memnode.New("master", time.Second)
		n := tt.sabotage.bend([]node.Node{link{master}})[0]
		first, second := ask(t, n, node.Acquire, "first"), ask(t, n, node.Acquire, "second")
		if first.Verdict != tt.first.Verdict || tt.first.Number != 0 && first.Number != tt.first.Number {
			t.Errorf("%s: the first got %+v", tt.sabotage, first)
		}
		if second.Verdict != tt.second.Verdict || second.Reason != tt.second.Reason || second.Number != tt.second.Number {
			t.Errorf("%s: the second got %+v", tt.sabotage, second)
		}
		if v := ask(t, n, node.Release, "second"); v.Verdict != node.Refused {
			t.Errorf("%s: the release of a lock that is not held got %+v", tt.sabotage, v)
		}
		master.Stop()
		if v := ask(t, n, node.Acquire, "third"); v.Verdict != node.Unknown || v.Err == nil {
			t.Errorf("%s: a master that is down answered %+v", tt.sabotage, v)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		master.Start()
		if v := ask(t, master, node.Verify, "first"); v.Verdict != node.Granted {
			t.Errorf("%s: closing a link has closed the master: %+v", tt.sabotage, v)
		}
	}
}

func TestALiarLeavesADroppedCallAlone(t *testing.T) {
	t.Parallel()
	var m mailbox
	c := &node.Call{Op: &node.Op{Kind: node.Verify}, To: &m}
	c.Drop()
	breakToken.bend([]node.Node{memnode.New("master", time.Second)})[0].Put(c)
	if len(m) != 0 {
		t.Errorf("answered: %v", m)
	}
}

func TestAnHonestClientIsNotTouched(t *testing.T) {
	t.Parallel()
	nodes := []node.Node{memnode.New("master", time.Second)}
	if got := honest.bend(nodes); got[0] != nodes[0] {
		t.Error("something stands between an honest client and its nodes")
	}
	if got := honest.clock(drift.Plain{}); got != (drift.Plain{}) {
		t.Errorf("an honest client's clock is %v", got)
	}
}
