package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/locks/fencing"
	"github.com/redquorum/locks/internal/redistest"
	"github.com/redquorum/locks/redlock"
)

// tokens checks what is handed out on one name: strictly increasing in the order of the grants, so unique too.
type tokens struct {
	mu   sync.Mutex
	last fencing.Token
	n    int
}

// take is called while the lease is held, so its order is that of the grants.
func (k *tokens) take(t *testing.T, l *redlock.Lease) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Token() <= k.last {
		t.Errorf("token %d after %d", l.Token(), k.last)
	}
	k.last = l.Token()
	k.n++
}

// I3, with no counter lost: quorums and clients' clocks may be anything.
func TestTokensIncreaseOverRandomQuorumsWhateverTheClocksSay(t *testing.T) {
	servers := redistest.Start(t, 3)
	warmUp(t, openReal(t, servers), servers)
	var k tokens
	var wg sync.WaitGroup
	for i := range 8 {
		off := []time.Duration{0, time.Hour, -time.Hour, 900 * time.Millisecond, -900 * time.Millisecond, time.Minute, -time.Minute, 0}[i]
		c := openSkewed(t, servers, off, redlock.WithRetry(redlock.RetryPolicy{Delay: 2 * time.Millisecond}))
		wg.Go(func() {
			for range 625 {
				l := mustAcquire(t, c.Mutex("doc"))
				k.take(t, l)
				mustRelease(t, l)
			}
		})
	}
	stop := breakQuorums(servers)
	wg.Wait()
	stop()
	if k.n != 5000 {
		t.Errorf("%d leases, want 5000", k.n)
	}
}

// breakQuorums makes another master refuse every few milliseconds, so that quorums change.
func breakQuorums(servers []*redistest.Server) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			s := servers[rand.IntN(len(servers))]
			s.Freeze()
			time.Sleep(rand.N(5 * time.Millisecond))
			s.Thaw()
			select {
			case <-done:
				return
			case <-time.After(rand.N(5 * time.Millisecond)):
			}
		}
	}()
	return func() { close(done); <-ended }
}

// I3, with counters lost: by expiry, and by a minority that was wiped while nothing was held.
func TestTokensIncreaseAfterCountersWereLost(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	warmUp(t, c, servers)
	var k tokens
	m := c.Mutex("doc", redlock.WithTTL(50*time.Millisecond), redlock.WithFenceIdleTTL(20*time.Millisecond))
	for i := range 60 {
		l := mustAcquire(t, m)
		k.take(t, l)
		mustRelease(t, l)
		if i%10 == 9 {
			time.Sleep(80 * time.Millisecond) // beyond the lease and the idle TTL
			if keys := servers[0].Keys("*doc*"); len(keys) > 0 {
				t.Fatalf("the counter should have expired, there are %q", keys)
			}
		}
		if i%7 == 6 {
			servers[i%3].DB.FlushAll(context.Background())
		}
	}
}

// In the healthy case the token costs no round trip of its own.
func TestAnUncontendedLeaseCostsOneScriptForEachNodeAndStep(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	warmUp(t, c, servers)
	before := scripts(servers)
	const leases = 100
	for i := range leases {
		name := fmt.Sprint("cheap", i)
		l := mustAcquire(t, c.Mutex(name))
		for _, s := range servers { // a release would take back an acquire that is still queued here
			redistest.Eventually(t, time.Second, "the lock is on "+s.Addr, func() bool { return s.DB.Exists(t.Context(), "lock:"+name).Val() == 1 })
		}
		mustRelease(t, l)
	}
	redistest.Eventually(t, time.Second, "the stragglers arrived", func() bool { return scripts(servers)-before >= 2*3*leases })
	time.Sleep(50 * time.Millisecond)
	if n := scripts(servers) - before; n != 2*3*leases {
		t.Errorf("%d scripts for %d leases on 3 nodes, want %d: one for each acquire and release", n, leases, 2*3*leases)
	}
}

func scripts(servers []*redistest.Server) (n int) {
	for _, s := range servers {
		n += s.Calls("evalsha") + s.Calls("eval")
	}
	return n
}

// Of callers that race for a free name, somebody wins, and soon: they must not split the nodes for ever.
func TestThreeClientsRacingSomeoneWinsSoon(t *testing.T) {
	servers := redistest.Start(t, 3)
	clients := []*redlock.Client{openReal(t, servers), openReal(t, servers), openReal(t, servers)}
	for _, c := range clients {
		warmUp(t, c, servers)
	}
	for name, attempt := range map[string]func(m *redlock.Mutex) (*redlock.Lease, error){
		"Acquire": func(m *redlock.Mutex) (*redlock.Lease, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			return m.Acquire(ctx)
		},
		"TryAcquire": func(m *redlock.Mutex) (*redlock.Lease, error) { return m.TryAcquire(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 200 {
				won := make(chan time.Duration, len(clients))
				start := time.Now()
				var wg sync.WaitGroup
				for _, c := range clients {
					wg.Go(func() {
						if l, err := attempt(c.Mutex("race", redlock.WithRetry(redlock.RetryPolicy{Delay: 5 * time.Millisecond}))); err == nil {
							won <- time.Since(start)
							mustRelease(t, l)
						}
					})
				}
				wg.Wait()
				select {
				case d := <-won:
					if d > time.Second {
						t.Fatalf("round %d: the first won after %v", round, d)
					}
				default:
					t.Fatalf("round %d: nobody won", round)
				}
			}
		})
	}
}
