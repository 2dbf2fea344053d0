package redlock_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/redistest"
	"github.com/redquorum/locks/redlock"
)

// Answers that no retry can mend are told at once, not after the whole wait, and are not taken for contention.
func TestPermanentAnswersOfAMajorityAreToldAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		code string
		make func(t *testing.T) ([]string, []*redistest.Server)
	}{
		{"no password", "NOAUTH", func(t *testing.T) ([]string, []*redistest.Server) {
			servers := redistest.Start(t, 3, "--requirepass", "secret")
			return redistest.URLs(servers), nil
		}},
		{"wrong password", "WRONGPASS", func(t *testing.T) ([]string, []*redistest.Server) {
			servers := redistest.Start(t, 3, "--requirepass", "secret")
			var urls []string
			for _, s := range servers {
				urls = append(urls, "redis://:hunter2@"+s.Addr)
			}
			return urls, nil
		}},
		{"no right to run scripts", "NOPERM", func(t *testing.T) ([]string, []*redistest.Server) {
			servers := redistest.Start(t, 3)
			var urls []string
			for _, s := range servers {
				s.DB.Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">p", "~*", "+@all", "-@scripting")
				urls = append(urls, "redis://poor:p@"+s.Addr)
			}
			return urls, servers
		}},
		{"a key of another type", "WRONGTYPE", func(t *testing.T) ([]string, []*redistest.Server) {
			servers := redistest.Start(t, 3)
			for _, s := range servers[:2] {
				s.DB.LPush(t.Context(), "lock:x", "1")
			}
			return redistest.URLs(servers), servers[2:]
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			urls, seen := tt.make(t)
			c, err := redlock.Open(urls)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			start := time.Now()
			_, err = c.Mutex("x", redlock.WithWait(20*time.Second)).Acquire(t.Context())
			wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrNotAcquired, redlock.ErrWaitExpired, context.DeadlineExceeded)
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("told after %v", d)
			}
			var fromRedis redis.Error
			if !errors.As(err, &fromRedis) || !strings.Contains(err.Error(), tt.code) {
				t.Errorf("the nodes' answer %s is not in %v", tt.code, err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a password in %v", err)
			}
			for _, s := range seen {
				redistest.Eventually(t, time.Second, "nothing is left", func() bool { return len(locksLeft([]*redistest.Server{s})) == 0 })
			}
		})
	}
}

func TestPermanentAnswersOfAMinorityAreOnlyDetail(t *testing.T) {
	servers := redistest.Start(t, 3)
	servers[0].DB.LPush(t.Context(), "lock:x", "1")
	servers[1].DB.Do(t.Context(), "CONFIG", "SET", "requirepass", "")
	c := openReal(t, servers)
	l := mustAcquire(t, c.Mutex("x"))
	if err := l.Extend(t.Context(), 5*time.Second); err != nil {
		t.Error(err)
	}
	mustRelease(t, l)
	if n := servers[0].DB.LLen(t.Context(), "lock:x").Val(); n != 1 {
		t.Errorf("the foreign key was touched")
	}
}

// A string that somebody else stored blocks on a majority, and neither blocks nor is touched on a minority.
func TestAForeignKey(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	servers[0].DB.Set(t.Context(), "lock:x", "somebody", 0)
	l := mustAcquire(t, c.Mutex("x"))
	mustRelease(t, l)
	servers[1].DB.Set(t.Context(), "lock:x", "somebody", 0)
	_, err := c.Mutex("x").TryAcquire(t.Context())
	wantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
	if !strings.Contains(err.Error(), "without a time limit") {
		t.Errorf("the error does not say that the holds have no end: %v", err)
	}
	for _, s := range servers[:2] {
		if s.DB.Get(t.Context(), "lock:x").Val() != "somebody" {
			t.Error("the foreign key was touched")
		}
	}
}

// Servers that say "not now" are an outage. It ends without anybody doing anything, and leaves nothing behind.
func TestTransientTroubleIsAnOutageThatPasses(t *testing.T) {
	config := func(s *redistest.Server, key, value string) { s.DB.ConfigSet(context.Background(), key, value) }
	for _, tt := range []struct {
		code        string
		begin, pass func(s *redistest.Server)
	}{
		{"OOM", func(s *redistest.Server) { config(s, "maxmemory", "1") }, func(s *redistest.Server) { config(s, "maxmemory", "0") }},
		{
			"READONLY", func(s *redistest.Server) { s.DB.ReplicaOf(context.Background(), "127.0.0.1", "1") },
			func(s *redistest.Server) { s.DB.ReplicaOf(context.Background(), "NO", "ONE") },
		},
		{"MISCONF", func(s *redistest.Server) {
			config(s, "dir", "/proc")
			config(s, "save", "3600 1")
			s.DB.BgSave(context.Background())
			for !strings.Contains(s.DB.Info(context.Background(), "persistence").Val(), "rdb_last_bgsave_status:err") {
				time.Sleep(10 * time.Millisecond)
			}
		}, func(s *redistest.Server) { config(s, "save", "") }},
		{"BUSY", func(s *redistest.Server) {
			config(s, "busy-reply-threshold", "1")
			go s.DB.Eval(context.Background(), "while true do end", nil)
			for !redis.HasErrorPrefix(s.DB.Get(context.Background(), "x").Err(), "BUSY") {
				time.Sleep(5 * time.Millisecond)
			}
		}, func(s *redistest.Server) { s.DB.ScriptKill(context.Background()) }},
	} {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			servers := redistest.Start(t, 3, "--enable-protected-configs", "yes")
			c := openReal(t, servers)
			warmUp(t, c, servers)
			held := mustAcquire(t, c.Mutex("held", redlock.WithTTL(3*time.Second), redlock.WithAutoExtend(true)))
			for _, s := range servers[:2] {
				tt.begin(s)
			}
			_, err := c.Mutex("x").TryAcquire(t.Context())
			wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrNotAcquired)
			if !strings.Contains(err.Error(), tt.code) {
				t.Errorf("the servers' answer is not in %v", err)
			}
			time.Sleep(1500 * time.Millisecond) // at least one extension fails
			for _, s := range servers[:2] {
				tt.pass(s)
			}
			mustRelease(t, mustAcquire(t, c.Mutex("x", redlock.WithWait(5*time.Second))))
			time.Sleep(3 * time.Second) // beyond what was left
			if err := held.Verify(t.Context()); err != nil {
				t.Errorf("one passing fault ended the lease: %v", err)
			}
			mustRelease(t, held)
			redistest.Eventually(t, 2*time.Second, "nothing is left", func() bool { return len(servers[0].Keys("lock:*"))+len(servers[1].Keys("lock:*")) == 0 })
		})
	}
}

// Whatever error a server answers with, it is told by name, nothing panics, and no error is a grant.
func TestEveryErrorOfAServerIsTold(t *testing.T) {
	for _, reply := range []string{
		"-LOADING Redis is loading the dataset in memory", "-NOSCRIPT No matching script. Please use EVAL.", "-ERR unknown command",
		"-MOVED 1 127.0.0.1:1", "-CLUSTERDOWN The cluster is down", "-ERR max number of clients reached", "+OK", ":0", "$-1", "*0", "*1\r\n:0", "%1\r\n+a\r\n:1",
	} {
		servers := []string{fakeServer(t, reply), fakeServer(t, reply), fakeServer(t, reply)}
		c, err := redlock.Open([]string{"redis://" + servers[0], "redis://" + servers[1], "redis://" + servers[2]}, redlock.WithNodeTimeout(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Mutex("x").TryAcquire(t.Context())
		if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrNotAcquired) {
			t.Errorf("reply %q: %v", reply, err)
		}
		if text, isError := strings.CutPrefix(reply, "-"); isError && !strings.Contains(err.Error(), strings.Fields(text)[0]) {
			t.Errorf("reply %q is not told in %v", reply, err)
		}
		_ = c.Close()
	}
}

// fakeServer answers handshakes like an old Redis and every script with reply.
func fakeServer(t *testing.T, reply string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveFake(conn, reply)
		}
	}()
	return l.Addr().String()
}

func serveFake(conn net.Conn, reply string) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		name, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "-ERR unknown command"
		switch strings.ToLower(name) {
		case "ping":
			answer = "+PONG"
		case "eval", "evalsha":
			answer = reply
		}
		if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
			return
		}
	}
}

// readCommand reads a command in RESP and returns its name.
func readCommand(r *bufio.Reader) (name string, err error) {
	number := func() int {
		line, readErr := r.ReadString('\n')
		err = errors.Join(err, readErr)
		n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
		return n
	}
	for i := range number() {
		word := make([]byte, number()+2)
		if _, readErr := io.ReadFull(r, word); readErr != nil {
			return "", readErr
		}
		if i == 0 {
			name = strings.TrimSpace(string(word))
		}
	}
	return name, err
}

func TestUnreachableHostsAreNamed(t *testing.T) {
	port := redistest.FreePort(t)
	c, err := redlock.Open([]string{"redis://user:hunter2@127.0.0.1:" + port, "redis://no-such-host.invalid", "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Mutex("x").TryAcquire(t.Context())
	wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrNotAcquired, context.DeadlineExceeded)
	wantErr(t, err, syscall.ECONNREFUSED)
	for _, want := range []string{"127.0.0.1:" + port, "no-such-host.invalid", "connection refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password in %v", err)
	}
}

func TestAWrongPasswordLeaksNoConnection(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	s.DB.ConfigSet(t.Context(), "requirepass", "secret")
	s.DB.Do(t.Context(), "AUTH", "secret")
	c, err := redlock.Open([]string{"redis://:wrong@" + s.Addr})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 30 {
		_, err := c.Mutex("x").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNoQuorum)
		time.Sleep(30 * time.Millisecond)
	}
	eye := redis.NewClient(&redis.Options{Addr: s.Addr, Password: "secret"})
	defer eye.Close()
	if n := strings.Count(eye.ClientList(t.Context()).Val(), "\n"); n > 5 {
		t.Errorf("%d connections", n)
	}
}
