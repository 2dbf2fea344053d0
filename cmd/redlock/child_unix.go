//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// forwarded is what goes on to the command.
	forwarded = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

	// muted must not do to this process what they do by default while the command runs: TSTP (Ctrl-Z) would stop
	// the extensions but not the command, PIPE would end redlock with the lock held when it has something to say
	// and nobody reads. They are caught, not ignored, as the command would inherit that.
	muted = []os.Signal{unix.SIGTSTP, unix.SIGPIPE}
)

// sweepLimit is how long the rest of the group may take to go after KILL.
const sweepLimit = time.Second

// process is the command's process group, which has the id of the process that was started.
type process struct {
	id       int
	stopped  atomic.Bool // because it wants the terminal
	terminal bool        // was given to it
}

func (p *process) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.id = cmd.Process.Pid
	return cmd.Process.Release() // reap waits by itself, as Wait does not tell of stops
}

// reap waits until the command has ended and returns its exit code.
func (p *process) reap() int {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.id, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // taken by somebody else in this process: there is nobody
			return exitFailure
		case status.Stopped():
			sig := status.StopSignal()
			p.stopped.Store(sig == unix.SIGTTIN || sig == unix.SIGTTOU || sig == unix.SIGTSTP)
		case status.Signaled():
			return exitSignal + int(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

// signal sends a signal to the group, and lets what is stopped go on, to handle it.
func (p *process) signal(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		_ = unix.Kill(-p.id, number) // fails if nothing of the group is left, or is not ours to signal: see runLong
		_ = unix.Kill(-p.id, unix.SIGCONT)
	}
}

func (p *process) kill() { _ = unix.Kill(-p.id, unix.SIGKILL) }

// sweep kills what the command left in its group, waits until it is gone, and takes back the terminal. It follows
// reap at once: no other group can have got the number yet, and while a member lives none can get it.
func (p *process) sweep() {
	limit := time.After(sweepLimit)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for unix.Kill(-p.id, unix.SIGKILL) == nil { // also for members that are dead, until their parent has reaped them
		_, _ = unix.Wait4(-p.id, nil, unix.WNOHANG, nil) // which may be this process, if it is the first of a container
		select {
		case <-ticker.C:
			continue
		case <-limit:
		}
		break
	}
	if p.terminal {
		// This process is in the background now, where changing the terminal, and perhaps writing to it, is answered
		// with TTOU. Nobody is left to inherit that it is ignored.
		signal.Ignore(unix.SIGTTOU)
		giveTerminal(unix.Getpgrp(), p.id)
	}
}

// foreground gives the command the terminal once it asks for it. A group that reads from the terminal, or changes
// its modes, in the background is stopped: that is how it asks. It does not get it before, as redlock may share the
// terminal with other commands of a pipeline. A stop by Ctrl-Z is undone in the same way.
func (p *process) foreground() {
	if p.stopped.Load() && giveTerminal(p.id, unix.Getpgrp()) {
		p.stopped.Store(false)
		p.terminal = true
		_ = unix.Kill(-p.id, unix.SIGCONT)
	}
}

// giveTerminal makes a process group the one in the foreground of the controlling terminal, if that is from, and
// reports whether it is there now.
func giveTerminal(to, from int) bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false // there is none
	}
	defer func() { _ = unix.Close(fd) }()
	switch group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); {
	case err != nil:
		return false
	case group == to:
		return true
	case group != from: // redlock is in the background itself
		return false
	}
	return unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, to) == nil
}
