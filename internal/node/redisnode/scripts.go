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

// script is one operation in Lua: the text for EVAL, its digest for EVALSHA, and what it takes.
type script struct {
	text   string
	digest string
	keys   func(op *node.Op, args []any) []any // append them
	args   func(op *node.Op, args []any) []any
}

var scripts = map[node.Kind]*script{
	node.Acquire: newScript(fenceLua+acquireLua, all(gone, locks, fences), func(op *node.Op, args []any) []any {
		return append(args, op.Holder, op.TTL.Milliseconds(), op.Floor, op.Retain.Milliseconds())
	}),
	node.Raise: newScript(fenceLua+raiseLua, all(locks, fences), func(op *node.Op, args []any) []any {
		return append(args, op.Holder, op.Token, op.Retain.Milliseconds())
	}),
	node.Extend: newScript(fenceLua+extendLua, all(locks, fences), func(op *node.Op, args []any) []any {
		return append(args, op.Holder, op.TTL.Milliseconds(), op.Token, op.Retain.Milliseconds())
	}),
	node.Repair: newScript(fenceLua+repairLua, all(gone, locks, fences), func(op *node.Op, args []any) []any {
		return append(args, op.Holder, op.TTL.Milliseconds(), op.Token, op.Retain.Milliseconds())
	}),
	node.Release: newScript(releaseLua, locks, func(op *node.Op, args []any) []any {
		return append(args, op.Holder, op.Rest.Milliseconds())
	}),
	node.Verify: newScript(verifyLua, locks, func(op *node.Op, args []any) []any {
		return append(args, op.Holder)
	}),
}

// releaseWithMark is the release of a holder of whom a call may still arrive late.
var releaseWithMark = newScript(releaseLua, all(locks, gone), func(op *node.Op, args []any) []any {
	always := 0
	if op.MarkAlways {
		always = 1
	}
	return append(args, op.Holder, op.Rest.Milliseconds(), op.Mark.Milliseconds(), always)
})

// all appends what each of the parts appends.
func all(parts ...func(op *node.Op, args []any) []any) func(op *node.Op, args []any) []any {
	return func(op *node.Op, args []any) []any {
		for _, part := range parts {
			args = part(op, args)
		}
		return args
	}
}

func locks(op *node.Op, args []any) []any {
	for i := range op.Keys {
		args = append(args, op.Keys[i].Lock)
	}
	return args
}

func fences(op *node.Op, args []any) []any {
	for i := range op.Keys {
		args = append(args, op.Keys[i].Fence)
	}
	return args
}

// gone appends the mark of the holder, one for all names.
func gone(op *node.Op, args []any) []any { return append(args, op.Keys[0].Gone(op.Holder)) }

// otherArgs is the greatest number of arguments of an EVALSHA, the locks and the counters apart.
const otherArgs = 8

func newScript(text string, keys, args func(op *node.Op, args []any) []any) *script {
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
	args := make([]any, 0, 2*len(op.Keys)+otherArgs)
	args = s.keys(op, append(args, "evalsha", s.digest, 0))
	args[2] = len(args) - 3
	w := &wire{script: s, args: s.args(op, args)}
	op.Wire = w
	return w
}

// full returns the same as arguments of EVAL.
func (w *wire) full() []any {
	args := slices.Clone(w.args)
	args[0], args[1] = "eval", w.script.text
	return args
}
