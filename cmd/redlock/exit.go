package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	"github.com/redquorum/locks/redlock"
)

// The exit codes of redlock itself. Beside them stands what the command ended with: its own code, or exitSignal
// plus the number of the signal that ended it. 64, 69 and 75 are those of sysexits.h, 124 is that of timeout(1),
// 126 and 127 are those of the shell.
const (
	exitFailure       = 1
	exitUsage         = 64
	exitNoQuorum      = 69
	exitNotAcquired   = 75
	exitLeaseLost     = 124
	exitCannotExecute = 126
	exitNotFound      = 127
	exitSignal        = 128
)

// exitError is an error that ends redlock with a code of its own. Without err there is nothing to say: the command
// has said it.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is the error of a command line that is not acceptable.
func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitCode is what redlock ends with after err.
func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	default:
		return exitFailure
	}
}

// lockError gives an error of the library its exit code.
func lockError(err error, conflict int) error {
	code := exitFailure
	switch {
	case errors.Is(err, redlock.ErrInvalid):
		code = exitUsage
	case errors.Is(err, redlock.ErrNoQuorum):
		code = exitNoQuorum
	case errors.Is(err, redlock.ErrNotAcquired):
		code = conflict
	}
	return &exitError{code: code, err: err}
}

// commandError gives an error of finding or starting the command the exit code that a shell would give it.
func commandError(err error) error {
	code := exitCannotExecute
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code: code, err: err}
}
