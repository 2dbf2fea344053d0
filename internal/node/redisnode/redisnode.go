// Package redisnode is a node.Node over one real Redis master: an operation is one Lua script.
//
// Calls travel through a lane, see lane.
package redisnode

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redquorum/locks/internal/node"
)

// userGrace is the lane's grace over a client with limits of its own.
const userGrace = 100 * time.Millisecond

// Node is one Redis master.
type Node struct {
	name   string
	client redis.UniversalClient
	dialer *dialer // of a private client; nil over the user's
	lane   *lane
}

// Open returns a node over a connection of its own, made from opt; opt is not changed. limit is the longest that
// anything on the network may take: a dial, a handshake, a batch. Open does no I/O.
func Open(name string, opt *redis.Options, limit time.Duration) *Node {
	d := newDialer(opt, limit)
	client := redis.NewClient(private(opt, d))
	d.network, d.addr = client.Options().Network, client.Options().Addr // with their defaults
	return &Node{name: name, client: client, dialer: d, lane: newLane(client, limit/4, d.reach)}
}

// Over returns a node over a client whose connections cannot be made anew from its options, such as a cluster
// client. Its time limits are the client's own; Close leaves it open. Over does no I/O.
func Over(name string, client redis.UniversalClient) *Node {
	return &Node{name: name, client: client, lane: newLane(client, userGrace, nil)}
}

// String returns the node's name: its address, where there is one.
func (n *Node) String() string { return n.name }

// Put queues the call.
func (n *Node) Put(c *node.Call) {
	wireOf(c.Op) // here, where no other node of the round works on it
	n.lane.put(c)
}

// Close ends the lane and the private client.
func (n *Node) Close() error {
	n.lane.cancel()
	var err error
	if n.dialer != nil {
		err = n.client.Close() // interrupts what the lane is waiting for
	}
	<-n.lane.ended
	if n.dialer != nil {
		n.dialer.discard()
	}
	return err
}

// private returns options for the lane's own client: one connection, no retries and no second dial behind the
// engine's back, no time limit above the node's, and no handshake extras, which cost round trips and which old
// and managed servers refuse.
func private(opt *redis.Options, d *dialer) *redis.Options {
	o := *opt
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = d.limit, d.limit, d.limit, d.limit
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.PoolSize, o.MaxActiveConns, o.MinIdleConns, o.MaxIdleConns = 1, 1, 0, 1
	o.PipelinePoolSize = -1 // pipelines use the one connection
	o.Protocol = 2          // integers and lists are all there is to say, and version 3 is asked for pushes at every turn
	o.Limiter = nil
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Dialer = d.connect
	return &o
}
