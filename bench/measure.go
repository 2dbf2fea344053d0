package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// allNames is how many names the callers share out among themselves: the same whatever their number, so that the
	// masters have the same number of keys to look after.
	allNames = 8192
	// tolerated is the part of the operations that may fail: on a machine that is so busy that it stands still for
	// longer than a library's time limit, some do. They are told, and not measured.
	tolerated = 0.01
	// patience is how much longer than planned a run may take. redlock waits for masters that have died as long as its
	// context lets it, so without a limit the program would hang.
	patience = 10 * time.Second
	// watchInterval is the time between two counts of the goroutines. They are counted in passing, by one timer, since
	// counting in every operation would be measured with it.
	watchInterval = 2 * time.Millisecond
)

// A figure is one of the things that are measured. Where it says so it is per operation: one acquire and its release.
type figure int

const (
	p50        figure = iota // µs of an operation
	p99                      // µs of an operation
	rate                     // operations per second
	allocs                   // heap allocations, per operation
	goroutines               // the most at any time, beside the callers'
	commands                 // that were sent, to all masters together, per operation
	left                     // lock keys on all masters together when everything was over, per 1000 operations
	figureCount
)

// figures are the results of one run, or the medians of several.
type figures [figureCount]float64

// medians returns the median of each figure by itself.
func medians(runs []figures) figures {
	var m figures
	values := make([]float64, len(runs))
	for f := range m {
		for i := range runs {
			values[i] = runs[i][f]
		}
		slices.Sort(values)
		m[f] = (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	return m
}

// A run is what was seen while a contestant worked.
type run struct {
	took       []time.Duration // every operation that succeeded, in order of length
	failed     []error
	elapsed    time.Duration
	allocs     uint64
	goroutines int
	commands   int
	left       int
}

func (r run) figures() figures {
	ops := float64(len(r.took))
	return figures{
		p50:        micros(r.quantile(0.50)),
		p99:        micros(r.quantile(0.99)),
		rate:       ops / r.elapsed.Seconds(),
		allocs:     float64(r.allocs) / ops,
		goroutines: float64(r.goroutines),
		commands:   float64(r.commands) / ops,
		left:       1000 * float64(r.left) / ops,
	}
}

func (r run) quantile(q float64) time.Duration { return r.took[int(q*float64(len(r.took)-1))] }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// measure lets callers acquire and release locks of the contestant for d, each under names of its own.
func measure(ctx context.Context, m *masters, c contestant, callers int, d time.Duration) (figures, error) {
	present := runtime.NumGoroutine()
	p, err := c.open(m.addrs())
	if err != nil {
		return figures{}, fmt.Errorf("%s: %w", c.name, err)
	}
	r, err := observe(ctx, m, c, p, callers, d)
	err = errors.Join(err, p.close()) // sends what is still to be sent: only then keys are left behind
	if err != nil {
		return figures{}, fmt.Errorf("%s: %w", c.name, err)
	}
	r.goroutines -= present
	if len(r.failed) > 0 {
		fmt.Fprintf(os.Stderr, "bench: %s: %d of %d operations failed, the first with: %v\n",
			c.name, len(r.failed), len(r.failed)+len(r.took), r.failed[0])
	}
	if r.left, err = m.lockKeys(ctx); err != nil {
		return figures{}, err
	}
	return r.figures(), m.flush(ctx)
}

// observe warms the peer up and then looks at what it needs for its work.
func observe(ctx context.Context, m *masters, c contestant, p peer, callers int, d time.Duration) (r run, err error) {
	t := newTeam(p, callers)
	if err := t.work(ctx, d/5); err != nil { // connections get made, scripts loaded, pools filled
		return r, err
	}
	t.forget()
	if err := m.flush(ctx); err != nil {
		return r, err
	}
	before, err := m.calls(ctx, c.sends)
	if err != nil {
		return r, err
	}
	runtime.GC() // what the last run left is not collected in this one
	peak, mallocs, start := watchGoroutines(), mallocCount(), time.Now()
	err = t.work(ctx, d)
	r.elapsed, r.allocs, r.goroutines = time.Since(start), mallocCount()-mallocs, peak()-callers
	if err != nil {
		return r, err
	}
	r.took, r.failed = t.results()
	switch all := len(r.took) + len(r.failed); {
	case all == 0:
		return r, fmt.Errorf("no caller came to its turn within %v", d)
	case float64(len(r.failed)) > tolerated*float64(all):
		return r, fmt.Errorf("%d of %d operations failed, the first with: %w", len(r.failed), all, r.failed[0])
	}
	after, err := m.calls(ctx, c.sends)
	r.commands = after - before
	return r, err
}

func mallocCount() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

// watchGoroutines counts the goroutines until the function that it returns is called, which tells the highest count.
func watchGoroutines() (peak func() int) {
	done, result := make(chan struct{}), make(chan int)
	go func() {
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		for highest := 0; ; {
			highest = max(highest, runtime.NumGoroutine()-1) // itself
			select {
			case <-ticker.C:
			case <-done:
				result <- highest
				return
			}
		}
	}()
	return func() int {
		close(done)
		return <-result
	}
}

// A team is the callers of one run.
type team struct {
	peer    peer
	callers []caller
}

// A caller is one goroutine that locks its own names in turn, so that nobody ever waits for anybody.
type caller struct {
	names  []string
	next   int
	took   []time.Duration
	failed []error
}

func newTeam(p peer, callers int) *team {
	t := &team{peer: p, callers: make([]caller, callers)}
	for i := range t.callers {
		names := make([]string, max(1, allNames/callers))
		for j := range names {
			names[j] = "bench:" + strconv.Itoa(i) + ":" + strconv.Itoa(j)
		}
		// Room for most runs, so that growing it is not measured.
		t.callers[i] = caller{names: names, took: make([]time.Duration, 0, 1+1<<16/callers)}
	}
	return t
}

// work lets the callers work for d. An operation that has begun is finished. Only the end of ctx ends it early.
func (t *team) work(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d+patience)
	defer cancel()
	end := time.Now().Add(d)
	g, ctx := errgroup.WithContext(ctx)
	for i := range t.callers {
		g.Go(func() error { return t.callers[i].work(ctx, t.peer, end) })
	}
	return g.Wait()
}

func (c *caller) work(ctx context.Context, p peer, end time.Time) error {
	for start := time.Now(); start.Before(end); start = time.Now() {
		err := lockOnce(ctx, p, c.names[c.next])
		switch {
		case err == nil:
			c.took = append(c.took, time.Since(start))
		case ctx.Err() != nil:
			return err
		default:
			c.failed = append(c.failed, err)
		}
		c.next = (c.next + 1) % len(c.names)
	}
	return nil
}

func lockOnce(ctx context.Context, p peer, name string) error {
	l, err := p.acquire(ctx, name)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// forget throws away the results so far.
func (t *team) forget() {
	for i := range t.callers {
		c := &t.callers[i]
		c.took, c.failed = c.took[:0], nil
	}
}

// results returns the times of all operations that succeeded, in order of length, and the errors of the others.
func (t *team) results() (took []time.Duration, failed []error) {
	for i := range t.callers {
		took = append(took, t.callers[i].took...)
		failed = append(failed, t.callers[i].failed...)
	}
	slices.Sort(took)
	return took, failed
}
