package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/locks/redlock"
)

const (
	// nodesVariable holds the nodes where no --node is given.
	nodesVariable = "REDLOCK_NODES"
	// patience is how long an outage may last before the wait for its end is told.
	patience = time.Second
)

const runLong = `Run CMD while holding the lock NAME on a majority of the nodes, and release the
lock when CMD has ended. No shell is involved: CMD is executed as it is given.

The lock is held for --ttl and extended again and again while CMD runs. If redlock
dies, the lock is free when the rest of the TTL has passed.

CMD finds in its environment REDLOCK_NAME; REDLOCK_TOKEN, the fencing token, which
is greater than that of every earlier holder, for storage that refuses older ones;
and REDLOCK_HOLDER, the id that the nodes know the lease by: who has it can release
the lock. Standard input, output and error are passed through.

CMD runs in a process group of its own. INT, TERM, HUP and QUIT go on to the whole
group. When CMD ends, what it left running in the group is killed before the lock
is released. A process that starts a session or group of its own gets away from all
of this. CMD gets the terminal when it reads from it; Ctrl-Z does not stop it, as a
stopped holder would only keep the others out.

If the lease cannot be extended in time, TERM goes to the group, and KILL before the
lease is over, so that nothing of CMD runs beside a successor. --kill-after is the
time between the two; it is cut to a third of the TTL, as the rest is needed for
extending the lease. The same happens at the end of --max-hold. If the nodes say
that the lock is gone, or redlock itself was stopped for too long, KILL goes out at
once; what CMD writes then only the fencing token can keep out. A command that runs
as another user, by sudo for example, may not be redlock's to kill.

If redlock is killed, CMD is killed too: by the system, on Linux (only CMD itself,
not what it started) and on Windows. Elsewhere CMD goes on, without the lock.

Exit codes:
  64        the command line, the lock's name or a node's URL is not acceptable
  69        no quorum: too many nodes cannot be used
  75        not acquired: somebody else holds the lock (see -E)
  124       the lease was lost or --max-hold was reached, and CMD was ended
  126, 127  CMD cannot be executed, CMD was not found
  128+N     CMD, or redlock while it waited for the lock, was ended by signal N
  other     the exit code of CMD`

const runExample = `  # Nodes are independent masters, best 3 or 5. In the environment they do not show in ps.
  export REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3

  # Wait as long as it takes.
  redlock run migrate -- ./manage.py migrate

  # From cron on several hosts: skip if it runs elsewhere, and end it after an hour.
  redlock run --wait 0 -E 0 --max-hold 1h nightly -- /usr/local/bin/nightly

  # Give it a minute; a shell must be asked for.
  redlock run --wait 1m reports -- sh -c 'make-report | mail -s report ops'`

// runOptions is what redlock run is asked to do.
type runOptions struct {
	nodes     []string
	ttl       time.Duration
	wait      time.Duration // negative: as long as it takes
	maxHold   time.Duration // 0: no limit
	killAfter time.Duration
	conflict  int // the exit code if somebody else holds the lock

	name   string
	argv   []string
	stderr io.Writer
}

func newRunCommand() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:                   "run [flags] NAME -- CMD [ARG...]",
		Short:                 "Run a command while holding a lock",
		Long:                  runLong,
		Example:               runExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeRun,
		Args:                  func(cmd *cobra.Command, args []string) error { return o.complete(cmd, args) },
		RunE:                  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.nodes, "node", nil, "`URL` of a node, redis://[user:password@]host[:port][/db]; once for each (default: the comma-separated $"+nodesVariable+")")
	f.DurationVar(&o.ttl, "ttl", 10*time.Second, "how long the lock outlives a redlock that died")
	f.DurationVar(&o.wait, "wait", 0, "how long to wait for the lock; 0: do not wait (default: as long as it takes)")
	f.DurationVar(&o.maxHold, "max-hold", 0, "end the command when it has held the lock for so long (default: no limit)")
	f.DurationVar(&o.killAfter, "kill-after", 5*time.Second, "time between TERM and KILL when the command must end, where the lease leaves it")
	f.IntVarP(&o.conflict, "conflict-exit-code", "E", exitNotAcquired, "exit `CODE` if somebody else holds the lock")
	for _, name := range []string{"node", "ttl", "wait", "max-hold", "kill-after", "conflict-exit-code"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions) // fails only for a flag that is not there
	}
	return cmd
}

// completeRun completes the command and its arguments by the files there are; nothing knows the names of locks.
func completeRun(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// complete takes over the arguments and the environment, and refuses what is not acceptable.
func (o *runOptions) complete(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return usageError("want redlock run [flags] NAME -- CMD [ARG...] (see redlock run --help)")
	}
	o.name, o.argv, o.stderr = args[0], args[1:], cmd.ErrOrStderr()
	if len(o.nodes) == 0 {
		o.nodes = splitNodes(os.Getenv(nodesVariable))
	}
	waits := !cmd.Flags().Changed("wait")
	switch {
	case len(o.nodes) == 0:
		return usageError("no nodes: give --node for each, or %s", nodesVariable)
	case o.ttl < redlock.MinDuration:
		return tooShort("ttl", o.ttl)
	case o.wait < 0 || o.wait > 0 && o.wait < redlock.MinDuration:
		return tooShort("wait", o.wait)
	case o.maxHold < 0 || o.maxHold > 0 && o.maxHold < redlock.MinDuration:
		return tooShort("max-hold", o.maxHold)
	case o.killAfter < 0:
		return usageError("--kill-after %v is negative", o.killAfter)
	case o.conflict < 0 || o.conflict > 255:
		return usageError("--conflict-exit-code %d is outside 0 to 255", o.conflict)
	case waits:
		o.wait = -1
	}
	return nil
}

func tooShort(flag string, d time.Duration) error {
	return usageError("--%s %v is below the least duration of %v", flag, d, redlock.MinDuration)
}

// splitNodes returns the URLs of a comma-separated list.
func splitNodes(list string) []string {
	var urls []string
	for u := range strings.SplitSeq(list, ",") {
		if u = strings.TrimSpace(u); u != "" {
			urls = append(urls, u)
		}
	}
	return urls
}

// run runs the command under the lock. Its error has the exit code of everything that can come of it.
func (o *runOptions) run(ctx context.Context) error {
	path, err := exec.LookPath(o.argv[0]) // first: no lock is taken for a command that is not there
	if err != nil {
		return commandError(err)
	}
	client, err := o.open()
	if err != nil {
		return err
	}
	// It may fail to reach nodes that failed before: by then the lock is free on a quorum, or that it is not was told.
	defer func() { _ = client.Close() }()

	signals := catch()
	lease, err := o.acquire(ctx, client, signals)
	if err != nil {
		return err
	}
	acquired := time.Now()
	c, err := startChild(path, o.argv, o.environ(lease))
	if err != nil {
		o.release(lease)
		return commandError(err)
	}
	g := guard{lease: lease, child: c, plan: newPlan(o.ttl, o.killAfter, o.maxHold), acquired: acquired}
	code := g.wait(signals)
	c.sweep() // before the release: what the command left behind must not run beside a successor
	o.release(lease)
	switch {
	case g.why != nil:
		return &exitError{code: exitLeaseLost, err: g.why}
	case code != 0:
		return &exitError{code: code}
	}
	return nil
}

func (o *runOptions) open() (*redlock.Client, error) {
	opts := []redlock.ClientOption{redlock.WithTTL(o.ttl), redlock.WithAutoExtend(true)}
	if o.maxHold > 0 {
		opts = append(opts, redlock.WithMaxHold(o.maxHold))
	}
	client, err := redlock.Open(o.nodes, opts...)
	if err != nil {
		return nil, o.openError(err)
	}
	return client, nil
}

// openError finds the malformed URL, if that is what is wrong. It does not show it: in a malformed URL nobody can
// tell what is the password.
func (o *runOptions) openError(err error) error {
	for i, u := range o.nodes {
		alone, bad := redlock.Open([]string{u})
		if bad != nil {
			return usageError("node %d of %d has a malformed URL, want redis://[user:password@]host[:port][/db]", i+1, len(o.nodes))
		}
		_ = alone.Close() // nothing was sent
	}
	return lockError(err, o.conflict)
}

// acquire takes the lock, unless a signal ends the wait first.
func (o *runOptions) acquire(ctx context.Context, client *redlock.Client, signals <-chan os.Signal) (*redlock.Lease, error) {
	type result struct {
		lease *redlock.Lease
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, 1)
	go func() {
		lease, err := o.lock(ctx, client)
		results <- result{lease, err}
	}()
	select {
	case r := <-results:
		if r.err != nil {
			return nil, lockError(r.err, o.conflict)
		}
		return r.lease, nil
	case sig := <-signals:
		cancel()
		if r := <-results; r.lease != nil { // won in the same moment
			o.release(r.lease)
		}
		number, _ := sig.(syscall.Signal)
		return nil, &exitError{code: exitSignal + int(number), err: fmt.Errorf("ended while waiting for %q: %v", o.name, sig)}
	}
}

// lock makes one attempt, and goes on from there if it may wait.
func (o *runOptions) lock(ctx context.Context, client *redlock.Client) (*redlock.Lease, error) {
	start := time.Now()
	lease, err := client.Mutex(o.name).TryAcquire(ctx)
	outage := errors.Is(err, redlock.ErrNoQuorum)
	if o.wait == 0 || !outage && !errors.Is(err, redlock.ErrNotAcquired) {
		return lease, err
	}
	if outage { // a mistake in the nodes' addresses looks like this, and must not wait in silence
		line := fmt.Errorf("waiting: %s", strings.TrimPrefix(err.Error(), "redlock: "))
		timer := time.AfterFunc(patience, func() { tell(o.stderr, line) })
		defer timer.Stop()
	}
	var opts []redlock.Option
	if o.wait > 0 {
		opts = append(opts, redlock.WithWait(max(redlock.MinDuration, o.wait-time.Since(start))))
	}
	return client.Mutex(o.name, opts...).Acquire(ctx)
}

// environ is the environment of the command. Of two entries of one name exec uses the last, so that a lock within
// a lock tells its own.
func (o *runOptions) environ(lease *redlock.Lease) []string {
	return append(os.Environ(),
		"REDLOCK_NAME="+o.name,
		fmt.Sprintf("REDLOCK_TOKEN=%d", lease.Token()),
		"REDLOCK_HOLDER="+lease.Holder(),
	)
}

// release gives the lock back. A failure changes no exit code: the work is done, and the lock ends with its TTL. It
// is told, unless the lease is known to be lost: then that is told.
func (o *runOptions) release(lease *redlock.Lease) {
	lost := lease.Context().Err() != nil
	if err := lease.Release(context.Background()); err != nil && !lost {
		tell(o.stderr, err)
	}
}
