package memnode

import (
	"strconv"
	"time"

	"github.com/redquorum/locks/internal/node"
)

// store is the keyspace of one master. The operations below are the scripts of package redisnode, line by line;
// one conformance suite holds both together.
type store struct {
	keys    map[string]entry
	purgeAt int // number of keys at which expired ones are looked for next
}

type entry struct {
	value   string
	expires int64 // ms since the epoch; 0: never
}

const leastPurge = 1024

// stampTolerance is how far a client's stamp may be off before the master's own clock is used in its place.
const stampTolerance = int64(time.Second / time.Microsecond)

func newStore() *store { return &store{keys: map[string]entry{}, purgeAt: leastPurge} }

// run executes op at the instant now. Time does not pass within an operation.
func (s *store) run(op *node.Op, now time.Time) node.Vote {
	switch op.Kind {
	case node.Acquire:
		return s.acquire(op, now)
	case node.Raise:
		return s.raise(op, now)
	case node.Extend:
		return s.extend(op, now)
	case node.Repair:
		return s.repair(op, now)
	case node.Release:
		return s.release(op, now)
	case node.Verify:
		return s.verify(op, now)
	default:
		return node.Failed(errUnknown, true)
	}
}

func (s *store) acquire(op *node.Op, now time.Time) node.Vote {
	if v := s.take(op, now); v.Verdict != node.Granted {
		return v
	}
	floor, clock := op.Floor, now.UnixMicro()
	if floor-clock > stampTolerance || clock-floor > stampTolerance {
		floor = clock
	}
	number := max(s.number(op.Keys.Fence, now)+1, floor)
	s.keep(op.Keys.Fence, number, op.Retain, now)
	return node.Vote{Verdict: node.Granted, Number: number}
}

// take sets the lock for the holder, unless somebody else has it or the holder has withdrawn.
func (s *store) take(op *node.Op, now time.Time) node.Vote {
	if _, gone := s.get(op.Keys.Gone(op.Holder), now); gone {
		return node.Vote{Verdict: node.Refused, Reason: node.Gone}
	}
	if e, held := s.get(op.Keys.Lock, now); !held {
		s.set(op.Keys.Lock, op.Holder, op.TTL, now)
	} else if e.value != op.Holder {
		return heldBy(e, now)
	}
	return node.Vote{Verdict: node.Granted}
}

func (s *store) raise(op *node.Op, now time.Time) node.Vote {
	if v := s.verify(op, now); v.Verdict != node.Granted {
		return v
	}
	if number := s.number(op.Keys.Fence, now); number >= op.Token {
		return node.Vote{Verdict: node.Refused, Reason: node.Outbid, Number: number}
	}
	s.keep(op.Keys.Fence, op.Token, op.Retain, now)
	return node.Vote{Verdict: node.Granted}
}

func (s *store) extend(op *node.Op, now time.Time) node.Vote {
	if v := s.verify(op, now); v.Verdict != node.Granted {
		return v
	}
	e, _ := s.get(op.Keys.Lock, now)
	if left := e.left(now); left < op.TTL {
		s.set(op.Keys.Lock, op.Holder, op.TTL, now)
	}
	s.keep(op.Keys.Fence, max(s.number(op.Keys.Fence, now), op.Token), op.Retain, now)
	return node.Vote{Verdict: node.Granted}
}

func (s *store) repair(op *node.Op, now time.Time) node.Vote {
	if v := s.take(op, now); v.Verdict != node.Granted {
		return v
	}
	s.keep(op.Keys.Fence, max(s.number(op.Keys.Fence, now), op.Token), op.Retain, now)
	return node.Vote{Verdict: node.Granted}
}

func (s *store) release(op *node.Op, now time.Time) node.Vote {
	v := s.verify(op, now)
	mine := v.Verdict == node.Granted
	if op.Mark > 0 && (!mine || op.MarkAlways) {
		s.set(op.Keys.Gone(op.Holder), "", op.Mark, now)
	}
	if mine {
		delete(s.keys, op.Keys.Lock)
	}
	return v
}

func (s *store) verify(op *node.Op, now time.Time) node.Vote {
	e, held := s.get(op.Keys.Lock, now)
	switch {
	case !held:
		return node.Vote{Verdict: node.Refused, Reason: node.Missing}
	case e.value != op.Holder:
		return heldBy(e, now)
	default:
		return node.Vote{Verdict: node.Granted}
	}
}

func heldBy(e entry, now time.Time) node.Vote {
	return node.Vote{Verdict: node.Refused, Reason: node.Held, Holder: e.value, TTL: e.left(now)}
}

// number reads the fence counter; 0 if there is none.
func (s *store) number(key string, now time.Time) int64 {
	e, _ := s.get(key, now)
	n, _ := strconv.ParseInt(e.value, 10, 64) // only keep writes it
	return n
}

// keep stores value in the fence counter, whose life is never shortened.
func (s *store) keep(key string, value int64, ttl time.Duration, now time.Time) {
	e, ok := s.get(key, now)
	if ok && e.expires == 0 {
		ttl = 0
	} else if ok && ttl > 0 {
		ttl = max(ttl, e.left(now))
	}
	s.set(key, strconv.FormatInt(value, 10), ttl, now)
}

func (s *store) get(key string, now time.Time) (entry, bool) {
	e, ok := s.keys[key]
	if ok && e.expired(now) {
		delete(s.keys, key)
		return entry{}, false
	}
	return e, ok
}

// set stores value for ttl; 0: for ever.
func (s *store) set(key, value string, ttl time.Duration, now time.Time) {
	if len(s.keys) >= s.purgeAt {
		s.purge(now)
		s.purgeAt = max(leastPurge, 2*len(s.keys)) // so that a set costs the same however many are alive
	}
	e := entry{value: value}
	if ttl > 0 {
		e.expires = now.UnixMilli() + ttl.Milliseconds()
	}
	s.keys[key] = e
}

func (s *store) alive(now time.Time) []string {
	s.purge(now)
	keys := make([]string, 0, len(s.keys))
	for key := range s.keys {
		keys = append(keys, key)
	}
	return keys
}

func (s *store) purge(now time.Time) {
	for key, e := range s.keys {
		if e.expired(now) {
			delete(s.keys, key)
		}
	}
}

// expired follows Redis: a key lives until its millisecond is over.
func (e entry) expired(now time.Time) bool { return e.expires != 0 && now.UnixMilli() > e.expires }

// left is what is left of the key's life, negative if it has no end.
func (e entry) left(now time.Time) time.Duration {
	if e.expires == 0 {
		return -time.Millisecond
	}
	return time.Duration(e.expires-now.UnixMilli()) * time.Millisecond
}
