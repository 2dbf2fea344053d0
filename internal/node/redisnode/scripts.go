package redisnode

import (
	_ "embed"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/locks/internal/node"
)

// One script, one file. Each file's header states its keys, its arguments with their units, and every reply.
var (
	//go:embed lua/fence.lua
	fenceLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/repair.lua
	repairLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/verify.lua
	verifyLua string
)

// script is one operation in Lua: the text for EVAL, its digest for EVALSHA, and the arguments that it takes.
type script struct {
	text   string
	digest string
	args   func(op *node.Op) (keys, argv []any)
}

var scripts = map[node.Kind]*script{
	node.Acquire: newScript(fenceLua+acquireLua, func(op *node.Op) (keys, argv []any) {
		return []any{op.Keys.Lock, op.Keys.Fence, op.Keys.Gone(op.Holder)},
			[]any{op.Holder, op.TTL.Milliseconds(), op.Floor, op.Retain.Milliseconds()}
	}),
	node.Raise: newScript(fenceLua+raiseLua, func(op *node.Op) (keys, argv []any) {
		return []any{op.Keys.Lock, op.Keys.Fence},
			[]any{op.Holder, op.Token, op.Retain.Milliseconds()}
	}),
	node.Extend: newScript(fenceLua+extendLua, func(op *node.Op) (keys, argv []any) {
		return []any{op.Keys.Lock, op.Keys.Fence},
			[]any{op.Holder, op.TTL.Milliseconds(), op.Token, op.Retain.Milliseconds()}
	}),
	node.Repair: newScript(fenceLua+repairLua, func(op *node.Op) (keys, argv []any) {
		return []any{op.Keys.Lock, op.Keys.Fence, op.Keys.Gone(op.Holder)},
			[]any{op.Holder, op.TTL.Milliseconds(), op.Token, op.Retain.Milliseconds()}
	}),
	node.Release: newScript(releaseLua, func(op *node.Op) (keys, argv []any) {
		if op.Mark == 0 {
			return []any{op.Keys.Lock}, []any{op.Holder}
		}
		always := 0
		if op.MarkAlways {
			always = 1
		}
		return []any{op.Keys.Lock, op.Keys.Gone(op.Holder)},
			[]any{op.Holder, op.Mark.Milliseconds(), always}
	}),
	node.Verify: newScript(verifyLua, func(op *node.Op) (keys, argv []any) {
		return []any{op.Keys.Lock}, []any{op.Holder}
	}),
}

func newScript(text string, args func(op *node.Op) (keys, argv []any)) *script {
	return &script{text: text, digest: redis.NewScript(text).Hash(), args: args}
}

// wire is an operation as it is sent to every master: the arguments of EVALSHA. Names and holders are arguments, never
// part of a script's text.
type wire struct {
	kind node.Kind
	args []any
}

// wireOf returns the operation's wire form, which is made once.
func wireOf(op *node.Op) *wire {
	if w, ok := op.Wire.(*wire); ok {
		return w
	}
	s := scripts[op.Kind]
	keys, argv := s.args(op)
	w := &wire{kind: op.Kind, args: make([]any, 0, 3+len(keys)+len(argv))}
	w.args = append(w.args, "evalsha", s.digest, len(keys))
	w.args = append(w.args, keys...)
	w.args = append(w.args, argv...)
	op.Wire = w
	return w
}

// full returns the same as arguments of EVAL.
func (w *wire) full() []any {
	args := slices.Clone(w.args)
	args[0], args[1] = "eval", scripts[w.kind].text
	return args
}
