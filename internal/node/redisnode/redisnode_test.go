package redisnode_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/internal/node/nodetest"
	"github.com/redquorum/locks/internal/node/redisnode"
	"github.com/redquorum/locks/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = time.Second

func open(t *testing.T, s *redistest.Server) *redisnode.Node {
	t.Helper()
	n := redisnode.Open(s.Addr, &redis.Options{Addr: s.Addr}, limit)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// The Lua scripts and the state machines in Go are one: whatever redis-server answers, memnode answers.
func TestConformance(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	mem := memnode.New("memnode", limit)
	for range 3 {
		seed := rand.Uint64()
		nodetest.Run(t, nodetest.Pair{
			A:    open(t, s),
			B:    mem,
			Pass: time.Sleep,
			Forget: func() {
				s.DB.FlushAll(context.Background())
				mem.Wipe()
			},
		}, seed, 400)
	}
}

func TestTheEdgesOfEveryOperation(t *testing.T) {
	nodetest.Table(t, open(t, redistest.Start(t, 1)[0]))
}
