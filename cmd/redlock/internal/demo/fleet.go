package demo

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/redisnode"
	"github.com/redquorum/locks/redlock"
)

// fleet is the masters that the workers' clients lock on.
type fleet interface {
	fmt.Stringer
	// connect makes a client with connections of its own, honest or sabotaged.
	connect(s sabotage, opts ...redlock.ClientOption) (*redlock.Client, error)
	// faults are what may be done to one of the masters, of which there are size; none where the masters are somebody
	// else's.
	faults() []fault
	close() error
}

// size is how many masters a fleet of the demo's own has.
const size = 5

// fault is a way to harm a master.
type fault struct {
	state string // of the master meanwhile
	how   string
	lasts time.Duration
	harm  func(master int) (mend func() error, err error)
}

// silence keeps go-redis, whose logger is one for the whole process, from telling that a master cannot be reached:
// here that is on purpose, and shown.
var silence = sync.OnceFunc(logging.Disable)

// dial makes a client over real masters. An honest one is made as every user makes it; sabotage needs the seam.
func dial(urls []string, s sabotage, opts []redlock.ClientOption) (*redlock.Client, error) {
	silence()
	if s == honest {
		return redlock.Open(urls, opts...)
	}
	nodes := make([]node.Node, len(urls))
	for i, u := range urls {
		opt, err := redis.ParseURL(u)
		if err != nil {
			return nil, err
		}
		nodes[i] = redisnode.Open(opt.Addr, opt, nodeTimeout)
	}
	return redlock.NewOver(s.bend(nodes), s.clock(drift.System{}), opts...)
}

// given is a fleet of masters that were named on the command line. They are not harmed.
type given struct {
	urls      []string
	addresses []string
}

func newGiven(urls []string) (*given, error) {
	client, err := redlock.Open(urls) // knows what a good list of masters is, and asks none of them
	if err != nil {
		return nil, err
	}
	if err := client.Close(); err != nil {
		return nil, err
	}
	g := &given{urls: urls}
	for _, u := range urls {
		opt, err := redis.ParseURL(u)
		if err != nil {
			return nil, err
		}
		g.addresses = append(g.addresses, opt.Addr)
	}
	return g, nil
}

func (g *given) String() string {
	return fmt.Sprintf("%s given, which will not be harmed: %s", plural(len(g.urls), "master"), strings.Join(g.addresses, ", "))
}

func (g *given) connect(s sabotage, opts ...redlock.ClientOption) (*redlock.Client, error) {
	return dial(g.urls, s, opts)
}

func (g *given) faults() []fault { return nil }
func (g *given) close() error    { return nil }
