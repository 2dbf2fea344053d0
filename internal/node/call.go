package node

import "sync/atomic"

// Receiver is told the answer of a call.
type Receiver interface {
	// Reply must not block: it runs on the goroutine that serves the node.
	Reply(c *Call)
}

// Call is one Op on its way to one node. It is made by the engine and belongs to the node from Put on; a call
// is put once.
type Call struct {
	Op   *Op
	Node int // index of the node in its engine
	To   Receiver

	state atomic.Uint32
	vote  Vote
}

// The life of a call. Queued turns into exactly one of sent and dropped, in one atomic step: so a dropped call
// was never sent and needs no withdrawal.
const (
	queued uint32 = iota
	sent
	dropped
	answered
)

// Send marks the call as on its way. It returns false if the call was dropped: then it must not be sent.
func (c *Call) Send() bool { return c.state.CompareAndSwap(queued, sent) }

// Drop takes the call back. It returns false if it is too late for that. A dropped call is never answered.
func (c *Call) Drop() bool { return c.state.CompareAndSwap(queued, dropped) }

// Answer records the vote and tells the receiver. A node calls it once, for a call that it sent or tried to send;
// or for one that it could not even try to send, and then nothing happens if the call was dropped meanwhile.
func (c *Call) Answer(v Vote) {
	if !c.Send() && c.state.Load() == dropped {
		return
	}
	c.Preset(v)
	c.To.Reply(c)
	c.Op, c.To = nil, nil // leases keep their calls for the votes
}

// Preset records the vote of a call that is not put at all, because the answer is known.
func (c *Call) Preset(v Vote) {
	c.vote = v
	c.state.Store(answered)
}

// Vote returns the node's answer; false while there is none.
func (c *Call) Vote() (Vote, bool) {
	if c.state.Load() != answered {
		return Vote{}, false
	}
	return c.vote, true
}

// Fate tells what may have become of the call: the fate of its vote if it was answered, Unsent if it was
// dropped, and Pending while it is under way.
func (c *Call) Fate() Fate {
	switch c.state.Load() {
	case answered:
		return c.vote.Fate
	case dropped:
		return Unsent
	default:
		return Pending
	}
}
