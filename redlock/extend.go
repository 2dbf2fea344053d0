package redlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/quorum"
)

const (
	// extenders bounds the goroutines that extend leases, however many leases a client holds.
	extenders = 8
	// leastRetryPause keeps short leases from being extended in a hot loop when the nodes fail.
	leastRetryPause = 2 * time.Millisecond
	// looks is how often in each interval a lease looks whether a node has to be repaired.
	looks = 4
)

// extender extends the leases of one client when they are due. A lease that waits costs no goroutine: its timer
// puts it in line here, and a few goroutines, which live only while somebody is in line, serve the line.
type extender struct {
	mu      sync.Mutex
	line    []*Lease
	workers int
}

func (x *extender) add(l *Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.line = append(x.line, l)
	if x.workers < extenders {
		x.workers++
		go x.work()
	}
}

func (x *extender) work() {
	for l := x.next(); l != nil; l = x.next() {
		l.extendDue()
	}
}

// next returns the first lease in line. If there is none, the worker that asks has ended.
func (x *extender) next() *Lease {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.line) == 0 {
		x.workers--
		x.line = nil
		return nil
	}
	l := x.line[0]
	x.line[0] = nil
	x.line = x.line[1:]
	return l
}

// extendItself starts automatic extension in Do and TryDo, unless the options say otherwise.
func (l *Lease) extendItself() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.target.config.autoExtend == nil && l.over == nil {
		l.startExtending()
	}
}

// startExtending starts automatic extension. The caller holds mu.
func (l *Lease) startExtending() {
	l.auto = true
	l.beginInterval(l.client.clock.Now(), l.interval(2))
	l.arm()
}

// beginInterval starts the time to the next extension. On the way, each time twice as far, the lease looks whether a
// node has to be repaired. The caller holds mu.
func (l *Lease) beginInterval(from drift.Instant, pause time.Duration) {
	l.extended, l.pause, l.looks = from, pause, looks
}

// nextDue is the time from the last extension to the next, or to a look before it. The caller holds mu.
func (l *Lease) nextDue() time.Duration { return l.pause >> l.looks }

// interval is the time to the next extension: less than configured by up to one part-th, by chance, so that leases
// that were acquired together are not extended together.
func (l *Lease) interval(part time.Duration) time.Duration {
	return l.target.config.interval - rand.N(l.target.config.interval/part+1)
}

// extendDue is one automatic extension; or a look, which extends only if a node can be repaired by that: a lease that a
// rival kept from a node for a moment is whole again long before the regular extension. What is unknown afterwards is
// tried again, in shorter steps, until the deadline: only the deadline or a majority that refuses ends the lease.
func (l *Lease) extendDue() {
	began := l.client.clock.Now()
	l.mu.Lock()
	regular := l.client.clock.Since(l.extended) >= l.pause
	wanted := l.auto && l.rest() < l.target.config.ttl // neither stopped, nor is a longer Extend by hand in force
	l.mu.Unlock()
	var err error
	if wanted && (regular || l.claim.Torn()) {
		_, err = l.extendOnce(context.Background(), l.target.config.ttl)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inLine = false
	switch {
	case err != nil:
		l.extended, l.pause, l.looks = l.client.clock.Now(), retryPause(l.target.config.interval, l.rest()), 0
	case regular:
		l.beginInterval(began, l.interval(10))
	default:
		l.looks--
	}
	l.arm()
}

// extendOnce asks the nodes once. retry reports whether another try may succeed.
func (l *Lease) extendOnce(ctx context.Context, ttl time.Duration) (retry bool, err error) {
	if err := l.begin(ctx, "extend"); err != nil {
		return false, err
	}
	defer l.done()
	l.shorten(ttl)
	res := l.claim.Extend(ctx, ttl)
	if res.Won() {
		if !l.prolong(res) {
			l.tick()
			return false, l.overError("extend")
		}
		return false, nil
	}
	return !res.Interrupted && !res.Refuted() && !permanent(res), l.failed(ctx, "extend", res)
}

// shorten moves the deadline to ttl from now, if that is earlier, before the nodes are asked: whatever becomes of
// the answers, the lease is never trusted longer than the nodes were last asked to keep it.
func (l *Lease) shorten(ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if span := l.client.engine.Span(ttl); span < l.span-l.client.clock.Since(l.start) {
		l.setDeadline(l.client.clock.Now(), span)
	}
}

// setDeadline moves the deadline, and the next automatic extension to before it. The caller holds mu.
func (l *Lease) setDeadline(start drift.Instant, span time.Duration) {
	l.start, l.span = start, span
	if l.auto {
		l.pause = min(l.pause, l.client.clock.Since(l.extended)+span/3)
	}
	l.arm()
}

// prolong takes over the deadline of an extension that was won. It returns false if the old deadline passed while
// the answers were on their way: what is over stays over.
func (l *Lease) prolong(res quorum.Result) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil || l.rest() <= 0 {
		return false
	}
	l.setDeadline(res.Start, res.Span)
	return true
}

// retryPause is the pause before an extension that failed is tried again, by what is left of the lease.
func retryPause(interval, rest time.Duration) time.Duration {
	return max(leastRetryPause, min(interval, rest/8))
}
