// Package node is the seam between the engine and one Redis master.
//
// Every primitive is a small state machine that lives on one node. An Op is one step of it; a Call is an Op on
// its way to one node; a Vote is that node's answer. Package redisnode runs an Op as one Lua script, package
// memnode runs the same state machine in Go. Everything above this package is the same code for both.
package node

import "time"

// Node is one independent Redis master, or something that behaves like one.
//
// Its methods are safe for concurrent use.
type Node interface {
	// Put sends the call behind all that were put before it, and never blocks. Every call is answered exactly once
	// (Call.Answer), unless it is dropped first; the answer may come from inside Put, so a caller must not hold a
	// lock that its Receiver takes.
	Put(c *Call)
	// String names the node in errors and logs. It holds no secret.
	String() string
	// Close ends the node's goroutines and the connections that it opened itself. What is still queued is
	// answered as unsent.
	Close() error
}

// Kind says which step of the state machine an Op is.
type Kind uint8

// The steps of a mutex. Every one is idempotent in its effect, so that it may be repeated when its answer or the
// script cache was lost. A repeated release or raise is refused, and a repeated acquire draws a fresh number.
const (
	Acquire Kind = iota + 1 // take the lock if it is free, and draw a number from the fence counter
	Raise                   // lift the fence counter to the token, if the lock is still held
	Extend                  // give the lock its full TTL again, if it is still held
	Repair                  // set the lock again after a quorum confirmed it and this node had lost it
	Release                 // delete the lock, or leave it for the rest of its minimum, if it is still held
	Verify                  // change nothing, tell whether the lock is held
)

// String is the verb.
func (k Kind) String() string {
	switch k {
	case Acquire:
		return "acquire"
	case Raise:
		return "raise"
	case Extend:
		return "extend"
	case Repair:
		return "repair"
	case Release:
		return "release"
	case Verify:
		return "verify"
	default:
		return "unknown operation"
	}
}

// Op is one step, as it is put to every node of a round. Its meaning does not change once it was put.
type Op struct {
	Kind   Kind
	Keys   []Keys        // of the names, at least one, sorted and each once; all are locked or none
	Holder string        // the id of the attempt; a node never asks more of it than equality
	TTL    time.Duration // Acquire, Extend, Repair: life of the lock on the node; whole milliseconds
	Floor  int64         // Acquire: the least number to draw, the client's clock in µs
	Token  int64         // Raise, Extend, Repair: the fencing token of the lease
	Retain time.Duration // Acquire, Raise, Extend, Repair: least life of the fence counter; 0: it never expires

	// Mark makes a Release leave a mark of that life, by which the node refuses an Acquire or Repair of this
	// holder that arrives later. Where the Release finds and deletes the lock, no mark is left, because what
	// could arrive late has arrived; MarkAlways leaves it all the same (more than one call is in doubt).
	Mark       time.Duration
	MarkAlways bool

	// Rest is how long a Release leaves the locks where they are, without their holder; 0: it deletes them.
	Rest time.Duration

	// Wire is what a kind of node makes of the operation, once for all nodes that it is put to. Only Put writes it:
	// an operation is put by one goroutine at a time.
	Wire any
}
