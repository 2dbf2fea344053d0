//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redquorum/locks/redlock"
)

const (
	// startLimit is how long a redis-server may take until it answers.
	startLimit = 10 * time.Second
	// A slowed master is paused for hiccup, every twice that: less than the node timeout.
	hiccup = 50 * time.Millisecond
	// Ports are taken from a range below those that systems use for outgoing connections, so that nobody takes the
	// port of a master that is down.
	leastPort, portRange = 10_000, 20_000
)

// processes is a fleet of redis-server processes of the demo's own.
type processes struct {
	dir     string
	servers []*server
}

// newProcesses starts the servers, in a temporary folder, and waits until they answer.
func newProcesses(ctx context.Context) (fleet, error) {
	silence()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("--redis starts servers of its own and needs redis-server on PATH: %w", err)
	}
	dir, err := os.MkdirTemp("", "redlock-demo-")
	if err != nil {
		return nil, err
	}
	p := &processes{dir: dir}
	for i := range size {
		s, err := newServer(program, filepath.Join(dir, strconv.Itoa(i+1)))
		if err == nil {
			p.servers = append(p.servers, s)
			err = s.start()
		}
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	for _, s := range p.servers {
		if err := s.up(ctx); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

func (p *processes) String() string {
	addresses := make([]string, len(p.servers))
	for i, s := range p.servers {
		addresses[i] = s.addr
	}
	return fmt.Sprintf("%d redis-server processes: %s", len(p.servers), strings.Join(addresses, ", "))
}

func (p *processes) connect(s sabotage, opts ...redlock.ClientOption) (*redlock.Client, error) {
	urls := make([]string, len(p.servers))
	for i, s := range p.servers {
		urls[i] = "redis://" + s.addr
	}
	return dial(urls, s, opts)
}

func (p *processes) faults() []fault {
	of := func(harm func(s *server) (func() error, error)) func(int) (func() error, error) {
		return func(master int) (func() error, error) { return harm(p.servers[master]) }
	}
	return []fault{
		{"stopped", "kill -9, to be started again on its append-only file", disturbance, of((*server).stop)},
		{"slowed", fmt.Sprintf("CLIENT PAUSE %d, again and again", hiccup.Milliseconds()), disturbance, of((*server).slow)},
		{"frozen", "SIGSTOP", disturbance, of((*server).freeze)},
		{"wiped", "FLUSHALL, then CLIENT PAUSE for more than a TTL", absence, of((*server).wipe)},
	}
}

func (p *processes) close() error {
	var errs []error
	for _, s := range p.servers {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}

// server is one redis-server.
type server struct {
	program string
	dir     string
	addr    string
	control *redis.Client

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
}

func newServer(program, dir string) (*server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	control := redis.NewClient(&redis.Options{
		Addr:                     addr,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              time.Second,
		ReadTimeout:              startLimit, // a command that follows CLIENT PAUSE waits
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return &server{program: program, dir: dir, addr: addr, control: control}, nil
}

// freeAddress returns an address of this machine on which nobody listens.
func freeAddress() (string, error) {
	var err error
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(leastPort+rand.N(portRange)))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}

// start starts the process. Every write is on disk before it is answered: a master that is killed forgets nothing.
func (s *server) start() error {
	host, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command(s.program, "--bind", host, "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--logfile", "redis.log")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C at the terminal is for the demo, which ends its servers itself
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.ended = ended
	go func(cmd *exec.Cmd) {
		defer close(ended)
		_ = cmd.Wait() // however it ended, it is gone
	}(s.cmd)
	return nil
}

// up waits until the server answers.
func (s *server) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := s.control.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("redis-server on %s ended: %s", s.addr, s.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s does not answer: %w", s.addr, err)
		case <-time.After(hiccup / 5):
		}
	}
}

// lastWords is the last line of the server's log.
func (s *server) lastWords() string {
	log, err := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSpace(string(log))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func (s *server) kill() {
	if s.ended != nil {
		_ = s.cmd.Process.Kill() // fails only if it has ended
		<-s.ended
	}
}

func (s *server) close() error {
	s.kill()
	return s.control.Close()
}

func (s *server) stop() (mend func() error, err error) {
	s.kill()
	return func() error {
		if err := s.start(); err != nil {
			return err
		}
		return s.up(context.Background())
	}, nil
}

func (s *server) freeze() (mend func() error, err error) {
	return func() error { return s.cmd.Process.Signal(syscall.SIGCONT) }, s.cmd.Process.Signal(syscall.SIGSTOP)
}

// slow pauses the server again and again until it is mended.
func (s *server) slow() (mend func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = s.control.ClientPause(context.Background(), hiccup).Err()
			sleep(ctx, 2*hiccup)
		}
		ended <- err
	}()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

// wipe removes all keys and, in the same step, keeps the server from answering for as long as a lease that it has
// forgotten may live: it must not take part in granting that lease's lock to somebody else.
func (s *server) wipe() (mend func() error, err error) {
	ctx := context.Background()
	_, err = s.control.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.FlushAll(ctx)
		tx.ClientPause(ctx, absence)
		return nil
	})
	return func() error { return s.up(context.Background()) }, err
}
