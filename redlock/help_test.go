package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/internal/node/nodetest"
	"github.com/redquorum/locks/redlock"
)

const (
	ttl   = 10 * time.Second       // the default
	limit = 100 * time.Millisecond // what one node may take, in all bubbles
)

var errLost = errors.New("answer lost")

// valid is the validity of a lease of d at the instant at which its round was sent.
func valid(d time.Duration) time.Duration { return drift.Validity(d, 0, 0.01) }

// world is a set of masters in memory, under the clock of a bubble.
type world struct {
	t     *testing.T
	nodes []*memnode.Node
}

// bubble runs f over n masters in a bubble of its own.
func bubble(t *testing.T, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		for i := range n {
			w.nodes = append(w.nodes, memnode.New(fmt.Sprintf("n%d", i+1), limit))
		}
		t.Cleanup(func() {
			for _, n := range w.nodes {
				n.Thaw()
				_ = n.Close()
			}
		})
		f(t, w)
	})
}

// client returns a client over the masters, with lines of its own to them.
func (w *world) client(opts ...redlock.ClientOption) *peer {
	w.t.Helper()
	return w.clientWith(drift.Plain{}, opts...)
}

func (w *world) clientWith(clock drift.Clock, opts ...redlock.ClientOption) *peer {
	w.t.Helper()
	return w.open(clock, append([]redlock.ClientOption{redlock.WithNodeTimeout(limit)}, opts...)...)
}

// tiny returns a client for TTLs that the limit does not fit into.
func (w *world) tiny(opts ...redlock.ClientOption) *peer {
	w.t.Helper()
	return w.open(drift.Plain{}, opts...)
}

func (w *world) open(clock drift.Clock, opts ...redlock.ClientOption) *peer {
	w.t.Helper()
	p := &peer{}
	nodes := make([]node.Node, len(w.nodes))
	for i, n := range w.nodes {
		p.lines = append(p.lines, &line{Node: n})
		nodes[i] = p.lines[i]
	}
	c, err := redlock.NewOver(nodes, clock, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Client = c
	w.t.Cleanup(func() { _ = c.Close() })
	return p
}

// majority is the least number of nodes that decide.
func (w *world) majority() []*memnode.Node { return w.nodes[:len(w.nodes)/2+1] }

// minority is the greatest number of nodes that may fail.
func (w *world) minority() []*memnode.Node { return w.nodes[:(len(w.nodes)-1)/2] }

// locks returns the locks on all nodes, of names under the default prefix.
func (w *world) locks() []string {
	return w.keys(func(k string) bool { return strings.HasPrefix(k, "lock:") })
}

// litter returns everything that is neither a lock nor a fencing counter.
func (w *world) litter() []string {
	return w.keys(func(k string) bool { return !strings.HasPrefix(k, "lock:") && !isFence(k) })
}

func (w *world) keys(want func(k string) bool) (found []string) {
	for _, n := range w.nodes {
		for _, k := range n.Keys() {
			if want(k) {
				found = append(found, n.String()+" "+k)
			}
		}
	}
	return found
}

// wantFree checks that no lock is on any node.
func (w *world) wantFree() {
	w.t.Helper()
	synctest.Wait()
	if left := w.locks(); len(left) > 0 {
		w.t.Errorf("left behind: %q", left)
	}
}

// wantLocks checks that so many nodes hold some lock.
func (w *world) wantLocks(n int) {
	w.t.Helper()
	synctest.Wait()
	if got := w.locks(); len(got) != n {
		w.t.Errorf("locks on the nodes: %q, want %d", got, n)
	}
}

func keysOf(t testing.TB, name string) node.Keys {
	t.Helper()
	keys, err := node.NewKeys("lock", name)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// take sets the lock on one node for somebody who is not a client of ours.
func take(t testing.TB, n node.Node, name, holder string, ttl time.Duration) node.Vote {
	t.Helper()
	return nodetest.Ask(n, &node.Op{Kind: node.Acquire, Keys: []node.Keys{keysOf(t, name)}, Holder: holder, TTL: ttl, Retain: time.Hour})
}

// drop removes the lease's lock from one node.
func drop(t testing.TB, n node.Node, l *redlock.Lease) {
	t.Helper()
	nodetest.Ask(n, &node.Op{Kind: node.Release, Keys: []node.Keys{keysOf(t, l.Name())}, Holder: l.Holder()})
}

// holds tells whether the node has the lock for that holder.
func holds(t testing.TB, n node.Node, name, holder string) bool {
	t.Helper()
	return nodetest.Ask(n, &node.Op{Kind: node.Verify, Keys: []node.Keys{keysOf(t, name)}, Holder: holder}).Verdict == node.Granted
}

// left is what is left of the lock's life on the node, whoever holds it.
func left(t testing.TB, n node.Node, name string) time.Duration {
	t.Helper()
	v := take(t, n, name, "prober", time.Millisecond)
	if v.Reason != node.Held {
		t.Fatalf("%s: %q is not locked: %+v", n, name, v)
	}
	return v.TTL
}

// peer is a client with its lines to the masters.
type peer struct {
	*redlock.Client
	lines []*line
}

// sent returns the operations of that kind on the first line.
func (p *peer) sent(kind node.Kind) []sent { return p.lines[0].sent(kind) }

// meddle sets the meddler of all lines, or of none if f is nil.
func (p *peer) meddle(f meddler) {
	for _, l := range p.lines {
		l.meddle(f)
	}
}

// line is what lies between one client and one master.
type line struct {
	*memnode.Node

	mu      sync.Mutex
	log     []sent
	meddler meddler
	late    []*node.Call // delayed, in order
}

type sent struct {
	op node.Op
	at time.Time
}

// fault is what a line does to a call instead of handing it on.
type fault struct {
	vote   *node.Vote    // answer with it, and don't bother the node
	deafen bool          // hand it on, and lose the answer
	delay  time.Duration // hand it on later
	late   time.Duration // send it, lose the answer, and deliver it only then
}

type meddler func(op *node.Op) fault

func answer(v node.Vote) meddler { return func(*node.Op) fault { return fault{vote: &v} } }
func deafen(*node.Op) fault      { return fault{deafen: true} }

// cut is a line that nothing can be sent over.
func cut(*node.Op) fault {
	v := node.NotSent(errLost)
	return fault{vote: &v}
}

// only applies f to operations of that kind.
func only(kind node.Kind, f meddler) meddler {
	return func(op *node.Op) fault {
		if op.Kind == kind {
			return f(op)
		}
		return fault{}
	}
}

func (l *line) meddle(f meddler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meddler = f
}

func (l *line) sent(kind node.Kind) (found []sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.log {
		if s.op.Kind == kind {
			found = append(found, s)
		}
	}
	return found
}

func (l *line) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.log)
}

// Close leaves the master to its other clients. Nothing is sent any more.
func (l *line) Close() error {
	l.meddle(cut)
	return nil
}

func (l *line) Put(c *node.Call) {
	l.mu.Lock()
	l.log = append(l.log, sent{*c.Op, time.Now()})
	meddler := l.meddler
	l.mu.Unlock()
	var f fault
	if meddler != nil {
		f = meddler(c.Op)
	}
	switch {
	case f.vote != nil:
		if f.vote.Fate == node.Unsent || c.Send() {
			c.Answer(*f.vote)
		}
	case f.deafen, f.late > 0:
		if c.Send() {
			l.deliver(&node.Call{Op: c.Op, Node: c.Node, To: nobody{}}, f.late)
			time.AfterFunc(limit, func() { c.Answer(node.Unanswered(errLost)) })
		}
	case f.delay > 0:
		l.deliver(c, f.delay)
	default:
		l.Node.Put(c)
	}
}

func (l *line) deliver(c *node.Call, after time.Duration) {
	if after == 0 {
		l.Node.Put(c)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, c)
	time.AfterFunc(after, l.handOn)
}

func (l *line) handOn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.late[0]
	l.late = l.late[1:]
	l.Node.Put(c) // under the mutex: calls reach a node in order; an answer from inside Put touches no line
}

type nobody struct{}

func (nobody) Reply(*node.Call) {}

// jumper is a clock that can be set forward, as by the suspend of a machine.
type jumper struct {
	mu  sync.Mutex
	off time.Duration
}

func (j *jumper) jump(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.off += d
}

func (j *jumper) Now() drift.Instant {
	j.mu.Lock()
	defer j.mu.Unlock()
	return drift.Instant{Wall: time.Now().Add(j.off)}
}

func (j *jumper) Since(start drift.Instant) time.Duration { return j.Now().Wall.Sub(start.Wall) }

func acquire(t testing.TB, l redlock.Locker) *redlock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func release(t testing.TB, l *redlock.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// took returns how long f took.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// wantTook checks how long f takes, to the nanosecond.
func wantTook(t testing.TB, want time.Duration, f func()) {
	t.Helper()
	if got := took(f); got != want {
		t.Errorf("took %v, want %v", got, want)
	}
}

// wantOver checks that the lease is over, in every way in which it can be asked; of whatever cause if that is nil.
func wantOver(t testing.TB, l *redlock.Lease, cause error) {
	t.Helper()
	if v := l.Validity(); v != 0 {
		t.Errorf("validity %v of a lease that is over", v)
	}
	if u := l.Until(); u.After(time.Now()) {
		t.Errorf("deadline %v ahead of a lease that is over", time.Until(u))
	}
	select {
	case <-l.Context().Done():
		if c := context.Cause(l.Context()); cause != nil && !errors.Is(c, cause) {
			t.Errorf("cause %v, want %v", c, cause)
		}
	default:
		t.Error("the context of a lease that is over is not done")
	}
}

// wantHeld checks that the lease is held, and for how long yet.
func wantHeld(t testing.TB, l *redlock.Lease, validity time.Duration) {
	t.Helper()
	if v := l.Validity(); v != validity {
		t.Errorf("validity %v, want %v", v, validity)
	}
	if u := time.Until(l.Until()); u != validity {
		t.Errorf("deadline in %v, want %v", u, validity)
	}
	if err := l.Context().Err(); err != nil {
		t.Errorf("the context of a lease that is held: %v", err)
	}
}
