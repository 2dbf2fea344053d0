package redisnode

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// redial is the time after which a dial that hangs gets company: a SYN that was lost is sent again by the system
// only after a second, long after the network has healed.
const redial = 100 * time.Millisecond

// attempts bounds the dials to one node that are under way.
const attempts = 4

// dialer makes the lane's connections. The lane has a connection made before it asks go-redis for one: so a dead
// node costs a dial, and not a line in go-redis's log, ten times a second.
type dialer struct {
	dial          func(ctx context.Context, network, addr string) (net.Conn, error)
	secure        *tls.Config // nil: no TLS, or the user's own dialer sees to it
	network, addr string
	limit         time.Duration
	slots         chan struct{} // taken by every attempt under way: a dialer may ignore that nobody waits any more

	mu    sync.Mutex
	ready net.Conn // made in advance
}

// newDialer returns the dialer for a client with these options.
func newDialer(opt *redis.Options, limit time.Duration) *dialer {
	d := &dialer{dial: opt.Dialer, limit: limit, slots: make(chan struct{}, attempts)}
	if d.dial == nil {
		d.dial, d.secure = (&net.Dialer{}).DialContext, opt.TLSConfig
	}
	return d
}

// reach makes a connection in advance.
func (d *dialer) reach(ctx context.Context) error {
	conn, err := d.open(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready != nil {
		_ = d.ready.Close() // the client had one of its own
	}
	d.ready = conn
	return nil
}

// discard closes a connection that was made in advance and not used.
func (d *dialer) discard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready != nil {
		_ = d.ready.Close()
		d.ready = nil
	}
}

// connect is the Dialer of the lane's client.
func (d *dialer) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	d.mu.Lock()
	conn := d.ready
	d.ready = nil
	d.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	conn, err := d.open(ctx)
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

// open makes a connection.
func (d *dialer) open(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	conn, err := d.race(ctx)
	if err != nil {
		return nil, err
	}
	// Linger 0: closing the connection throws away what was not sent yet, so that an operation that was given up is
	// not delivered by a retransmission minutes later.
	plain := conn
	if t, ok := plain.(interface{ NetConn() net.Conn }); ok { // TLS by the user's dialer
		plain = t.NetConn()
	}
	if t, ok := plain.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // where the system refuses, the withdrawal's mark still holds
	}
	if d.secure == nil {
		return conn, nil
	}
	config := d.secure.Clone()
	if host, _, err := net.SplitHostPort(d.addr); err == nil && config.ServerName == "" {
		config.ServerName = host
	}
	t := tls.Client(conn, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

// dialError marks an error that came before anything could be sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

type dialled struct {
	conn net.Conn
	err  error
}

// race dials, again and again while no attempt has succeeded or failed, and returns the first connection.
func (d *dialer) race(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the attempts that were not first
	defer cancel()
	results := make(chan dialled)
	ticks := time.NewTicker(redial)
	defer ticks.Stop()
	for {
		select {
		case d.slots <- struct{}{}:
			go d.attempt(ctx, results)
		default: // as many as may be are under way
		}
		select {
		case r := <-results:
			return r.conn, r.err
		case <-ticks.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (d *dialer) attempt(ctx context.Context, results chan<- dialled) {
	defer func() { <-d.slots }()
	conn, err := d.dial(ctx, d.network, d.addr)
	select {
	case results <- dialled{conn, err}:
	case <-ctx.Done(): // another was first, or all are too late
		if err == nil {
			_ = conn.Close()
		}
	}
}
