package main

import (
	"testing"
	"time"
)

func TestPlanNext(t *testing.T) {
	const never = time.Duration(-1)
	p := newPlan(10*time.Second, 5*time.Second, time.Minute)
	for _, test := range []struct {
		name              string
		left, held, asked time.Duration
		want              action
	}{
		{"just extended", 9898 * time.Millisecond, 0, never, carryOn},
		{"extension due", 6500 * time.Millisecond, 0, never, carryOn},
		{"two seconds without an answer", 4500 * time.Millisecond, 0, never, carryOn},
		{"at risk", 3500 * time.Millisecond, 0, never, ask},
		{"asked already", 3400 * time.Millisecond, 0, 100 * time.Millisecond, carryOn},
		{"last moment", 200 * time.Millisecond, 0, 3300 * time.Millisecond, kill},
		{"last moment, not asked in time", 200 * time.Millisecond, 0, never, kill},
		{"over", 0, 0, never, kill},
		{"extended after all, and still not ended", 9 * time.Second, 0, 5 * time.Second, kill},
		{"before the end of the hold", 5300 * time.Millisecond, 54600 * time.Millisecond, never, carryOn},
		{"end of the hold", 5300 * time.Millisecond, 54700 * time.Millisecond, never, ask},
	} {
		if got := p.next(test.left, test.held, test.asked); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

// Whatever the settings: TERM leaves room for two failed extensions in a row, KILL falls before the end, and the
// lease is looked at often enough for that.
func TestPlanFits(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Hour} {
		for _, killAfter := range []time.Duration{0, time.Millisecond, 5 * time.Second, 24 * time.Hour} {
			for _, maxHold := range []time.Duration{0, 10 * time.Millisecond, time.Second, time.Hour} {
				p := newPlan(ttl, killAfter, maxHold)
				tick := p.tick()
				if p.margin <= 0 || tick <= 0 || tick > p.margin/2 {
					t.Errorf("ttl %v: margin %v, tick %v", ttl, p.margin, tick)
				}
				if p.grace > killAfter || p.grace+p.margin+tick > ttl/2 {
					t.Errorf("ttl %v, kill after %v: TERM with %v + %v left", ttl, killAfter, p.grace, p.margin)
				}
				if maxHold > 0 && (p.hold < maxHold/4 || p.hold > maxHold-p.margin-p.grace) {
					t.Errorf("ttl %v, kill after %v, max hold %v: TERM after %v", ttl, killAfter, maxHold, p.hold)
				}
			}
		}
	}
}
