package redisnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/redistest"
)

const limit = 200 * time.Millisecond

func openLane(t *testing.T, s *redistest.Server) *Node {
	t.Helper()
	n := Open(s.Addr, &redis.Options{Addr: s.Addr}, limit)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// answers collects votes in the order in which they came.
type answers struct {
	mu    sync.Mutex
	calls []*node.Call
	each  chan *node.Call
}

func newAnswers() *answers { return &answers{each: make(chan *node.Call, 100_000)} }

func (a *answers) Reply(c *node.Call) {
	a.mu.Lock()
	a.calls = append(a.calls, c)
	a.mu.Unlock()
	a.each <- c
}

func (a *answers) next(t *testing.T) node.Vote {
	t.Helper()
	select {
	case c := <-a.each:
		v, _ := c.Vote()
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("no answer")
		return node.Vote{}
	}
}

func op(kind node.Kind, name, holder string) *node.Op {
	keys, err := node.NewKeys("lock", name)
	if err != nil {
		panic(err)
	}
	return &node.Op{Kind: kind, Keys: []node.Keys{keys}, Holder: holder, TTL: time.Minute, Floor: time.Now().UnixMicro(), Retain: time.Hour}
}

func call(to node.Receiver, kind node.Kind, name, holder string) *node.Call {
	return &node.Call{Op: op(kind, name, holder), To: to}
}

// Had only the acquire been sent again, it would have come after its release and stayed for its whole TTL.
func TestALostScriptInTheMiddleOfABatchLeavesNoOrphan(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	ctx := context.Background()
	s.DB.ScriptLoad(ctx, releaseLua) // the release could run at once, the acquire could not
	a := newAnswers()
	batch := []*node.Call{
		call(a, node.Acquire, "x", "a"), call(a, node.Release, "x", "a"),
		call(a, node.Acquire, "y", "b"), call(a, node.Release, "y", "b"),
	}
	if !n.lane.send(batch) {
		t.Fatal("the connection failed")
	}
	for i, c := range a.calls {
		if v, _ := c.Vote(); v.Verdict != node.Granted {
			t.Errorf("call %d: %+v", i, v)
		}
	}
	if keys := s.Keys("lock:*"); len(keys) != 0 {
		t.Errorf("left behind: %q", keys)
	}
}

func TestScriptFlushIsInvisible(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	a := newAnswers()
	for i := range 200 {
		holder := fmt.Sprint(i)
		if i%10 == 0 {
			s.DB.ScriptFlush(context.Background())
		}
		n.Put(call(a, node.Acquire, "x", holder))
		n.Put(call(a, node.Release, "x", holder))
	}
	for range 400 {
		if v := a.next(t); v.Verdict != node.Granted {
			t.Fatalf("%+v", v)
		}
	}
}

func TestCallsReachTheNodeInOrder(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	a := newAnswers()
	const calls = 3000
	var sent []*node.Call
	for i := range calls {
		c := call(a, node.Acquire, fmt.Sprint(i/2), "h")
		if i%2 == 1 {
			c = call(a, node.Release, fmt.Sprint(i/2), "h")
		}
		sent = append(sent, c)
		n.Put(c)
	}
	for i := range calls {
		if v := a.next(t); v.Verdict != node.Granted {
			t.Fatalf("answer %d: %+v", i, v)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.calls, sent) {
		t.Error("the answers are out of order")
	}
	if keys := s.Keys("lock:*"); len(keys) != 0 {
		t.Errorf("%d locks are left", len(keys))
	}
}

func TestADeadNodeLeavesNothingInDoubt(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	a := newAnswers()
	n.Put(call(a, node.Verify, "x", "a"))
	a.next(t)
	s.Kill()
	n.Put(call(a, node.Acquire, "x", "a")) // may be sent into the dead connection
	a.next(t)
	for range 50 {
		start := time.Now()
		n.Put(call(a, node.Acquire, "x", "a"))
		v := a.next(t)
		if v.Fate != node.Unsent || !errors.Is(v.Err, syscall.ECONNREFUSED) {
			t.Fatalf("%+v", v)
		}
		if d := time.Since(start); d > limit {
			t.Fatalf("a refused connection took %v", d)
		}
	}
	s.Restart()
	s.WaitUp()
	redistest.Eventually(t, time.Second, "the node is used again", func() bool {
		n.Put(call(a, node.Acquire, "x", "a"))
		return a.next(t).Verdict == node.Granted
	})
}

func TestAFrozenNodeFailsWithinTheLimitAndComesBack(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	a := newAnswers()
	n.Put(call(a, node.Verify, "x", "a"))
	a.next(t)
	s.Freeze()
	defer s.Thaw()
	start := time.Now()
	n.Put(call(a, node.Acquire, "x", "a"))
	v := a.next(t)
	if d := time.Since(start); v.Fate != node.InDoubt || d > 3*limit {
		t.Fatalf("after %v: %+v", d, v)
	}
	if errors.Is(v.Err, context.DeadlineExceeded) {
		t.Errorf("the lane's own limit looks like the caller's: %v", v.Err)
	}
	// From now on the node is asked whether it is there before anything is sent.
	n.Put(call(a, node.Acquire, "x", "b"))
	if v := a.next(t); v.Fate != node.Unsent {
		t.Errorf("while frozen: %+v", v)
	}
	s.Thaw()
	redistest.Eventually(t, time.Second, "the node is used again", func() bool {
		n.Put(call(a, node.Verify, "x", "b"))
		return a.next(t).Err == nil
	})
}

func TestTheQueueOfAFrozenNodeIsBounded(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	a := newAnswers()
	n.Put(call(a, node.Verify, "x", "a"))
	a.next(t)
	s.Freeze()
	defer s.Thaw()
	full := 0
	const calls = maxQueue + maxBatch + 1000
	for range calls {
		n.Put(call(a, node.Verify, "x", "a"))
	}
	for range calls {
		v := a.next(t)
		if errors.Is(v.Err, errFull) {
			full++
		}
	}
	if full < 500 || full > 1000+maxBatch {
		t.Errorf("%d of %d calls were turned away", full, calls)
	}
}

func TestADroppedCallIsNeverSent(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	a := newAnswers()
	n.Put(call(a, node.Verify, "x", "a"))
	a.next(t)
	s.Freeze()
	n.Put(call(a, node.Verify, "x", "a")) // occupies the lane
	time.Sleep(limit / 10)
	late := call(a, node.Acquire, "x", "a")
	n.Put(late)
	if !late.Drop() {
		t.Fatal("it was sent already")
	}
	s.Thaw()
	a.next(t)
	n.Put(call(a, node.Verify, "x", "a"))
	if v := a.next(t); v.Reason != node.Missing {
		t.Errorf("the dropped acquire was sent: %+v", v)
	}
}

func TestCloseAnswersWhatIsQueued(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	n := openLane(t, s)
	a := newAnswers()
	n.Put(call(a, node.Verify, "x", "a"))
	a.next(t)
	s.Freeze()
	defer s.Thaw()
	for range 10 {
		n.Put(call(a, node.Acquire, "x", "a"))
	}
	start := time.Now()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d >= limit {
		t.Errorf("Close took %v, it waited for the frozen node", d)
	}
	for range 10 {
		if v := a.next(t); v.Verdict != node.Unknown || !errors.Is(v.Err, errClosed) {
			t.Errorf("%+v", v)
		}
	}
	n.Put(call(a, node.Acquire, "x", "a"))
	if v := a.next(t); v.Fate != node.Unsent {
		t.Errorf("after Close: %+v", v)
	}
}

// go-redis repeats a command whose answer was lost, unless it is told not to. A repeated script would draw two
// numbers, and count twice.
func TestALostAnswerIsNotRepeatedByTheClient(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	user := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: limit}) // three retries by default
	t.Cleanup(func() { _ = user.Close() })
	n := Over("user", user)
	t.Cleanup(func() { _ = n.Close() })
	a := newAnswers()
	n.Put(call(a, node.Acquire, "x", "a"))
	a.next(t)
	before := s.Calls("evalsha")
	s.Freeze()
	n.Put(call(a, node.Acquire, "x", "a"))
	v := a.next(t)
	s.Thaw()
	if v.Fate != node.InDoubt {
		t.Fatalf("%+v", v)
	}
	redistest.Eventually(t, 5*time.Second, "the late command ran", func() bool { return s.Calls("evalsha") > before })
	time.Sleep(limit)
	if ran := s.Calls("evalsha") - before; ran != 1 {
		t.Errorf("the command ran %d times", ran)
	}
}
