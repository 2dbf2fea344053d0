package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the programs that the tests run: it looks at the name that it was called by.
const (
	redlockName = "redlock"
	stampName   = "stamp"
)

// programs is where they are, set by TestMain.
var programs string

func program(name string) string { return filepath.Join(programs, name) }

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case redlockName:
		main()
	case stampName:
		stamp(os.Args[1])
	default:
		os.Exit(withPrograms(m))
	}
}

func withPrograms(m *testing.M) int {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	programs, err = os.MkdirTemp("", "redlock")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(programs) }()
	for _, name := range []string{redlockName, stampName} {
		if err := os.Symlink(self, program(name)); err != nil {
			panic(err)
		}
	}
	return m.Run()
}

// stamp appends the time to a file every 10 ms. TERM is only noted. It ends by itself after a minute.
func stamp(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	term := make(chan os.Signal, 8)
	signal.Notify(term, syscall.SIGTERM)
	end := time.After(time.Minute)
	ticker := time.NewTicker(10 * time.Millisecond)
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(f, "%d\n", time.Now().UnixNano())
		case <-term:
			fmt.Fprintf(f, "TERM %d\n", time.Now().UnixNano())
		case <-end:
			return
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string // a part of it
	}{
		{args: "", stdout: "Available Commands:"},
		{args: "--help", stdout: "completion"},
		{args: "version", stdout: "redlock "},
		{args: "--version", stdout: "redlock "},
		{args: "run --help", stdout: "redlock run --wait 0"},
		{args: "completion bash", stdout: "complete"},
		{args: "__complete run --", stdout: "--max-hold"},
		{args: "__complete run --ttl", stdout: "--ttl"},
		{args: "__complete run ", stdout: ":4\n"},        // a name: no files
		{args: "__complete run job -- ", stdout: ":0\n"}, // a command: files
		{args: "rnu", code: 64, stderr: `redlock: unknown command "rnu" (did you mean run?)`},
		{args: "frobnicate", code: 64, stderr: `redlock: unknown command "frobnicate" (see redlock --help)`},
		{args: "--frobnicate", code: 64, stderr: "redlock: unknown flag: --frobnicate (see redlock --help)"},
		{args: "version 2", code: 64, stderr: `redlock: redlock version takes no arguments, got "2"`},
		{args: "run", code: 64, stderr: "redlock: want redlock run [flags] NAME -- CMD [ARG...]"},
		{args: "run job", code: 64, stderr: "redlock: want"},
		{args: "run job true", code: 64, stderr: "redlock: want"},
		{args: "run job --", code: 64, stderr: "redlock: want"},
		{args: "run -- true", code: 64, stderr: "redlock: want"},
		{args: "run job other -- true", code: 64, stderr: "redlock: want"},
		{args: "run --ttl 5 job -- true", code: 64, stderr: "missing unit"},
		{args: "run --unknown job -- true", code: 64, stderr: "(see redlock run --help)"},
		{args: "run job -- true", code: 64, stderr: "redlock: no nodes: give --node for each, or REDLOCK_NODES"},
		{args: "run --node redis://a --ttl 1ms job -- true", code: 64, stderr: "redlock: --ttl 1ms is below the least duration of 10ms"},
		{args: "run --node redis://a --wait -1s job -- true", code: 64, stderr: "redlock: --wait -1s"},
		{args: "run --node redis://a --max-hold 1ms job -- true", code: 64, stderr: "redlock: --max-hold 1ms"},
		{args: "run --node redis://a --kill-after -1s job -- true", code: 64, stderr: "redlock: --kill-after -1s"},
		{args: "run --node redis://a -E 256 job -- true", code: 64, stderr: "redlock: --conflict-exit-code 256"},
		{args: "run --node redis://a --node redis://a job -- true", code: 64, stderr: "same address"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Setenv(nodesVariable, "")
			code, stdout, stderr := inProcess(split(test.args)...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if test.code != 0 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("stderr %q is not one line", stderr)
			}
		})
	}
}

// split splits at single spaces: a space at the end makes an empty last argument, as shells complete it.
func split(args string) []string {
	if args == "" {
		return nil
	}
	return strings.Split(args, " ")
}

func inProcess(args ...string) (code int, stdout, stderr string) {
	var out, err strings.Builder
	code = execute(args, &out, &err)
	return code, out.String(), err.String()
}

// A malformed URL is refused without being shown, whatever is wrong with it.
func TestPasswordsAreNotShown(t *testing.T) {
	for _, url := range []string{
		"redis://user:secret@host:port",
		"redis://user:sec/secret@host",
		"redis://user:p@secret/secret@host",
		"http://user:secret@host",
		"user:secret@host",
		"secret",
		"redis://host?password=secret",
		"redis://user:sec ret%secret@host",
		"redis://user:\x01secret@host",
	} {
		code, stdout, stderr := inProcess("run", "--node", "redis://127.0.0.1:1", "--node", url, "job", "--", "go")
		if code != exitUsage || strings.Contains(stdout+stderr, "secret") || !strings.Contains(stderr, "node 2 of 2 has a malformed URL") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", url, code, stdout, stderr)
		}
	}
}

func TestSplitNodes(t *testing.T) {
	got := splitNodes(" redis://a, redis://b:1/2 ,,unix:///tmp/s ")
	if want := "redis://a redis://b:1/2 unix:///tmp/s"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := splitNodes(""); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}
