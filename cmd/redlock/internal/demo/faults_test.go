package demo

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A careful fleet notes whether its masters are harmed by the rules.
type careful struct {
	t      *testing.T
	down   int // masters that are harmed at the moment
	mended time.Time
	calm   <-chan struct{}
	harms  int
}

func (c *careful) fault(state string, lasts time.Duration) fault {
	return fault{state: state, how: "for a test", lasts: lasts, harm: func(master int) (func() error, error) {
		c.down++
		if c.down > 1 {
			c.t.Errorf("master %d is %s while another is in trouble", master, state)
		}
		if !c.mended.IsZero() && time.Since(c.mended) <= ttl {
			c.t.Errorf("master %d is %s only %v after the last fault", master, state, time.Since(c.mended))
		}
		c.harms++
		begun := time.Now()
		return func() error {
			c.down--
			c.mended = time.Now()
			select {
			case <-c.calm:
			default:
				if time.Since(begun) < lasts {
					c.t.Errorf("master %d came back after %v, while somebody was at work", master, time.Since(begun))
				}
			}
			return nil
		}, nil
	}}
}

func TestFaultsComeOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calm := make(chan struct{})
		c := &careful{t: t, calm: calm}
		s := newSchedule(newEmbedded(), newLedger(), func(string, ...any) {})
		s.faults = []fault{c.fault("stopped", disturbance), c.fault("wiped", absence)}
		ctx, cancel := context.WithTimeout(t.Context(), 10*(disturbance+respite))
		defer cancel()
		if err := s.run(ctx, calm); err != nil {
			t.Error(err)
		}
		if survived, all, _ := s.tally(); c.harms < 10 || all != c.harms || survived != 0 {
			t.Errorf("%d faults, of which %d were counted, and %d survived without a single lease", c.harms, all, survived)
		}
		for i, state := range s.states() {
			if state != "" {
				t.Errorf("master %d is still %s", i, state)
			}
		}
	})
}

func TestAMasterIsMendedOnlyWhenAllIsCalm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calm := make(chan struct{})
		c := &careful{t: t, calm: calm}
		s := newSchedule(newEmbedded(), newLedger(), func(string, ...any) {})
		s.faults = []fault{c.fault("wiped", absence)}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(prelude+absence/2, cancel)
		time.AfterFunc(time.Minute, func() { close(calm) })
		start := time.Now()
		if err := s.run(ctx, calm); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Minute || c.down != 0 {
			t.Errorf("it ended after %v with %d masters in trouble", took, c.down)
		}
	})
}

func TestAMasterThatCannotBeHarmedEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("no permission")
		s := newSchedule(newEmbedded(), newLedger(), func(string, ...any) {})
		s.faults = []fault{{state: "stopped", lasts: disturbance, harm: func(int) (func() error, error) { return nil, why }}}
		if err := s.run(t.Context(), nil); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}
