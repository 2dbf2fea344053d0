package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// startLimit is how long a redis-server may take to come up.
	startLimit = 10 * time.Second
	// startTries is how often one is started: somebody else may take its port in the moment before it does.
	startTries = 5
)

var errExited = errors.New("redis-server has ended")

// masters are redis-server processes of this program's own, independent of each other and without persistence.
type masters struct {
	dir     string // what they write, logs only
	servers []*server
}

type server struct {
	addr   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{}
	admin  *redis.Client // to look at it beside the peers' own connections
}

// startMasters starts n servers and waits until they are up. If it fails, none is left.
func startMasters(ctx context.Context, n int) (*masters, error) {
	dir, err := os.MkdirTemp("", "redlock-bench-")
	if err != nil {
		return nil, err
	}
	m := &masters{dir: dir}
	for range n {
		s, err := bringUp(ctx, dir)
		if err != nil {
			return nil, errors.Join(err, m.stop())
		}
		m.servers = append(m.servers, s)
	}
	return m, nil
}

// stop ends the servers and removes what they wrote.
func (m *masters) stop() error {
	for _, s := range m.servers {
		s.stop()
	}
	return os.RemoveAll(m.dir)
}

func (m *masters) addrs() []string {
	addrs := make([]string, len(m.servers))
	for i, s := range m.servers {
		addrs[i] = s.addr
	}
	return addrs
}

// calls returns how often the servers together have run the commands.
func (m *masters) calls(ctx context.Context, commands []string) (int, error) {
	total := 0
	for _, s := range m.servers {
		n, err := s.calls(ctx, commands)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// lockKeys returns how many lock keys there are on the servers together.
func (m *masters) lockKeys(ctx context.Context) (int, error) {
	total := 0
	for _, s := range m.servers {
		n, err := s.lockKeys(ctx)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// flush removes all keys. Scripts stay loaded.
func (m *masters) flush(ctx context.Context) error {
	for _, s := range m.servers {
		if err := s.admin.FlushAll(ctx).Err(); err != nil {
			return fmt.Errorf("flush of %s: %w", s.addr, err)
		}
	}
	return nil
}

// bringUp starts one server and waits until it is up.
func bringUp(ctx context.Context, dir string) (*server, error) {
	for try := 1; ; try++ {
		s, err := startServer(dir)
		if err != nil {
			return nil, err
		}
		if err = s.waitUp(ctx); err == nil {
			return s, nil
		}
		s.stop()
		if !errors.Is(err, errExited) || try == startTries {
			return nil, err
		}
	}
}

// startServer starts one server. It does not wait.
func startServer(dir string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{
		addr:   net.JoinHostPort("127.0.0.1", port),
		log:    filepath.Join(dir, port+".log"),
		exited: make(chan struct{}),
	}
	s.cmd = exec.Command("redis-server", //nolint:gosec // what varies is a port and a directory of this program's own
		"--bind", "127.0.0.1", "--port", port,
		"--save", "", "--appendonly", "no", "--dir", dir, "--logfile", s.log)
	// A group of its own: ctrl-C on the terminal is for this program, which ends the servers when nobody uses them.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // says no more than that it has ended, which waitUp reports with the log
		close(s.exited)
	}()
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr})
	return s, nil
}

// freePort returns a port that was free a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// waitUp waits until the server answers.
func (s *server) waitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for !s.answers(ctx) {
		select {
		case <-s.exited:
			log, _ := os.ReadFile(s.log) // without a log there is nothing more to say
			return fmt.Errorf("%w, on %s: %s", errExited, s.addr, bytes.TrimSpace(log))
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s is not up: %w", s.addr, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// answers reports whether it is this process that answers: another one may have taken the port meanwhile.
func (s *server) answers(ctx context.Context) bool {
	info, err := s.admin.Info(ctx, "server").Result()
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid))
}

// stop ends the process, by its id, and waits for the end.
func (s *server) stop() {
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill() // fails only if it has ended already
	<-s.exited
}

// calls returns how often the server has run the commands, by its own count.
func (s *server) calls(ctx context.Context, commands []string) (int, error) {
	info, err := s.admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("commandstats of %s: %w", s.addr, err)
	}
	total := 0
	for _, command := range commands {
		_, stat, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
		digits, _, counted := strings.Cut(stat, ",")
		if !counted {
			continue // it was never called
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return 0, fmt.Errorf("commandstats of %s: %w", s.addr, err)
		}
		total += n
	}
	return total, nil
}

// lockKeys counts the locks themselves. What else redlock keeps for a name, such as the fence counter, which
// outlives the lock on purpose, has a key that begins with a hash tag; no lock's key here does.
func (s *server) lockKeys(ctx context.Context) (int, error) {
	n := 0
	keys := s.admin.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		if !strings.HasPrefix(keys.Val(), "{") {
			n++
		}
	}
	return n, keys.Err()
}
