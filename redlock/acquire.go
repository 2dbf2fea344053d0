package redlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/quorum"
)

// target is what a handle locks and how: the part that all primitives share.
type target struct {
	client *Client
	name   string // as Lease.Name tells it
	names  []string
	keys   []node.Keys // of the names
	config lockConfig
	err    error // what is wrong with the names or the options; told by the first call
}

// newTarget checks a handle's names, sorted and each once, and its options. The handle keeps the error for its first
// call.
func newTarget(c *Client, names []string, opts []Option) target {
	t := target{client: c, name: strings.Join(names, ","), names: names, config: c.config.lock}
	for _, o := range opts {
		if o != nil {
			o.applyLock(&t.config)
		}
	}
	problem := t.config.complete(c.config)
	t.keys = make([]node.Keys, len(names))
	for i, name := range names {
		if t.err = t.setKeys(i, name); t.err != nil {
			return t
		}
	}
	if problem != "" {
		t.err = invalid("acquire", t.name, "%s", problem)
	}
	return t
}

// setKeys derives the keys of name i.
func (t *target) setKeys(i int, name string) (err error) {
	switch {
	case name == "":
		return invalid("acquire", name, "the name is empty")
	case len(name) > MaxNameLen:
		return invalid("acquire", name[:32]+"…", "the name has %d bytes, the limit is %d", len(name), MaxNameLen)
	}
	t.keys[i], err = node.NewKeys(t.client.config.prefix, name)
	if err != nil {
		return invalid("acquire", name, "%v", err)
	}
	if t.client.slotted && node.Slot(t.keys[i].Lock) != node.Slot(t.keys[0].Lock) {
		return invalid("acquire", t.name, "%q and %q are in different slots, and a node is a cluster: give the names a common hash tag, as in {orders}:1", t.names[0], name)
	}
	return nil
}

// acquire repeats attempts until one is won, the context or the wait ends, the attempts are used up, or no
// further attempt can help.
func (t *target) acquire(ctx context.Context) (*Lease, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	waiting := ctx
	if t.config.wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, t.config.wait, ErrWaitExpired)
		defer cancel()
	}
	var last error          // the class of the last attempt that was decided
	outages, splits := 0, 0 // attempts in a row that found no quorum, that nobody can have won
	for attempt := 1; ; attempt++ {
		lease, res, err := t.attempt(ctx, waiting)
		if lease != nil || err != nil {
			return lease, err
		}
		if res.Interrupted {
			return nil, t.ended(ctx, waiting, last, res)
		}
		last = class(res)
		outages, splits = inARow(outages, res.Unreachable()), inARow(splits, split(res))
		switch {
		case permanent(res):
			return nil, t.lost(res)
		case attempt == t.config.retry.Attempts:
			return nil, t.lost(res, ErrAttemptsExhausted)
		}
		if !t.client.pause(waiting, t.delay(res, attempt, outages, splits)) {
			return nil, t.ended(ctx, waiting, last, res)
		}
	}
}

// try makes one bounded attempt. It is repeated, within the time that one node may take, only while no single
// holder is named by a quorum: several callers who split a free name must not all walk away.
func (t *target) try(ctx context.Context) (*Lease, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	lease, res, err := t.attempt(ctx, ctx)
	if lease != nil || err != nil {
		return lease, err
	}
	if res.Interrupted {
		return nil, t.ended(ctx, ctx, nil, res)
	}
	if !split(res) {
		return nil, t.lost(res)
	}
	return t.tryAgain(ctx, res, t.config.limit-time.Since(start))
}

// tryAgain repeats an attempt that nobody can have won, for as long as is left.
func (t *target) tryAgain(ctx context.Context, last quorum.Result, left time.Duration) (*Lease, error) {
	within, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	for attempt := 1; split(last) && t.client.pause(within, splitDelay(attempt)); attempt++ {
		lease, res, err := t.attempt(ctx, within)
		if lease != nil || err != nil {
			return lease, err
		}
		if res.Interrupted {
			break
		}
		last = res
	}
	if ctx.Err() != nil || t.client.isClosed() {
		return nil, t.ended(ctx, ctx, class(last), last)
	}
	return nil, t.lost(last)
}

// ready reports what keeps the first attempt from being made.
func (t *target) ready(ctx context.Context) error {
	switch {
	case t.err != nil:
		return t.err
	case t.client.isClosed():
		return t.fail(nil, ErrClosed)
	case ctx.Err() != nil:
		return t.fail(nil, ended(ctx)...)
	}
	return nil
}

// attempt makes one attempt with a holder id of its own. The lease takes its values from ctx; waiting limits the
// attempt. There is neither a lease nor an error if the attempt was lost.
func (t *target) attempt(ctx, waiting context.Context) (*Lease, quorum.Result, error) {
	if !t.client.engine.Enter() {
		return nil, quorum.Result{}, t.fail(nil, ErrClosed)
	}
	defer t.client.engine.Leave()
	holder, err := uuid.NewV7() // 62 random bits beside the time, from crypto/rand
	if err != nil {
		return nil, quorum.Result{}, t.fail(nil, err)
	}
	claim, res := t.client.engine.Acquire(waiting, quorum.Request{
		Keys:   t.keys,
		Holder: holder.String(),
		TTL:    t.config.ttl,
		Idle:   t.config.fenceIdle,
		Limit:  t.config.limit,
	})
	if claim == nil {
		return nil, res, nil
	}
	lease := newLease(ctx, t, holder.String(), claim, res)
	if !t.client.agenda.add(lease, time.Now().Add(min(res.Left, lease.firstDue()))) { // closed meanwhile
		lease.drop(ErrClosed)
		return nil, res, t.fail(nil, ErrClosed)
	}
	return lease, res, nil
}

// inARow counts what happened once more, or not any more.
func inARow(count int, again bool) int {
	if !again {
		return 0
	}
	return count + 1
}

// delay is the pause before the next attempt.
func (t *target) delay(res quorum.Result, attempt, outages, splits int) time.Duration {
	switch {
	case outages > 0:
		return t.config.retry.outageDelay(outages)
	case splits > 0 && splits <= shortSplits:
		return splitDelay(splits)
	}
	delay := t.config.retry.delay(attempt)
	if free := freeIn(res); free >= 0 {
		delay = min(delay, free)
	}
	return delay
}

// lost is the error of an attempt that was lost.
func (t *target) lost(res quorum.Result, more ...error) error {
	e := t.fail(res.Votes, append([]error{class(res)}, more...)...)
	switch {
	case res.Late:
		e.reason = "the lease was used up while acquiring it: the nodes are slower than the TTL allows"
	case permanent(res):
		e.reason = "no retry can mend this"
	}
	return e
}

// ended is the error of a wait that ended: by the client, the context, or WithWait. It has the class of the last
// attempt that was decided. If there was none and time ran out, the nodes were too slow for it: their answers so
// far give the class. A call that was cancelled before it learnt anything has none.
func (t *target) ended(ctx, waiting context.Context, last error, res quorum.Result) error {
	var cause []error
	switch {
	case t.client.isClosed():
		cause = []error{ErrClosed}
	case ctx.Err() != nil:
		cause = ended(ctx)
	default:
		cause = []error{ErrWaitExpired}
	}
	if last == nil && errors.Is(waiting.Err(), context.DeadlineExceeded) {
		last = class(res)
	}
	if last != nil {
		cause = append(cause, last)
	}
	return t.fail(res.Votes, cause...)
}

func (t *target) fail(votes []node.Vote, causes ...error) *Error {
	return &Error{Op: "acquire", Name: t.name, Votes: t.nodeVotes(votes), causes: causes}
}

// ended returns the error of a context that has ended and, if it is another one, the cause.
func ended(ctx context.Context) []error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return []error{cause}
	}
	return []error{err, cause}
}
