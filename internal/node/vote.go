package node

import "time"

// Verdict is what a vote counts as.
type Verdict uint8

// A node says yes, says no, or gives no usable answer. A bool would be the wrong type: what is unknown counts
// against a win, but is no proof of a loss.
const (
	Unknown Verdict = iota
	Granted
	Refused
)

// String is the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Granted:
		return "granted"
	case Refused:
		return "refused"
	default:
		return "unknown"
	}
}

// Reason says why a node refused.
type Reason uint8

// Why a node refuses.
const (
	Held    Reason = iota + 1 // somebody else holds the lock
	Missing                   // the lock is not held, so there is nothing to raise, extend, release
	Gone                      // this holder has withdrawn: its call arrived late
	Outbid                    // the fence counter is not below the token that it should be raised to
)

// Fate says what may have become of an operation.
type Fate uint8

// The fates of an operation.
const (
	Done    Fate = iota // the node answered; whatever it did, it has done
	Unsent              // it never left this process, and never will
	InDoubt             // it was sent and will not be answered: it may take effect at any time, even much later
	Pending             // it is queued or on its way
)

// Vote is a node's answer to one Op.
type Vote struct {
	Verdict Verdict
	Reason  Reason // Refused
	Fate    Fate   // Done for everything that the node answered, errors included

	// Permanent means that asking again cannot help before somebody changes something: rights, a password, the
	// type of a key.
	Permanent bool

	Which   int           // Refused as Held or Missing: of which of the operation's names that is told
	Holders int32         // Refused as Outbid: live holders of the name beside this one
	Number  int64         // granted Acquire: the number drawn; Refused as Outbid: the counter
	Holder  string        // Refused as Held: who holds
	TTL     time.Duration // Refused as Held: what is left of that hold; negative if it has no end
	Err     error         // Unknown: why there is no usable answer
}

// Failed is the vote of a node that answered with an error.
func Failed(err error, permanent bool) Vote { return Vote{Err: err, Permanent: permanent} }

// NotSent is the vote of a node that the operation was never sent to.
func NotSent(err error) Vote { return Vote{Err: err, Fate: Unsent} }

// Unanswered is the vote of a node that the operation was sent to, and that did not answer.
func Unanswered(err error) Vote { return Vote{Err: err, Fate: InDoubt} }
