package redisnode

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/node"
)

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		kind  node.Kind
		reply any
		want  node.Vote
	}{
		{node.Acquire, int64(1796095723891270), node.Vote{Verdict: node.Granted, Number: 1796095723891270}},
		{node.Acquire, []any{int64(0), "b", int64(250), int64(2)}, node.Vote{Verdict: node.Refused, Reason: node.Held, Which: 2, Holder: "b", TTL: 250 * time.Millisecond}},
		{node.Acquire, []any{int64(0), "b", int64(-1), int64(0)}, node.Vote{Verdict: node.Refused, Reason: node.Held, Holder: "b", TTL: -time.Millisecond}},
		{node.Acquire, []any{int64(-1)}, node.Vote{Verdict: node.Refused, Reason: node.Gone}},
		{node.Repair, []any{int64(-1)}, node.Vote{Verdict: node.Refused, Reason: node.Gone}},
		{node.Raise, []any{int64(2), int64(77), int64(3)}, node.Vote{Verdict: node.Refused, Reason: node.Outbid, Number: 77, Holders: 3}},
		{node.Extend, int64(1), node.Vote{Verdict: node.Granted}},
		{node.Release, []any{int64(0), "", int64(-2), int64(0)}, node.Vote{Verdict: node.Refused, Reason: node.Missing}},
		{node.Verify, []any{int64(0), "", int64(-1), int64(0)}, node.Vote{Verdict: node.Refused, Reason: node.Held, TTL: -time.Millisecond}},
	} {
		if got := decode(tt.kind, tt.reply); got != tt.want {
			t.Errorf("%v %v: %+v, want %+v", tt.kind, tt.reply, got, tt.want)
		}
	}
}

// The replies of other commands, on a connection that lost count, are never votes.
func TestAnUnknownReplyIsAnErrorAndNoVote(t *testing.T) {
	for kind := node.Acquire; kind <= node.Verify; kind++ {
		for _, reply := range []any{
			nil, "OK", "1", true, int64(-7), int64(2) - int64(kind/node.Acquire)*2, []any{}, []any{"0"}, []any{int64(0)},
			[]any{int64(0), "b"}, []any{int64(0), int64(5), "b"}, []any{int64(9), "b", int64(5)}, []any{int64(2), "x", int64(1)},
			[]any{int64(0), "b", int64(5)}, []any{int64(0), "b", int64(5), "0"}, []any{int64(0), "b", int64(5), int64(-1)}, []any{int64(0), "b", int64(5), int64(0), "extra"}, map[any]any{}, 1.0,
		} {
			if kind == node.Acquire && reply == any(int64(0)) {
				continue
			}
			if v := decode(kind, reply); v.Verdict != node.Unknown || v.Err == nil || v.Fate != node.InDoubt {
				t.Errorf("%v: the reply %#v was taken for %+v", kind, reply, v)
			}
		}
	}
}

// FuzzDecode checks that only the documented shapes grant or refuse, whatever a server sends.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`5`, `[0,"b",250,0]`, `[-1]`, `[2,77,3]`, `"OK"`, `[[0]]`, `null`, `1`} {
		f.Add(uint8(1), s)
	}
	f.Fuzz(func(t *testing.T, k uint8, text string) {
		var raw any
		if json.Unmarshal([]byte(text), &raw) != nil {
			return
		}
		kind := node.Kind(k)%node.Verify + 1
		reply := resp(raw)
		switch v := decode(kind, reply); v.Verdict {
		case node.Granted:
			n, isNumber := reply.(int64)
			if !isNumber || n < 1 || kind != node.Acquire && n != 1 {
				t.Errorf("%v: %#v was taken for a grant", kind, reply)
			}
		case node.Refused:
			if list, isList := reply.([]any); !isList || len(list) == 0 {
				t.Errorf("%v: %#v was taken for a refusal", kind, reply)
			}
		default:
			if v.Err == nil {
				t.Errorf("%v: %#v is neither a vote nor an error", kind, reply)
			}
		}
	})
}

// resp turns JSON into what go-redis makes of a reply of the same shape.
func resp(v any) any {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = resp(v[i])
		}
	}
	return v
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

func TestErrorsOfServersAreTransientOrPermanent(t *testing.T) {
	for text, wantPermanent := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                   false,
		"BUSY Redis is busy running a script":                                              false,
		"OOM command not allowed when used memory > 'maxmemory'.":                          false,
		"MISCONF Redis is configured to save RDB snapshots":                                false,
		"READONLY You can't write against a read only replica.":                            false,
		"CLUSTERDOWN The cluster is down":                                                  false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                          false,
		"ERR max number of clients reached":                                                false,
		"ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed": false,
		"NOAUTH Authentication required.":                                                  true,
		"WRONGPASS invalid username-password pair or user is disabled.":                    true,
		"NOPERM User x has no permissions to run the 'evalsha' command":                    true,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                true,
		"MOVED 3999 127.0.0.1:6381":                                                        true,
		"CROSSSLOT Keys in request don't hash to the same slot":                            true,
		"ERR unknown command 'evalsha'":                                                    true,
	} {
		if answered, permanent := fromServer(serverError(text)); !answered || permanent != wantPermanent {
			t.Errorf("%s: answered %v, permanent %v, want permanent %v", text, answered, permanent, wantPermanent)
		}
	}
	for _, err := range []error{nil, redis.Nil, errors.New("EOF"), redis.ErrClosed} {
		if answered, _ := fromServer(err); answered {
			t.Errorf("%v was taken for a server's error", err)
		}
	}
}
