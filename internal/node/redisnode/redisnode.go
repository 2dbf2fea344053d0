// Package redisnode is a node.Node over one real Redis master: an operation is one Lua script.
//
// Calls travel through a lane, see lane.
package redisnode

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redquorum/locks/internal/node"
)

// Node is one Redis master.
type Node struct {
	name   string
	client redis.UniversalClient
	owned  bool
	lane   *lane
}

// Open returns a node over connections of its own, made from opt; opt is not changed. limit is the longest
// that anything on the network may take: a dial, a handshake, a batch. Open does no I/O.
func Open(name string, opt *redis.Options, limit time.Duration) *Node {
	return newNode(name, redis.NewClient(private(opt, limit)), true)
}

// Over returns a node over a client whose connections cannot be made anew from its options, such as a cluster
// client. Its time limits are the client's own; Close leaves it open. Over does no I/O.
func Over(name string, client redis.UniversalClient) *Node {
	return newNode(name, client, false)
}

func newNode(name string, client redis.UniversalClient, owned bool) *Node {
	return &Node{name: name, client: client, owned: owned, lane: newLane(client)}
}

// String returns the node's name: its address, where there is one.
func (n *Node) String() string { return n.name }

// Put queues the call.
func (n *Node) Put(c *node.Call) { n.lane.put(c) }

// Close ends the lane and the private client.
func (n *Node) Close() error {
	n.lane.close()
	var err error
	if n.owned {
		err = n.client.Close() // interrupts what the lane is waiting for
	}
	n.lane.wait()
	return err
}

// private returns options for the lane's own client: one connection, no retries and no second dial behind the
// engine's back, no limit above limit, and no handshake extras, which cost round trips and which old and
// managed servers refuse.
func private(opt *redis.Options, limit time.Duration) *redis.Options {
	o := *opt
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = limit, limit, limit, limit
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.PoolSize, o.MaxActiveConns, o.MinIdleConns, o.MaxIdleConns = 1, 1, 0, 1
	o.PipelinePoolSize = -1 // pipelines use the one connection
	o.Limiter = nil
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	dial := o.Dialer
	if dial == nil {
		dial = redis.NewDialer(&o)
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			resetOnClose(conn)
		}
		return conn, err
	}
	return &o
}

// resetOnClose sets linger 0: closing the connection throws away what was not sent yet, so that an operation
// that was given up is not delivered by a retransmission minutes later.
func resetOnClose(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // where the system refuses, the withdrawal's mark still holds
	}
}
