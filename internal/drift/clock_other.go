//go:build !linux

package drift

import "time"

// bootTime is 0: there is no portable clock that counts suspend, see System.
func bootTime() time.Duration { return 0 }
