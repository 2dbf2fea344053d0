package redisnode

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/node"
)

const (
	// maxBatch bounds one pipeline, so that no call waits for the reading of thousands.
	maxBatch = 256
	// maxQueue bounds what waits for a node. A call beyond it fails at once.
	maxQueue = 4096
	// pause is the time between two tries to reach a node that is down.
	pause = 100 * time.Millisecond
	// interest is how long a node that is down is tried after the last call for it.
	interest = 10 * time.Second
)

var (
	errClosed = errors.New("the client is closed")
	errSilent = errors.New("the node does not answer")
	errFull   = fmt.Errorf("%d operations are waiting for this node already", maxQueue)
)

// lane sends calls to one node in the order in which they were put: one goroutine takes what has gathered,
// sends it as one pipeline, reads the answers, and takes the next. Batches grow with the load, no call
// overtakes another, and a frozen node costs one goroutine and a bounded queue.
//
// Before anything is sent over a connection that is new or that failed, the node is asked whether it is there,
// while the calls stay queued. So a dead node leaves no call in doubt, only unsent ones. A node that is known to be
// down is tried in the background, and calls fail at once meanwhile: nobody waits for it.
type lane struct {
	client redis.UniversalClient
	reach  func(ctx context.Context) error // makes sure that a connection can be had; nil: the client sees to it
	grace  time.Duration                   // how long a connection that failed may take to come back before the node is down
	ctx    context.Context                 // ends with the lane
	cancel context.CancelFunc
	ended  chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	queue   []*node.Call
	down    *node.Vote // the answer to every call while the node is down
	mending bool       // a connection that failed is being made anew, and calls wait for it
	lastPut time.Time  // while it is down

	// The goroutine's own.
	pipe  redis.Pipeliner
	batch []*node.Call
	up    bool // the last batch was answered
}

func newLane(client redis.UniversalClient, grace time.Duration, reach func(ctx context.Context) error) *lane {
	l := &lane{client: client, grace: grace, reach: reach, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.pipe = client.Pipeline()
	go l.run()
	return l
}

func (l *lane) put(c *node.Call) {
	if refusal := l.enqueue(c); refusal != nil {
		c.Answer(*refusal)
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // it has been woken already
	}
}

// enqueue returns the answer to a call that is not taken into the queue.
func (l *lane) enqueue(c *node.Call) *node.Vote {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return unsent(errClosed)
	}
	if l.down != nil {
		l.lastPut = time.Now()
		return l.down
	}
	if len(l.queue) >= maxQueue {
		return unsent(errFull)
	}
	l.queue = append(l.queue, c)
	return nil
}

func (l *lane) run() {
	defer close(l.ended)
	defer l.fail(unsent(errClosed))
	for l.ctx.Err() == nil {
		switch {
		case !l.wanted():
			select {
			case <-l.wake:
			case <-l.ctx.Done():
			}
		case l.up:
			l.gather()
			if batch := l.take(); len(batch) > 0 {
				l.up = l.send(batch)
				if !l.up {
					l.reconnect()
				}
			}
		default:
			l.connect()
		}
	}
}

// gather lets whoever can put a call now do so, for as long as the queue grows: batches are deeper under load, and
// a caller that is alone does not wait.
func (l *lane) gather() {
	for before, grows := 0, true; grows; {
		runtime.Gosched()
		l.mu.Lock()
		n := len(l.queue)
		l.mu.Unlock()
		grows = n > before && n < maxBatch
		before = n
	}
}

// wanted reports whether there is something to do: calls wait, or one was turned away not long ago. A node that is
// down and that nobody asks for is left alone, and forgiven: the next call waits for what becomes of it.
func (l *lane) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down != nil && time.Since(l.lastPut) > interest {
		l.down = nil
	}
	return l.down != nil || len(l.queue) > 0
}

// reconnect is connect after a connection that was good has failed. Calls wait for it, but not for long.
func (l *lane) reconnect() {
	l.mu.Lock()
	l.mending = true
	l.mu.Unlock()
	timer := time.AfterFunc(l.grace, func() {
		l.mu.Lock()
		var queue []*node.Call
		if l.mending {
			queue = l.giveUp(unsent(errSilent))
		}
		l.mu.Unlock()
		answer(queue, unsent(errSilent))
	})
	defer timer.Stop()
	l.connect()
}

// connect asks the node whether it is there. If not, the node is down until it is: what is queued fails.
func (l *lane) connect() {
	if l.reach == nil { // the client sees to its own connections; a cluster's may go to any of its servers
		l.reached()
		return
	}
	err := l.ping()
	answered, permanent := fromServer(err)
	if err == nil || answered && !refusedUs(err) {
		l.reached()
		return
	}
	down := unsent(l.own(err))
	down.Permanent = permanent
	l.fail(down)
	select {
	case <-time.After(pause):
	case <-l.ctx.Done():
	}
}

// reached lets calls through.
func (l *lane) reached() {
	l.up = true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.mending = nil, false
}

func (l *lane) ping() error {
	if err := l.reach(l.ctx); err != nil {
		return err
	}
	return l.client.Ping(l.ctx).Err()
}

// refusedUs reports whether the server's error ended the handshake. Any other error reply shows that the server
// is there, and every call gets its own.
func refusedUs(err error) bool { return redis.IsAuthError(err) || redis.IsMaxClientsError(err) }

// fail answers what is queued, and what is put from now on until the node is reached.
func (l *lane) fail(v *node.Vote) {
	l.mu.Lock()
	queue := l.giveUp(v)
	l.mu.Unlock()
	answer(queue, v)
}

// giveUp declares the node down, and returns what is to be answered with v. The caller holds mu.
func (l *lane) giveUp(v *node.Vote) (queue []*node.Call) {
	if l.down == nil {
		l.lastPut = time.Now()
	}
	queue = l.queue
	l.queue, l.down, l.mending = nil, v, false
	return queue
}

func answer(calls []*node.Call, v *node.Vote) {
	for _, c := range calls {
		c.Answer(*v)
	}
}

// take removes the next batch from the queue and marks it as sent. Dropped calls are left out. The batch is valid
// until the next take.
func (l *lane) take() []*node.Call {
	l.mu.Lock()
	n := min(len(l.queue), maxBatch)
	l.batch = append(l.batch[:0], l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	l.mu.Unlock()
	sending := l.batch[:0]
	for _, c := range l.batch {
		if c.Send() {
			sending = append(sending, c)
		}
	}
	return sending
}

// send puts the batch to the node, answers every call of it, and reports whether the connection is still good.
func (l *lane) send(batch []*node.Call) bool {
	votes, good := l.pipeline(batch, false)
	if first := firstWithoutScript(votes); first >= 0 && good {
		good = l.sendAgain(batch[first:], votes[first:])
	}
	for i, c := range batch {
		c.Answer(votes[i])
	}
	clear(batch) // an answered call must not be kept alive
	return good
}

// sendAgain sends a batch again by the full text of its scripts, because the script cache was emptied. What follows the
// first refused call goes too, before anything newer: else a release could have run before its acquire. An acquire that
// was granted has run and is left out; any other grant stands, as the second run of a release finds nothing.
func (l *lane) sendAgain(batch []*node.Call, votes []node.Vote) bool {
	var calls []*node.Call
	var at []int
	for i, c := range batch {
		if c.Op.Kind != node.Acquire || votes[i].Verdict != node.Granted {
			calls, at = append(calls, c), append(at, i)
		}
	}
	again, good := l.pipeline(calls, true)
	for i, v := range again {
		if votes[at[i]].Verdict != node.Granted {
			votes[at[i]] = v
		}
	}
	return good
}

// pipeline runs the calls' scripts in one round trip, by digest or by full text.
func (l *lane) pipeline(batch []*node.Call, full bool) (votes []node.Vote, good bool) {
	cmds, replies := make([]redis.Cmder, len(batch)), make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		w := wireOf(c.Op)
		args := w.args
		if full {
			args = w.full()
		}
		replies[i] = redis.NewCmd(l.ctx, args...)
		cmds[i] = command{replies[i]}
	}
	_ = l.pipe.BatchProcess(l.ctx, cmds...) // queues; errors are the commands'
	_, _ = l.pipe.Exec(l.ctx)               // returns the first of them
	votes, good = make([]node.Vote, len(batch)), true
	for i, cmd := range replies {
		var answered bool
		votes[i], answered = l.vote(batch[i].Op.Kind, cmd)
		good = good && answered
	}
	return votes, good
}

// vote reads a command's outcome. answered is false if the server did not reply, or not to this command as far as
// anybody can tell: then nothing that comes over this connection can be believed.
func (l *lane) vote(kind node.Kind, cmd *redis.Cmd) (v node.Vote, answered bool) {
	reply, err := cmd.Result()
	if err == nil || errors.Is(err, redis.Nil) {
		v = decode(kind, reply)
		return v, v.Fate == node.Done
	}
	if answered, permanent := fromServer(err); answered {
		return node.Failed(err, permanent), true
	}
	if dial := (*dialError)(nil); errors.As(err, &dial) {
		return node.NotSent(l.own(err)), false
	}
	return node.Unanswered(l.own(err)), false
}

// own keeps the lane's own limits and its end apart from the caller's: only the caller's context may make an
// error match context.DeadlineExceeded or context.Canceled, and the time-out of a dial does so by itself.
func (l *lane) own(err error) error {
	switch {
	case l.ctx.Err() != nil:
		return errClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errors.New(err.Error())
	default:
		return err
	}
}

func firstWithoutScript(votes []node.Vote) int {
	for i, v := range votes {
		if v.Err != nil && redis.HasErrorPrefix(v.Err, "NOSCRIPT") {
			return i
		}
	}
	return -1
}

// command is a Redis command that go-redis does not repeat by itself: a lost answer does not mean that nothing
// happened.
type command struct{ *redis.Cmd }

// NoRetry is true.
func (command) NoRetry() bool { return true }

func unsent(err error) *node.Vote {
	v := node.NotSent(err)
	return &v
}
