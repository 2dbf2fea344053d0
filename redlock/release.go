package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Release gives the lock back and ends the lease. It works on a cancelled context, and returns when a quorum of
// nodes has freed the lock; what does not answer is asked again in the background.
//
// With WithMinHold the lock stays taken for the rest of that time, by nobody.
//
// It returns nil if the lock was held until now. The error matches ErrLeaseLost if it had been lost before: what
// another holder has is not touched; ErrNoQuorum if too few nodes answered, and then the lock is free at the latest
// when its TTL has passed; ErrReleased if it was released before, which does no harm. In every case the lease is
// over when Release returns, and nothing extends it any more.
func (l *Lease) Release(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := l.begin(ctx, "release"); err != nil {
		return err
	}
	defer l.done()
	if !l.finishAs(ErrReleased) {
		return l.overError("release")
	}
	res := l.claim.Release(ctx, l.restOfMinimum())
	switch {
	case res.Won():
		return nil
	case res.Refuted():
		return l.fail("release", res, ErrLeaseLost)
	default:
		e := l.fail("release", res, ErrNoQuorum)
		e.reason = fmt.Sprintf("what was not released expires within %v", l.claim.Longest())
		return e
	}
}

// restOfMinimum is how long the locks must stay although the lease is released: WithMinHold.
func (l *Lease) restOfMinimum() time.Duration {
	if l.target.config.minHold == 0 {
		return 0
	}
	return max(0, l.target.config.minHold-l.client.clock.Since(l.got))
}

// finish is the release at the end of Do.
func (l *Lease) finish(ctx context.Context) error {
	err := l.Release(ctx)
	if errors.Is(err, ErrReleased) {
		return nil // by the function itself
	}
	return err
}

// close is the release by the client's Shutdown. It waits for answers until ctx ends.
func (l *Lease) close(ctx context.Context) error {
	if l.begin(ctx, "release") != nil {
		l.drop(ErrClosed)
		return nil
	}
	defer l.done()
	if !l.finishAs(ErrClosed) {
		return nil
	}
	if res := l.claim.Release(ctx, l.restOfMinimum()); !res.Won() && !res.Refuted() && !res.Interrupted {
		return l.fail("release", res, ErrNoQuorum)
	}
	return nil // what ended the waiting, Shutdown tells
}

// drop ends the lease, and withdraws what may be left of it once no operation is under way. It does not wait for
// that, and returns false if the lease was over already.
func (l *Lease) drop(why error) bool {
	if !l.client.engine.Enter() { // before the context ends: whoever it wakes may close the client
		return l.finishAs(why) // nothing can be sent any more
	}
	if !l.finishAs(why) {
		l.client.engine.Leave()
		return false
	}
	go func() {
		l.turn <- struct{}{} // an operation under way ends within the node timeout
		l.claim.Withdraw()
		l.done()
	}()
	return true
}
