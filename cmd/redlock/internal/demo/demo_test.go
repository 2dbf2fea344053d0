package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/locks/internal/redistest"
	"github.com/redquorum/locks/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulate is a run on embedded masters in a time of its own: the processor is never too slow for it.
func simulate(t *testing.T, o options) (rep report, s *schedule, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err2 := newRun(o, newEmbedded(), io.Discard)
		if err2 != nil {
			t.Fatal(err2)
		}
		if err := r.play(t.Context()); err != nil {
			t.Fatal(err)
		}
		rep, s = r.ledger.report(), r.schedule
		err = r.verdict(rep)
	})
	return rep, s, err
}

func TestAnHonestRunHasNoBreach(t *testing.T) {
	t.Parallel()
	rep, s, err := simulate(t, options{lasts: 40 * time.Second})
	if err != nil {
		t.Errorf("%v: %v", err, rep.breaches)
	}
	if survived, all, kinds := s.tally(); all < 20 || survived != all {
		t.Errorf("%d of %d faults survived: %s", survived, all, kinds)
	}
	t.Logf("%d leases, %d hand-overs, %d stale writes refused", rep.total, rep.handOvers, rep.refused)
	if rep.total < 300 || rep.handOvers < 200 || rep.refused < 5 {
		t.Errorf("so little: %d leases, %d hand-overs, %d stale writes refused", rep.total, rep.handOvers, rep.refused)
	}
	for _, name := range names {
		if rep.leases[name] == 0 || len(rep.present[name]) != 0 || rep.asleep[name] != "" {
			t.Errorf("%s: %d leases, at the end held by %v", name, rep.leases[name], rep.present[name])
		}
	}
}

func TestSabotageIsSeenInSimulatedTime(t *testing.T) {
	t.Parallel()
	for s, want := range map[sabotage]offence{breakDrift: overlap, breakQuorum: overlap, breakToken: disorder} {
		rep, _, err := simulate(t, options{lasts: 20 * time.Second, sabotage: s})
		if err == nil || rep.count(want) == 0 {
			t.Errorf("%s: %v; of %d breaches none was of kind %d", s, err, len(rep.breaches), want)
		}
	}
}

// execute runs the command in real time.
func execute(ctx context.Context, args ...string) (output string, err error) {
	var out bytes.Buffer
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(ctx)
	return out.String(), err
}

var nothingBroken = regexp.MustCompile(`(?s)stale writes accepted +0\n.*good writes refused +0\n.*tokens out of order +0\n.*overlaps +0\n$`)

func checkHonest(t *testing.T, output string, err error) {
	t.Helper()
	if err != nil || !nothingBroken.MatchString(output) {
		t.Errorf("%v after\n%s", err, output)
	}
}

func TestOnEmbeddedMasters(t *testing.T) {
	t.Parallel()
	output, err := execute(t.Context(), "--for", "3s")
	checkHonest(t, output, err)
}

func TestOnRedisServers(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	output, err := execute(t.Context(), "--for", "4s", "--redis")
	checkHonest(t, output, err)
}

func TestOnGivenMasters(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	args := []string{"--for", "2s"}
	for _, url := range redistest.URLs(servers) {
		args = append(args, "--node", url)
	}
	output, err := execute(t.Context(), args...)
	checkHonest(t, output, err)
	if !strings.Contains(output, "not be harmed") || !regexp.MustCompile(`faults survived +none`).MatchString(output) {
		t.Errorf("given masters were harmed:\n%s", output)
	}
	for _, s := range servers {
		for _, key := range s.Keys("*") {
			left := s.DB.PTTL(t.Context(), key).Val()
			if gone := left == -2; !gone && (left < 0 || left > time.Minute+ttl) {
				t.Errorf("%s stays on %s for %v", key, s.Addr, left)
			}
		}
	}
}

func TestSabotageEndsTheCommandWithAnError(t *testing.T) {
	t.Parallel()
	for _, s := range sabotages {
		t.Run(s, func(t *testing.T) {
			t.Parallel()
			output, err := execute(t.Context(), "--break", s)
			if err == nil || !strings.Contains(err.Error(), "--break="+s) || !strings.Contains(output, "seen: ") {
				t.Errorf("%v after\n%s", err, output)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	output, err := execute(ctx, "--for", "10m")
	checkHonest(t, output, err)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %v to end", took)
	}
}

func TestMastersThatCannotBeReached(t *testing.T) {
	t.Parallel()
	_, err := execute(t.Context(), "--for", "1s", "--node", "redis://127.0.0.1:"+redistest.FreePort(t))
	if !errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("got %v, want %v", err, redlock.ErrNoQuorum)
	}
}

func TestFlagsThatAreNotAcceptable(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--for 10ms is too short":     {"--for", "10ms"},
		"choose one":                  {"--redis", "--node", "redis://a"},
		"want drift, token, quorum":   {"--break", "everything"},
		"malformed URL":               {"--node", "http://a"},
		"unknown command \"surplus\"": {"surplus"},
	} {
		if output, err := execute(t.Context(), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s\n%s", args, err, want, output)
		}
	}
}
