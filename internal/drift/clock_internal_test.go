package drift

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// A suspend shows as time since boot that the monotonic clock did not see.
func TestSystemClockCountsSuspend(t *testing.T) {
	if runtime.GOOS != "linux" {
		start := System{}.Now()
		start.Wall = start.Wall.Add(-time.Hour).Round(0) // as if the wall clock had moved on during the suspend
		if d := (System{}).Since(start); d < time.Hour {
			t.Errorf("Since = %v after a suspend of an hour", d)
		}
		return
	}
	start := System{}.Now()
	if start.boot == 0 {
		t.Fatal("CLOCK_BOOTTIME cannot be read")
	}
	start.boot -= time.Hour // as if an hour of suspend lay between
	if d := (System{}).Since(start); d < time.Hour {
		t.Errorf("Since = %v after a suspend of an hour", d)
	}
}

func TestSystemClockWithoutBootTimeFallsBackToTheWallClock(t *testing.T) {
	start := Instant{Wall: time.Now().Round(0).Add(-time.Hour)}
	if d := (System{}).Since(start); d < time.Hour {
		t.Errorf("the wall clock moved by an hour, Since = %v", d)
	}
	back := Instant{Wall: time.Now().Add(time.Hour).Add(-time.Hour)} // monotonic reading kept
	if d := (System{}).Since(back); d < 0 {
		t.Errorf("Since = %v, time ran backwards", d)
	}
}

// Clients over real connections run in bubbles too, where only time.Now moves.
func TestSystemClockFollowsABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := System{}.Now()
		time.Sleep(time.Hour)
		if d := (System{}).Since(start); d < time.Hour {
			t.Errorf("Since = %v after an hour in a bubble", d)
		}
	})
}
