// Package redistest starts real redis-server processes for tests.
package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Require skips the test where redis-server is missing, and fails it where REDLOCK_REQUIRE_REDIS is set, as in CI.
func Require(tb testing.TB) {
	tb.Helper()
	Tool(tb, "redis-server")
}

// Tool skips the test where a program is missing, and fails it where REDLOCK_REQUIRE_REDIS is set, as in CI.
func Tool(tb testing.TB, name string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("a test on real servers: left out by -short")
	}
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv("REDLOCK_REQUIRE_REDIS") != "" {
		tb.Fatalf("%s is not installed, and REDLOCK_REQUIRE_REDIS is set", name)
	}
	tb.Skipf("install %s to run this test", name)
}

// Server is one redis-server process without persistence.
type Server struct {
	Addr string
	DB   *redis.Client // the test's own eye on it

	tb   testing.TB
	argv []string // before the server's own arguments, such as ip netns exec
	args []string
	cmd  *exec.Cmd
}

// Start starts n servers on free ports of the loopback interface and waits until they are up. They end with the
// test. args are given to every redis-server.
func Start(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	Require(tb)
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = StartAt(tb, "127.0.0.1:"+FreePort(tb), nil, args...)
	}
	for _, s := range servers {
		s.WaitUp()
	}
	return servers
}

// ports is where FreePort looks next, below the range from which the system takes ports of its own for connections:
// a port that was free a moment ago must not be taken before the server is there. Processes start at different places.
var ports atomic.Int32

// StartAt starts one server at an address, by way of another command if one is given. It does not wait.
func StartAt(tb testing.TB, addr string, by []string, args ...string) *Server {
	tb.Helper()
	s := &Server{Addr: addr, tb: tb, argv: by, args: args}
	s.DB = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second})
	tb.Cleanup(func() {
		_ = s.DB.Close()
		s.Kill()
	})
	s.Restart()
	return s
}

// FreePort returns a port that is free, and that nobody gets by chance.
func FreePort(tb testing.TB) string {
	tb.Helper()
	const first, count = 10_000, 20_000
	ports.CompareAndSwap(0, rand.Int32N(count))
	for range count {
		port := strconv.Itoa(first + int(ports.Add(1))%count)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatal("no free port")
	return ""
}

// Restart starts the server again, empty, after Kill.
func (s *Server) Restart() {
	s.tb.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{"redis-server", "--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.tb.TempDir()}, s.args...)
	args = slices.Concat(s.argv, args)
	s.cmd = exec.Command(args[0], args[1:]...)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
}

// WaitUp waits until the server answers.
func (s *Server) WaitUp() {
	s.tb.Helper()
	Eventually(s.tb, 10*time.Second, "redis-server on "+s.Addr+" is up", func() bool {
		err := s.DB.Ping(context.Background()).Err()
		return err == nil || strings.HasPrefix(err.Error(), "NOAUTH") || strings.HasPrefix(err.Error(), "WRONGPASS")
	})
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Freeze stops the server with SIGSTOP: connections stay, nothing is answered.
func (s *Server) Freeze() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// URLs returns the servers' URLs.
func URLs(servers []*Server) []string {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = fmt.Sprintf("redis://%s/0", s.Addr)
	}
	return urls
}

// Keys returns the server's keys that match the pattern, by SCAN.
func (s *Server) Keys(pattern string) []string {
	s.tb.Helper()
	var keys []string
	ctx := context.Background()
	for it := s.DB.Scan(ctx, 0, pattern, 1000).Iterator(); ; {
		if !it.Next(ctx) {
			if err := it.Err(); err != nil {
				s.tb.Fatalf("SCAN on %s: %v", s.Addr, err)
			}
			return keys
		}
		keys = append(keys, it.Val())
	}
}

// Calls returns how often the server ran a command, by INFO commandstats.
func (s *Server) Calls(command string) int {
	s.tb.Helper()
	info, err := s.DB.Info(context.Background(), "commandstats").Result()
	if err != nil {
		s.tb.Fatal(err)
	}
	_, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !ok {
		return 0
	}
	var n int
	_, _ = fmt.Sscanf(rest, "%d", &n)
	return n
}

// Socket returns a path for a unix socket that is short enough for one, which a test's own folder need not be.
func Socket(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "redlock") //nolint:usetesting // too long a path
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// Eventually waits until ok is true.
func Eventually(tb testing.TB, within time.Duration, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", within, what)
		}
	}
}
