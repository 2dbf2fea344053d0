package redlock

import (
	"context"
	"errors"
	"slices"
)

// Locker is anything that can be acquired. *Mutex is one.
type Locker interface {
	// Acquire waits for the lock until ctx, or a limit of the handle's own, ends.
	Acquire(ctx context.Context) (*Lease, error)
	// TryAcquire makes one bounded attempt. The error matches ErrNotAcquired if somebody else holds the lock.
	TryAcquire(ctx context.Context) (*Lease, error)
}

// Do acquires l, runs fn, and releases the lease, also when fn panics. The lease extends itself while fn runs,
// unless WithAutoExtend(false) was said.
//
// The context of fn is ctx, and ends also when the lease is lost, with a cause that matches ErrLeaseLost:
// whatever fn does for the lock must end with it. FromContext finds the lease, and its fencing token, in it.
//
// If the lock is not acquired, fn is not run and the error is that of Acquire. Otherwise Do returns what fn
// returned, unchanged; joined with the error of the release if that failed, fn's first. If fn returned nil
// although the lease was lost before it was done, Do returns an error that matches ErrLeaseLost: fn may not have
// been alone.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error) error {
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return run(ctx, lease, fn)
}

// TryDo is Do with TryAcquire. If somebody else holds the lock, it returns false and nil: the work was skipped.
// An outage, or anything else that keeps the lock from being acquired, is an error. If ran is true, fn was run
// and err is what Do would return.
func TryDo(ctx context.Context, l Locker, fn func(ctx context.Context) error) (ran bool, err error) {
	lease, err := l.TryAcquire(ctx)
	switch {
	case err == nil:
		return true, run(ctx, lease, fn)
	case errors.Is(err, ErrNotAcquired) && !isAny(err, ErrClosed, context.Canceled, context.DeadlineExceeded):
		return false, nil
	default:
		return false, err
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// run runs fn under the lease and releases it.
func run(ctx context.Context, lease *Lease, fn func(ctx context.Context) error) (err error) {
	held, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, lease))
	stop := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
	lease.extendItself()
	defer func() { // also when fn panics
		stop()
		cancel(nil) // what fn left running ends before somebody else gets in
		switch after := lease.finish(ctx); {
		case err == nil:
			err = after
		case after != nil:
			err = errors.Join(err, after)
		}
	}()
	return fn(held)
}

type leaseKey struct{}

// FromContext returns the lease under which Do or TryDo runs: the innermost, if they are nested.
func FromContext(ctx context.Context) (*Lease, bool) {
	lease, ok := ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}
