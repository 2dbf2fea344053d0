package redlock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/quorum"
)

const (
	// closers bounds how many leases are released at the same time by Shutdown.
	closers = 32
	// suspendCheck is how often a client that holds leases looks whether the machine was suspended, during which
	// timers stand still.
	suspendCheck = 100 * time.Millisecond
)

// Client locks names on a fixed set of Redis masters. It is safe for concurrent use, and meant to live as long
// as its process: all locks that share nodes and settings should share it.
type Client struct {
	config   *clientConfig
	engine   *quorum.Engine
	clock    drift.Clock
	extender extender

	closed   chan struct{} // closed by the first Shutdown
	shutdown sync.Once

	mu      sync.Mutex
	leases  map[*Lease]struct{} // that are held
	watch   *time.Timer         // for suspends; nil before the first lease
	watched drift.Instant       // when watch last looked
}

// NewOver returns a client over nodes of this module's own. It is how testing/fakelock and the demo put a real
// client on in-memory masters; node.Node is internal, so nothing outside this module can call it. The client
// closes the nodes. See New for the options.
func NewOver(nodes []node.Node, clock drift.Clock, opts ...ClientOption) (*Client, error) {
	config, err := newClientConfig("new", opts)
	if err != nil {
		return nil, err
	}
	return newClient(config, nodes, clock), nil
}

func newClient(config *clientConfig, nodes []node.Node, clock drift.Clock) *Client {
	if len(nodes)%2 == 0 {
		config.logger.Warn("redlock: an even number of nodes tolerates no more failures than one node less", slog.Int("nodes", len(nodes)))
	}
	c := &Client{
		config: config,
		engine: quorum.New(nodes, clock, config.driftFactor),
		clock:  clock,
		closed: make(chan struct{}),
		leases: map[*Lease]struct{}{},
	}
	return c
}

// Close is Shutdown with a limit of twice the node timeout.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.config.timeout())
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown ends everything that the client has under way: callers that wait get ErrClosed, leases that are held
// are released and their contexts end with the cause ErrClosed, automatic extension stops, and the connections
// that the client opened are closed. Clients that were given to New stay open.
//
// It returns nil when every lease was released. Otherwise it returns an error that matches the errors of the
// releases that failed, and the context's error if ctx ended first; what was not released expires by its TTL.
// From the first call on the client is closed whatever the result; a second call waits for the first and
// returns nil.
func (c *Client) Shutdown(ctx context.Context) error {
	var err error
	c.shutdown.Do(func() { err = c.end(ctx) })
	return err
}

func (c *Client) end(ctx context.Context) error {
	c.mu.Lock()
	close(c.closed) // under mu: no lease is adopted from here on
	held := make([]*Lease, 0, len(c.leases))
	for l := range c.leases {
		held = append(held, l)
	}
	c.mu.Unlock()

	errs := make([]error, len(held), len(held)+2)
	var g errgroup.Group
	g.SetLimit(closers)
	for i, l := range held {
		g.Go(func() error {
			errs[i] = l.close(ctx)
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs: all of them, not the first
	c.engine.Drain(ctx)
	for _, n := range c.engine.Nodes() {
		g.Go(func() error { return n.Close() })
	}
	errs = append(errs, g.Wait())
	if ctx.Err() != nil {
		errs = append(errs, ended(ctx)...)
	}
	if err := errors.Join(errs...); err != nil {
		return &Error{Op: "shutdown", causes: []error{err}, reason: "what was not released expires by its TTL"}
	}
	return nil
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// pause waits for d. It returns false if ctx ended or the client was closed first.
func (c *Client) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-c.closed:
	}
	return false
}

// adopt makes the client responsible for a lease. It returns false if the client is closed.
func (c *Client) adopt(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return false
	}
	if l.isOver() { // already: it is forgotten before it was known
		return true
	}
	c.leases[l] = struct{}{}
	if len(c.leases) == 1 {
		c.watchSuspend()
	}
	return true
}

// forget ends the responsibility for a lease.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l)
	if len(c.leases) == 0 && c.watch != nil {
		c.watch.Stop()
	}
}

// watchSuspend starts to look for suspends, once in a while for all leases together. The caller holds mu.
func (c *Client) watchSuspend() {
	c.watched = c.clock.Now()
	if c.watch == nil {
		c.watch = time.AfterFunc(suspendCheck, c.lookForSuspend)
		return
	}
	c.watch.Reset(suspendCheck)
}

// lookForSuspend compares what the clock counted with what the timers counted. If they differ, the leases'
// timers are late, and every lease looks at its deadline now (I4).
func (c *Client) lookForSuspend() {
	c.mu.Lock()
	slept := c.clock.Since(c.watched)-time.Since(c.watched.Wall) > suspendCheck/2
	var late []*Lease
	if slept {
		for l := range c.leases {
			late = append(late, l)
		}
	}
	if len(c.leases) > 0 {
		c.watchSuspend()
	}
	c.mu.Unlock()
	for _, l := range late {
		l.tick()
	}
}
