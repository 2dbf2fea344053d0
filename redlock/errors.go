package redlock

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/quorum"
)

// The classes of failure. Every error of this package is an *Error that matches one of them, a context's error,
// or both, under errors.Is.
var (
	// ErrNotAcquired means that somebody else holds the lock, or that several callers split the nodes among
	// themselves. It is contention, not a fault.
	ErrNotAcquired = errors.New("not acquired")

	// ErrNoQuorum means that too many nodes gave no usable answer: an outage, a wrong password, missing rights.
	// It says nothing about who holds the lock.
	ErrNoQuorum = errors.New("no quorum")

	// ErrLeaseLost means that the lease ended before it was released: its time ran out, its keys vanished or
	// were taken over on a majority of nodes, or its maximum hold was reached.
	ErrLeaseLost = errors.New("lease lost")

	// ErrReleased means that the lease was released, by this call's caller or by somebody before it.
	ErrReleased = errors.New("lease released")

	// ErrWaitExpired means that the limit of WithWait was reached. The error also matches the class of the last
	// attempt.
	ErrWaitExpired = errors.New("wait expired")

	// ErrAttemptsExhausted means that the attempts of RetryPolicy are used up. The error also matches the class
	// of the last attempt.
	ErrAttemptsExhausted = errors.New("attempts exhausted")

	// ErrClosed means that the client is closed.
	ErrClosed = errors.New("client closed")

	// ErrInvalid means that a name, an option or an argument is not acceptable. The message names the value and
	// the limit.
	ErrInvalid = errors.New("invalid")
)

// Error is the error of every operation. errors.Is finds its class (ErrNotAcquired, ErrNoQuorum, …), the error
// of the context that ended it, and the errors of single nodes; errors.As finds the nodes' errors too.
type Error struct {
	Op    string     // acquire, extend, verify, release, hold, new, open, shutdown
	Name  string     // of the lock; empty for operations of the client
	Votes []NodeVote // what each node answered, if nodes were asked; in the order of the nodes

	reason string
	causes []error // the class first
}

// NodeVote is one node's part in a round that failed.
type NodeVote struct {
	Node   string // its address, or its number where there is no one address
	Vote   Vote
	Name   string // which of a group's names it refused; empty for everything but a group
	Reason string // why it refused, in words, if Vote is VoteRefused
	Err    error  // why there is no usable answer, if Vote is VoteUnknown
}

// Vote is the answer of one node.
type Vote string

// The answers of a node.
const (
	VoteGranted Vote = "granted"
	VoteRefused Vote = "refused"
	VoteUnknown Vote = "unknown" // no answer, or none that can be used
)

// Error says what was tried, why it failed, and what every node answered.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("redlock: " + e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	for _, cause := range e.causes {
		b.WriteString(": " + cause.Error())
	}
	if e.reason != "" {
		b.WriteString(": " + e.reason)
	}
	for i, v := range e.Votes {
		separator := "; "
		if i == 0 {
			separator = " ("
		}
		fmt.Fprintf(&b, "%s%s: %s", separator, v.Node, v.Vote)
		switch {
		case v.Err != nil:
			fmt.Fprintf(&b, ", %v", v.Err)
		case v.Reason != "":
			fmt.Fprintf(&b, ", %s", v.Reason)
		}
	}
	if len(e.Votes) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns the class, the other causes, and the errors of the nodes.
func (e *Error) Unwrap() []error {
	errs := slices.Clone(e.causes)
	for _, v := range e.Votes {
		if v.Err != nil {
			errs = append(errs, v.Err)
		}
	}
	return errs
}

// invalid is an ErrInvalid of op on name.
func invalid(op, name, format string, args ...any) *Error {
	return &Error{Op: op, Name: name, causes: []error{ErrInvalid}, reason: fmt.Sprintf(format, args...)}
}

// nodeVotes makes the votes of a lost round public. Holders' ids stay private: who knows one can release.
func (t *target) nodeVotes(votes []node.Vote) []NodeVote {
	nodes := t.client.engine.Nodes()
	public := make([]NodeVote, len(votes))
	for i, v := range votes {
		public[i] = NodeVote{Node: nodes[i].String(), Vote: Vote(v.Verdict.String()), Reason: reason(v), Err: v.Err}
		if len(t.names) > 1 && v.Verdict == node.Refused && v.Which < len(t.names) {
			public[i].Name = t.names[v.Which]
			public[i].Reason = fmt.Sprintf("%q is %s", public[i].Name, public[i].Reason)
		}
	}
	return public
}

// refused tells which of the names the nodes refused.
func (t *target) refused(votes []node.Vote) string {
	if len(t.names) == 1 {
		return "it"
	}
	var names []string
	for _, v := range t.nodeVotes(votes) {
		if v.Name != "" && !slices.Contains(names, strconv.Quote(v.Name)) {
			names = append(names, strconv.Quote(v.Name))
		}
	}
	return strings.Join(names, ", ")
}

// reason says in words why a node refused.
func reason(v node.Vote) string {
	switch {
	case v.Verdict != node.Refused:
		return ""
	case v.Reason == node.Held && strings.HasPrefix(v.Holder, node.ReleasedPrefix):
		return fmt.Sprintf("released, and taken for the rest of its minimum, %v", v.TTL)
	case v.Reason == node.Held && v.TTL < 0:
		return "held by another without a time limit"
	case v.Reason == node.Held:
		return fmt.Sprintf("held by another for up to %v", v.TTL)
	case v.Reason == node.Missing:
		return "not held"
	case v.Reason == node.Gone:
		return "withdrawn before"
	default:
		return "the fencing counter is ahead"
	}
}

// class is the class of an acquire that was lost.
func class(res quorum.Result) error {
	if res.Unreachable() {
		return ErrNoQuorum
	}
	return ErrNotAcquired
}

// permanent reports whether so many nodes gave an answer that no retry can mend that a quorum is impossible.
func permanent(res quorum.Result) bool {
	count := 0
	for _, v := range res.Votes {
		if v.Permanent {
			count++
		}
	}
	return count > 0 && count > len(res.Votes)-quorum.Size(len(res.Votes))
}
