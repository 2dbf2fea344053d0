package redlock

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/redquorum/locks/internal/drift"
)

// Limits and defaults of the settings.
const (
	// MaxNameLen is the greatest length of a name, in bytes.
	MaxNameLen = 512

	// MinDuration is the least value of a TTL and of every other duration for which nothing else is said. It is
	// also what catches a bare number, which is nanoseconds.
	MinDuration = 10 * time.Millisecond

	// MaxDuration is the greatest value of every duration: ten years, far from where arithmetic overflows. To say
	// "for ever" there is a setting's zero value.
	MaxDuration = 10 * 365 * 24 * time.Hour

	defaultTTL         = 10 * time.Second
	defaultPrefix      = "lock"
	defaultDriftFactor = 0.01
	defaultFenceIdle   = 7 * 24 * time.Hour
	maxNodeTimeout     = 500 * time.Millisecond // of the default, see WithNodeTimeout

	defaultRetryDelay = 200 * time.Millisecond
	defaultMaxDelay   = 5 * time.Second
)

// ClientOption is a setting of New or Open.
type ClientOption interface{ applyClient(c *clientConfig) }

// Option is a setting of one lock. Given to New or Open it is the default of the client's locks.
type Option interface {
	ClientOption
	applyLock(c *lockConfig)
}

type clientConfig struct {
	lock        lockConfig
	prefix      string
	driftFactor float64
	nodeTimeout time.Duration // 0: by the TTL
	logger      *slog.Logger
	problem
}

type lockConfig struct {
	ttl        time.Duration
	wait       time.Duration // 0: no limit
	retry      RetryPolicy
	autoExtend *bool         // nil: not said
	interval   time.Duration // 0: a third of the TTL
	maxHold    time.Duration // 0: no limit
	minHold    time.Duration // 0: none
	fenceIdle  time.Duration // 0: for ever
	limit      time.Duration // of one round; made by complete
	problem
}

type lockOption func(c *lockConfig)

func (o lockOption) applyLock(c *lockConfig)     { o(c) }
func (o lockOption) applyClient(c *clientConfig) { o(&c.lock) }

type clientOption func(c *clientConfig)

func (o clientOption) applyClient(c *clientConfig) { o(c) }

// duration sets one duration of a lock's settings, and remembers if it is too short.
func duration(option string, d time.Duration, field func(c *lockConfig) *time.Duration) Option {
	return lockOption(func(c *lockConfig) {
		c.refuse(outside(option, d))
		*field(c) = d
	})
}

// outside says that a duration is not acceptable; "" if it is.
func outside(option string, d time.Duration) string {
	switch {
	case d < MinDuration:
		return fmt.Sprintf("%s(%v) is below the least duration of %v (a bare number is nanoseconds)", option, d, MinDuration)
	case d > MaxDuration:
		return fmt.Sprintf("%s(%v) is above the greatest duration of %v", option, d, MaxDuration)
	}
	return ""
}

// problem is the first thing that is wrong with some settings; "" if nothing is.
type problem string

func (p *problem) refuse(text string) {
	if *p == "" {
		*p = problem(text)
	}
}

// WithTTL sets how long a lease lives on the nodes if it is not extended: the time after which a lock is free
// again when its holder has died. It is cut to whole milliseconds. Default 10 s, at least 10 ms.
func WithTTL(d time.Duration) Option {
	return duration("WithTTL", d, func(c *lockConfig) *time.Duration { return &c.ttl })
}

// WithWait limits how long Acquire waits; the context may end it earlier. When it is reached the error matches
// ErrWaitExpired and the class of the last attempt. Default: no limit. It has nothing to do with the TTL.
func WithWait(d time.Duration) Option {
	return duration("WithWait", d, func(c *lockConfig) *time.Duration { return &c.wait })
}

// WithRetry sets how Acquire repeats its attempts.
func WithRetry(p RetryPolicy) Option {
	return lockOption(func(c *lockConfig) {
		c.refuse(p.problem())
		c.retry = p
	})
}

// WithAutoExtend says whether leases extend themselves until they are released, lost, or reach WithMaxHold.
// Default: they do in Do and TryDo, and do not when Acquire or TryAcquire is called directly.
func WithAutoExtend(on bool) Option {
	return lockOption(func(c *lockConfig) { c.autoExtend = &on })
}

// WithExtendInterval sets the longest time between two automatic extensions: the first comes after a half to all of
// it, by chance, the others after nine tenths to all, so that leases that were acquired together are not extended
// together; after a failure they come sooner. Default: a third of the TTL. It must leave room in the TTL for the node
// timeout.
func WithExtendInterval(d time.Duration) Option {
	return duration("WithExtendInterval", d, func(c *lockConfig) *time.Duration { return &c.interval })
}

// WithMaxHold ends a lease after d, however often it is extended: its context ends with a cause that matches
// ErrLeaseLost, and its keys are removed. It bounds what a stuck holder can block. Default: no limit.
func WithMaxHold(d time.Duration) Option {
	return duration("WithMaxHold", d, func(c *lockConfig) *time.Duration { return &c.maxHold })
}

// WithMinHold keeps the lock taken for d from when it was acquired, also if it is released earlier: nobody holds it for
// the rest of that time, and nobody gets it. So a job that takes 5 ms runs once on hosts whose clocks differ by a
// second. A holder that dies does not keep it longer than its TTL. Default: none. It must not be above WithMaxHold.
func WithMinHold(d time.Duration) Option {
	return duration("WithMinHold", d, func(c *lockConfig) *time.Duration { return &c.minHold })
}

// WithFenceIdleTTL sets how long the fencing counter of a name outlives its last lease; 0 keeps it for ever.
// Tokens keep growing after the counter has expired, as long as the clocks of the clients agree to within d.
// Default 7 days.
func WithFenceIdleTTL(d time.Duration) Option {
	if d == 0 {
		return lockOption(func(c *lockConfig) { c.fenceIdle = 0 })
	}
	return duration("WithFenceIdleTTL", d, func(c *lockConfig) *time.Duration { return &c.fenceIdle })
}

// WithKeyPrefix sets what the keys on the nodes begin with: a name's key is PREFIX:NAME, or just NAME if the
// prefix is empty, for other Redlock libraries on the same keys. Default "lock".
func WithKeyPrefix(prefix string) ClientOption {
	return clientOption(func(c *clientConfig) { c.prefix = prefix })
}

// WithDriftFactor sets the allowance for clocks of different rates, as a part of the TTL: of a lease of ttl,
// ttl·f + 2 ms are not used. Default 0.01, at least 0, below 0.5. From "Distributed Locks with Redis" (redis.io).
func WithDriftFactor(f float64) ClientOption {
	return clientOption(func(c *clientConfig) {
		if math.IsNaN(f) || f < 0 || f >= 0.5 {
			c.refuse(fmt.Sprintf("WithDriftFactor(%v) is outside 0 to 0.5; 0.01 means one per cent of the TTL", f))
		}
		c.driftFactor = f
	})
}

// WithNodeTimeout limits how long one node may take to answer, whatever the time-outs of the user's clients are.
// It must fit into every TTL, together with the extend interval. Default: a tenth of the client's TTL, at most
// 500 ms, and at most a third of a lock's own TTL.
func WithNodeTimeout(d time.Duration) ClientOption {
	return clientOption(func(c *clientConfig) {
		c.refuse(outside("WithNodeTimeout", d))
		c.nodeTimeout = d
	})
}

// WithLogger sets where the client reports what no caller is told: an even number of nodes, a lease that was
// lost. Lock names are attributes; holder ids and passwords are never logged. Default: nowhere.
func WithLogger(l *slog.Logger) ClientOption {
	return clientOption(func(c *clientConfig) {
		if l != nil {
			c.logger = l
		}
	})
}

// newClientConfig applies opts to the defaults and checks what they say together.
func newClientConfig(op string, opts []ClientOption) (*clientConfig, error) {
	c := &clientConfig{
		lock:        lockConfig{ttl: defaultTTL, fenceIdle: defaultFenceIdle},
		prefix:      defaultPrefix,
		driftFactor: defaultDriftFactor,
		logger:      slog.New(slog.DiscardHandler),
	}
	for _, o := range opts {
		if o != nil {
			o.applyClient(c)
		}
	}
	check := c.lock
	c.refuse(check.complete(c))
	if c.problem != "" {
		return nil, invalid(op, "", "%s", c.problem)
	}
	return c, nil
}

// timeout is the longest that a node may take.
func (c *clientConfig) timeout() time.Duration {
	if c.nodeTimeout != 0 {
		return c.nodeTimeout
	}
	return min(c.lock.ttl/10, maxNodeTimeout)
}

// complete fills in what depends on other settings and returns what is wrong with them, if anything.
func (c *lockConfig) complete(client *clientConfig) string {
	c.retry = c.retry.withDefaults()
	c.limit = client.timeout()
	if client.nodeTimeout == 0 {
		c.limit = min(c.limit, c.ttl/3)
	}
	c.ttl = c.ttl.Truncate(time.Millisecond) // what Redis gets, and what validity is counted from
	interval := c.interval
	if interval == 0 {
		interval = c.ttl / 3
	}
	lasts := c.ttl - drift.Allowance(c.ttl, client.driftFactor)
	switch {
	case c.problem != "":
		return string(c.problem)
	case c.maxHold > 0 && c.minHold > c.maxHold:
		return fmt.Sprintf("a minimum hold of %v is above the maximum hold of %v", c.minHold, c.maxHold)
	case interval >= c.ttl:
		return fmt.Sprintf("an extend interval of %v does not fit into a TTL of %v", interval, c.ttl)
	case c.limit >= lasts:
		return fmt.Sprintf("a node timeout of %v does not fit into a TTL of %v, of which %v can be used", c.limit, c.ttl, lasts)
	case interval+c.limit >= lasts:
		return fmt.Sprintf("an extend interval of %v and a node timeout of %v do not fit into a TTL of %v, of which %v can be used", interval, c.limit, c.ttl, lasts)
	}
	c.interval = interval
	return ""
}
