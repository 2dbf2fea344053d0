package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/redlock"
)

// lockTTL is how long a lock lives on the masters: redlock's default, and what redsync is given to match it.
const lockTTL = 10 * time.Second

// A peer is a lock library under measurement, opened over a set of masters. It is used by many goroutines at once.
type peer interface {
	acquire(ctx context.Context, name string) (lock, error)
	close() error
}

// A lock is what a peer hands out. An interface and not a closure, since a closure would be one allocation more that
// is not the library's.
type lock interface {
	Release(ctx context.Context) error
}

// A contestant is a peer that can be opened, and what has to be known to measure it.
type contestant struct {
	name string
	// sends are the commands that its clients send for a lock. They are named for each contestant, as the masters
	// count what a script calls in the same statistics: a SET may be either.
	sends []string
	open  func(addrs []string) (peer, error)
}

// reference is the contestant that the ratios are taken to.
const reference = "redsync v4.18"

// contestants take turns in this order.
var contestants = []contestant{
	{name: "redlock", sends: []string{"evalsha", "eval"}, open: openRedlock},
	{name: reference, sends: []string{"set", "evalsha", "eval"}, open: openRedsync},
}

// redlockPeer is this module's library with its default options.
type redlockPeer struct{ client *redlock.Client }

func openRedlock(addrs []string) (peer, error) {
	urls := make([]string, len(addrs))
	for i, addr := range addrs {
		urls[i] = "redis://" + addr
	}
	client, err := redlock.Open(urls)
	if err != nil {
		return nil, err
	}
	return redlockPeer{client}, nil
}

func (p redlockPeer) acquire(ctx context.Context, name string) (lock, error) {
	lease, err := p.client.Mutex(name).Acquire(ctx)
	if err != nil {
		return nil, err // and not a lock that holds a nil lease
	}
	return lease, nil
}

func (p redlockPeer) close() error { return p.client.Close() }

// redsyncPeer is redsync with its default options, over one go-redis client with default options for each master.
type redsyncPeer struct {
	clients []*redis.Client
	sync    *redsync.Redsync
}

func openRedsync(addrs []string) (peer, error) {
	p := redsyncPeer{clients: make([]*redis.Client, len(addrs))}
	pools := make([]redsyncredis.Pool, len(addrs))
	for i, addr := range addrs {
		p.clients[i] = redis.NewClient(&redis.Options{Addr: addr})
		pools[i] = goredis.NewPool(p.clients[i])
	}
	p.sync = redsync.New(pools...)
	return p, nil
}

func (p redsyncPeer) acquire(ctx context.Context, name string) (lock, error) {
	mutex := p.sync.NewMutex(name, redsync.WithExpiry(lockTTL))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncLock{mutex}, nil
}

func (p redsyncPeer) close() error {
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// redsyncLock is one pointer, so that it becomes a lock without an allocation.
type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) Release(ctx context.Context) error {
	switch released, err := l.mutex.UnlockContext(ctx); {
	case err != nil:
		return err
	case !released:
		return errors.New("the lock was lost before its release")
	}
	return nil
}
