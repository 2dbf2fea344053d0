// Package fencing keeps late writers out of storage.
//
// No lock can stop a holder that is paused. A process may win a lock, sleep through the end of its lease, in a
// long garbage collection or on a suspended machine, and then go on with a write while the next holder is at
// work. Only the storage can refuse that write, and all that it needs is a number: every lease carries a Token
// that is greater than those of all earlier leases of the same name. Storage remembers the highest token that it
// was shown, per name, and turns away any that is lower. A Guard is that memory.
//
// # What a guard gives
//
// Once a guard has accepted a token for a name, it refuses every lower token for that name, in whatever order
// the writers arrive. It does not know who holds the lock: until the new holder's token has been checked, the old
// holder's passes. That does no harm, as nothing of the new holder has been written yet.
//
// # What it does not give
//
// A check and the write that follows it are two steps. If a newer holder can check and write between them, the
// older write still lands on top. Make them one step: hold a lock of the storage's own over both (see the
// example of MemoryGuard), or put both into one transaction or one script.
//
// Tokens order leases that exclude each other. Holders that share a lock, the readers of a read/write lock or the
// permits of a semaphore, run side by side with different tokens, and a guard would refuse all but the newest.
package fencing

import (
	"context"
	"errors"
)

// Token is the number that a lease hands to storage. For one lock name tokens only grow: a later lease has a
// greater one, and no two leases have the same. An extended lease keeps its token. Tokens are positive, so the
// zero value is not a token.
type Token int64

// Guard remembers, per name, the highest token that it accepted. All its implementations may be used by several
// goroutines at once.
type Guard interface {
	// Check asks whether the holder of token t may still write under name.
	//
	// On success t is the highest token that the guard has seen for name, and it is remembered: from then on all
	// lower tokens are refused. The same token may be checked any number of times, as one holder writes more than
	// once.
	//
	// On failure nothing is remembered. The error matches ErrStale if, and only if, a higher token was seen for
	// name; the caller's lease is over then, and trying again cannot help. It matches ctx.Err() if ctx ended before
	// the check. Any other error means that nothing was decided (the token was not a positive number, the storage
	// could not be asked), and the caller must not write.
	Check(ctx context.Context, name string, t Token) error
}

// ErrStale is matched, under errors.Is, by the error of a check that was refused because a higher token was seen
// for the name: another holder has been there since.
var ErrStale = errors.New("fencing: stale token")
