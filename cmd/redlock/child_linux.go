package main

import "syscall"

// attributes puts the command into a process group of its own, and has it killed if redlock dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
