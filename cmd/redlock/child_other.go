//go:build unix && !linux

package main

import "syscall"

// attributes puts the command into a process group of its own. These systems cannot have it killed if redlock dies.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
