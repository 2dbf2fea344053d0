package main

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	// forwarded is what goes on to the command.
	forwarded = []os.Signal{os.Interrupt, syscall.SIGTERM}
	muted     []os.Signal
)

// killed is the exit code of what was killed, as if a signal had done it.
const killed = exitSignal + uint32(syscall.SIGKILL)

// process is the command and the job object that holds it and everything that it starts: Windows has no groups that
// could be killed. The system ends a job when its last handle is closed, so the command dies with redlock.
type process struct {
	*os.Process
	job windows.Handle
}

func (p *process) start(cmd *exec.Cmd) error {
	job, err := newJob()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		_ = windows.CloseHandle(job)
		return err
	}
	if err := assign(job, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(job)
		return err
	}
	p.Process, p.job = cmd.Process, job
	return nil
}

// newJob makes a job that ends with its last handle, which is the one returned.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, os.NewSyscallError("CreateJobObject", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, os.NewSyscallError("SetInformationJobObject", err)
	}
	return job, nil
}

func assign(job windows.Handle, pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer func() { _ = windows.CloseHandle(h) }()
	return os.NewSyscallError("AssignProcessToJobObject", windows.AssignProcessToJobObject(job, h))
}

// reap waits until the command has ended and returns its exit code.
func (p *process) reap() int {
	state, err := p.Wait()
	if err != nil {
		return exitFailure
	}
	return state.ExitCode()
}

// signal sends Ctrl-Break, the one signal that a process group of Windows can be sent.
func (p *process) signal(os.Signal) {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.Pid)) // fails where there is no console
}

func (p *process) kill() { _ = windows.TerminateJobObject(p.job, killed) }

// sweep kills what the command left behind.
func (p *process) sweep() {
	p.kill()
	_ = windows.CloseHandle(p.job)
}

// foreground has nothing to do: consoles know no foreground.
func (p *process) foreground() {}
