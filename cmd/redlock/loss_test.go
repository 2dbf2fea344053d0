//go:build unix

package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/redistest"
)

// I4, CLI-01: a command that ignores TERM is dead before another could hold the lock, that is before the TTL of the
// last extension that the nodes saw has passed.
func TestKilledBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	const ttl, killAfter = 4 * time.Second, time.Second
	servers := redistest.Start(t, 3)
	path, _ := file(t, "stamps")
	r := start(t, redistest.URLs(servers), "run", "--ttl", ttl.String(), "--kill-after", killAfter.String(), "job", "--", program(stampName), path)
	redistest.Eventually(t, 20*time.Second, "the command runs", exists(path))
	end := freezeAfterExtension(t, servers, ttl)
	r.expectText(exitLeaseLost, "the lease was not extended in time") // and perhaps that the release failed
	last, term := stamps(t, path)
	t.Logf("TERM %v, last sign of life %v before the end", end.Sub(term), end.Sub(last))
	if !last.Before(end) {
		t.Errorf("the command ran %v past the lease", last.Sub(end))
	}
	if term.IsZero() || last.Sub(term) < killAfter/2 {
		t.Errorf("TERM came at %v, the last sign of life at %v: no time to end", term, last)
	}
}

// freezeAfterExtension freezes the servers soon after an extension, and returns when the lock will be free if that
// was the last.
func freezeAfterExtension(t *testing.T, servers []*redistest.Server, ttl time.Duration) time.Time {
	t.Helper()
	for give := time.Now().Add(20 * time.Second); time.Now().Before(give); time.Sleep(5 * time.Millisecond) {
		asked := time.Now()
		left, err := servers[0].DB.PTTL(t.Context(), "lock:job").Result()
		if err != nil {
			t.Fatal(err)
		}
		answered := time.Now()
		if left < ttl-200*time.Millisecond || answered.Sub(asked) > 20*time.Millisecond {
			continue
		}
		for _, s := range servers {
			s.Freeze()
		}
		if time.Since(asked) < 500*time.Millisecond { // the next extension was not due yet
			return answered.Add(left)
		}
		for _, s := range servers {
			s.Thaw()
		}
	}
	t.Fatal("the servers could not be frozen soon enough after an extension")
	return time.Time{}
}

// stamps returns the last time in a file of stamps, and when TERM came.
func stamps(t *testing.T, path string) (last, term time.Time) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		number, isTerm := strings.CutPrefix(strings.TrimSpace(line), "TERM ")
		ns, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue // cut off by KILL
		}
		last = time.Unix(0, ns)
		if isTerm {
			term = last
		}
	}
	return last, term
}

// An outage that ends before the lease is at risk does the command no harm.
func TestShortOutage(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	servers := redistest.Start(t, 3)
	begun, touch := file(t, "begun")
	on, goOn := file(t, "on")
	r := start(t, redistest.URLs(servers), "run", "--ttl", ttl.String(), "--kill-after", "500ms", "job", "--",
		"sh", "-c", "touch "+touch+"; until [ -e "+goOn+" ]; do sleep 0.02; done; exit 3")
	redistest.Eventually(t, 20*time.Second, "the command runs", exists(begun))
	freezeAfterExtension(t, servers, ttl)
	time.Sleep(1800 * time.Millisecond) // over the next extension, which was due a third of the TTL after the last
	for _, s := range servers {
		s.Thaw()
	}
	redistest.Eventually(t, 10*time.Second, "the lease is extended", func() bool {
		left, err := servers[0].DB.PTTL(t.Context(), "lock:job").Result()
		return err == nil && left > ttl/2
	})
	writeFile(t, on, "", 0o600)
	r.expect(3, 0, "")
	awaitFree(t, servers, "job")
}

// A loss that the nodes prove ends the command at once.
func TestProvenLoss(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	path, _ := file(t, "stamps")
	r := start(t, redistest.URLs(servers), "run", "--ttl", "2s", "job", "--", program(stampName), path)
	redistest.Eventually(t, 20*time.Second, "the command runs", exists(path))
	for _, s := range servers {
		if err := s.DB.Del(t.Context(), "lock:job").Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.expect(exitLeaseLost, 1, "lease lost: most nodes do not hold it any more")
	expectStill(t, path)
}

// A redlock that was stopped past its lease tells so, whether its command still runs or has ended in that time.
func TestStoppedPastTheLease(t *testing.T) {
	t.Parallel()
	nodes := redistest.URLs(redistest.Start(t, 3))
	path, word := file(t, "begun")
	on, goOn := file(t, "on")
	stamped, _ := file(t, "stamps")
	runs := start(t, nodes, "run", "--ttl", "1s", "job", "--", program(stampName), stamped)
	ends := start(t, nodes, "run", "--ttl", "1s", "other", "--", "sh", "-c", "touch "+word+"; until [ -e "+goOn+" ]; do sleep 0.02; done")
	redistest.Eventually(t, 20*time.Second, "one command runs", exists(stamped))
	redistest.Eventually(t, 20*time.Second, "the other runs", exists(path))
	_, _ = runs.cmd.Process.Signal(syscall.SIGSTOP), ends.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(1100 * time.Millisecond)
	writeFile(t, on, "", 0o600)
	time.Sleep(200 * time.Millisecond)
	_, _ = runs.cmd.Process.Signal(syscall.SIGCONT), ends.cmd.Process.Signal(syscall.SIGCONT)
	runs.expect(exitLeaseLost, 1, "lease lost: its time ran out")
	ends.expect(exitLeaseLost, 1, "lease lost: its time ran out")
	expectStill(t, stamped)
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	begin := time.Now()
	r := start(t, redistest.URLs(servers), "run", "--max-hold", "1s", "job", "--", "sleep", "20")
	r.expect(exitLeaseLost, 1, "the maximum hold was reached")
	if lasted := time.Since(begin); lasted < 300*time.Millisecond {
		t.Errorf("it lasted %v", lasted)
	}
	awaitFree(t, servers, "job")
}
