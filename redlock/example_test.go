package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/locks/fencing"
	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/redlock"
)

// inMemory stands for redlock.Open in the examples, which need no Redis.
func inMemory() *redlock.Client {
	nodes := []node.Node{memnode.New("a", time.Second), memnode.New("b", time.Second), memnode.New("c", time.Second)}
	client, err := redlock.NewOver(nodes, drift.Plain{})
	if err != nil {
		panic(err)
	}
	return client
}

func Example() {
	client := inMemory() // in a program: redlock.Open, with the URLs of the masters
	defer client.Close()
	stored := fencing.NewMemoryGuard() // on the storage's side: refuses a writer that was overtaken

	err := redlock.Do(context.Background(), client.Mutex("invoice:42"), func(ctx context.Context) error {
		lease, _ := redlock.FromContext(ctx)
		if err := stored.Check(ctx, lease.Name(), lease.Token()); err != nil {
			return err
		}
		fmt.Println("written under", lease.Name())
		return ctx.Err() // the context ends if the lock is lost
	})
	fmt.Println(err)
	// Output:
	// written under invoice:42
	// <nil>
}

// A job that is to run on one host of a fleet: the others skip it, an outage is an error.
func ExampleTryDo() {
	client := inMemory()
	defer client.Close()
	ctx := context.Background()

	held, _ := client.Mutex("nightly-report").Acquire(ctx) // another host
	ran, err := redlock.TryDo(ctx, client.Mutex("nightly-report"), func(context.Context) error { return nil })
	fmt.Println(ran, err)

	_ = held.Release(ctx)
	ran, err = redlock.TryDo(ctx, client.Mutex("nightly-report"), func(context.Context) error { return nil })
	fmt.Println(ran, err)
	// Output:
	// false <nil>
	// true <nil>
}

func ExampleMutex_Acquire() {
	client := inMemory()
	defer client.Close()
	ctx := context.Background()

	held, _ := client.Mutex("seat:A1").Acquire(ctx)
	defer func() { _ = held.Release(ctx) }()
	_, err := client.Mutex("seat:A1", redlock.WithWait(20*time.Millisecond)).Acquire(ctx)
	fmt.Println(errors.Is(err, redlock.ErrNotAcquired), errors.Is(err, redlock.ErrWaitExpired), errors.Is(err, redlock.ErrNoQuorum))
	// Output: true true false
}

func ExampleLease() {
	client := inMemory()
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Mutex("export", redlock.WithTTL(time.Second)).Acquire(ctx)
	if err != nil {
		return
	}
	fmt.Println("about a second:", lease.Validity().Round(100*time.Millisecond))
	if err := lease.Extend(ctx, time.Minute); err != nil {
		return
	}
	fmt.Println("about a minute:", lease.Validity().Round(time.Second))
	_ = lease.Release(ctx)
	<-lease.Context().Done()
	fmt.Println(errors.Is(context.Cause(lease.Context()), redlock.ErrReleased), lease.Validity())
	// Output:
	// about a second: 1s
	// about a minute: 59s
	// true 0s
}
