package redlock

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/redisnode"
)

// failoverAddr is what go-redis puts in the place of the address of a client made by NewFailoverClient.
const failoverAddr = "FailoverClient"

// New returns a client over the given Redis clients, one for each master. It does no I/O.
//
// Every element is one node: a *redis.Client, also one from redis.NewFailoverClient, or a *redis.ClusterClient,
// which counts as one node. The client opens a connection of its own to every *redis.Client's server, with the
// credentials and the dialer of its options and with limits of its own, so that time-outs and retries that suit
// a cache do no harm. A cluster client, and any other implementation, is used as it is, with its own limits. The
// caller keeps its clients and closes them after the lock client.
//
// The nodes must be independent of each other, not replicas or shards. Use 3 or 5: of N nodes ⌊(N−1)/2⌋ may
// fail.
//
// It fails with ErrInvalid for no nodes, a nil client, the same client or address twice, a *redis.Ring, or
// options that are not acceptable.
func New[C redis.UniversalClient](nodes []C, opts ...ClientOption) (*Client, error) {
	config, err := newClientConfig("new", opts)
	if err != nil {
		return nil, err
	}
	specs := make([]spec, len(nodes))
	for i, c := range nodes {
		s, problem := specOf(c)
		if problem != "" {
			return nil, invalid("new", "", "node %d: %s", i, problem)
		}
		specs[i] = s
	}
	return connect("new", config, specs)
}

// Open returns a client over the masters at the given URLs, one for each, with connections of its own. It does
// no I/O: a master that cannot be reached shows in the first operation, as that node's error.
//
// URLs are those of redis.ParseURL: redis://user:password@host:port/db, rediss:// for TLS, unix:// for sockets.
// It fails with ErrInvalid for no URLs, a malformed one (passwords are left out of the error), the same address
// twice, or options that are not acceptable. See New for what the nodes must be.
func Open(urls []string, opts ...ClientOption) (*Client, error) {
	config, err := newClientConfig("open", opts)
	if err != nil {
		return nil, err
	}
	specs := make([]spec, len(urls))
	for i, u := range urls {
		opt, err := redis.ParseURL(u)
		if err != nil {
			return nil, invalid("open", "", "node %d: malformed URL %s, want redis://[user:password@]host[:port][/db]", i, redact(u))
		}
		specs[i] = spec{address: opt.Network + ":" + opt.Addr, options: opt}
	}
	return connect("open", config, specs)
}

// spec is a node that is not made yet.
type spec struct {
	client  redis.UniversalClient // nil: only options
	address string                // "" if it cannot be known
	options *redis.Options        // nil: the client is used as it is
}

// specOf tells what kind of node a user's client is, or why it is none.
func specOf(c redis.UniversalClient) (s spec, problem string) {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return spec{}, "the client is nil"
	}
	switch c := c.(type) {
	case *redis.Client:
		opt := c.Options()
		s = spec{client: c, options: opt}
		if opt.Addr != failoverAddr {
			s.address = opt.Network + ":" + opt.Addr
		}
		return s, ""
	case *redis.Ring:
		return spec{}, "a *redis.Ring spreads keys over its shards and is not one master; pass a *redis.Client for each master"
	default:
		return spec{client: c}, ""
	}
}

// connect checks the nodes against each other and makes the client.
func connect(op string, config *clientConfig, specs []spec) (*Client, error) {
	if len(specs) == 0 {
		return nil, invalid(op, "", "no nodes; pass one for each master, 3 or 5 for a quorum")
	}
	for i, a := range specs {
		for j, b := range specs[:i] {
			switch {
			case a.client != nil && same(a.client, b.client):
				return nil, invalid(op, "", "nodes %d and %d are the same client; every node must be a master of its own", j, i)
			case a.address != "" && a.address == b.address:
				return nil, invalid(op, "", "nodes %d and %d have the same address %s; every node must be a master of its own", j, i, a.options.Addr)
			}
		}
	}
	nodes := make([]node.Node, len(specs))
	for i, s := range specs {
		nodes[i] = s.open(i, config)
	}
	c := newClient(config, nodes, drift.System{})
	c.slotted = slices.ContainsFunc(specs, func(s spec) bool { return s.options == nil })
	return c, nil
}

func (s spec) open(i int, config *clientConfig) node.Node {
	switch {
	case s.options == nil:
		return redisnode.Over("node "+strconv.Itoa(i), s.client)
	case s.address == "":
		return redisnode.Open(fmt.Sprintf("node %d (Sentinel)", i), s.options, config.timeout())
	default:
		return redisnode.Open(s.options.Addr, s.options, config.timeout())
	}
}

// same reports whether two clients are one. Values of a type that cannot be compared are not.
func same(a, b redis.UniversalClient) bool {
	return reflect.ValueOf(a).Comparable() && any(a) == any(b)
}

// redact leaves out what may be a password: all between the scheme and the last @, and all parameters. Of what does
// not look like a URL nothing is shown.
func redact(url string) string {
	url, _, _ = strings.Cut(url, "?")
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz+") != "" {
		return "(without a scheme)"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = "…" + rest[at:]
	}
	return strconv.Quote(scheme + "://" + rest)
}
