package redlock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/redisnode"
	"github.com/redquorum/locks/internal/redistest"
	"github.com/redquorum/locks/redlock"
)

// openReal opens a client over servers, closed with the test.
func openReal(t testing.TB, servers []*redistest.Server, opts ...redlock.ClientOption) *redlock.Client {
	t.Helper()
	c, err := redlock.Open(redistest.URLs(servers), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// openSkewed opens a client whose wall clock is off.
func openSkewed(t testing.TB, servers []*redistest.Server, off time.Duration, opts ...redlock.ClientOption) *redlock.Client {
	t.Helper()
	nodes := make([]node.Node, len(servers))
	for i, s := range servers {
		nodes[i] = redisnode.Open(s.Addr, &redis.Options{Addr: s.Addr}, 500*time.Millisecond)
	}
	c, err := redlock.NewOver(nodes, skewed(off), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// skewed is a clock that runs right and shows a time that is off.
type skewed time.Duration

func (s skewed) Now() drift.Instant { return drift.Instant{Wall: time.Now().Add(time.Duration(s))} }
func (s skewed) Since(start drift.Instant) time.Duration {
	return time.Now().Add(time.Duration(s)).Sub(start.Wall)
}

func mustAcquire(t testing.TB, l redlock.Locker) *redlock.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustRelease(t testing.TB, l *redlock.Lease) {
	t.Helper()
	if err := l.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// warmUp lets the client meet every node.
func warmUp(t testing.TB, c *redlock.Client, servers []*redistest.Server) {
	t.Helper()
	l := mustAcquire(t, c.Mutex("warm"))
	for _, s := range servers {
		redistest.Eventually(t, 5*time.Second, s.Addr+" took part", func() bool { return len(s.Keys("lock:warm")) == 1 })
	}
	mustRelease(t, l)
	for _, s := range servers {
		redistest.Eventually(t, 5*time.Second, s.Addr+" is free", func() bool { return len(s.Keys("lock:warm")) == 0 })
	}
}

// pairs acquires and releases n times and returns the median time of a pair.
func pairs(t testing.TB, c *redlock.Client, n int) time.Duration {
	t.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		mustRelease(t, mustAcquire(t, c.Mutex("pair")))
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[n/2]
}

// mostGoroutines samples the number of goroutines until the returned function is called, which tells the highest.
func mostGoroutines() func() int {
	var most atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int {
		close(stop)
		<-stopped
		return int(most.Load())
	}
}

// locksLeft returns what is left of locks on the servers, fencing counters apart.
func locksLeft(servers []*redistest.Server) (left []string) {
	for _, s := range servers {
		for _, key := range s.Keys("*") {
			if !isFence(key) {
				left = append(left, s.Addr+" "+key)
			}
		}
	}
	return left
}

func isFence(key string) bool { return len(key) > 14 && key[len(key)-14:] == ":redlock:fence" }

func wantErr(t testing.TB, err, want error, not ...error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
	for _, n := range not {
		if errors.Is(err, n) {
			t.Fatalf("error %v must not match %v", err, n)
		}
	}
}
