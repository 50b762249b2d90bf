/*
 * The protocol between libkiln and kilnd, and between kilnd and its children: one file that both
 * sides include.
 *
 * A message is one SOCK_SEQPACKET frame (frame.h) that holds one msgpack map (wire.h).
 *
 *   request   {"t": name, "id": n, ...}     n > 0, rising; the sender chooses it
 *   reply     {"t": "reply", "id": n, "st": 0 or a negative kiln_status, ...}; "err": a sentence,
 *             if st < 0
 *   event     {"t": "event", "id": 0, "what": name, ...}   unasked for; unknown ones are ignored
 *
 * Event "printed" text (bin), cut: what the client's own kernels have printed, and how many bytes
 * more there were.
 * Event "lane.lost" st, err: the client's lane is gone; entries that had not ended have ended so.
 *
 * Every request gets exactly one reply.  Replies may come in any order.  The reply to "submit",
 * "write" and "read" comes when the work is done, so its id is the ticket.
 *
 * To add a field, give it a key that no request of the table has had; readers ignore unknown keys
 * and treat an absent one as its default.  To add a request, an event or a status, add a line to
 * the table: a daemon refuses an unknown request with one sentence, a client ignores an unknown
 * event, and a status below 0 is a failure.  Where it would do harm to ignore a field, the reply
 * has it, too: a client that does not find it there (hello's on_miss) refuses to go on.  There are
 * no other capabilities.
 *
 * To change the meaning of a key or remove one, raise PROTOCOL_VERSION.  Each side says which
 * versions it speaks, from oldest to proto; hello's reply has the newest one that both speak as
 * proto.  A daemon serves the version before its own, too (docs/compatibility.md).  The memory of
 * lanes has a version of its own, for which nothing is promised: lane_memory.h.
 *
 * Values used in several messages
 *   tensors   list of {"d": kiln_dtype, "s": [shape], "t": [strides; absent: contiguous],
 *             "b": buffer id (absent: none), "o": byte offset}; {"d": 0}: left out, as are those
 *             that the list ends before
 *   attrs     map of name -> integer | real | [integers] | string
 *   operands  list of [buffer id, byte offset], as many as "prepare" had tensors; [0, 0]: left out
 *   raw       {"name", "entry", "bytes": of the source, "headers": [{"n": name, "c": bytes}],
 *             "macros": [{"n": name, "v": value}], "options": [{"o": option}]}; the texts of source
 *             and headers follow one another in the descriptor
 *   args      list of [buffer id, byte offset, bytes, KILN_READ | KILN_WRITE], or the bytes of a
 *             value
 *   tail      how many entries the client has written to its lane (lane_memory.h), which the
 *             request follows; follows: number + 1 of one that must have succeeded
 *   template  {"kind": nothing|copy|launch, "grid", "block", "shared", "copy": bytes, "scratch":
 *             [bytes, counters] (absent: none), "args": list of [0, operand] | [1, bytes, value] |
 *             [2], which is the scratch memory, "operands": list of {"n": name, "bytes", "align",
 *             "written", "over": 1 + the operand whose place it may have, "period", "width": the
 *             bytes of each period that it touches (absent: 0, all)}}
 *   target    "cpu" | "sm_NN";   device   "cpu" | "cuda:N";   key   64 hexadecimal digits
 */
#ifndef KILN_CLIENT_PROTOCOL_H
#define KILN_CLIENT_PROTOCOL_H

#define PROTOCOL_VERSION 1
#define PROTOCOL_OLDEST 1

/*
 * Requests of a client: name, flags, arguments, reply.  Flags:
 *   O   operator only: the daemon's own uid
 *   T   test-only: needs kilnd --test-requests
 *   F   carries a descriptor
 * The daemon's command table and `kiln help requests` are made from it.
 */
#define PROTOCOL_REQUESTS(X)                                                                       \
	X("hello", "", "proto, oldest? (proto), version, pid, device?, background?, on_miss?, name?",  \
	  "proto, version, session, device, max_message, on_miss, dtypes: the newest kiln_dtype")      \
	X("info", "", "section?",                                                                      \
	  "server, session, counters, busy, identities: [{name, text, left, right, holds}], workers, " \
	  "sandbox: {mode, lacks}, executors, limits, cache; with section: all operators, sessions, "  \
	  "older_sessions, flights, too; with section: requests, that table")                          \
	X("metrics", "", "", "text: all metrics as OpenMetrics (docs/metrics.md)")                     \
	X("devices", "", "",                                                                           \
	  "rows: [{name, kind, state, target, model, uuid, bus, memory, reason, "                      \
	  "was}]")                                                                                     \
	X("ops", "", "", "rows: [{name, operands, attributes, summary}]")                              \
	X("explain", "", "op, tensors, attrs, target?",                                                \
	  "plan: map, text, key, cached, operands: [{name, d, s, t, bytes, written}], choices: "       \
	  "[name], model, signature, tuned?: {choice, micros, own_micros, when, refused}, failed, "    \
	  "status?, error?, near: [{key, target, instantiation, failed, used, distance, left_out, "    \
	  "differences: [{what, text}]}]")                                                             \
	X("compile", "", "op, tensors, attrs, target?", "key, origin, text, micros, bytes")            \
	X("alloc", "", "bytes, flags, name",                                                           \
	  "buf, offset, bytes, generation; flags SHARED: with the memfd")                              \
	X("lend", "F",                                                                                 \
	  "kind: ipc|fd|pool, bytes, offset, span, handle?, bufid?, pool?, pid, name, gpu? (its "      \
	  "UUID), peer? (kind fd: it is another GPU's)",                                               \
	  "buf, generation")                                                                           \
	X("share", "", "buf: of alloc", "span, offset, memory: its number; a descriptor for lend")     \
	X("free", "", "buf, tail?", "")                                                                \
	X("write", "F", "buf, offset, bytes, tail?; memfd sealed against shrinking", "")               \
	X("read", "F", "buf, offset, bytes, tail?; memfd sealed against shrinking", "")                \
	X("prepare", "", "op, tensors, attrs, run?, lane?, tail?, bound?",                             \
	  "call, key, origin, text, micros; or with run, where its kernel is there, when it has run: " \
	  "call, ran, and what submit answers; or with lane, before it has run: the same, not ran; "   \
	  "or with bound, the number of a call that is bound at the lane's desk: nothing")             \
	X("graph", "", "works: [{call, operands}]", "call, origin, text")                              \
	X("submit", "", "call, operands, after, lane?, tail?, follows?",                               \
	  "micros; with lane: bound, generation, alignments, extents, overs, periods, widths, and "    \
	  "for "                                                                                       \
	  "the first of a device process the lane: a memfd, an eventfd and an end of a pipe")          \
	X("raw.prepare", "F", "raw, local?; memfd of its texts",                                       \
	  "call, key, origin, text, micros, and unless local: params")                                 \
	X("raw.compile", "F", "raw, target?; memfd of its texts", "key, origin, text, micros, bytes")  \
	X("raw.explain", "F", "raw, target?; memfd of its texts",                                      \
	  "plan: map, text, key, cached, failed, status?, error?, near")                               \
	X("raw.submit", "", "call, grid, block, shared, timeout, args, after", "micros")               \
	X("object", "",                                                                                \
	  "call, alignments: [bytes, for each operand; 0: left out], generic? (a generic kernel will " \
	  "do), launches? (of the generic kernel that it has, since it last said)",                    \
	  "key, target, entry, template: map; where a kernel is launched: with the memfd of its "      \
	  "object, sealed; of a generic kernel again: after how many launches to ask for a better "    \
	  "one, 0: none comes; with launches, where there is no better one yet: only again")           \
	X("release", "", "call", "")                                                                   \
	X("cancel", "", "ticket, or entry: number + 1", "")                                            \
	X("cache.ls", "", "limit?, sort?, next? (a key, with sort key), op?",                          \
	  "rows: [{key, op, target, instantiation, bytes, size, hits, used, created, compiler, "       \
	  "pinned, registers, shared, spills, local, compile_micros}], trouble: of the disk")          \
	X("cache.failed", "", "limit?",                                                                \
	  "rows: [{key, op, target, instantiation, status, error, until, hits, used, created}]")       \
	X("cache.retry", "O", "key (a unique prefix will do), or all: 1", "removed")                   \
	X("cache.show", "", "key (a unique prefix will do)",                                           \
	  "key, op, instantiation, target, bytes, registers, shared, spills, compile_micros, "         \
	  "created, used, "                                                                            \
	  "hits, size, compiler, pinned, source, log, key_text, plan, arguments: [{text, optional}], " \
	  "failed; of a failure status, error, until instead of bytes and what follows it")            \
	X("cache.get", "", "key", "object: bin")                                                       \
	X("cache.verify", "O", "next?",                                                                \
	  "a piece: checked, bad, rows: [{key, why}], total, more, next: for the next piece")          \
	X("cache.recompile", "O", "key",                                                               \
	  "result: same|differs|failed|skipped, why, key, op, target, instantiation, compile_micros")  \
	X("cache.pin", "O", "key", "key")                                                              \
	X("cache.unpin", "O", "key", "key")                                                            \
	X("cache.trim", "O",                                                                           \
	  "bytes?, left?, older_than? (seconds), op?, target?, compiler? (a part of it), dry_run?, "   \
	  "next?",                                                                                     \
	  "a piece: removed, freed, bytes, left, pinned, more, next: for the next piece; dry_run: "    \
	  "rows")                                                                                      \
	X("cache.clear", "O", "next?", "as cache.trim")                                                \
	X("cache.export", "O", "path, op?, target?, compiler?, older_than?, key? (its name), days?",   \
	  "rows, bytes, winners: of tuning, key, key_id")                                              \
	X("cache.import", "O", "path",                                                                 \
	  "rows, bytes, winners, winners_taken, imported, present, key, key_id, when, until, "         \
	  "compilers: [{compiler, here}]")                                                             \
	X("cache.backup", "O", "path", "rows, bytes, winners: of tuning")                              \
	X("cache.restore", "O", "path",                                                                \
	  "rows, bytes, winners, winners_taken, imported, present, compilers: [{compiler, here}]")     \
	X("warm", "O", "line? (of a manifest), target? (without line: it is looked at), compiler?",    \
	  "key, op, target, instantiation, origin: hit|shared|compiled|copy|skipped, bytes, "          \
	  "compile_micros, "                                                                           \
	  "micros")                                                                                    \
	X("record", "O", "next? (a line), generic?, commands?",                                        \
	  "text: lines of a manifest, next, more, problems, left_out; generic: those of the generic "  \
	  "kernels instead; commands: as lines of a shell, `kiln compile ...`")                        \
	X("key.new", "O", "name", "name, key_id, public (a line), path")                               \
	X("key.ls", "O", "",                                                                           \
	  "rows: [{name, key_id, public, secret, trusted}], keys, trusted (directories)")              \
	X("key.trust", "O", "public, name?", "name, key_id")                                           \
	X("key.distrust", "O", "name (or key_id)", "name, key_id")                                     \
	X("tuned.ls", "", "",                                                                          \
	  "rows: [{op, model, target, signature, choice, micros, own_micros, candidates, when, "       \
	  "version}]")                                                                                 \
	X("tuned.put", "O",                                                                            \
	  "op, model, target, signature, choice, micros, own_micros, candidates, when, version?", "")  \
	X("tuned.rm", "O", "model?, target?, signature?: all three, or none for all rows", "removed")  \
	X("fault.ls", "O", "",                                                                         \
	  "rows: [{report, kind: device|compiler|store|lane, device, time, last, times, said, "        \
	  "bytes}], directory; the newest first")                                                      \
	X("fault.show", "O", "report? (without: the newest)",                                          \
	  "report, kind, device, time, last, times, said, kernels: [{key}], text")                     \
	X("fault.now", "O", "", "text: a report of how things are, without a fault")                   \
	X("debug", "OT", "what, ...", "what it was asked for")                                         \
	X("waits", "O", "",                                                                            \
	  "rows: [{session (0: the daemon itself), uid, pid, asked, request, what, text, key?, of, "   \
	  "of_pid?, device?, count, age_ms, left_ms?}], the oldest first, all: how many there are")    \
	X("trace", "O", "ms: for how long",                                                            \
	  "trace: bin, Perfetto's message Trace, spans, dropped: for want of room, missed: calls on "  \
	  "devices that were too many")                                                                \
	X("trace.begin", "O", "", "(a trace of this session alone, 60 s at most, until trace.end)")    \
	X("recent", "O", "seen? (a number; without: what comes from now on)",                          \
	  "rows: [{number, ended, session, uid, pid, program, asked, op, problem, choice, origin, "    \
	  "status, total_us, parts: {plan, look, remote, compile, load, queue, device}}], seen: the "  \
	  "number of the last, lost: how many were overwritten before, more: how many there are "      \
	  "still")                                                                                     \
	X("slow", "O", "forget?", "rows: as recent, the slowest first; forget: there are none then")   \
	X("trace.end", "O", "", "as trace")                                                            \
	X("stop", "O", "", "")

/*
 * The "debug" request, only with --test-requests:
 *   what: "delay-compile" ms       every compile job waits so long first (0: off)
 *   what: "MISDEED-compile" count  the next count compile jobs: fail, hang, crash, or what else
 *                                  daemon/base/misdeed.h has
 *   what: "fail-device" misdeed at own?   of the device process of this session, or of its own,
 *                                  once, in place of that step (daemon/exec/exec.h)
 *   what: "fail-start" misdeed role count   of the next count children of that role, which are not
 *                                  ready: role "executor" | "compiler"
 *   what: "spare-children" count ms  the next count children that are to be killed are not, as if
 *                                  the system held them, and are waited for so long
 *   what: "start-deadline" ms      children have no more to be ready (0: as usual)
 *   what: "call-deadline" ms       device processes have no more for anything, until one
 *                                  ends (0: as usual)
 *   what: "delay-store" ms         every call of the cache waits so long first (0: off)
 *   what: "delay-launch" ms        every launch waits so long in the executor first (0: off)
 *   what: "gain" ms                what an exact kernel saves a launch (0: as estimated)
 *   what: "available-memory" bytes  compilers may have no more, as if the host had not (0: off)
 *   what: "idle-executor" ms       a device process of another uid that nobody uses lives so long
 *   what: "hello-deadline" ms      who connects has so long to say hello (0: as usual)
 *   what: "restart-pause" ms       the longest before a child starts again (0: as usual)
 *   what: "kill" role pid?         SIGKILL to a child: role "executor" | "compiler"
 *   what: "drop"                   closes this connection without an answer
 *   what: "corrupt" key            flips a bit of that row's object in the cache
 *   what: "children"               rows: [{role, pid, state, device}]
 *   what: "expire"                 forgets cached objects in memory (the next use reads the disk)
 *   what: "store-fault" kind ms count?  the disk of the cache is "full", "readonly", "failing", or
 *                                  "slow" (each call takes ms), for count calls; "none": as it is
 *   what: "store-deadline" ms      whoever waits for that disk waits so long (0: as usual)
 *   what: "admit-rights"           descriptors may come with a connection, as before Linux 6.16
 *   what: "closer-sockets" count   so many sockets that are being closed are too many (0: as usual)
 *   what: "look"                   looks after the cache's files and the socket, as every 5 s
 */

#endif
