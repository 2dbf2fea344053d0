package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redquorum/locks/redlock"
)

// run is one run of the demo.
type run struct {
	options  options
	fleet    fleet
	ledger   *ledger
	screen   *screen
	schedule *schedule
	clients  []*redlock.Client
	workers  []*worker
}

func newRun(o options, f fleet, out io.Writer) (*run, error) {
	l := newLedger()
	r := &run{options: o, fleet: f, ledger: l, screen: newScreen(out, l)}
	r.schedule = newSchedule(f, l, r.screen.event)
	prefix := fmt.Sprintf("redlock-demo:%08x", rand.Uint32()) // masters that were given are used for more than this
	for range clients {
		client, err := f.connect(o.sabotage,
			redlock.WithKeyPrefix(prefix),
			redlock.WithTTL(ttl),
			redlock.WithNodeTimeout(nodeTimeout),
			redlock.WithFenceIdleTTL(time.Minute), // so that nothing of the run stays on a master
			redlock.WithRetry(redlock.RetryPolicy{Delay: 40 * time.Millisecond, MaxDelay: ttl}),
		)
		if err != nil {
			return nil, errors.Join(err, r.shutdown())
		}
		r.clients = append(r.clients, client)
	}
	s := newStore(l)
	for i, h := range habits {
		r.workers = append(r.workers, &worker{
			name:   fmt.Sprintf("worker %d", i+1),
			habit:  h,
			client: r.clients[i%clients],
			store:  s,
			ledger: l,
			events: r.screen.event,
		})
	}
	return r, nil
}

// play lets everybody work until the time is over, something goes wrong, or ctx ends.
func (r *run) play(ctx context.Context) error {
	r.announce()
	ctx, end := context.WithTimeout(ctx, r.options.lasts)
	defer end()
	tasks, ctx := errgroup.WithContext(ctx)
	calm := make(chan struct{}) // closed when nobody is at work any more
	tasks.Go(func() error { return r.schedule.run(ctx, calm) })
	tasks.Go(func() error {
		defer close(calm)
		return r.work(ctx)
	})
	r.watch(ctx, end)
	err := tasks.Wait()
	if left := r.shutdown(); left != nil { // of no consequence for the lock
		r.screen.event("not everything was given back, the rest expires: %v", left)
	}
	return err
}

func (r *run) announce() {
	r.screen.event("%d workers in %d clients contend for %s; TTL %v, for %v", len(r.workers), clients, strings.Join(names, ", "), ttl, r.options.lasts)
	r.screen.event("on %v", r.fleet)
	if what := r.options.sabotage.mistake(); what != "" {
		r.screen.event("sabotaged on purpose: %s", what)
	}
}

func (r *run) work(ctx context.Context) error {
	workers, ctx := errgroup.WithContext(ctx)
	for _, w := range r.workers {
		workers.Go(func() error { return w.work(ctx) })
	}
	return workers.Wait()
}

// watch shows the progress until ctx ends. It ends the run some time after the first breach: there is nothing left
// to prove.
func (r *run) watch(ctx context.Context, end func()) {
	ticker := time.NewTicker(r.screen.every)
	defer ticker.Stop()
	var broken time.Time
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		v := r.view()
		r.screen.show(v)
		switch {
		case len(v.report.breaches) == 0:
		case broken.IsZero():
			broken = time.Now()
			r.screen.event("THE LOCK FAILED  %v", v.report.breaches[0])
		case time.Since(broken) > aftermath:
			end()
		}
	}
}

func (r *run) view() view {
	v := view{at: r.ledger.now(), of: r.options.lasts, states: r.schedule.states(), report: r.ledger.report()}
	if survived, all, _ := r.schedule.tally(); all > 0 {
		v.faults = fmt.Sprintf("%d of %d faults survived", survived, all)
	}
	return v
}

// shutdown ends the clients.
func (r *run) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	var all errgroup.Group
	for _, c := range r.clients {
		all.Go(func() error { return c.Shutdown(ctx) })
	}
	return all.Wait()
}

// summary prints what the run has come to.
func (r *run) summary(out io.Writer, rep report) error {
	faults := "none"
	if survived, all, kinds := r.schedule.tally(); all > 0 {
		faults = fmt.Sprintf("%d of %d (%s)", survived, all, kinds)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nafter %v\n", r.ledger.now().Round(time.Second/10))
	for _, line := range []struct {
		what  string
		count any
	}{
		{"leases", rep.total},
		{"hand-overs", rep.handOvers},
		{"faults survived", faults},
		{"stale writes refused", rep.refused},
		{"stale writes accepted", rep.count(accepted)},
		{"good writes refused", rep.count(wronged)},
		{"tokens out of order", rep.count(disorder)},
		{"overlaps", rep.count(overlap)},
	} {
		fmt.Fprintf(&b, "  %-22s %v\n", line.what, line.count)
	}
	for _, o := range []offence{overlap, disorder, accepted, wronged} {
		left := examples
		for _, breach := range rep.breaches {
			if breach.offence == o && left > 0 {
				fmt.Fprintf(&b, "seen: %v\n", breach)
				left--
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// verdict is nil if the lock held, and there was something to hold.
func (r *run) verdict(rep report) error {
	failed := len(rep.breaches) > 0
	switch s := r.options.sabotage; {
	case failed && s != honest:
		return fmt.Errorf("the lock failed, as --break=%s makes it", s)
	case failed:
		return errors.New("the lock failed")
	case s != honest:
		return fmt.Errorf("--break=%s went unnoticed", s)
	case rep.total == 0:
		return errors.Join(errors.New("no lease was granted"), r.ledger.lastFailure())
	}
	return nil
}
