package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redquorum/locks/internal/redistest"
	"github.com/redquorum/locks/redlock"
)

// Leases that are held cost a timer each, and no goroutine.
func TestTenThousandLeasesHeld(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	warmUp(t, c, servers)
	ctx := context.Background()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()

	leases := make([]*redlock.Lease, 10_000)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range leases {
		g.Go(func() (err error) {
			leases[i], err = c.Mutex(fmt.Sprint("held", i), redlock.WithAutoExtend(true)).Acquire(ctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	most := mostGoroutines()
	time.Sleep(7 * time.Second) // every lease is extended twice
	if n := most() - goroutines; n > 50 {
		t.Errorf("%d goroutines for 10,000 leases", n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("heap %.1f MiB for 10,000 leases", float64(heap)/(1<<20))
	if heap > 25<<20 {
		t.Errorf("10,000 leases take %d MiB", heap>>20)
	}
	for i, l := range leases {
		if l.Validity() < 3500*time.Millisecond {
			t.Fatalf("lease %d has %v left, it was not extended: %v", i, l.Validity(), context.Cause(l.Context()))
		}
		g.Go(func() error { return l.Release(ctx) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, 5*time.Second, "everything is released", func() bool { return len(locksLeft(servers)) == 0 })
	redistest.Eventually(t, 5*time.Second, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// A short extension that follows a longer one, whose answers were lost, must not make the keys end before the lease.
func TestAShortExtensionAfterALongOneWithLostAnswers(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers, redlock.WithNodeTimeout(50*time.Millisecond))
	warmUp(t, c, servers)
	l := mustAcquire(t, c.Mutex("x", redlock.WithTTL(time.Second)))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for _, s := range servers[:2] {
		s.Freeze()
	}
	_ = l.Extend(ctx, 30*time.Second) // may or may not reach the frozen two
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_ = l.Extend(ctx, 300*time.Millisecond)
	for _, s := range servers[:2] {
		s.Thaw()
	}
	for l.Validity() > 0 {
		trusted, live := l.Validity(), 0
		for _, s := range servers {
			if left := s.DB.PTTL(context.Background(), "lock:x").Val(); left > 0 {
				live++
			}
		}
		if live < 2 && l.Validity() > 0 {
			t.Fatalf("trusted for %v more, and on %d of 3 nodes", trusted, live)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// EXT: a node that lost its keys gets them back, while a majority still confirms; so a second loss does no harm.
func TestAnExtensionRepairsNodesThatRestartedEmpty(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	warmUp(t, c, servers)
	l := mustAcquire(t, c.Mutex("x", redlock.WithTTL(1500*time.Millisecond), redlock.WithAutoExtend(true)))
	for _, s := range servers {
		s.Kill()
		s.Restart()
		s.WaitUp()
		redistest.Eventually(t, 3*time.Second, s.Addr+" has the lock again", func() bool { return len(s.Keys("lock:x")) == 1 })
	}
	if err := l.Verify(context.Background()); err != nil {
		t.Errorf("after a rolling restart: %v", err)
	}
	mustRelease(t, l)
	redistest.Eventually(t, time.Second, "nothing is left", func() bool { return len(locksLeft(servers)) == 0 })
}

func TestNothingIsCreatedAgainAfterAMajorityWasLost(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	warmUp(t, c, servers)
	l := mustAcquire(t, c.Mutex("x", redlock.WithTTL(900*time.Millisecond), redlock.WithAutoExtend(true)))
	servers[0].DB.FlushAll(context.Background())
	servers[1].DB.FlushAll(context.Background())
	select {
	case <-l.Context().Done():
	case <-time.After(2 * time.Second):
		t.Fatal("the loss was not noticed")
	}
	wantErr(t, context.Cause(l.Context()), redlock.ErrLeaseLost)
	redistest.Eventually(t, time.Second, "the rest is withdrawn", func() bool { return len(locksLeft(servers)) == 0 })
	wantErr(t, l.Release(context.Background()), redlock.ErrLeaseLost, redlock.ErrReleased)
}
