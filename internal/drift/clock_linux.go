package drift

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since boot, suspend included, or 0 where the kernel or a sandbox refuses to tell.
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
