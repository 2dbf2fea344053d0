//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/redistest"
)

// running is a redlock that was started by a test.
type running struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan error
}

// start starts redlock with the nodes in its environment. It does not outlive the test.
func start(t *testing.T, nodes []string, args ...string) *running {
	t.Helper()
	return startIn(t, nil, nodes, args...)
}

// startIn is start with an environment added.
func startIn(t *testing.T, env, nodes []string, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: redlockCommand(nodes, args...)}
	r.cmd.Env = append(r.cmd.Env, env...)
	r.cmd.Stdin = strings.NewReader("from stdin")
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.begin()
	return r
}

// redlockCommand is a redlock that is not started yet. With the race detector in it, it would sleep for a second
// before it exits.
func redlockCommand(nodes []string, args ...string) *exec.Cmd {
	cmd := exec.Command(program(redlockName), args...)
	cmd.Env = append(os.Environ(), nodesVariable+"="+strings.Join(nodes, ","), "GORACE=atexit_sleep_ms=20")
	return cmd
}

func (r *running) begin() {
	r.t.Helper()
	r.cmd.WaitDelay = 5 * time.Second // should somebody who holds a pipe be left
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.ended = make(chan error, 1)
	go func() { r.ended <- r.cmd.Wait() }()
	r.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
}

// wait returns the exit code; -1 if redlock was killed.
func (r *running) wait() int {
	r.t.Helper()
	select {
	case err := <-r.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			r.t.Fatal(err)
		}
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		r.t.Fatal("redlock does not end")
		return 0
	}
}

// expect checks the exit code, and that stderr is as many lines as said, with a text in them.
func (r *running) expect(code, lines int, text string) {
	r.t.Helper()
	r.expectText(code, text)
	if stderr := r.stderr.String(); strings.Count(stderr, "\n") != lines {
		r.t.Errorf("stderr %q is not of %d lines", stderr, lines)
	}
}

// expectText checks the exit code, and that stderr has a text in it and is of redlock's form.
func (r *running) expectText(code int, text string) {
	r.t.Helper()
	got := r.wait()
	stderr := r.stderr.String()
	if got != code || !strings.Contains(stderr, text) {
		r.t.Errorf("exit code %d, stderr %q; want %d, with %q", got, stderr, code, text)
	}
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "redlock: ") || strings.Count(line, "redlock: ") > 1 {
			r.t.Errorf("line %q does not begin with the program's name, once", line)
		}
	}
}

// file returns a path, and a shell word for it.
func file(t *testing.T, name string) (path, quoted string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	return path, "'" + path + "'"
}

func exists(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

// awaitFree waits until no node has a key of the lock.
func awaitFree(t *testing.T, servers []*redistest.Server, name string) {
	t.Helper()
	redistest.Eventually(t, 5*time.Second, "lock "+name+" is free", func() bool {
		for _, s := range servers {
			if len(s.Keys("lock:"+name)) > 0 {
				return false
			}
		}
		return true
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	nodes := redistest.URLs(servers)
	plain, _ := file(t, "plain")
	script, _ := file(t, "script")
	writeFile(t, plain, "text", 0o600)
	writeFile(t, script, "no interpreter is named", 0o700)
	for _, test := range []struct {
		name   string
		argv   []string
		code   int
		lines  int
		stderr string
	}{
		{name: "success", argv: []string{"true"}},
		{name: "code", argv: []string{"sh", "-c", "exit 3"}, code: 3},
		{name: "code-127", argv: []string{"sh", "-c", "exit 127"}, code: 127},
		{name: "killed", argv: []string{"sh", "-c", "kill -9 $$"}, code: 137},
		{name: "terminated", argv: []string{"sh", "-c", "kill -TERM $$"}, code: 143},
		{name: "not-found", argv: []string{"no-such-command"}, code: 127, lines: 1, stderr: "no-such-command"},
		{name: "no-such-path", argv: []string{"/no/such/command"}, code: 127, lines: 1, stderr: "no such file"},
		{name: "not-executable", argv: []string{plain}, code: 126, lines: 1, stderr: "permission denied"},
		{name: "directory", argv: []string{programs}, code: 126, lines: 1, stderr: "directory"},
		{name: "no-format", argv: []string{script}, code: 126, lines: 1, stderr: "exec format error"},
	} {
		t.Run(test.name, func(t *testing.T) {
			start(t, nodes, append([]string{"run", test.name, "--"}, test.argv...)...).expect(test.code, test.lines, test.stderr)
			awaitFree(t, servers, test.name)
		})
	}
	t.Run("stdin", func(t *testing.T) {
		r := start(t, nodes, "run", "stdin", "--", "cat")
		r.expect(0, 0, "")
		if r.stdout.String() != "from stdin" {
			t.Errorf("stdout is %q", r.stdout.String())
		}
	})
	t.Run("no shell", func(t *testing.T) {
		r := start(t, nodes, "run", "no-shell", "--", "printf", "%s|", "$HOME", "a  b", "--ttl", ";")
		r.expect(0, 0, "")
		if r.stdout.String() != "$HOME|a  b|--ttl|;|" {
			t.Errorf("stdout is %q", r.stdout.String())
		}
	})
	t.Run("flags after the name", func(t *testing.T) {
		start(t, nil, "run", "flags", "--node", nodes[0], "--ttl", "5s", "--", "true").expect(0, 0, "")
	})
	t.Run("invalid name", func(t *testing.T) {
		start(t, nodes, "run", "", "--", "true").expect(64, 1, "the name is empty")
		start(t, nodes, "run", strings.Repeat("n", 513), "--", "true").expect(64, 1, "the limit is 512")
	})
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	outer := []string{"REDLOCK_NAME=outer", "REDLOCK_TOKEN=1", "REDLOCK_HOLDER=outer", "KEPT=kept"}
	r := startIn(t, outer, redistest.URLs(servers), "run", "a name", "--", "env")
	r.expect(0, 0, "")
	for _, want := range []string{`REDLOCK_NAME=a name`, `REDLOCK_TOKEN=[1-9]\d{6,}`, `REDLOCK_HOLDER=[0-9a-f-]{36}`, `KEPT=kept`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(r.stdout.String()) {
			t.Errorf("no %s in %q", want, r.stdout.String())
		}
	}
	if strings.Contains(r.stdout.String(), "=outer\n") {
		t.Errorf("the outer lock's entries are left: %q", r.stdout.String())
	}
}

// Of two at the same time one runs. The winner goes on until the other has given up.
func TestOnlyOneRuns(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	_, ran := file(t, "ran")
	on, goOn := file(t, "on")
	script := "echo $$ >> " + ran + "; until [ -e " + goOn + " ]; do sleep 0.02; done"
	both := []*running{nil, nil}
	ended := make(chan *running, 2)
	for i := range both {
		both[i] = start(t, redistest.URLs(servers), "run", "--wait", "0", "-E", "9", "job", "--", "sh", "-c", script)
		go func() {
			err := <-both[i].ended
			both[i].ended <- err
			ended <- both[i]
		}()
	}
	loser := <-ended
	writeFile(t, on, "", 0o600)
	winner := <-ended
	loser.expect(9, 1, "not acquired")
	winner.expect(0, 0, "")
	if lines, err := os.ReadFile(strings.Trim(ran, "'")); err != nil || bytes.Count(lines, []byte("\n")) != 1 {
		t.Errorf("not exactly one ran: %q, %v", lines, err)
	}
	awaitFree(t, servers, "job")
}

func TestWait(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	nodes := redistest.URLs(servers)
	held, touch := file(t, "held")
	on, goOn := file(t, "on")
	holder := start(t, nodes, "run", "job", "--", "sh", "-c", "touch "+touch+"; until [ -e "+goOn+" ]; do sleep 0.02; done")
	redistest.Eventually(t, 20*time.Second, "the lock is held", exists(held))
	alone := connections(t, servers[0])

	start(t, nodes, "run", "--wait", "0", "job", "--", "true").expect(75, 1, "not acquired")
	start(t, nodes, "run", "--wait", "300ms", "job", "--", "true").expect(75, 1, "wait expired: not acquired")
	start(t, nodes, "run", "--wait", "50ms", "-E", "0", "job", "--", "false").expect(0, 1, "not acquired")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		redistest.Eventually(t, 20*time.Second, "nobody waits", func() bool { return connections(t, servers[0]) == alone })
		waiting := start(t, nodes, "run", "job", "--", "true")
		redistest.Eventually(t, 20*time.Second, "somebody waits", func() bool { return connections(t, servers[0]) > alone })
		_ = waiting.cmd.Process.Signal(sig)
		waiting.expect(128+int(sig), 1, `ended while waiting for "job"`)
	}

	waiting := []*running{start(t, nodes, "run", "job", "--", "true"), start(t, nodes, "run", "--wait", "20s", "job", "--", "true")}
	writeFile(t, on, "", 0o600)
	holder.expect(0, 0, "")
	for _, w := range waiting {
		w.expect(0, 0, "")
	}
	awaitFree(t, servers, "job")
}

func TestNoQuorum(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3, "--requirepass", "right")
	var nodes []string
	for _, s := range servers {
		nodes = append(nodes, "redis://:secret@"+s.Addr)
	}
	start(t, nodes, "run", "job", "--", "true").expect(69, 1, "WRONGPASS") // waiting cannot mend it
	for _, s := range servers {
		s.Kill()
	}
	start(t, nodes, "run", "--wait", "0", "job", "--", "true").expect(69, 1, "no quorum")
	start(t, nodes, "run", "--wait", "300ms", "job", "--", "true").expect(69, 1, "wait expired: no quorum")
	start(t, nodes, "run", "--wait", "0", "job", "--", "no-such-command").expect(127, 1, "no-such-command") // before the lock

	r := start(t, nodes, "run", "--wait", "2s", "job", "--", "true")
	r.expect(69, 2, "redlock: waiting: ")
	if strings.Contains(r.stderr.String(), "secret") {
		t.Errorf("stderr shows the password: %q", r.stderr.String())
	}
}

// connections is how many clients a server has.
func connections(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.DB.Info(t.Context(), "clients").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "connected_clients:")
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
