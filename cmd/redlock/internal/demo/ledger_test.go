package demo

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redquorum/locks/fencing"
)

// verdict is which holds and writes, by their workers, are part of a breach.
type verdict map[offence]map[string]bool

func (v verdict) add(o offence, worker string) {
	if v[o] == nil {
		v[o] = map[string]bool{}
	}
	v[o][worker] = true
}

// plainly judges by comparing everything with everything, as the definitions say.
func plainly(holds, writes []hold) verdict {
	v := verdict{}
	for i, h := range holds {
		for j, o := range holds {
			if i == j || h.name != o.name {
				continue
			}
			sooner := o.first < h.first || o.first == h.first && (o.last < h.last || o.last == h.last && j < i)
			if sooner && h.first < o.last && o.first < h.last {
				v.add(overlap, h.worker)
			}
			if o.last < h.first && o.token >= h.token || sooner && o.token == h.token {
				v.add(disorder, h.worker)
			}
		}
	}
	for i, w := range writes {
		for _, o := range writes[:i] {
			if o.name == w.name && w.last < o.first {
				v.add(accepted, w.worker)
			}
		}
	}
	return v
}

func compare(t *testing.T, holds, writes []hold) {
	t.Helper()
	got := verdict{}
	for _, b := range judge(holds, writes) {
		if got[b.offence][b.hold.worker] {
			t.Errorf("%v %v: twice: %v", holds, writes, b)
		}
		got.add(b.offence, b.hold.worker)
	}
	want := plainly(holds, writes)
	for _, o := range []offence{overlap, disorder, accepted, wronged} {
		for worker := range want[o] {
			if !got[o][worker] {
				t.Errorf("%v %v: offence %d of %s was not seen", holds, writes, o, worker)
			}
		}
		for worker := range got[o] {
			if !want[o][worker] {
				t.Errorf("%v %v: offence %d of %s was not committed", holds, writes, o, worker)
			}
		}
	}
}

// every calls f with all sequences of n holds of one name whose times are below end and whose tokens are up to most.
func every(n int, end time.Duration, most fencing.Token, f func([]hold)) {
	sequence := make([]hold, 0, n)
	var grow func()
	grow = func() {
		if len(sequence) == n {
			f(sequence)
			return
		}
		for first := range end {
			for last := first; last < end; last++ {
				for token := fencing.Token(1); token <= most; token++ {
					sequence = append(sequence, hold{"name", strconv.Itoa(len(sequence)), token, first, last})
					grow()
					sequence = sequence[:len(sequence)-1]
				}
			}
		}
	}
	grow()
}

func TestTheJudgeAgreesWithItsPlainTwinOnEverythingSmall(t *testing.T) {
	t.Parallel()
	judged := func(holds []hold) { compare(t, holds, nil) }
	every(2, 5, 3, judged)
	every(3, 4, 3, judged)
	every(4, 3, 2, judged)
	every(4, 3, 1, func(writes []hold) { compare(t, nil, writes) })
}

func TestTheJudgeAgreesWithItsPlainTwinAtRandom(t *testing.T) {
	t.Parallel()
	random := func(most int) []hold {
		holds := make([]hold, rand.N(most))
		for i := range holds {
			first := rand.N(time.Duration(2 * most))
			holds[i] = hold{names[rand.N(len(names))], strconv.Itoa(i), 1 + rand.N(fencing.Token(2*most)), first, first + rand.N[time.Duration](8)}
		}
		return holds
	}
	for range 2000 {
		compare(t, random(30), random(30))
	}
}

func TestWhatIsNoBreach(t *testing.T) {
	t.Parallel()
	for name, holds := range map[string][]hold{
		"nothing":             nil,
		"one after the other": {{"a", "1", 1, 0, 4}, {"a", "2", 2, 5, 5}, {"a", "1", 3, 6, 9}},
		"ends that touch":     {{"a", "1", 1, 0, 4}, {"a", "2", 2, 4, 9}},
		"different names":     {{"a", "1", 2, 0, 9}, {"b", "2", 1, 3, 5}},
	} {
		if found := judge(holds, holds); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestTheWordsForABreach(t *testing.T) {
	t.Parallel()
	a, b := hold{"orders", "worker 1", 7, time.Second, 3 * time.Second}, hold{"orders", "worker 2", 8, 2 * time.Second, 4 * time.Second}
	for _, tt := range []struct {
		breach breach
		want   string
	}{
		{breach{overlap, b, a}, "orders: worker 1 (token 7) was at work until 3s, worker 2 (token 8) from 2s on"},
		{breach{disorder, b, a}, "orders: worker 2 (token 8) has a token that is not above that of worker 1 (token 7) before it"},
		{breach{accepted, a, b}, "orders: the store accepted a stale write of worker 1 (token 7) after worker 2 (token 8) had written"},
		{breach{offence: wronged, hold: a}, "orders: the store refused a write of worker 1 (token 7), whose lease was valid"},
	} {
		if got := tt.breach.String(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestTheLedgerKeepsCount(t *testing.T) {
	t.Parallel()
	l := newLedger()
	first, second := hold{"orders", "worker 1", 1, 1, 5}, hold{"orders", "worker 2", 2, 6, 9}
	for _, h := range []hold{first, second} {
		l.granted(h.name)
		l.enter(h)
		l.wrote(h)
		l.wrote(h)
		if present := l.report().present["orders"]; len(present) != 1 || present[0] != h {
			t.Errorf("present: %v, want %v", present, h)
		}
		l.leave(h)
	}
	l.turnedAway(first, false)
	r := l.report()
	if r.total != 2 || r.handOvers != 1 || r.refused != 1 || len(r.breaches) != 0 || len(r.present["orders"]) != 0 {
		t.Errorf("%+v", r)
	}
	l.wrote(first) // it had been succeeded
	l.turnedAway(second, true)
	if r := l.report(); r.count(accepted) != 1 || r.count(wronged) != 1 || r.refused != 1 {
		t.Errorf("%+v", r)
	}
}
