package redlock_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/locks/internal/redistest"
	"github.com/redquorum/locks/redlock"
)

// A minority that fails, in whatever way, costs nothing: no time, no goroutines, no keys (I5, I6).
func TestTwoOfFiveMastersFailing(t *testing.T) {
	for _, fault := range []struct {
		name    string
		servers func(t *testing.T) ([]*redistest.Server, func(s *redistest.Server), func(s *redistest.Server))
	}{
		{"frozen", func(t *testing.T) ([]*redistest.Server, func(s *redistest.Server), func(s *redistest.Server)) {
			t.Helper()
			return redistest.Start(t, 5), (*redistest.Server).Freeze, (*redistest.Server).Thaw
		}},
		{"killed", func(t *testing.T) ([]*redistest.Server, func(s *redistest.Server), func(s *redistest.Server)) {
			t.Helper()
			return redistest.Start(t, 5), (*redistest.Server).Kill, func(s *redistest.Server) { s.Restart(); s.WaitUp() }
		}},
		{"cut off", serversInNamespace},
	} {
		t.Run(fault.name, func(t *testing.T) {
			servers, fail, mend := fault.servers(t)
			c := openReal(t, servers)
			warmUp(t, c, servers)
			healthy := pairs(t, c, 1000)
			fail(servers[1])
			fail(servers[3])
			most := mostGoroutines()
			failing := pairs(t, c, 1000)
			for range 2 { // the machine's other work must not decide
				if failing > healthy*5/4 {
					failing = pairs(t, c, 1000)
				}
			}
			if n := most(); n > 100 {
				t.Errorf("%d goroutines", n)
			}
			t.Logf("median of a pair: healthy %v, two of five failing %v", healthy, failing)
			if failing > healthy*5/4 {
				t.Errorf("median %v with two of five failing, %v when healthy", failing, healthy)
			}
			mend(servers[1])
			mend(servers[3])
			time.Sleep(300 * time.Millisecond)
			for _, s := range servers {
				for _, key := range s.Keys("*") {
					// What was sent in vain may still arrive as far as anybody can know: its mark stays for a TTL.
					mark := strings.Contains(key, ":redlock:gone:") && s.DB.TTL(t.Context(), key).Val() <= 10*time.Second
					if !mark && !isFence(key) {
						t.Errorf("%s: left behind: %q", s.Addr, key)
					}
				}
			}
		})
	}
}

// The masters fail while eight callers are busy, and locks are held on them.
func TestMastersFailingUnderLoadLeaveNoLock(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) ([]*redistest.Server, func(s *redistest.Server), func(s *redistest.Server)){
		"frozen": func(t *testing.T) ([]*redistest.Server, func(s *redistest.Server), func(s *redistest.Server)) {
			t.Helper()
			return redistest.Start(t, 5), (*redistest.Server).Freeze, (*redistest.Server).Thaw
		},
		"cut off": serversInNamespace,
	} {
		t.Run(name, func(t *testing.T) {
			servers, fail, mend := start(t)
			c := openReal(t, servers)
			warmUp(t, c, servers)
			var wg sync.WaitGroup
			stop := make(chan struct{})
			for i := range 8 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							mustRelease(t, mustAcquire(t, c.Mutex(fmt.Sprint("load", i))))
						}
					}
				})
			}
			time.Sleep(50 * time.Millisecond)
			fail(servers[0])
			fail(servers[4])
			time.Sleep(time.Second)
			close(stop)
			wg.Wait()
			mend(servers[0])
			mend(servers[4])
			time.Sleep(300 * time.Millisecond)
			noLocks(t, servers)
		})
	}
}

func noLocks(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		if keys := s.Keys("lock:*"); len(keys) > 0 {
			t.Errorf("%s: left behind: %q", s.Addr, keys)
		}
	}
}

var namespaces atomic.Int32

// serversInNamespace starts five masters in a network namespace of their own, in which packets can be dropped.
func serversInNamespace(t *testing.T) (servers []*redistest.Server, cut, mend func(s *redistest.Server)) {
	t.Helper()
	redistest.Require(t)
	redistest.Tool(t, "ip")
	redistest.Tool(t, "iptables")
	if os.Geteuid() != 0 {
		t.Skip("run as root to test lost packets in a network namespace")
	}
	// A namespace goes on existing for a while after its end: every one has names of its own.
	nth := int(namespaces.Add(1))
	ns, veth := fmt.Sprintf("redlock%d-%d", os.Getpid(), nth), fmt.Sprintf("rl%d-%d", os.Getpid()%100000, nth)
	subnet := fmt.Sprintf("10.213.%d.", (os.Getpid()*5+nth)%250)
	run := func(command string) {
		t.Helper()
		args := strings.Fields(command)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
	}
	run("ip netns add " + ns)
	t.Cleanup(func() { run("ip netns del " + ns) })
	run("ip link add " + veth + "a type veth peer name " + veth + "b netns " + ns)
	run("ip addr add " + subnet + "1/24 dev " + veth + "a")
	run("ip link set " + veth + "a up")
	inside := "ip netns exec " + ns + " "
	run(inside + "ip addr add " + subnet + "2/24 dev " + veth + "b")
	run(inside + "ip link set " + veth + "b up")
	for range 5 {
		addr := subnet + "2:" + redistest.FreePort(t)
		servers = append(servers, redistest.StartAt(t, addr, strings.Fields(inside), "--protected-mode", "no"))
	}
	for _, s := range servers {
		s.WaitUp()
	}
	rule := func(verb string) func(s *redistest.Server) {
		return func(s *redistest.Server) {
			_, port, _ := net.SplitHostPort(s.Addr)
			run(inside + "iptables " + verb + " INPUT -p tcp --dport " + port + " -j DROP")
			run(inside + "iptables " + verb + " OUTPUT -p tcp --sport " + port + " -j DROP")
		}
	}
	return servers, rule("-A"), rule("-D")
}

// slowProxy forwards to a server and delays what it forwards, also after a connection was closed.
type slowProxy struct {
	addr  string
	mu    sync.Mutex
	delay time.Duration
}

func newSlowProxy(t *testing.T, target string) *slowProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &slowProxy{addr: l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			wg.Go(func() { p.forward(server, client) })
			wg.Go(func() { p.forward(client, server) })
		}
	})
	return p
}

func (p *slowProxy) set(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// forward copies with a delay, and delivers what it has read even if the other side has hung up.
func (p *slowProxy) forward(to, from net.Conn) {
	type chunk struct {
		at   time.Time
		data []byte
	}
	chunks := make(chan chunk, 10_000)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 64<<10)
			n, err := from.Read(buf)
			p.mu.Lock()
			at := time.Now().Add(p.delay)
			p.mu.Unlock()
			if n > 0 {
				chunks <- chunk{at, buf[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.at))
		_, _ = to.Write(c.data)
	}
	if t, ok := to.(interface{ CloseWrite() error }); ok {
		_ = t.CloseWrite()
	}
	time.AfterFunc(time.Second, func() { _ = to.Close() })
}

// An acquire that a proxy delivers long after it was given up must not outlive its release.
func TestALateAcquireDoesNotOutliveItsRelease(t *testing.T) {
	servers := redistest.Start(t, 3)
	proxy := newSlowProxy(t, servers[2].Addr)
	urls := redistest.URLs(servers)
	urls[2] = "redis://" + proxy.addr
	c, err := redlock.Open(urls, redlock.WithNodeTimeout(40*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	warmUp(t, c, servers)
	proxy.set(120 * time.Millisecond)
	for i := range 20 {
		mustRelease(t, mustAcquire(t, c.Mutex(fmt.Sprint("late", i))))
	}
	time.Sleep(200 * time.Millisecond)
	proxy.set(0) // the node answers again
	time.Sleep(time.Second)
	noLocks(t, servers)
}

// The same without any end of the delay: the locks are gone when the TTL has passed.
func TestALateAcquireOnANodeThatStaysSlowEndsWithItsTTL(t *testing.T) {
	servers := redistest.Start(t, 3)
	proxy := newSlowProxy(t, servers[2].Addr)
	urls := redistest.URLs(servers)
	urls[2] = "redis://" + proxy.addr
	c, err := redlock.Open(urls, redlock.WithNodeTimeout(40*time.Millisecond), redlock.WithTTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	warmUp(t, c, servers)
	proxy.set(120 * time.Millisecond)
	for i := range 20 {
		mustRelease(t, mustAcquire(t, c.Mutex(fmt.Sprint("late", i))))
	}
	time.Sleep(time.Second + 200*time.Millisecond)
	noLocks(t, servers)
}

func TestAFrozenNodeThawedAfterTheReleaseIsFree(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	warmUp(t, c, servers)
	held := mustAcquire(t, c.Mutex("held"))
	servers[1].Freeze()
	mustRelease(t, mustAcquire(t, c.Mutex("acquired while frozen")))
	mustRelease(t, held)
	time.Sleep(700 * time.Millisecond) // beyond the node timeout
	servers[1].Thaw()
	time.Sleep(time.Second)
	noLocks(t, servers)
}

// Majority faults are outages, not contention, and end within the node timeout.
func TestMajorityFaults(t *testing.T) {
	servers := redistest.Start(t, 3)
	c := openReal(t, servers)
	warmUp(t, c, servers)
	servers[0].Freeze()
	servers[1].Freeze()
	defer servers[0].Thaw()
	defer servers[1].Thaw()
	start := time.Now()
	_, err := c.Mutex("x").TryAcquire(context.Background())
	wantErr(t, err, redlock.ErrNoQuorum, redlock.ErrNotAcquired, context.DeadlineExceeded)
	if d := time.Since(start); d > 800*time.Millisecond {
		t.Errorf("a hanging majority took %v", d)
	}
	redistest.Eventually(t, 2*time.Second, "the vote of the live node is withdrawn", func() bool { return len(servers[2].Keys("lock:x")) == 0 })
}
