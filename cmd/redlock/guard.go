package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/redquorum/locks/redlock"
)

// plan says when the command must end, in terms of what is left of its lease.
type plan struct {
	grace     time.Duration // from TERM to KILL, where the lease ends
	margin    time.Duration // from KILL to the end of the lease
	killAfter time.Duration // from TERM to KILL, where the lease goes on
	hold      time.Duration // TERM when the lock was held for so long; 0: no limit
}

// newPlan fits the time that the command is given to end into the lease.
//
// Extensions begin every ttl/3, so about ttl·2/3 is left when the first of them fails. TERM when ttl/3 is left gives
// the nodes the same time to come back as it gives the command to end. The margin is for what lies between the
// decision to kill and the end of the last instruction: waking up on a busy machine, the signal, tearing down.
func newPlan(ttl, killAfter, maxHold time.Duration) plan {
	p := plan{
		grace:     min(killAfter, ttl/3),
		margin:    min(max(50*time.Millisecond, ttl/50), ttl/10),
		killAfter: killAfter,
	}
	if maxHold > 0 { // its end is known from the start, so that the command can have all of killAfter
		p.margin = min(p.margin, maxHold/10)
		p.grace = min(p.grace, maxHold/3)
		p.hold = maxHold - p.margin - p.tick() - min(killAfter, maxHold/2)
	}
	return p
}

// tick is how often the lease is looked at: so often that KILL never comes later than half of its margin.
func (p plan) tick() time.Duration { return min(p.margin/2, 100*time.Millisecond) }

// action is what has to happen to the command.
type action int

const (
	carryOn action = iota
	ask            // TERM
	kill
)

// next decides, by what is left of the lease, how long it was held, and how long ago the command was asked to end;
// negative if it was not.
func (p plan) next(left, held, asked time.Duration) action {
	switch {
	case left <= p.margin, asked >= p.killAfter:
		return kill
	case asked >= 0:
		return carryOn
	case left <= p.margin+p.grace, p.hold > 0 && held >= p.hold:
		return ask
	default:
		return carryOn
	}
}

// guard sees to it that the command does not outlive the lease (I4).
//
// It polls. An extension moves the end of the lease at any time, and timers stand still while the machine is
// suspended; Validity knows of both.
type guard struct {
	lease    *redlock.Lease
	child    *child
	plan     plan
	acquired time.Time

	asked time.Time // when TERM was sent; zero: not yet
	why   error     // why the command had to end, or may not have been alone
}

// wait passes signals on until the command has ended, and returns its exit code. It writes nothing to stderr, which
// could block while the lease runs out.
func (g *guard) wait(signals <-chan os.Signal) int {
	ticker := time.NewTicker(g.plan.tick())
	defer ticker.Stop()
	over := g.lease.Context().Done()
	for {
		select {
		case code := <-g.child.exited:
			if g.lease.Validity() == 0 { // noticed only now: the command may not have been alone
				g.blame()
			}
			return code
		case sig := <-signals:
			g.child.signal(sig)
		case <-over:
			over = nil
			g.look()
		case <-ticker.C:
			g.look()
			g.child.foreground()
		}
	}
}

// look does what has to be done now. Its steps can be repeated: KILL is, until the command is gone.
func (g *guard) look() {
	asked := time.Duration(-1)
	if !g.asked.IsZero() {
		asked = time.Since(g.asked)
	}
	switch g.plan.next(g.lease.Validity(), time.Since(g.acquired), asked) {
	case ask:
		g.child.signal(syscall.SIGTERM)
		g.asked = time.Now()
		g.blame()
	case kill:
		g.child.kill()
		g.blame()
	case carryOn:
	}
}

// blame notes why the command has to end: the first reason counts.
func (g *guard) blame() {
	switch {
	case g.why != nil:
	case g.lease.Validity() == 0:
		<-g.lease.Context().Done() // by the same deadline, at the latest in a moment
		g.why = context.Cause(g.lease.Context())
	case g.plan.hold > 0 && time.Since(g.acquired) >= g.plan.hold:
		g.why = fmt.Errorf("hold %q: the maximum hold was reached, the command was ended", g.lease.Name())
	default:
		g.why = fmt.Errorf("hold %q: the lease was not extended in time, the command was ended before its end", g.lease.Name())
	}
}
