// Package redlock locks names on several independent Redis masters, by majority.
//
//	client, err := redlock.Open([]string{"redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"})
//	…
//	err = redlock.Do(ctx, client.Mutex("invoice:42"), func(ctx context.Context) error {
//		lease, _ := redlock.FromContext(ctx)
//		return store.Write(ctx, invoice, lease.Token())
//	})
//
// A [Client] puts every operation to all its masters. A [Mutex] is a handle of one name; acquiring it yields a
// [Lease], which is held while its validity lasts. [Do] acquires, runs a function under a context that ends with the
// lease, extends the lease meanwhile, and releases it.
//
// # Assumptions
//
// The masters are independent of each other: no replicas, no shards, no two addresses of one server. All clients name
// the same masters. The clocks of masters and clients run at rates that differ by less than the drift factor; what
// they show does not matter. A master keeps what it granted until it expires.
//
// # Guarantees
//
// At no instant do two leases of one name both have a positive validity (I1). The tokens of a name strictly increase in
// the order of its leases (I3). A lease's validity is 0, and its context done, before a majority of masters could
// grant to somebody else, as soon as the process runs; after a suspend of the machine the context follows within 100 ms
// (I4). After release, failure, cancellation or Close nothing of a
// holder is left on a master that can be reached (I5). A minority of masters may fail in any way, and nobody notices
// (I6). The numbers are those of docs/algorithm.md.
//
// # Not guaranteed
//
// A lease does not stop the code that runs under it: a process that is paused does not see its context end. What must
// not be written twice, or late, has to be guarded where it is written, by the token: see package fencing. A master
// that restarts empty, together with a second failure, can let two in. There is no order among those who wait.
//
// # Concurrency
//
// Clients, handles and leases are safe for concurrent use. A mutex is not re-entrant.
//
// # Errors
//
// Every error of the library is an [*Error]; Do and TryDo return what their function returned. errors.Is finds the class: [ErrNotAcquired] is contention, [ErrNoQuorum] an outage,
// [ErrLeaseLost] a loss, and an error that matches a context's error comes from the caller's context, never from a
// limit of the library's own.
//
// # Time
//
// Durations are time.Duration; those that Redis gets are cut to whole milliseconds. The time that a machine was
// suspended counts, on Linux by CLOCK_BOOTTIME, elsewhere by the wall clock. A virtual machine that is paused by its
// host is beyond that: its clocks may stand still.
package redlock
