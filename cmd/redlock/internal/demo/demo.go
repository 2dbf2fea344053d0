// Package demo is the command `redlock demo`: a dozen workers contend for a few names and write to a store behind a
// fencing guard, while the masters are harmed one after the other. Whether the lock held is not asked of the lock: a
// ledger judges by the times at which the workers really were at work.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/locks/redlock"
)

const (
	// ttl is short so that much happens.
	ttl         = 600 * time.Millisecond
	nodeTimeout = ttl / 6
	// clients is how many clients the workers share: each is what a process of its own would have.
	clients = 4
	// leastRun is the shortest run that shows anything.
	leastRun = time.Second
	// aftermath is how long a run goes on after the first breach, so that what comes of it shows too.
	aftermath = 4 * ttl
	// farewell is how long the clients may take to release what is held at the end.
	farewell = 2 * time.Second
	// examples is how many breaches of a kind the summary quotes.
	examples = 3
)

// names are what the workers contend for.
var names = []string{"orders", "invoices", "reports"}

// options are the command's flags.
type options struct {
	lasts    time.Duration
	sabotage sabotage
	redis    bool
	nodes    []string
}

// Command returns the command `redlock demo`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a dozen workers share a few locks while masters fail",
		Long: `Run twelve workers, in four clients, that contend for three names and write to a
store behind a fencing guard. Five masters in the memory of this process are
stopped, slowed, frozen and wiped, one at a time, and one worker is paused past
its lease.

Whether the lock held is judged by the times at which the workers really were at
work. The command fails if two of them were at work under one name, if a token was
not above all earlier ones, or if the store took a stale write.`,
		Example: `  redlock demo
  redlock demo --for 1m --redis
  redlock demo --break drift
  redlock demo --node redis://10.0.0.1 --node redis://10.0.0.2 --node redis://10.0.0.3`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return cmd.FlagErrorFunc()(cmd, err)
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return cmd.FlagErrorFunc()(cmd, err)
			}
			// Whatever ends the demo early, its servers end with it. That goes for a reader that has left, too.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			err := o.play(ctx, cmd.OutOrStdout())
			if errors.Is(err, redlock.ErrInvalid) { // a URL; the rest is the demo's own
				return cmd.FlagErrorFunc()(cmd, err)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.lasts, "for", 20*time.Second, "how long it runs")
	flags.Var(&o.sabotage, "break", "sabotage the clients on purpose, to see the demo fail")
	flags.BoolVar(&o.redis, "redis", false, "use five redis-server processes, started for this")
	flags.StringArrayVar(&o.nodes, "node", nil, "use the master at this `URL`, repeated for each, and harm none of them")
	// The flag exists, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("break", cobra.FixedCompletions(sabotages, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check says what is wrong with the flags.
func (o options) check() error {
	switch {
	case o.lasts < leastRun:
		return fmt.Errorf("--for %v is too short to show anything; the least is %v", o.lasts, leastRun)
	case o.redis && len(o.nodes) > 0:
		return errors.New("--redis starts masters of its own, --node names others: choose one")
	default:
		return nil
	}
}

// play is a whole run, from the start of the masters to the verdict.
func (o options) play(ctx context.Context, out io.Writer) (err error) {
	f, err := o.fleet(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	r, err := newRun(o, f, out)
	if err != nil {
		return err
	}
	err = r.play(ctx)
	r.screen.close()
	rep := r.ledger.report()
	if err == nil {
		err = r.verdict(rep)
	}
	return errors.Join(r.summary(out, rep), err)
}

func (o options) fleet(ctx context.Context) (fleet, error) {
	switch {
	case o.redis:
		return newProcesses(ctx)
	case len(o.nodes) > 0:
		return newGiven(o.nodes)
	default:
		return newEmbedded(), nil
	}
}
