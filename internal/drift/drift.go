// Package drift decides how long a won round may be trusted, and tells the time that the decision is made by.
package drift

import "time"

// Floor is the constant part of the drift allowance. It covers the millisecond granularity of expiry in Redis
// and a millisecond of scheduling, as in "Distributed Locks with Redis" (redis.io), which suggests a few
// milliseconds beside the proportional part.
const Floor = 2 * time.Millisecond

// Allowance is the drift that is deducted from a lease of ttl: ttl·factor for clocks of different rates, plus
// Floor. A factor of 0.01 tolerates clocks whose rates differ by one per cent.
func Allowance(ttl time.Duration, factor float64) time.Duration {
	return time.Duration(float64(ttl)*factor) + Floor
}

// Validity is what is left of a lease of ttl once elapsed has passed since before its round was sent:
//
//	ttl − elapsed − ttl·factor − 2 ms
//
// The nodes start counting ttl when the round reaches them, which is later than the start of elapsed; so the
// instant at which the validity ends lies before the earliest expiry on any node (I4). Zero or less means that
// there is nothing left to trust: a round won that late is a lost round.
func Validity(ttl, elapsed time.Duration, factor float64) time.Duration {
	return ttl - elapsed - Allowance(ttl, factor)
}
