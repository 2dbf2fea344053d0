package redlock_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/redistest"
	"github.com/redquorum/locks/redlock"
)

// works takes and releases a lock, and looks for its key in between.
func works(t *testing.T, c *redlock.Client, db redis.UniversalClient) {
	t.Helper()
	l := mustAcquire(t, c.Mutex("open"))
	redistest.Eventually(t, time.Second, "the key is there", func() bool { return db.Exists(t.Context(), "lock:open").Val() == 1 })
	mustRelease(t, l)
	redistest.Eventually(t, time.Second, "the key is gone", func() bool { return db.Exists(t.Context(), "lock:open").Val() == 0 })
}

func TestOpenWithUserPasswordAndDatabase(t *testing.T) {
	s := redistest.Start(t, 1)[0]
	s.DB.Do(t.Context(), "ACL", "SETUSER", "locker", "on", ">p@ss:word", "~*", "+@all")
	c, err := redlock.Open([]string{"redis://locker:p%40ss%3Aword@" + s.Addr + "/3"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	db := redis.NewClient(&redis.Options{Addr: s.Addr, DB: 3})
	defer db.Close()
	works(t, c, db)
}

func TestOpenOverAUnixSocket(t *testing.T) {
	socket := redistest.Socket(t)
	s := redistest.Start(t, 1, "--unixsocket", socket)[0]
	c, err := redlock.Open([]string{"unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	works(t, c, s.DB)
}

func TestOpenOverTLS(t *testing.T) {
	redistest.Require(t)
	dir := t.TempDir()
	roots := certificate(t, dir)
	port := redistest.FreePort(t)
	s := redistest.Start(t, 1, "--tls-port", port, "--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"),
		"--tls-ca-cert-file", filepath.Join(dir, "cert.pem"), "--tls-auth-clients", "no")[0]

	user := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, TLSConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	defer user.Close()
	c, err := redlock.New([]*redis.Client{user})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	works(t, c, s.DB)

	// A URL has no place for roots, so the certificate is refused: by name, and not by hanging.
	strict, err := redlock.Open([]string{"rediss://127.0.0.1:" + port})
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	redistest.Eventually(t, 10*time.Second, "the error speaks of the certificate", func() bool { // loading the roots may take the first try
		_, err = strict.Mutex("x").TryAcquire(t.Context())
		wantErr(t, err, redlock.ErrNoQuorum)
		return strings.Contains(err.Error(), "certificate")
	})
}

// certificate writes a certificate for 127.0.0.1 and its key to dir.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redlock test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		pool.AppendCertsFromPEM(pem.EncodeToMemory(block))
	}
	return pool
}

func TestASentinelClientIsOneNode(t *testing.T) {
	servers := redistest.Start(t, 3)
	host, port, _ := net.SplitHostPort(servers[2].Addr)
	sentinel := "127.0.0.1:" + redistest.FreePort(t)
	_, sentinelPort, _ := net.SplitHostPort(sentinel)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor m %s %s 1\n", sentinelPort, host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	watch := redis.NewClient(&redis.Options{Addr: sentinel})
	defer watch.Close()
	redistest.Eventually(t, 10*time.Second, "the sentinel is up", func() bool { return watch.Ping(t.Context()).Err() == nil })

	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{sentinel}})
	defer failover.Close()
	plain := []*redis.Client{redis.NewClient(&redis.Options{Addr: servers[0].Addr}), redis.NewClient(&redis.Options{Addr: servers[1].Addr}), failover}
	defer plain[0].Close()
	defer plain[1].Close()
	c, err := redlock.New(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	works(t, c, servers[2].DB)
}

// Every key of a name is in one slot, whatever the name, or the cluster would refuse the script.
func TestAClusterClientIsOneNode(t *testing.T) {
	servers := redistest.Start(t, 1, "--cluster-enabled", "yes")
	if err := servers[0].DB.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr}})
	defer cluster.Close()
	redistest.Eventually(t, 10*time.Second, "the cluster is up", func() bool { return cluster.Set(t.Context(), "x", 1, 0).Err() == nil })
	c, err := redlock.New([]redis.UniversalClient{cluster})
	if err != nil {
		t.Fatal(err)
	}
	works(t, c, cluster)
	for _, name := range []string{"a", "{a}", "x{a}y", "a}b{", "{}", "}{", "x}", "{x", "x:fence", "é", "a,b"} {
		l, err := c.Mutex(name).Acquire(t.Context())
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if err := l.Extend(t.Context(), 20*time.Second); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		mustRelease(t, l)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := cluster.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the user's client was closed: %v", err)
	}
}

func TestNodesThatAreNoneAreRefused(t *testing.T) {
	a := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7001"})
	b := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7001", DB: 1})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:7001"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:7002"}})
	for _, c := range []redis.UniversalClient{a, b, ring, cluster} {
		t.Cleanup(func() { _ = c.Close() })
	}
	for _, tt := range []struct {
		name  string
		nodes []redis.UniversalClient
		want  string
	}{
		{"none", nil, "no nodes"},
		{"nil", []redis.UniversalClient{a, nil}, "node 1: the client is nil"},
		{"typed nil", []redis.UniversalClient{(*redis.Client)(nil)}, "node 0: the client is nil"},
		{"the same client twice", []redis.UniversalClient{cluster, cluster}, "nodes 0 and 1 are the same client"},
		{"the same address twice", []redis.UniversalClient{a, b}, "127.0.0.1:7001"},
		{"a ring", []redis.UniversalClient{ring}, "Ring"},
	} {
		c, err := redlock.New(tt.nodes)
		if c != nil {
			t.Errorf("%s: a client came with the error", tt.name)
		}
		wantErr(t, err, redlock.ErrInvalid)
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %q is not in %v", tt.name, tt.want, err)
		}
	}
}

func TestURLsThatAreNoneAreRefusedWithoutTheirPasswords(t *testing.T) {
	for _, tt := range []struct {
		urls []string
		want string
	}{
		{nil, "no nodes"},
		{[]string{""}, "malformed URL"},
		{[]string{"redis://h1", "http://user:hunter2@h2"}, "node 1: malformed URL"},
		{[]string{"redis://user:hunter2@h:port"}, "malformed URL"},
		{[]string{"redis://user:hunter2%zz@h"}, "malformed URL"},
		{[]string{"redis://:hunter2@h/x"}, "malformed URL"},
		{[]string{"redis://user:hunter2/ret@h"}, "malformed URL"},
		{[]string{"user:hunter2@h"}, "malformed URL"},
		{[]string{"//user:hunter2@://h"}, "malformed URL"},
		{[]string{"redis://u:p@a/hunter2@h"}, "malformed URL"},
		{[]string{"redis://h?password=hunter2"}, "malformed URL"},
		{[]string{"redis://h:6379", "redis://other:hunter2@h:6379/1"}, "same address h:6379"},
	} {
		c, err := redlock.Open(tt.urls)
		if c != nil {
			t.Errorf("%q: a client came with the error", tt.urls)
		}
		wantErr(t, err, redlock.ErrInvalid)
		if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q and no password", tt.urls, err, tt.want)
		}
	}
}

func TestAnEvenNumberOfNodesIsWarnedOfOnce(t *testing.T) {
	for urls, want := range map[int]int{1: 0, 2: 1, 3: 0, 4: 1, 5: 0} {
		var out bytes.Buffer
		nodes := make([]string, urls)
		for i := range nodes {
			nodes[i] = fmt.Sprintf("redis://127.0.0.1:%d", 7001+i)
		}
		c, err := redlock.Open(nodes, redlock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if n := strings.Count(out.String(), "level=WARN"); n != want {
			t.Errorf("%d nodes: %d warnings: %s", urls, n, out.String())
		}
	}
}

// FuzzOpen: whatever is given for a URL, there is a client or a clear error, never a panic, never a password.
func FuzzOpen(f *testing.F) {
	for _, s := range []string{"redis://h", "rediss://u:p@h:1/2", "unix:///s?db=1", "redis://:@", "://", "redis://[::1]:1", "redis://h?x=y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, url string) {
		c, err := redlock.Open([]string{strings.Replace(url, "@", "hunter2@", 1)})
		if err == nil {
			_ = c.Close()
			return
		}
		wantErr(t, err, redlock.ErrInvalid)
		if i, j := strings.Index(url, "//"), strings.Index(url, "@"); i >= 0 && j > i && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a password in %v", err)
		}
	})
}
