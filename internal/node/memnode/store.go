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
	number, clock := op.Floor, now.UnixMicro()
	if number-clock > stampTolerance || clock-number > stampTolerance {
		number = clock
	}
	number = max(number, s.highest(op, now)+1)
	for i := range op.Keys {
		s.keep(op.Keys[i].Fence, number, op.Retain, now)
	}
	return node.Vote{Verdict: node.Granted, Number: number}
}

// take sets the locks for the holder, unless somebody else has one of them or the holder has withdrawn.
func (s *store) take(op *node.Op, now time.Time) node.Vote {
	if _, gone := s.get(op.Keys[0].Gone(op.Holder), now); gone {
		return node.Vote{Verdict: node.Refused, Reason: node.Gone}
	}
	for i := range op.Keys {
		if e, held := s.get(op.Keys[i].Lock, now); held && e.value != op.Holder {
			if op.Kind == node.Acquire {
				s.drop(op, i, now)
			}
			return heldBy(e, i, now)
		}
	}
	for i := range op.Keys {
		if _, held := s.get(op.Keys[i].Lock, now); !held {
			s.set(op.Keys[i].Lock, op.Holder, op.TTL, now)
		}
	}
	return node.Vote{Verdict: node.Granted}
}

// drop takes the locks of the first names from the holder.
func (s *store) drop(op *node.Op, names int, now time.Time) {
	for i := range names {
		if e, held := s.get(op.Keys[i].Lock, now); held && e.value == op.Holder {
			delete(s.keys, op.Keys[i].Lock)
		}
	}
}

func (s *store) raise(op *node.Op, now time.Time) node.Vote {
	if v := s.verify(op, now); v.Verdict != node.Granted {
		return v
	}
	if number := s.highest(op, now); number >= op.Token {
		return node.Vote{Verdict: node.Refused, Reason: node.Outbid, Number: number}
	}
	s.lift(op, now)
	return node.Vote{Verdict: node.Granted}
}

func (s *store) extend(op *node.Op, now time.Time) node.Vote {
	if v := s.verify(op, now); v.Verdict != node.Granted {
		return v
	}
	for i := range op.Keys {
		if e, _ := s.get(op.Keys[i].Lock, now); e.left(now) < op.TTL {
			s.set(op.Keys[i].Lock, op.Holder, op.TTL, now)
		}
	}
	s.lift(op, now)
	return node.Vote{Verdict: node.Granted}
}

func (s *store) repair(op *node.Op, now time.Time) node.Vote {
	v := s.take(op, now)
	if v.Verdict == node.Granted {
		s.lift(op, now)
	}
	return v
}

func (s *store) release(op *node.Op, now time.Time) node.Vote {
	refusal := node.Vote{Verdict: node.Granted}
	for i := range op.Keys {
		lock := op.Keys[i].Lock
		e, held := s.get(lock, now)
		switch {
		case held && e.value == op.Holder && op.Rest >= time.Millisecond:
			s.set(lock, node.ReleasedPrefix+op.Holder, op.Rest, now)
		case held && e.value == op.Holder:
			delete(s.keys, lock)
		case held && e.value == node.ReleasedPrefix+op.Holder:
		case refusal.Verdict == node.Granted:
			refusal = s.notHeld(op, i, now)
		}
	}
	if op.Mark > 0 && (refusal.Verdict != node.Granted || op.MarkAlways) {
		s.set(op.Keys[0].Gone(op.Holder), "", op.Mark, now)
	}
	return refusal
}

func (s *store) verify(op *node.Op, now time.Time) node.Vote {
	for i := range op.Keys {
		if v := s.notHeld(op, i, now); v.Verdict != node.Granted {
			return v
		}
	}
	return node.Vote{Verdict: node.Granted}
}

// notHeld is the refusal of a holder that does not have the lock of name i, or a grant if it does.
func (s *store) notHeld(op *node.Op, i int, now time.Time) node.Vote {
	e, held := s.get(op.Keys[i].Lock, now)
	switch {
	case !held:
		return node.Vote{Verdict: node.Refused, Reason: node.Missing, Which: i}
	case e.value != op.Holder:
		return heldBy(e, i, now)
	default:
		return node.Vote{Verdict: node.Granted}
	}
}

func heldBy(e entry, which int, now time.Time) node.Vote {
	return node.Vote{Verdict: node.Refused, Reason: node.Held, Which: which, Holder: e.value, TTL: e.left(now)}
}

// highest is the highest of the names' fence counters.
func (s *store) highest(op *node.Op, now time.Time) (number int64) {
	for i := range op.Keys {
		number = max(number, s.number(op.Keys[i].Fence, now))
	}
	return number
}

// lift brings the names' fence counters to the token, those that are below it.
func (s *store) lift(op *node.Op, now time.Time) {
	for i := range op.Keys {
		counter := op.Keys[i].Fence
		s.keep(counter, max(s.number(counter, now), op.Token), op.Retain, now)
	}
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
