package nodetest

import (
	"testing"
	"time"

	"github.com/redquorum/locks/internal/node"
)

// Table puts a fixed sequence of operations to one node and checks every answer: the edges that random operations
// seldom hit.
func Table(t *testing.T, n node.Node) {
	t.Helper()
	keys, err := node.NewKeys("table", "x")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMicro()
	acquire := func(holder string) *node.Op {
		return &node.Op{Kind: node.Acquire, Keys: []node.Keys{keys}, Holder: holder, TTL: long, Floor: now, Retain: long}
	}
	held := func(v node.Vote) bool {
		return v.Verdict == node.Refused && v.Reason == node.Held && v.Holder == "a" && v.TTL > long-time.Minute && v.TTL <= long
	}
	refused := func(why node.Reason) func(v node.Vote) bool {
		return func(v node.Vote) bool { return v.Verdict == node.Refused && v.Reason == why }
	}
	granted := func(v node.Vote) bool { return v.Verdict == node.Granted }
	drew := func(number int64) func(v node.Vote) bool {
		return func(v node.Vote) bool { return v.Verdict == node.Granted && v.Number == number }
	}
	for _, step := range []struct {
		what string
		op   *node.Op
		ok   func(v node.Vote) bool
	}{
		{"verify of nothing", &node.Op{Kind: node.Verify, Keys: []node.Keys{keys}, Holder: "a"}, refused(node.Missing)},
		{"extend of nothing", &node.Op{Kind: node.Extend, Keys: []node.Keys{keys}, Holder: "a", TTL: long, Retain: long}, refused(node.Missing)},
		{"raise of nothing", &node.Op{Kind: node.Raise, Keys: []node.Keys{keys}, Holder: "a", Token: now, Retain: long}, refused(node.Missing)},
		{"release of nothing", &node.Op{Kind: node.Release, Keys: []node.Keys{keys}, Holder: "a"}, refused(node.Missing)},
		{"the first number is the floor", acquire("a"), drew(now)},
		{"a repeated acquire draws anew", acquire("a"), drew(now + 1)},
		{"another holder", acquire("b"), held},
		{"extend by another", &node.Op{Kind: node.Extend, Keys: []node.Keys{keys}, Holder: "b", TTL: long, Retain: long}, held},
		{"release by another", &node.Op{Kind: node.Release, Keys: []node.Keys{keys}, Holder: "b"}, held},
		{"raise to where it is", &node.Op{Kind: node.Raise, Keys: []node.Keys{keys}, Holder: "a", Token: now + 1, Retain: long}, func(v node.Vote) bool {
			return v.Reason == node.Outbid && v.Number == now+1
		}},
		{"raise by one", &node.Op{Kind: node.Raise, Keys: []node.Keys{keys}, Holder: "a", Token: now + 2, Retain: long}, granted},
		{"raise to where it was", &node.Op{Kind: node.Raise, Keys: []node.Keys{keys}, Holder: "a", Token: now, Retain: long}, refused(node.Outbid)},
		{"extend with a higher token lifts the counter", &node.Op{Kind: node.Extend, Keys: []node.Keys{keys}, Holder: "a", TTL: long, Token: now + 10, Retain: long}, granted},
		{"extend with a lower token does not lower it", &node.Op{Kind: node.Extend, Keys: []node.Keys{keys}, Holder: "a", TTL: long, Token: now, Retain: long}, granted},
		{"the next number", acquire("a"), drew(now + 11)},
		{"a shorter extension", &node.Op{Kind: node.Extend, Keys: []node.Keys{keys}, Holder: "a", TTL: short, Retain: long}, granted},
		{"it shortened nothing", acquire("b"), held},
		{"repair of what is there", &node.Op{Kind: node.Repair, Keys: []node.Keys{keys}, Holder: "a", TTL: long, Token: now, Retain: long}, granted},
		{"repair over another", &node.Op{Kind: node.Repair, Keys: []node.Keys{keys}, Holder: "b", TTL: long, Token: now, Retain: long}, held},
		{"release leaves no mark where it finds the lock", &node.Op{Kind: node.Release, Keys: []node.Keys{keys}, Holder: "a", Mark: long}, granted},
		{"so the holder is not gone", acquire("a"), granted},
		{"release that leaves a mark all the same", &node.Op{Kind: node.Release, Keys: []node.Keys{keys}, Holder: "a", Mark: long, MarkAlways: true}, granted},
		{"a late acquire", acquire("a"), refused(node.Gone)},
		{"a late repair", &node.Op{Kind: node.Repair, Keys: []node.Keys{keys}, Holder: "a", TTL: long, Token: now, Retain: long}, refused(node.Gone)},
		{"a mark is one holder's", acquire("b"), granted},
		{"release without the lock leaves a mark", &node.Op{Kind: node.Release, Keys: []node.Keys{keys}, Holder: "c", Mark: long}, refused(node.Held)},
		{"which counts", acquire("c"), refused(node.Gone)},
	} {
		if v := Ask(n, step.op); !step.ok(v) {
			t.Errorf("%s: %+v", step.what, v)
		}
	}
}
