package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/locks/fencing"
	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/quorum"
)

// Lease is a lock that is held, for as long as its validity lasts. It ends by Release, by its deadline, by the
// proof that a majority of nodes has lost it, by WithMaxHold, or by the client's Shutdown; then Validity is 0 and
// Context is done, and neither ever comes back.
//
// All methods are safe for concurrent use. Operations on the nodes (Extend, Verify, Release, automatic extension)
// run one after the other.
type Lease struct {
	target *target
	client *Client
	holder string
	claim  *quorum.Claim
	born   drift.Instant // when the winning attempt began
	got    drift.Instant // when it was won, if there is a minimum hold
	ctx    context.Context
	cancel context.CancelCauseFunc

	turn chan struct{} // taken by the operation under way

	mu       sync.Mutex
	start    drift.Instant // of the round that the deadline counts from
	span     time.Duration // from start to the deadline
	auto     bool          // extends itself
	inLine   bool          // is extending, or waits for the extender
	extended drift.Instant // when the last automatic extension began or failed
	pause    time.Duration // from then to the next
	looks    int           // at the nodes, whether one has to be repaired, that are left until then
	over     error         // why the lease has ended; nil while it is held
	end      time.Time     // when it ended

	// The agenda's, under its lock.
	due   time.Time
	place int
}

func newLease(ctx context.Context, t *target, holder string, claim *quorum.Claim, res quorum.Result) *Lease {
	l := &Lease{
		target: t,
		client: t.client,
		holder: holder,
		claim:  claim,
		born:   res.Start,
		turn:   make(chan struct{}, 1),
		start:  res.Start,
		span:   res.Span,
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if t.config.minHold > 0 {
		l.got = t.client.clock.Now()
	}
	if t.config.autoExtend != nil && *t.config.autoExtend {
		l.startExtending()
	}
	return l
}

// Name returns the name that is locked; for a group the sorted names, joined by commas.
func (l *Lease) Name() string { return l.target.name }

// Names returns the names that are locked, one by one.
func (l *Lease) Names() []string { return slices.Clone(l.target.names) }

// Holder returns the id under which the nodes know this lease, unique for every acquire. Who knows it can release
// the lock: keep it out of logs.
func (l *Lease) Holder() string { return l.holder }

// Token returns the fencing token: greater than the token of every earlier lease of the same name, and the same
// for as long as this lease lives. Storage that refuses a token below the highest it has seen is safe from holders
// that were paused past their lease; see package fencing.
func (l *Lease) Token() fencing.Token { return fencing.Token(l.claim.Token()) }

// Until returns the local deadline: the lease must not be trusted from then on. It moves with every extension.
// Once the lease is over it is the time at which that came about.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch until, last := l.start.Wall.Add(l.span), l.born.Wall.Add(l.target.config.maxHold); {
	case l.over != nil:
		return l.end
	case l.target.config.maxHold > 0 && last.Before(until):
		return last
	default:
		return until
	}
}

// Validity returns how long the lease may be trusted from now on; 0 once it is over. It counts the time during
// which the process or the machine did not run, see the package documentation.
func (l *Lease) Validity() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return 0
	}
	return max(0, l.rest())
}

// Context returns a context that is done when the lease is over, at the latest at the local deadline, whatever the
// network does; after a suspend of the machine within 100 ms of running again (Validity is 0 at once). Its cause then
// matches ErrLeaseLost, ErrReleased or ErrClosed. It has the values of the context that the lease was acquired with,
// but not its cancellation.
func (l *Lease) Context() context.Context { return l.ctx }

// AutoExtending reports whether the lease extends itself.
func (l *Lease) AutoExtending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.auto && l.over == nil
}

// StopAutoExtend ends automatic extension: the lease lasts until its deadline. An extension that is under way may
// still succeed.
func (l *Lease) StopAutoExtend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.auto = false
	l.arm()
}

// Extend makes the lease last ttl from now, less drift, if a quorum of nodes still holds it; transient failures
// are retried while the lease lasts. On success the deadline has moved: also to an earlier time, if ttl is shorter
// than what was left, while the nodes keep the lock for what they had promised. The token stays the same.
//
// On failure the deadline has not moved to a later time. The error matches ErrLeaseLost if the lease is over,
// ErrReleased or ErrClosed if that was on purpose, ErrNoQuorum if the nodes do not answer, ErrInvalid if ttl is
// below 10 ms or above MaxDuration, or the error of ctx, which limits the call.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if problem := outside("Extend", ttl); problem != "" {
		return invalid("extend", l.target.name, "%s", problem)
	}
	ttl = ttl.Truncate(time.Millisecond)
	var last *Error
	for {
		retry, err := l.extendOnce(ctx, ttl)
		if err == nil || !retry {
			return err
		}
		errors.As(err, &last)
		if !l.client.pause(ctx, retryPause(l.target.config.interval, l.Validity())) {
			if l.client.isClosed() {
				last.causes = append([]error{ErrClosed}, last.causes...)
			} else {
				last.causes = append(ended(ctx), last.causes...)
			}
			return last
		}
	}
}

// Verify asks the nodes whether they still hold the lease, and changes nothing. It returns nil if a quorum does at
// this moment; an error that matches ErrLeaseLost, and ends the lease, if a majority does not; ErrNoQuorum if too
// few answer; ErrReleased or ErrClosed if the lease ended on purpose; or the error of ctx.
func (l *Lease) Verify(ctx context.Context) error {
	if err := l.begin(ctx, "verify"); err != nil {
		return err
	}
	defer l.done()
	res := l.claim.Verify(ctx)
	if res.Won() {
		return nil
	}
	return l.failed(ctx, "verify", res)
}

// begin takes the turn for an operation on a lease that is held.
func (l *Lease) begin(ctx context.Context, op string) error {
	if ctx.Err() != nil { // select would choose by chance
		return &Error{Op: op, Name: l.target.name, causes: ended(ctx)}
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return &Error{Op: op, Name: l.target.name, causes: ended(ctx)}
	}
	if l.Validity() == 0 {
		l.tick() // a deadline that has passed comes before every operation
	}
	err := l.overError(op)
	if err == nil && !l.client.engine.Enter() {
		err = &Error{Op: op, Name: l.target.name, causes: []error{ErrClosed}}
	}
	if err != nil {
		<-l.turn
	}
	return err
}

// done gives the turn back.
func (l *Lease) done() {
	<-l.turn
	l.client.engine.Leave()
}

// rest is what is left until the deadline. The caller holds mu.
func (l *Lease) rest() time.Duration {
	rest := l.span - l.client.clock.Since(l.start)
	if l.target.config.maxHold > 0 {
		rest = min(rest, l.target.config.maxHold-l.client.clock.Since(l.born))
	}
	return rest
}

// firstDue is the time until something is due for a lease that is new, its deadline apart.
func (l *Lease) firstDue() time.Duration {
	due := l.span
	if l.target.config.maxHold > 0 {
		due = min(due, l.target.config.maxHold-l.client.clock.Since(l.born))
	}
	if l.auto {
		due = min(due, l.nextDue())
	}
	return due
}

// arm tells the agenda when something is due next. The caller holds mu.
func (l *Lease) arm() {
	if l.over != nil {
		return
	}
	next := l.rest()
	if l.auto && !l.inLine {
		next = min(next, l.nextDue()-l.client.clock.Since(l.extended))
	}
	l.client.agenda.move(l, time.Now().Add(next))
}

// tick looks at the clock: it ends the lease at its deadline, and starts an extension that is due. It depends on
// no network call.
func (l *Lease) tick() {
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock()
		return
	}
	if l.rest() <= 0 {
		reason := fmt.Errorf("%w: its time ran out", ErrLeaseLost)
		if l.target.config.maxHold > 0 && l.client.clock.Since(l.born) >= l.target.config.maxHold {
			reason = fmt.Errorf("%w: the maximum hold of %v was reached", ErrLeaseLost, l.target.config.maxHold)
		}
		l.mu.Unlock()
		l.lose(reason)
		return
	}
	due := l.auto && !l.inLine && l.client.clock.Since(l.extended) >= l.nextDue()
	if due {
		l.inLine = true
	}
	l.arm()
	l.mu.Unlock()
	if due {
		l.client.extender.add(l)
	}
}

// lose ends the lease because it is lost, and says so in the log, which may take as long as it likes.
func (l *Lease) lose(why error) {
	if l.drop(why) && l.client.config.logger.Enabled(l.ctx, slog.LevelWarn) {
		go l.client.config.logger.Warn("redlock: lease lost", slog.String("name", l.target.name), slog.String("reason", why.Error()))
	}
}

// finishAs ends the lease. It returns false if it was over already.
func (l *Lease) finishAs(why error) bool {
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock()
		return false
	}
	l.over, l.end, l.auto = why, time.Now(), false
	l.mu.Unlock()
	l.client.agenda.remove(l)
	l.cancel(&Error{Op: "hold", Name: l.target.name, causes: []error{why}})
	return true
}

// overError is the error of an operation on a lease that is over; nil while it is held.
func (l *Lease) overError(op string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		return nil
	}
	return &Error{Op: op, Name: l.target.name, causes: []error{l.over}}
}

// failed is the error of a round that was not won. If it proves the loss, it ends the lease.
func (l *Lease) failed(ctx context.Context, op string, res quorum.Result) *Error {
	switch {
	case res.Refuted():
		l.lose(fmt.Errorf("%w: most nodes do not hold %s any more", ErrLeaseLost, l.target.refused(res.Votes)))
		return l.fail(op, res, ErrLeaseLost)
	case res.Interrupted:
		return l.fail(op, res, ended(ctx)...)
	default:
		l.tick()
		if l.overError(op) != nil { // the time ran out meanwhile
			return l.fail(op, res, ErrLeaseLost)
		}
		return l.fail(op, res, ErrNoQuorum)
	}
}

func (l *Lease) fail(op string, res quorum.Result, causes ...error) *Error {
	return &Error{Op: op, Name: l.target.name, Votes: l.target.nodeVotes(res.Votes), causes: causes}
}
