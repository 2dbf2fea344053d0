package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// The library has no restart guard yet: a master that forgets may grant again what it granted before. A lease that
// lives on a bare quorum, because the other masters were in trouble when it was granted or because another client
// had them for a moment, would then be granted twice, and rightly so by the rules of Redlock. Three rules keep
// the schedule within what Redlock promises:
//   - one master at a time;
//   - from the end of a fault to the next more than a TTL passes, so that every lease that was granted, and not
//     extended, during the first has ended when the second begins; an extension gives a lease back what it missed;
//   - a master that was wiped votes again only after more than a TTL, when no lease that it has forgotten is left
//     or has been extended without it.
const (
	respite     = ttl + ttl/5 // between two faults
	absence     = ttl + ttl/5 // of a master that was wiped
	disturbance = ttl + ttl/2 // every other fault
	prelude     = respite / 2 // before the first fault
)

// schedule harms the masters, one after the other.
type schedule struct {
	faults []fault
	ledger *ledger
	events func(format string, args ...any)

	mu       sync.Mutex
	trouble  []string       // what the masters are at the moment; "" for well
	begun    int            // faults that have lasted as long as planned
	survived map[string]int // those during which leases were granted
}

func newSchedule(f fleet, l *ledger, events func(string, ...any)) *schedule {
	s := &schedule{faults: f.faults(), ledger: l, events: events, survived: map[string]int{}}
	if len(s.faults) > 0 {
		s.trouble = make([]string, size)
	}
	return s
}

// run goes through the faults, over and over, until ctx ends or no fault fits in before that. If ctx ends during a
// fault, the master is mended when calm is closed: a wiped one must not come back while somebody is at work.
func (s *schedule) run(ctx context.Context, calm <-chan struct{}) error {
	if len(s.faults) == 0 {
		return nil
	}
	var victims []int
	pause := prelude
	for i := 0; sleep(ctx, pause); i++ {
		f := s.faults[i%len(s.faults)]
		if end, ok := ctx.Deadline(); ok && time.Until(end) < f.lasts {
			return nil
		}
		if len(victims) == 0 {
			victims = rand.Perm(len(s.trouble))
		}
		if err := s.strike(ctx, f, victims[0], calm); err != nil {
			return fmt.Errorf("master %d could not be %s and mended: %w", victims[0]+1, f.state, err)
		}
		victims, pause = victims[1:], respite
	}
	return nil
}

// strike is one fault, from beginning to end.
func (s *schedule) strike(ctx context.Context, f fault, master int, calm <-chan struct{}) error {
	before := s.ledger.total()
	mend, err := f.harm(master)
	if err != nil {
		return err
	}
	s.mark(master, f.state)
	s.events("master %d is %s: %s", master+1, f.state, f.how)
	whole := sleep(ctx, f.lasts)
	if !whole {
		<-calm
	}
	leases := s.ledger.total() - before
	if err := mend(); err != nil {
		return err
	}
	s.mark(master, "")
	if whole {
		s.count(f, leases)
		s.events("master %d is back after %v: %s granted meanwhile", master+1, f.lasts, plural(leases, "lease"))
	}
	return nil
}

func (s *schedule) mark(master int, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble[master] = state
}

func (s *schedule) count(f fault, leases int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	if leases > 0 {
		s.survived[f.state]++
	}
}

// states returns what every master is at the moment; nothing if that is not known.
func (s *schedule) states() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.trouble)
}

// tally returns how many faults were survived, of how many, and which.
func (s *schedule) tally() (survived, all int, kinds string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var each []string
	for _, f := range s.faults {
		if n := s.survived[f.state]; n > 0 {
			survived += n
			each = append(each, fmt.Sprintf("%d %s", n, f.state))
		}
	}
	return survived, s.begun, strings.Join(each, ", ")
}
