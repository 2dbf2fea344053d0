package redisnode

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/node"
)

// Codes that the scripts answer with, as the first number of a list; see the headers of the scripts.
const (
	codeRefused = 0
	codeGone    = -1
	codeOutbid  = 2
)

// decode turns a script's reply into a vote. A reply of an unknown shape is an error, never a grant: it may
// belong to another command, on a connection that lost count.
func decode(kind node.Kind, reply any) node.Vote {
	switch r := reply.(type) {
	case int64:
		if kind == node.Acquire && r > 0 {
			return node.Vote{Verdict: node.Granted, Number: r}
		}
		if kind != node.Acquire && r == 1 {
			return node.Vote{Verdict: node.Granted}
		}
	case []any:
		if v, ok := decodeRefusal(kind, r); ok {
			return v
		}
	}
	return node.Unanswered(fmt.Errorf("unexpected reply to %v: %.100v", kind, reply))
}

func decodeRefusal(kind node.Kind, reply []any) (node.Vote, bool) {
	if len(reply) == 0 {
		return node.Vote{}, false
	}
	code, ok := reply[0].(int64)
	switch {
	case !ok:
	case code == codeGone && len(reply) == 1 && (kind == node.Acquire || kind == node.Repair):
		return node.Vote{Verdict: node.Refused, Reason: node.Gone}, true
	case code == codeRefused && len(reply) == 4:
		holder, isText := reply[1].(string)
		left, isNumber := reply[2].(int64)
		which, isIndex := reply[3].(int64)
		if !isText || !isNumber || !isIndex || which < 0 || which > math.MaxInt32 {
			break
		}
		v := node.Vote{Verdict: node.Refused, Reason: node.Held, Holder: holder, Which: int(which)}
		if holder == "" && left == -2 { // PTTL of a key that is not there
			v.Reason = node.Missing
			return v, kind != node.Acquire && kind != node.Repair
		}
		v.TTL = time.Duration(min(left, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		return v, true
	case code == codeOutbid && len(reply) == 3 && kind == node.Raise:
		number, isNumber := reply[1].(int64)
		others, isCount := reply[2].(int64)
		if isNumber && isCount {
			return node.Vote{Verdict: node.Refused, Reason: node.Outbid, Number: number, Holders: int32(min(max(others, 0), math.MaxInt32))}, true
		}
	}
	return node.Vote{}, false
}

// passing lists the error codes by which a server says "not now". Every other error needs somebody to act: to
// grant a right, to change a password, to remove a key of another type.
var passing = []string{
	"LOADING", "BUSY", "TRYAGAIN", "MISCONF", "OOM", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS",
	"NOSCRIPT", "UNKILLABLE", "ERR max number of clients",
}

// fromServer reports whether err is an error reply of the server, and whether it is permanent.
func fromServer(err error) (answered, permanent bool) {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return false, false
	}
	// Before version 7 an error inside a script comes wrapped in a sentence of its own.
	wrapped := strings.HasPrefix(reply.Error(), "ERR Error running script")
	for _, code := range passing {
		if strings.HasPrefix(reply.Error(), code) || wrapped && strings.Contains(reply.Error(), code) {
			return true, false
		}
	}
	return true, true
}
