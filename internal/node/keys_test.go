package node_test

import (
	"strings"
	"testing"

	"github.com/redquorum/locks/internal/node"
)

func TestKeys(t *testing.T) {
	for _, tt := range []struct{ prefix, name, lock, fence string }{
		{"lock", "invoice:42", "lock:invoice:42", "{lock:invoice:42}:redlock:fence"},
		{"lock", "{user}:7", "lock:{user}:7", "{user}:redlock:fence:lock:{user}:7"},
		{"lock", "{x", "lock:{x", "{lock:{x}:redlock:fence"},
		{"", "raw", "raw", "{raw}:redlock:fence"},
		{"", "{raw}", "{raw}", "{raw}:redlock:fence:{raw}"},
		{"lock", "a,b", "lock:a,b", "{lock:a,b}:redlock:fence"},
	} {
		k, err := node.NewKeys(tt.prefix, tt.name)
		if err != nil || k.Lock != tt.lock || k.Fence != tt.fence {
			t.Errorf("NewKeys(%q, %q) = %q, %q, %v; want %q, %q", tt.prefix, tt.name, k.Lock, k.Fence, err, tt.lock, tt.fence)
		}
	}
}

// The slots are those of CLUSTER KEYSLOT.
func TestSlot(t *testing.T) {
	for key, want := range map[string]uint16{
		"123456789": 12739, "foo": 12182, "{foo}bar": 12182, "a{foo}b": 12182, "{}foo": 9500, "foo{": 7673, "lock:a}b{": 13222, "{{x}}y": 11068,
	} {
		if got := node.Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestANameThatLooksLikeADerivedKeyIsRefused(t *testing.T) {
	victim, err := node.NewKeys("", "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{victim.Fence, victim.Gone("holder"), "{a}:redlock:anything"} {
		if k, err := node.NewKeys("", name); err == nil {
			t.Errorf("NewKeys of %q gave %q", name, k.Lock)
		}
	}
	if _, err := node.NewKeys("lock", victim.Fence); err != nil {
		t.Errorf("under a prefix every name is fine, got %v", err)
	}
}

// No name can produce a key of another name, and all keys of a name share a cluster slot.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{"a", "x:fence", "x}", "{x", "a,b", "{}", "a}b{", "{a}", "x{a}y", "}{", "{a}:redlock:fence", "é", "\x00"} {
		f.Add("lock", s, "a")
		f.Add("", s, "{a}:redlock:fence:a")
		f.Add("{p}", s, "b")
	}
	f.Add("", "", "0")
	const holder = "01890a5d-ac96-774b-bcce-b302099a8057"
	f.Fuzz(func(t *testing.T, prefix, name, other string) {
		k, err := node.NewKeys(prefix, name)
		if err != nil {
			return
		}
		mine := []string{k.Lock, k.Fence, k.Gone(holder)}
		for _, key := range mine {
			if node.Slot(key) != node.Slot(k.Lock) {
				t.Errorf("%q and %q are in different slots", key, k.Lock)
			}
		}
		o, err := node.NewKeys(prefix, other)
		if err != nil || other == name {
			return
		}
		for _, a := range mine {
			for _, b := range []string{o.Lock, o.Fence, o.Gone(holder)} {
				if a == b {
					t.Errorf("names %q and %q share the key %q", name, other, a)
				}
			}
		}
		if strings.HasPrefix(k.Fence, k.Lock) && k.Fence == k.Lock {
			t.Errorf("the fence of %q is its lock", name)
		}
	})
}
