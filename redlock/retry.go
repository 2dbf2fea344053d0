package redlock

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/locks/internal/node"
	"github.com/redquorum/locks/internal/quorum"
)

// RetryPolicy says how Acquire repeats its attempts while the lock is held. Zero fields mean the defaults. The
// delay is an upper bound: Acquire tries earlier when the holder's remaining TTL ends.
type RetryPolicy struct {
	Attempts   int           // at most so many; 0: no limit
	Delay      time.Duration // between two attempts; default 200 ms
	Jitter     time.Duration // the delay varies by ± this; default half of Delay; at most Delay
	Multiplier float64       // the delay grows by this factor with every attempt; default 1
	MaxDelay   time.Duration // the delay grows no further; default 5 s, or Delay if that is longer
}

// problem says what is not acceptable; "" if nothing is.
func (p RetryPolicy) problem() string {
	filled := p.withDefaults()
	switch {
	case p.Attempts < 0:
		return fmt.Sprintf("WithRetry: Attempts is %d, the least is 0 (no limit)", p.Attempts)
	case p.Delay != 0 && (p.Delay < time.Millisecond || p.Delay > MaxDuration):
		return fmt.Sprintf("WithRetry: Delay is %v, it must lie between 1ms and %v (a bare number is nanoseconds)", p.Delay, MaxDuration)
	case p.Jitter < 0 || p.Jitter > filled.Delay:
		return fmt.Sprintf("WithRetry: Jitter is %v, it must lie between 0 and Delay, which is %v", p.Jitter, filled.Delay)
	case math.IsNaN(p.Multiplier) || p.Multiplier != 0 && p.Multiplier < 1:
		return fmt.Sprintf("WithRetry: Multiplier is %v, the least is 1", p.Multiplier)
	case p.MaxDelay != 0 && (p.MaxDelay < filled.Delay || p.MaxDelay > MaxDuration):
		return fmt.Sprintf("WithRetry: MaxDelay is %v, it must lie between Delay, which is %v, and %v", p.MaxDelay, filled.Delay, MaxDuration)
	}
	return ""
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Delay == 0 {
		p.Delay = defaultRetryDelay
	}
	if p.Jitter == 0 {
		p.Jitter = p.Delay / 2
	}
	if p.Multiplier == 0 {
		p.Multiplier = 1
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = max(defaultMaxDelay, p.Delay)
	}
	return p
}

// delay is the pause after the attempt-th attempt, counted from 1.
func (p RetryPolicy) delay(attempt int) time.Duration {
	grown := min(float64(p.Delay)*math.Pow(p.Multiplier, float64(attempt-1)), float64(p.MaxDelay))
	return time.Duration(grown) + p.jitter()
}

func (p RetryPolicy) jitter() time.Duration { return rand.N(2*p.Jitter+1) - p.Jitter }

// outageDelay is the pause after the failure-th attempt in a row without a quorum: it doubles.
func (p RetryPolicy) outageDelay(failure int) time.Duration {
	p.Multiplier = max(p.Multiplier, 2)
	return p.delay(failure)
}

// shortSplits is how many splits in a row are repeated soon. If callers were the reason, one of them has won by then;
// what remains is somebody who died while it had a part of the nodes.
const shortSplits = 7

// splitDelay is the pause after the split-th attempt in a row that nobody can have won: some callers had a part of
// the nodes each. It is short and random, and its range doubles, so that one of any number of callers soon comes
// first.
func splitDelay(split int) time.Duration {
	return rand.N(time.Millisecond << min(split, shortSplits-1))
}

// split reports whether an attempt was lost although no single holder was named by a quorum: the lock may be
// free, and whoever comes back first may have it.
func split(res quorum.Result) bool {
	if res.Unreachable() || res.Late {
		return false
	}
	named := map[string]int{}
	for _, v := range res.Votes {
		if v.Reason == node.Held {
			named[v.Holder]++
			if named[v.Holder] == quorum.Size(len(res.Votes)) {
				return false
			}
		}
	}
	return true
}

// freeIn is the time until the holds that were seen have ended on so many nodes that a quorum could be free;
// negative if that cannot be known.
func freeIn(res quorum.Result) time.Duration {
	var ends []time.Duration
	free := 0
	for _, v := range res.Votes {
		switch {
		case v.Verdict == node.Granted:
			free++
		case v.Reason == node.Held && v.TTL >= 0:
			ends = append(ends, v.TTL+time.Millisecond) // Redis ends a key after its last millisecond
		}
	}
	missing := quorum.Size(len(res.Votes)) - free
	if missing < 1 || missing > len(ends) {
		return -1
	}
	slices.Sort(ends)
	return ends[missing-1]
}
