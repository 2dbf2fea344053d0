package drift_test

import (
	"math/rand/v2"
	"testing"
	"testing/quick"
	"time"

	"github.com/redquorum/locks/internal/drift"
)

func TestValidity(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ttl, elapsed time.Duration
		factor       float64
		want         time.Duration
	}{
		{"ten seconds, one per cent", 10 * time.Second, 0, 0.01, 9898 * time.Millisecond},
		{"a round of 200 ms", 10 * time.Second, 200 * time.Millisecond, 0.01, 9698 * time.Millisecond},
		{"no factor leaves the floor", time.Second, 0, 0, 998 * time.Millisecond},
		{"the least TTL", 10 * time.Millisecond, 0, 0.01, 7900 * time.Microsecond},
		{"used up to the microsecond", 100 * time.Millisecond, 97 * time.Millisecond, 0.01, 0},
		{"round as long as the lease", time.Second, time.Second, 0.01, -12 * time.Millisecond},
	} {
		if got := drift.Validity(tt.ttl, tt.elapsed, tt.factor); got != tt.want {
			t.Errorf("%s: Validity(%v, %v, %v) = %v, want %v", tt.name, tt.ttl, tt.elapsed, tt.factor, got, tt.want)
		}
	}
}

func TestNothingIsLeftWhenTheLeaseIsUsedUp(t *testing.T) {
	property := func(ttl, over uint32, factor uint8) bool {
		ttlD, elapsed := time.Duration(ttl), time.Duration(ttl)+time.Duration(over)
		return drift.Validity(ttlD, elapsed, float64(factor)/512) <= 0
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

// I4: whatever the node's clock did within the drift factor, the holder stops before the node lets another in.
func TestValidityEndsBeforeTheEarliestExpiryOnANode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		ttl := 10*time.Millisecond + rand.N(time.Hour)
		factor := rng.Float64() * 0.1
		sent := rand.N(ttl)              // from t0 until the node got the operation
		round := sent + rand.N(ttl)      // from t0 until the round was won
		rate := 1 + factor*rng.Float64() // the node's clock runs ahead of ours by up to the factor
		granularity := time.Millisecond  // Redis counts whole milliseconds
		expiry := sent + time.Duration(float64(ttl-granularity)/rate)
		if deadline := round + drift.Validity(ttl, round, factor); deadline >= expiry {
			t.Fatalf("ttl %v, factor %v, sent %v, round %v: trusted until %v, but free on the node at %v", ttl, factor, sent, round, deadline, expiry)
		}
	}
}

func TestSystemClockCountsAtLeastRunningTime(t *testing.T) {
	var clock drift.System
	start, plain := clock.Now(), time.Now()
	for time.Since(plain) < time.Millisecond {
		continue
	}
	if d := clock.Since(start); d < time.Millisecond || d > time.Minute {
		t.Errorf("Since = %v after a millisecond", d)
	}
}
