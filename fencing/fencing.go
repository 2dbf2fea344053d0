// Package fencing has the fencing token.
package fencing

// Token is a fencing token.
type Token int64
