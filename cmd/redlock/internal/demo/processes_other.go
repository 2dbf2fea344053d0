//go:build !unix

package demo

import (
	"context"
	"errors"
)

// newProcesses fails: freezing a process takes the signals of Unix.
func newProcesses(context.Context) (fleet, error) {
	return nil, errors.New("--redis needs a Unix system")
}
