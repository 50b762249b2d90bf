/*
 * exec: the executor process: owns one device for one trust domain.  It checks again what the
 * broker says (extents, alignment, ownership), and does it.  The loop is in executor.c, devices are
 * behind device.h.
 *
 * Messages (wire maps on a frame socket).  Every request is answered by
 * {"t": "reply", "id", "st", "err", ...} when it is done; members of the answer stand behind "->".
 *
 *   ready    executor to broker, once: "build": of kilnd, "st", "err", "name", "model", "uuid",
 *            "bus", "memory", "target", "max_threads", "shared_default", "shared_optin",
 *            "grid": [x, y, z], "mps", "warp"; "seen": [the same from "name" on, of each device
 *            that the driver shows]; "sandbox": what holds it, "launchers": threads that may
 *            launch.  st < 0: the device cannot be opened; the process then exits with 3
 *   load     mod, entry, shared, object: bin; source, instantiation: of a generic kernel, which is
 *            found at desks by them  -> params: bytes of each (absent: not known), quiet: since
 *            when it waited for a quiet point, and when that was there (absent: not)
 *   unload   mod
 *   shape    shape: plan_problem_hash() of problems that have an exact kernel here: they are not
 *            planned at desks
 *   alloc    buf, bytes, stream: of the session that may name it
 *   import   buf, kind: "ipc" | "fd" | "pool", handle: bin, bufid, pool, pid, span, offset, bytes,
 *            stream, origin: which allocation (absent: one of its own); a descriptor
 *   share    buf, which was allocated here and nothing uses  -> span, offset; a descriptor
 *   free     buf; answered when nothing queued uses it
 *   launch   mod (0: copy), stream, grid, block, shared, copy, delay, deadline: ms in which nothing
 *            ends on its stream (absent: for ever),
 *            args: [[0, operand] | [1, bytes, value] | [2]: scratch memory | [3]: the report |
 *            bin: a value],
 *            ops: [[buf (0: left out), offset, extent bytes, alignment, written,
 *            over, period, width]],
 *            names: [{n}]: what sentences call them (absent: by number), granule: 16 or absent,
 *            scratch: [bytes, counters], report: [indices, end] (absent: none)
 *            -> us; blocks, accesses of a checked kernel
 *   copy     buf, offset, bytes, to: bool, stream, deadline; a memfd
 *   graph    graph, stream: of the session that may launch it, parts: [what launch has, op: for
 *            sentences]; remembered even if it is refused
 *   graph.launch  graph, stream, sub, delay, deadline  -> as launch
 *   graph.free    graph, stream
 *   cancel   ticket: the id of a launch, which ends in ECANCELED if it has not started
 *   end      stream: its session is gone
 *   lane.open    stream, deadline: ms, ready: ms, of ready words; a memfd
 *                (client/wire/lane_memory.h), the eventfd that wakes this process, and the end of
 *                a pipe that wakes the client; desk: the number of the first call that is bound at
 *                its desk (absent: there is none), notice: of those.  It ends with the stream
 *   lane.close   stream; answered when what was taken from it has ended
 *   lane.bind    stream, call, of, notice, run, and what launch has: entries may name the call.
 *                With run it is launched at once, and answered as launch is; else ops have no
 *                places
 *   lane.unbind  stream, call
 *   lane.cancel  stream, number: of an entry
 *   ping     -> inflight
 *   misdeed  what, at: test-only: an enum misdeed, once, in place of a step: a request by its name,
 *            "answer" (to a launch or copy), "entry" (of a lane: taken), "told" (its end), "desk"
 *            (of a lane: a problem lies there)
 *   Of launch, copy, graph.launch and lane.open also account: below TRAIL_ACCOUNTS (trail.h), to
 *   whom the time on the device counts (absent: 0)
 *   event    executor to broker: "what": "fault", "err": sentence, "ticket"?, "st"?, and it leaves
 *            "what": "progress": launches of lanes end, which the broker does not see
 *            "what": "unbound", "stream", "err": a lane.bind with run has launched, and not bound
 *            "what": "alive", "busy": so it says now and then, and once that it is not any more
 *            "what": "scratch", "bytes": of all streams and graphs, from now on
 *            "what": "printed", "text": bin, by kernels; "cut": bytes more that were not kept
 *            "what": "lane", "stream", "err": the client wrote nonsense there; it is closed
 *            "what": "quiet", "begun", "done", "held": launches are held from now on (begun), or so
 *            many loads and closes were done while nothing ran, for which they were held so many us
 *
 * A request that names a lane (lane: its stream, tail) is served after the entries before tail have
 * been taken; follows: number + 1 of an entry that must have succeeded.
 *
 * ids of mod, buf, graph and stream are the broker's, unique over the executor's life.
 */
#ifndef KILN_DAEMON_EXEC_H
#define KILN_DAEMON_EXEC_H

#include "daemon/sandbox/sandbox.h"
#include "device.h"

struct exec_options {
	int sock;           /* frame socket to the broker */
	int trail;          /* memory for struct trail, from the broker; 0: none */
	const char *device; /* "cpu", "cuda:1": a struct device_name */
	bool wrapped;       /* a program watches the process, by descriptors that must stay open */
	bool own;           /* of a session that brings kernels of its own */
	bool check;         /* kernels come compiled to be checked */
	enum device_order order;
	enum sandbox_mode sandbox;
	uint32_t beat_ms; /* while it works, it says so often that it lives; 0: never */
	/* How long a task that stalls the device waits for a moment in which nothing runs; 0: not at
	 * all */
	uint32_t quiet_patience_ms;
	int launchers;    /* threads that launch, the main one among them; 0: by itself */
	int test_misdeed; /* a test has it do this instead of saying that it is ready: enum misdeed */
};

#define EXEC_EXIT_NO_DEVICE 3
#define EXEC_EXIT_FAULT 4 /* the process has said event "fault" before */

/* Runs until the socket ends or the device breaks, and closes options->sock and options->trail.
 * Returns the exit status: 0 (the socket ended) or EXEC_EXIT_NO_DEVICE.  A device that breaks ends
 * the process with EXEC_EXIT_FAULT. */
int exec_main(const struct exec_options *options);

#endif
