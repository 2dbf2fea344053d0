package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/locks/internal/redistest"
)

// The command dies with redlock.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	servers := redistest.Start(t, 3)
	path, _ := file(t, "stamps")
	r := start(t, redistest.URLs(servers), "run", "--ttl", "1s", "job", "--", program(stampName), path)
	redistest.Eventually(t, 20*time.Second, "the command runs", exists(path))
	time.Sleep(500 * time.Millisecond) // threads of redlock come and go: that must do no harm
	before := size(t, path)
	redistest.Eventually(t, 10*time.Second, "the command goes on", func() bool { return size(t, path) > before })
	_ = r.cmd.Process.Kill()
	r.wait()
	expectStill(t, path)
	start(t, redistest.URLs(servers), "run", "--wait", "20s", "job", "--", "true").expect(0, 0, "")
}

// pty is a terminal with a shell that runs redlock as a job.
type pty struct {
	*running
	master *os.File
	mu     sync.Mutex
	output strings.Builder
}

// startPTY starts redlock on a terminal. The shell ends with redlock's exit code, or once redlock is stopped.
func startPTY(t *testing.T, nodes []string, args ...string) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this test needs /dev/ptmx: ", err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	p := &pty{running: &running{t: t, cmd: redlockCommand(nodes)}, master: master}
	p.cmd.Path, p.cmd.Args = "/bin/sh", append([]string{"sh", "-m", "-c", `"$0" "$@"; exit $?`, program(redlockName)}, args...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.begin()
	go p.read()
	return p
}

func (p *pty) read() {
	buf := make([]byte, 1024)
	for {
		n, err := p.master.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.output.Write(buf[:n])
		p.mu.Unlock()
	}
}

// see waits until a text was shown.
func (p *pty) see(text string) {
	p.t.Helper()
	redistest.Eventually(p.t, 20*time.Second, "the terminal shows "+text, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.output.String(), text)
	})
}

func (p *pty) enter(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pty) end(code int) {
	p.t.Helper()
	got := p.wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got != code {
		p.t.Errorf("exit code %d, want %d; output %q", got, code, p.output.String())
	}
}

// A command in a group of its own is in the background; it gets the terminal when it reads from it. Ctrl-Z stops
// neither it nor the extensions.
func TestTerminal(t *testing.T) {
	t.Parallel()
	nodes := redistest.URLs(redistest.Start(t, 3))
	const ctrlC, ctrlZ = "\x03", "\x1a"

	p := startPTY(t, nodes, "run", "read", "--", "sh", "-c", "echo ready; read a; echo got:$a; read b; echo got:$b; exit 7")
	p.see("ready")
	p.enter(ctrlZ + "one\n")
	p.see("got:one")
	p.enter(ctrlZ + "two\n")
	p.see("got:two")
	p.end(7)

	for _, first := range []string{"", "read a; "} { // in the background, and in the foreground
		p = startPTY(t, nodes, "run", "interrupt", "--", "sh", "-c", "trap 'exit 8' INT; echo ready; "+first+"echo set; while :; do sleep 0.02; done")
		p.see("ready")
		p.enter("\n")
		p.see("set")
		p.enter(ctrlC)
		p.end(8)
	}
}
