//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/redistest"
)

// Signals reach the whole group: here a process that the command started, and the command.
func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	nodes := redistest.URLs(redistest.Start(t, 3))
	for _, sig := range []string{"INT", "TERM", "HUP", "QUIT"} {
		script := strings.ReplaceAll(`
			exec 2>/dev/null # where the shell tells what became of its sleep
			trap 'echo outer' SIG
			( trap 'echo inner; exit' SIG; kill -SIG $PPID; while :; do sleep 0.02; done )
			exit 5`, "SIG", sig)
		r := start(t, nodes, "run", "job-"+sig, "--", "sh", "-c", script)
		r.expect(5, 0, "")
		if r.stdout.String() != "inner\nouter\n" {
			t.Errorf("%s: stdout is %q", sig, r.stdout.String())
		}
	}
	start(t, nodes, "run", "job", "--", "sh", "-c", "kill -INT $PPID; sleep 20").expect(130, 0, "")
}

// What nohup(1) had ignored stays ignored.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	nodes := redistest.URLs(redistest.Start(t, 1))
	inner := "kill -HUP $PPID; sleep 0.3; kill -HUP $$; exit 4"
	r := start(t, nodes, "run", "job", "--", "sh", "-c", inner)
	r.expect(129, 0, "")

	r = start(t, nodes, "run", "outer", "--", "sh", "-c", `trap '' HUP; exec "$0" run job -- sh -c '`+inner+`'`, program(redlockName))
	r.expect(4, 0, "")
}

// What the command leaves running in its group is gone when the lock is free.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	path, stamps := file(t, "stamps")
	script := program(stampName) + " " + stamps + " >/dev/null 2>&1 & until [ -s " + stamps + " ]; do sleep 0.01; done; exit 6"
	r := start(t, redistest.URLs(servers), "run", "job", "--", "sh", "-c", script)
	r.expect(6, 0, "")
	expectStill(t, path)
	awaitFree(t, servers, "job")
}

// expectStill checks that nobody writes to a file of stamps.
func expectStill(t *testing.T, path string) {
	t.Helper()
	before := size(t, path)
	time.Sleep(200 * time.Millisecond)
	if after := size(t, path); after != before {
		t.Errorf("the stamps go on: %d bytes, then %d", before, after)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A command that nobody reads from any more is not redlock's end: the lock is released, the code passed on.
func TestClosedPipe(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, cmd: redlockCommand(redistest.URLs(servers), "run", "--ttl", "1s", "--max-hold", "200ms", "job", "--", "sleep", "20")}
	r.cmd.Stderr = write
	r.begin()
	_, _ = write.Close(), read.Close()
	if code := r.wait(); code != exitLeaseLost {
		t.Errorf("exit code %d", code)
	}
	awaitFree(t, servers, "job")
}
