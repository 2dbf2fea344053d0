package demo

import (
	"fmt"
	"time"

	"github.com/redquorum/locks/internal/drift"
	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/node/memnode"
	"github.com/redquorum/locks/redlock"
)

// slowness is how long a round trip to a slowed embedded master takes: longer than anybody wants to wait, shorter
// than the node timeout.
const slowness = 60 * time.Millisecond

// embedded is a fleet of masters in the memory of this process.
type embedded []*memnode.Node

func newEmbedded() embedded {
	e := make(embedded, size)
	for i := range e {
		e[i] = memnode.New(fmt.Sprintf("master %d", i+1), nodeTimeout)
	}
	return e
}

func (e embedded) String() string {
	return fmt.Sprintf("%d masters in the memory of this process", len(e))
}

func (e embedded) connect(s sabotage, opts ...redlock.ClientOption) (*redlock.Client, error) {
	nodes := make([]node.Node, len(e))
	for i, n := range e {
		nodes[i] = link{n}
	}
	// The masters' keys expire by the wall clock, also while the machine is suspended: so must the leases.
	return redlock.NewOver(s.bend(nodes), s.clock(drift.System{}), opts...)
}

func (e embedded) faults() []fault {
	return []fault{
		{"stopped", "connections are refused, its keys are kept", disturbance, e.stop},
		{"slowed", fmt.Sprintf("a round trip takes %v", slowness), disturbance, e.slow},
		{"frozen", "nothing is answered, and all of it is executed later", disturbance, e.freeze},
		{"wiped", "it comes back empty, after more than a TTL", absence, e.wipe},
	}
}

func (e embedded) stop(master int) (mend func() error, err error) {
	e[master].Stop()
	return func() error { e[master].Start(); return nil }, nil
}

func (e embedded) slow(master int) (mend func() error, err error) {
	e[master].Delay(slowness)
	return func() error { e[master].Delay(0); return nil }, nil
}

func (e embedded) freeze(master int) (mend func() error, err error) {
	e[master].Freeze()
	return func() error { e[master].Thaw(); return nil }, nil
}

func (e embedded) wipe(master int) (mend func() error, err error) {
	e[master].Stop()
	e[master].Wipe()
	return func() error { e[master].Start(); return nil }, nil
}

func (e embedded) close() error {
	for _, n := range e {
		if err := n.Close(); err != nil {
			return err
		}
	}
	return nil
}

// link is one client's connection to an embedded master: closing it leaves the master to the other clients.
type link struct{ node.Node }

// Close does nothing.
func (link) Close() error { return nil }
