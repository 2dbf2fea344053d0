package drift

import "time"

// Instant is one reading of a Clock. Only a Clock can compare it with a later one.
type Instant struct {
	// Wall is the wall-clock time of the reading. It carries Go's monotonic reading too.
	Wall time.Time
	boot time.Duration // since boot, suspend included; 0 where the system cannot tell
}

// Clock measures the time that leases are judged by. It must count the time during which the process, or the
// whole machine, did not run: a lease goes on ageing on the nodes while its holder sleeps.
//
// It is a seam for simulated clients, whose clocks have a rate of their own; timers are plain time everywhere.
type Clock interface {
	// Now reads the clock.
	Now() Instant
	// Since returns how long ago start was.
	Since(start Instant) time.Duration
}

// System is the clock of this machine.
//
// On Linux it reads CLOCK_BOOTTIME, which counts suspend (CLOCK_MONOTONIC, and with it time.Since, does not).
// Elsewhere elapsed time is the larger of the monotonic and of the wall clock's difference: a suspend shows on
// the wall clock, and a wall clock that was set back cannot shorten what the monotonic clock saw. A wall clock
// that was set forward ends leases early, which is the safe direction.
type System struct{}

// Now reads the clock.
func (System) Now() Instant { return Instant{Wall: time.Now(), boot: bootTime()} }

// Since returns how long ago start was, never less than what passed while the process ran.
func (System) Since(start Instant) time.Duration {
	elapsed := time.Since(start.Wall) // also in a testing/synctest bubble, which knows no other clock
	if start.boot != 0 {
		return max(elapsed, bootTime()-start.boot)
	}
	return max(elapsed, time.Now().Round(0).Sub(start.Wall.Round(0)))
}

// Plain is time.Now and nothing else: the clock of clients over in-memory nodes, which live in one process
// and in testing/synctest bubbles, where the time of the machine means nothing.
type Plain struct{}

// Now reads the clock.
func (Plain) Now() Instant { return Instant{Wall: time.Now()} }

// Since returns how long ago start was.
func (Plain) Since(start Instant) time.Duration { return time.Since(start.Wall) }
