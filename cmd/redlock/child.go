package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
)

// child is the command: the process that was started, and what it started and left in its process group. What can
// be done to it differs by system: signal, kill, sweep and foreground are in child_unix.go and child_windows.go.
type child struct {
	process          // as the system knows it
	exited  chan int // receives the exit code, once
}

// startChild starts the command with the standard streams of this process.
func startChild(path string, argv, env []string) (*child, error) {
	for _, sig := range muted {
		signal.Notify(make(chan os.Signal, 1), sig) // nobody listens
	}
	c := &child{exited: make(chan int, 1)}
	started := make(chan error, 1)
	go func() {
		// On Linux a child that is to die with its parent dies with the thread that started it. This one stays until
		// the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.start(&exec.Cmd{Path: path, Args: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		started <- err
		if err == nil {
			c.exited <- c.reap()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// catch returns the signals that go on to the command. One that this process was told to ignore, as nohup(1) does
// with HUP, stays ignored, here and in the command.
func catch() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	return signals
}
