package redlock

import (
	"container/heap"
	"sync"
	"time"

	"github.com/redquorum/locks/internal/drift"
)

// suspendCheck is how often a client that holds leases looks whether the machine was suspended, during which timers
// stand still.
const suspendCheck = 100 * time.Millisecond

// agenda knows the leases that a client holds, in the order in which something is due for them: an extension or the
// deadline. One timer serves all of them. A timer for each would start a goroutine for each when it fires, thousands
// at a time after a stall.
type agenda struct {
	clock drift.Clock

	mu     sync.Mutex
	leases leaseHeap
	closed bool
	timer  *time.Timer   // runs while there are leases; nil before the first
	fires  time.Time     // when it does
	seen   drift.Instant // when it last did, or a little earlier, by the clock
	woke   time.Time     // and by the timers
}

// add takes in a lease for which something is due. It returns false if the agenda is closed.
func (a *agenda) add(l *Lease, due time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	l.due = due
	heap.Push(&a.leases, l)
	if len(a.leases) == 1 {
		a.seen, a.woke = l.start, time.Now() // reading the clock again would cost a system call
		a.arm()
	} else if due.Before(a.fires) {
		a.arm()
	}
	return true
}

// move changes when something is due for a lease, if it is here.
func (a *agenda) move(l *Lease, due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.place == 0 {
		return
	}
	l.due = due
	heap.Fix(&a.leases, l.place-1)
	if due.Before(a.fires) {
		a.arm()
	}
}

// remove forgets a lease.
func (a *agenda) remove(l *Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.place != 0 {
		heap.Remove(&a.leases, l.place-1)
	}
	if len(a.leases) == 0 && a.timer != nil {
		a.timer.Stop()
	}
}

// close lets no further lease in and returns those that are held.
func (a *agenda) close() []*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return append([]*Lease(nil), a.leases...)
}

// arm sets the timer to what is due first. The caller holds mu, and there is a lease.
func (a *agenda) arm() {
	wait := max(0, min(suspendCheck, time.Until(a.leases[0].due)))
	a.fires = time.Now().Add(wait)
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, a.fire)
		return
	}
	a.timer.Reset(wait)
}

// fire lets the leases look at the clock: those for which something is due, or all, if the clock counted more time
// than the timers did, which are late then (I4).
func (a *agenda) fire() {
	for _, l := range a.dueNow() {
		l.tick()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leases) > 0 {
		a.arm()
	}
}

func (a *agenda) dueNow() []*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	slept := a.clock.Since(a.seen)-now.Sub(a.woke) > suspendCheck/2
	a.seen, a.woke = a.clock.Now(), now
	if slept {
		return append([]*Lease(nil), a.leases...)
	}
	var due []*Lease
	for len(a.leases) > 0 && !a.leases[0].due.After(now) {
		l := a.leases[0]
		due = append(due, l)
		l.due = now.Add(suspendCheck) // until it says when it is due next
		heap.Fix(&a.leases, 0)
	}
	return due
}

// leaseHeap is a heap.Interface. A lease's place is its index plus one; 0 is nowhere.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *leaseHeap) Push(x any) {
	l, ok := x.(*Lease)
	if !ok {
		return // only add pushes
	}
	*h = append(*h, l)
	l.place = len(*h)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.place = 0
	return l
}
