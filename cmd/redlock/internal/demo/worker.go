package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redquorum/locks/fencing"
	"github.com/redquorum/locks/redlock"
)

const (
	// stride is the time from one step under a lease to the next.
	stride = 5 * time.Millisecond
	// patience is how long a worker waits for a lock before it tries another name: less than a lease lasts, or all
	// would gather where somebody sleeps.
	patience = ttl / 2
	// drowse is how often a worker that sleeps looks whether it has been succeeded.
	drowse = 10 * time.Millisecond
)

// habit is how a worker uses its leases.
type habit struct {
	job     time.Duration // works so long, more or less, and releases; 0: as long as the lease lasts
	extends bool          // lets the lease extend itself
	sleeps  bool          // stops in its tracks and wakes up when somebody else has the lock
	rest    time.Duration // at most so long from one lease to the next
}

// habits are those of the workers, in turn. Most jobs are short, or nothing would be handed over. Those that last
// as long as the lease show whether the lease ends in time.
var habits = []habit{
	{job: 20 * time.Millisecond, rest: 50 * time.Millisecond},
	{job: 40 * time.Millisecond, rest: 100 * time.Millisecond},
	{job: 60 * time.Millisecond, rest: 150 * time.Millisecond},
	{job: ttl + ttl/5, extends: true, rest: 8 * ttl},
	{rest: 8 * ttl},
	{job: 20 * time.Millisecond, rest: 50 * time.Millisecond},
	{job: 40 * time.Millisecond, rest: 100 * time.Millisecond},
	{job: 60 * time.Millisecond, rest: 150 * time.Millisecond},
	{job: ttl + ttl/5, extends: true, rest: 8 * ttl},
	{rest: 8 * ttl},
	{job: 20 * time.Millisecond, rest: 50 * time.Millisecond},
	{sleeps: true, rest: 6 * ttl},
}

// worker takes one lock after the other and writes to the store under it.
type worker struct {
	name   string
	habit  habit
	client *redlock.Client
	store  *store
	ledger *ledger
	events func(format string, args ...any)
}

// work goes on until ctx ends. An error means that waiting is of no use.
func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil {
		err := w.turn(ctx, names[rand.N(len(names))])
		switch {
		case err == nil:
			sleep(ctx, rand.N(w.habit.rest))
		case errors.Is(err, redlock.ErrNotAcquired), errors.Is(err, redlock.ErrWaitExpired), ctx.Err() != nil:
			// Another name may be free.
		default:
			return err
		}
	}
	return nil
}

// turn is one lease, from acquire to release.
func (w *worker) turn(ctx context.Context, name string) error {
	mutex := w.client.Mutex(name, redlock.WithAutoExtend(w.habit.extends), redlock.WithWait(patience))
	lease, err := mutex.Acquire(ctx)
	if err != nil {
		w.ledger.failed(err)
		return err
	}
	w.ledger.granted(name)
	err = w.hold(ctx, lease)
	// A lease that is over, or that a master in trouble cannot release, ends by its TTL: the worker goes on.
	_ = lease.Release(ctx)
	return err
}

// hold works under the lease until the job is done, the lease is over or the run ends.
func (w *worker) hold(ctx context.Context, lease *redlock.Lease) error {
	h := hold{name: lease.Name(), worker: w.name, token: lease.Token(), first: w.ledger.now()}
	if lease.Validity() == 0 {
		return nil // used up before it could be used
	}
	h.last = h.first
	w.ledger.enter(h)
	err := w.steps(ctx, lease, &h)
	w.ledger.leave(h)
	if err == nil && w.habit.sleeps {
		return w.sleepwalk(ctx, h)
	}
	return err
}

// steps writes again and again. The time of a step is read before the look at the lease: see type hold.
func (w *worker) steps(ctx context.Context, lease *redlock.Lease, h *hold) error {
	end := h.first + w.jobLength()
	for at := h.first; lease.Validity() > 0 && ctx.Err() == nil && at < end; at = w.ledger.now() {
		h.last = at
		err := w.store.put(*h)
		if errors.Is(err, fencing.ErrStale) { // succeeded: rightly so, if the lease is over by now
			w.ledger.turnedAway(*h, lease.Validity() > 0)
			return nil
		}
		if err != nil {
			return fmt.Errorf("the store: %w", err)
		}
		sleep(lease.Context(), stride)
	}
	return nil
}

// jobLength is what there is to do under the next lease.
func (w *worker) jobLength() time.Duration {
	switch job := w.habit.job; {
	case w.habit.sleeps:
		return 3 * stride
	case job > 0:
		return job/2 + rand.N(job)
	default:
		return time.Hour // the lease is over long before
	}
}

// sleepwalk is what no lock can prevent: the process is stopped after its last look at the lease, wakes up when
// the lease has been somebody else's, and goes on with the write that it was about to do.
func (w *worker) sleepwalk(ctx context.Context, h hold) error {
	w.ledger.doze(h)
	defer w.ledger.wake(h)
	w.events("%s is paused while it holds %s", h.worker, h.name)
	for !w.store.succeeded(h.name, h.last) {
		if !sleep(ctx, drowse) {
			return nil
		}
	}
	slept := (w.ledger.now() - h.last).Round(time.Millisecond)
	err := w.store.put(h)
	switch {
	case errors.Is(err, fencing.ErrStale):
		w.ledger.turnedAway(h, false)
		w.events("%s wakes up after %v and writes to %s with its old token: refused", h.worker, slept, h.name)
		return nil
	case err == nil:
		w.events("%s wakes up after %v and writes to %s with its old token: ACCEPTED", h.worker, slept, h.name)
		return nil
	default:
		return fmt.Errorf("the store: %w", err)
	}
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
