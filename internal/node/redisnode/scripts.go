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
	keys   int                                 // how many of the arguments are keys, which come first
	args   func(op *node.Op, args []any) []any // appends them
}

var scripts = map[node.Kind]*script{
	node.Acquire: newScript(fenceLua+acquireLua, 3, func(op *node.Op, args []any) []any {
		return append(args, op.Keys.Lock, op.Keys.Fence, op.Keys.Gone(op.Holder),
			op.Holder, op.TTL.Milliseconds(), op.Floor, op.Retain.Milliseconds())
	}),
	node.Raise: newScript(fenceLua+raiseLua, 2, func(op *node.Op, args []any) []any {
		return append(args, op.Keys.Lock, op.Keys.Fence, op.Holder, op.Token, op.Retain.Milliseconds())
	}),
	node.Extend: newScript(fenceLua+extendLua, 2, func(op *node.Op, args []any) []any {
		return append(args, op.Keys.Lock, op.Keys.Fence, op.Holder, op.TTL.Milliseconds(), op.Token, op.Retain.Milliseconds())
	}),
	node.Repair: newScript(fenceLua+repairLua, 3, func(op *node.Op, args []any) []any {
		return append(args, op.Keys.Lock, op.Keys.Fence, op.Keys.Gone(op.Holder),
			op.Holder, op.TTL.Milliseconds(), op.Token, op.Retain.Milliseconds())
	}),
	node.Release: newScript(releaseLua, 1, func(op *node.Op, args []any) []any {
		return append(args, op.Keys.Lock, op.Holder)
	}),
	node.Verify: newScript(verifyLua, 1, func(op *node.Op, args []any) []any {
		return append(args, op.Keys.Lock, op.Holder)
	}),
}

// releaseWithMark is the release of a holder of whom a call may still arrive late.
var releaseWithMark = newScript(releaseLua, 2, func(op *node.Op, args []any) []any {
	always := 0
	if op.MarkAlways {
		always = 1
	}
	return append(args, op.Keys.Lock, op.Keys.Gone(op.Holder), op.Holder, op.Mark.Milliseconds(), always)
})

// mostArgs is the greatest number of arguments of an EVALSHA.
const mostArgs = 10

func newScript(text string, keys int, args func(op *node.Op, args []any) []any) *script {
	return &script{text: text, digest: redis.NewScript(text).Hash(), keys: keys, args: args}
}

// wire is an operation as it is sent to every master: the arguments of EVALSHA. Names and holders are arguments, never
// part of a script's text.
type wire struct {
	script *script
	args   []any
}

// wireOf returns the operation's wire form, which is made once.
func wireOf(op *node.Op) *wire {
	if w, ok := op.Wire.(*wire); ok {
		return w
	}
	s := scripts[op.Kind]
	if op.Kind == node.Release && op.Mark > 0 {
		s = releaseWithMark
	}
	w := &wire{script: s, args: make([]any, 0, mostArgs)}
	w.args = s.args(op, append(w.args, "evalsha", s.digest, s.keys))
	op.Wire = w
	return w
}

// full returns the same as arguments of EVAL.
func (w *wire) full() []any {
	args := slices.Clone(w.args)
	args[0], args[1] = "eval", w.script.text
	return args
}
