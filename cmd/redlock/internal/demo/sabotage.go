package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
)

// sabotage is a mistake that is made on purpose in every client, to show that the demo would see it. All of it is
// done through the library's own seams, the nodes and the clock: the library has no hooks for it. It is a value of
// the flag --break.
type sabotage string

const (
	honest      sabotage = ""
	breakDrift  sabotage = "drift"
	breakToken  sabotage = "token"
	breakQuorum sabotage = "quorum"
)

var sabotages = []string{string(breakDrift), string(breakToken), string(breakQuorum)}

// String is the flag's value.
func (s *sabotage) String() string { return string(*s) }

// Set sets the flag.
func (s *sabotage) Set(value string) error {
	switch v := sabotage(value); v {
	case breakDrift, breakToken, breakQuorum:
		*s = v
		return nil
	default:
		return fmt.Errorf("want %s", strings.Join(sabotages, ", "))
	}
}

// Type is what the help calls the value.
func (s *sabotage) Type() string { return strings.Join(sabotages, "|") }

// mistake says what is wrong with the clients; "" if nothing is.
func (s sabotage) mistake() string {
	switch s {
	case breakDrift:
		return "the clients' clocks run slow, and leases are trusted too long"
	case breakToken:
		return "the numbers that masters draw are falsified, and all tokens are the same"
	case breakQuorum:
		return "refusals are taken for grants, and any minority is enough"
	default:
		return ""
	}
}

// clock returns the clock of a client.
func (s sabotage) clock(good drift.Clock) drift.Clock {
	if s == breakDrift {
		return slowClock{good}
	}
	return good
}

// bend puts what the sabotage needs between a client and its nodes.
func (s sabotage) bend(nodes []node.Node) []node.Node {
	var lie func(*node.Op, node.Vote) node.Vote
	switch s {
	case breakToken:
		lie = sameNumber
	case breakQuorum:
		lie = yes
	default:
		return nodes
	}
	bent := make([]node.Node, len(nodes))
	for i, n := range nodes {
		bent[i] = liar{n, lie}
	}
	return bent
}

// slowClock counts two seconds where five pass: a lease is trusted for two and a half times its TTL.
type slowClock struct{ drift.Clock }

// Since returns how long ago start was, too little.
func (c slowClock) Since(start drift.Instant) time.Duration { return c.Clock.Since(start) * 2 / 5 }

// sameNumber makes every node draw the same number for the token.
func sameNumber(op *node.Op, v node.Vote) node.Vote {
	if op.Kind == node.Acquire && v.Verdict == node.Granted {
		v.Number = 1
	}
	return v
}

// yes makes a node grant the lock that somebody else holds there.
func yes(op *node.Op, v node.Vote) node.Vote {
	if (op.Kind == node.Acquire || op.Kind == node.Raise) && v.Reason == node.Held {
		return node.Vote{Verdict: node.Granted, Number: op.Floor}
	}
	return v
}

// liar is a node whose answers are falsified on the way back.
type liar struct {
	node.Node
	lie func(*node.Op, node.Vote) node.Vote
}

// Put passes a call of its own to the node, to be answered first.
func (l liar) Put(c *node.Call) {
	if c.Send() {
		l.Node.Put(&node.Call{Op: c.Op, Node: c.Node, To: courier{c, l.lie}})
	}
}

// courier brings an answer to the call that was put to a liar.
type courier struct {
	call *node.Call
	lie  func(*node.Op, node.Vote) node.Vote
}

// Reply answers the original call.
func (r courier) Reply(c *node.Call) {
	v, _ := c.Vote()
	if v.Fate == node.Unsent {
		v.Fate = node.Done // the original counts as sent; nothing came of it, nor will
	}
	r.call.Answer(r.lie(c.Op, v))
}
