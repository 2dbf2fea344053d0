package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/locks/fencing"
)

// hold is what a worker did under one lease. Times are real time since the start of the run, and the worker's own:
// each was read before a look at the lease that found it valid. However long the worker was kept off the processor
// between the two, the lease was valid at the time that was read; so two holds of one name that share an instant
// prove that the lock failed, and a scheduling hiccup cannot look like that.
type hold struct {
	name   string
	worker string
	token  fencing.Token
	first  time.Duration // of the first step
	last   time.Duration // of the last step so far
}

func (h hold) String() string { return fmt.Sprintf("%s (token %d)", h.worker, h.token) }

// offence is a kind of breach.
type offence int

// The ways in which a lock can fail its users.
const (
	overlap  offence = iota // two were at work at the same time
	disorder                // a token is not above all earlier ones, or was given twice
	accepted                // the store took a write from somebody whose successor had written
	wronged                 // the store refused a write of somebody whose lease was valid
)

// breach is a proof that the lock failed: what became of one hold because of another.
type breach struct {
	offence offence
	hold    hold
	other   hold // unknown if wronged
}

// String says what was seen.
func (b breach) String() string {
	h, o := b.hold, b.other
	switch b.offence {
	case overlap:
		return fmt.Sprintf("%s: %v was at work until %v, %v from %v on", h.name, o, fine(o.last), h, fine(h.first))
	case disorder:
		return fmt.Sprintf("%s: %v has a token that is not above that of %v before it", h.name, h, o)
	case accepted:
		return fmt.Sprintf("%s: the store accepted a stale write of %v after %v had written", h.name, h, o)
	default:
		return fmt.Sprintf("%s: the store refused a write of %v, whose lease was valid", h.name, h)
	}
}

// judge looks for breaches among the holds that have ended and the writes that the store accepted, in the order in
// which it did. A write is its writer's hold as it was at the look at the lease before the write. Of each hold, and
// of each write, it reports at most one breach of a kind.
func judge(holds, writes []hold) []breach {
	var found []breach
	for _, ofName := range byName(holds) {
		slices.SortStableFunc(ofName, func(a, b hold) int {
			return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
		})
		found = append(found, overlaps(ofName)...)
		found = append(found, disorders(ofName)...)
	}
	for _, ofName := range byName(writes) {
		found = append(found, staleWrites(ofName)...)
	}
	return found
}

// overlaps finds the holds that began before an earlier one had ended. Ends that touch are no overlap: on a coarse
// clock a release and the acquire after it can have the same reading.
func overlaps(sorted []hold) (found []breach) {
	var longest hold // the one that ends last, of those that began before
	for _, h := range sorted {
		if h.first < longest.last {
			found = append(found, breach{overlap, h, longest})
		}
		if h.last > longest.last {
			longest = h
		}
	}
	return found
}

// disorders finds the holds whose token does not exceed the tokens of all holds that had ended before, or was given
// before. Of holds that overlap or touch, nobody can say which was granted first.
func disorders(sorted []hold) (found []breach) {
	ended := slices.Clone(sorted)
	slices.SortFunc(ended, func(a, b hold) int { return cmp.Compare(a.last, b.last) })
	given := make(map[fencing.Token]hold, len(sorted))
	var highest hold // of those that had ended
	for _, h := range sorted {
		for len(ended) > 0 && ended[0].last < h.first {
			if ended[0].token > highest.token {
				highest = ended[0]
			}
			ended = ended[1:]
		}
		twin, twice := given[h.token]
		switch {
		case highest.token >= h.token:
			found = append(found, breach{disorder, h, highest})
		case twice:
			found = append(found, breach{disorder, h, twin})
		}
		given[h.token] = h
	}
	return found
}

// staleWrites finds the writes that were accepted after a write under a lease that was granted after the writer's
// last look at its own.
func staleWrites(writes []hold) (found []breach) {
	var newest hold // the writer whose lease is the latest
	for _, w := range writes {
		if w.last < newest.first {
			found = append(found, breach{accepted, w, newest})
		}
		if w.first > newest.first {
			newest = w
		}
	}
	return found
}

// handOvers counts how often the next hold of a name was another worker's.
func handOvers(holds []hold) (n int) {
	for _, ofName := range byName(holds) {
		slices.SortFunc(ofName, func(a, b hold) int { return cmp.Compare(a.first, b.first) })
		for i := 1; i < len(ofName); i++ {
			if ofName[i].worker != ofName[i-1].worker {
				n++
			}
		}
	}
	return n
}

func byName(holds []hold) map[string][]hold {
	names := map[string][]hold{}
	for _, h := range holds {
		names[h.name] = append(names[h.name], h)
	}
	return names
}

// ledger records what happens in a run. Its methods are safe for concurrent use.
type ledger struct {
	start time.Time

	mu      sync.Mutex
	leases  map[string]int    // granted, by name
	present map[string][]hold // who is at work, by name
	asleep  map[string]string // who sleeps with a lease in its pocket, by name
	holds   []hold            // that have ended
	writes  []hold            // that the store accepted, see wrote
	latest  map[string]hold   // the last of them, by name
	refused int               // stale writes
	wronged []breach
	failure error // of the last acquire that failed
}

func newLedger() *ledger {
	return &ledger{
		start:   time.Now(),
		leases:  map[string]int{},
		present: map[string][]hold{},
		asleep:  map[string]string{},
		latest:  map[string]hold{},
	}
}

// now is the time of the run, by the clock that never jumps.
func (l *ledger) now() time.Duration { return time.Since(l.start) }

// granted counts a lease, of which perhaps nothing was left to work in.
func (l *ledger) granted(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[name]++
}

// failed records an acquire that did not succeed.
func (l *ledger) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

func (l *ledger) lastFailure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// enter records that a worker begins.
func (l *ledger) enter(h hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.present[h.name] = append(l.present[h.name], h)
}

// leave records that a worker that entered has done its last step.
func (l *ledger) leave(h hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.present[h.name] = slices.DeleteFunc(l.present[h.name], func(p hold) bool { return p.worker == h.worker })
	l.holds = append(l.holds, h)
}

// doze records that a worker stops in its tracks, and wake that it goes on.
func (l *ledger) doze(h hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asleep[h.name] = h.worker
}

func (l *ledger) wake(h hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asleep, h.name)
}

// wrote records a write that the store accepted. The store calls it in the order of the writes. Of several writes in
// a row under one lease only the first is kept: if that was not stale, nor are the others.
func (l *ledger) wrote(h hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.latest[h.name]; last.worker != h.worker || last.first != h.first {
		l.latest[h.name] = h
		l.writes = append(l.writes, h)
	}
}

// turnedAway records a write that the store refused. If the writer's lease was valid even after that, the store
// has wronged it.
func (l *ledger) turnedAway(h hold, valid bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if valid {
		l.wronged = append(l.wronged, breach{offence: wronged, hold: h})
		return
	}
	l.refused++
}

// total is the number of leases so far.
func (l *ledger) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ofName := range l.leases {
		n += ofName
	}
	return n
}

// report is the state of a ledger at one moment.
type report struct {
	leases    map[string]int
	present   map[string][]hold
	asleep    map[string]string
	total     int
	handOvers int
	refused   int
	breaches  []breach
}

// report judges what the ledger has so far.
func (l *ledger) report() report {
	r := report{present: map[string][]hold{}}
	l.mu.Lock()
	r.leases, r.asleep, r.refused = maps.Clone(l.leases), maps.Clone(l.asleep), l.refused
	for name, present := range l.present {
		r.present[name] = slices.Clone(present)
	}
	unjust := slices.Clip(l.wronged)
	holds, writes := slices.Clip(l.holds), slices.Clip(l.writes) // what is recorded does not change any more
	l.mu.Unlock()
	for _, n := range r.leases {
		r.total += n
	}
	r.handOvers = handOvers(holds)
	r.breaches = append(judge(holds, writes), unjust...)
	return r
}

// count is the number of breaches of a kind.
func (r report) count(o offence) (n int) {
	for _, b := range r.breaches {
		if b.offence == o {
			n++
		}
	}
	return n
}

// fine is a time of the run, precise enough to show which of two came first.
func fine(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
