package node

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// namespace begins what follows the hash tag in every key but the lock itself.
const namespace = ":redlock:"

// Keys names everything that one lock name owns on a node.
//
// The lock itself is PREFIX:NAME, a plain string, so that other Redlock clients contend for the same key. Every
// other key is {TAG}:redlock:KIND, followed by the lock's key where TAG is not the whole of it. TAG makes all
// keys of a name share a cluster slot. No name can produce a key of another name: the derived keys determine
// the lock key that they were derived from, and a lock key that looks like a derived one is refused.
type Keys struct {
	Lock  string // who holds: the holder's id
	Fence string // the fencing counter, one for all primitives of the name

	tag string
}

// NewKeys derives the keys of a name. It fails for an empty key, and for the few names that could be mistaken for a
// derived key, which only a prefix that is empty or begins with a brace allows.
func NewKeys(prefix, name string) (Keys, error) {
	lock := name
	if prefix != "" {
		lock = prefix + ":" + name
	}
	if lock == "" {
		return Keys{}, errors.New("the key is empty")
	}
	k := Keys{Lock: lock, tag: tagFor(lock)}
	if rest, ok := strings.CutPrefix(lock, "{"+k.tag+"}"); ok && strings.HasPrefix(rest, namespace) {
		return Keys{}, fmt.Errorf("the key %q could be mistaken for one that belongs to another name: choose a name that does not begin with a hash tag followed by %q", lock, namespace)
	}
	k.Fence = k.derive("fence")
	return k, nil
}

// ReleasedPrefix begins the value of a lock that was released, and stays for the rest of its minimum; the holder that
// had it follows.
const ReleasedPrefix = "released:"

// Gone is the mark of a holder that has withdrawn and of whom a late call may still arrive.
func (k Keys) Gone(holder string) string { return k.derive("gone:" + holder) }

func (k Keys) derive(kind string) string {
	key := "{" + k.tag + "}" + namespace + kind
	if k.tag != k.Lock {
		key += ":" + k.Lock
	}
	return key
}

// tagFor returns a hash tag that puts other keys into the slot of key: key's own tag if it has one, else all of
// key. Where neither can stand between braces, because of a closing brace, it is the smallest numeral that
// falls into the same slot.
func tagFor(key string) string {
	tag := hashed(key)
	if !strings.Contains(tag, "}") {
		return tag
	}
	slot := Slot(key)
	numeral := make([]byte, 0, 8)
	for i := int64(0); ; i++ {
		if numeral = strconv.AppendInt(numeral[:0], i, 10); crc16(numeral)%slots == slot {
			return string(numeral)
		}
	}
}

// hashed is the part of key that Redis Cluster hashes: what stands between the first opening brace and the
// first closing brace after it, if that is not empty, else all of key ("Hash tags" in the Redis Cluster
// specification).
func hashed(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// slots is the number of cluster slots.
const slots = 16384

// Slot is the cluster slot of key: CRC16 of its hashed part, modulo 16384.
func Slot(key string) uint16 { return crc16([]byte(hashed(key))) % slots }

// crc16 is the CRC16 of the Redis Cluster specification (XMODEM).
func crc16(data []byte) (crc uint16) {
	for _, b := range data {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return crc
}

// crcTable is the CRC16 of every single byte.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
