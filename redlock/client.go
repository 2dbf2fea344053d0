package redlock

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/quorum"
)

// closers bounds how many leases are released at the same time by Shutdown.
const closers = 32

// Client locks names on a fixed set of Redis masters. It is safe for concurrent use, and meant to live as long
// as its process: all locks that share nodes and settings should share it.
type Client struct {
	config   *clientConfig
	engine   *quorum.Engine
	clock    drift.Clock
	slotted  bool // a node is a cluster: what one script touches must be in one slot
	agenda   agenda
	extender extender

	shutdown atomic.Bool   // the first Shutdown has begun
	closed   chan struct{} // closed by then
	ended    chan struct{} // closed when it has returned
}

// NewOver returns a client over nodes of this module's own. It is how testing/fakelock and the demo put a real
// client on in-memory masters; node.Node is internal, so nothing outside this module can call it. The client
// closes the nodes. See New for the options.
func NewOver(nodes []node.Node, clock drift.Clock, opts ...ClientOption) (*Client, error) {
	config, err := newClientConfig("new", opts)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, invalid("new", "", "no nodes")
	}
	return newClient(config, nodes, clock), nil
}

func newClient(config *clientConfig, nodes []node.Node, clock drift.Clock) *Client {
	if len(nodes)%2 == 0 {
		config.logger.Warn("redlock: an even number of nodes tolerates no more failures than one node less", slog.Int("nodes", len(nodes)))
	}
	return &Client{
		config: config,
		engine: quorum.New(nodes, clock, config.driftFactor),
		clock:  clock,
		agenda: agenda{clock: clock},
		closed: make(chan struct{}),
		ended:  make(chan struct{}),
	}
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
// From the first call on the client is closed whatever the result; a second call waits for the first, or the end of
// its own ctx, and returns nil.
func (c *Client) Shutdown(ctx context.Context) error {
	if c.shutdown.Swap(true) {
		select {
		case <-c.ended:
		case <-ctx.Done():
		}
		return nil
	}
	defer close(c.ended)
	close(c.closed)
	held := c.agenda.close()
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
