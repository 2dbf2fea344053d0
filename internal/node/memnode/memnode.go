// Package memnode is a node.Node in memory: the state machines of package redisnode's scripts, written in Go. It
// serves unit tests without Redis, the demo, and the simulation of faults.
//
// It behaves like a Redis master behind a connection: operations arrive and are answered in order, expiry has
// millisecond steps, and a master that was frozen executes late what was sent to it.
package memnode

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/locks/internal/node"
)

var (
	errStopped = errors.New("connection refused")
	errLost    = errors.New("connection reset")
	errClosed  = errors.New("the client is closed")
	errUnknown = errors.New("unknown operation")
)

// Node is one master in memory. Its methods are safe for concurrent use.
type Node struct {
	name  string
	limit time.Duration

	mu     sync.Mutex
	store  *store
	delay  time.Duration // of a round trip
	frozen bool
	down   error // why nothing can be sent; nil while the master runs

	inbox  []*message // on the way to the master, in order
	outbox []*message // answers on the way back, in order
	pump   *time.Timer
}

// message is a call under way.
type message struct {
	call    *node.Call
	op      *node.Op  // the call's; an answered call forgets it, a late message does not
	at      time.Time // when it arrives
	vote    node.Vote // on the way back
	limit   *time.Timer
	settled bool // the caller was told something, by the answer or by the limit
}

// New returns a running, empty master. limit is how long a caller waits for its answer: after that the call
// counts as unanswered, whatever becomes of it.
func New(name string, limit time.Duration) *Node {
	return &Node{name: name, limit: limit, store: newStore()}
}

// String returns the master's name.
func (n *Node) String() string { return n.name }

// Put sends the call. Without a delay and while nothing is under way it is answered before Put returns.
func (n *Node) Put(c *node.Call) {
	n.mu.Lock()
	if down := n.down; down != nil {
		n.mu.Unlock()
		c.Answer(node.NotSent(down))
		return
	}
	if !c.Send() {
		n.mu.Unlock()
		return
	}
	if n.delay == 0 && !n.frozen && len(n.inbox)+len(n.outbox) == 0 {
		v := n.store.run(c.Op, time.Now())
		n.mu.Unlock()
		c.Answer(v)
		return
	}
	m := &message{call: c, op: c.Op}
	m.limit = time.AfterFunc(n.limit, func() {
		n.settle(m, node.Unanswered(fmt.Errorf("no answer within %v", n.limit)))
	})
	n.inbox = push(n.inbox, m, time.Now().Add(n.delay/2))
	n.arm()
	n.mu.Unlock()
}

// push appends m so that it does not arrive before what is ahead of it.
func push(box []*message, m *message, at time.Time) []*message {
	if len(box) > 0 && at.Before(box[len(box)-1].at) {
		at = box[len(box)-1].at
	}
	m.at = at
	return append(box, m)
}

// arm sets the timer for the next arrival. The caller holds mu.
func (n *Node) arm() {
	var next time.Time
	if len(n.outbox) > 0 {
		next = n.outbox[0].at
	}
	if len(n.inbox) > 0 && !n.frozen && (next.IsZero() || n.inbox[0].at.Before(next)) {
		next = n.inbox[0].at
	}
	if next.IsZero() {
		return
	}
	if n.pump == nil {
		n.pump = time.AfterFunc(time.Until(next), n.deliver)
		return
	}
	n.pump.Reset(time.Until(next))
}

// deliver runs what has arrived at the master and hands out the answers that have come back.
func (n *Node) deliver() {
	n.mu.Lock()
	now := time.Now()
	for len(n.inbox) > 0 && !n.frozen && !n.inbox[0].at.After(now) {
		m := n.inbox[0]
		n.inbox = n.inbox[1:]
		m.vote = n.store.run(m.op, now)
		n.outbox = push(n.outbox, m, now.Add(n.delay-n.delay/2))
	}
	var back []*message
	for len(n.outbox) > 0 && !n.outbox[0].at.After(now) {
		back = append(back, n.outbox[0])
		n.outbox = n.outbox[1:]
	}
	n.arm()
	n.mu.Unlock()
	for _, m := range back {
		n.settle(m, m.vote)
	}
}

// settle answers a call, unless that has been done.
func (n *Node) settle(m *message, v node.Vote) {
	n.mu.Lock()
	first := !m.settled
	m.settled = true
	m.limit.Stop()
	n.mu.Unlock()
	if first {
		m.call.Answer(v)
	}
}

// Stop ends the master as kill -9 does: what is under way is lost, nothing can be sent. It keeps its keys, as
// with an append-only file that is always synced.
func (n *Node) Stop() { n.shut(errStopped) }

// Start lets a stopped master run again.
func (n *Node) Start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !errors.Is(n.down, errClosed) {
		n.down = nil
	}
}

// Close stops the master for good.
func (n *Node) Close() error {
	n.shut(errClosed)
	return nil
}

func (n *Node) shut(why error) {
	n.mu.Lock()
	if errors.Is(n.down, errClosed) {
		why = errClosed
	}
	n.down = why
	lost := slices.Concat(n.inbox, n.outbox)
	n.inbox, n.outbox = nil, nil
	n.mu.Unlock()
	for _, m := range lost {
		n.settle(m, node.Unanswered(errLost))
	}
}

// Freeze makes the master answer nothing, like SIGSTOP. What is sent to it meanwhile runs after Thaw.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = true
}

// Thaw lets a frozen master go on.
func (n *Node) Thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = false
	n.arm()
}

// Delay makes every round trip take d from now on, half of it on the way to the master.
func (n *Node) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Wipe removes all keys, as FLUSHALL or a restart without persistence does.
func (n *Node) Wipe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.store = newStore()
}

// Keys returns the keys that are alive, in no order.
func (n *Node) Keys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.store.alive(time.Now())
}

// Size returns the number of keys in memory, those that have expired unnoticed included.
func (n *Node) Size() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.store.keys)
}
