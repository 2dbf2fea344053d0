package node_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/redquorum/locks/internal/node"
)

type counter struct {
	mu    sync.Mutex
	calls int
}

func (c *counter) Reply(*node.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
}

// A call is either sent or dropped, never both: what was dropped needs no withdrawal.
func TestACallIsSentOrDroppedNeverBoth(t *testing.T) {
	for range 2000 {
		c := &node.Call{To: &counter{}}
		var sent, dropped bool
		var wg sync.WaitGroup
		wg.Go(func() { sent = c.Send() })
		wg.Go(func() { dropped = c.Drop() })
		wg.Wait()
		if sent == dropped {
			t.Fatalf("sent %v, dropped %v", sent, dropped)
		}
	}
}

func TestTheFateOfACall(t *testing.T) {
	to := &counter{}
	for _, tt := range []struct {
		name    string
		do      func(c *node.Call)
		want    node.Fate
		replies int
	}{
		{"queued", func(*node.Call) {}, node.Pending, 0},
		{"sent", func(c *node.Call) { c.Send() }, node.Pending, 0},
		{"dropped", func(c *node.Call) { c.Drop() }, node.Unsent, 0},
		{"answered", func(c *node.Call) { c.Send(); c.Answer(node.Vote{Verdict: node.Refused}) }, node.Done, 1},
		{"unanswered", func(c *node.Call) { c.Send(); c.Answer(node.Unanswered(errors.New("reset"))) }, node.InDoubt, 1},
		{"not sent", func(c *node.Call) { c.Answer(node.NotSent(errors.New("refused"))) }, node.Unsent, 1},
		{"dropped, then not sent", func(c *node.Call) { c.Drop(); c.Answer(node.NotSent(errors.New("refused"))) }, node.Unsent, 0},
	} {
		to.calls = 0
		c := &node.Call{To: to}
		tt.do(c)
		if c.Fate() != tt.want || to.calls != tt.replies {
			t.Errorf("%s: fate %v after %d replies, want %v after %d", tt.name, c.Fate(), to.calls, tt.want, tt.replies)
		}
	}
}
