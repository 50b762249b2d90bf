#!/usr/bin/env python3
"""trace.py FILE LAUNCHES COMPILES: reads a trace of `kiln trace` by Perfetto's own definitions, and
checks what must hold between its spans.  trace.py FILE alone OP LEAST: the same of `kiln run
--trace`, which shows one session, its kernels of operator OP, and no less than LEAST calls of it.
trace.py FILE cuda: a trace of a GPU.  trace.py FILE waits: one of a program that copies and frees.
Exit status 77: those definitions are not here.
"""

import sys

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2
except ImportError:
    sys.exit(77)

BEGIN, END = 1, 2
# A busy machine may let a thread stand for so long before it looks at the clock.
TURN_NS = 2_000_000_000


class Span:
    def __init__(self, track, event, begin):
        self.track, self.name, self.begin, self.end = track, event.name, begin, None
        self.flows = set(event.flow_ids)
        self.about = {note.name: note.string_value for note in event.debug_annotations}
        self.parent = None

    def within(self, other, slack=0):
        return other.begin - slack <= self.begin and self.end <= other.end + slack


def read(path):
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(open(path, "rb").read())
    tracks, stacks, spans = {}, {}, []
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in tracks, "a track is described twice"
            tracks[descriptor.uuid] = (descriptor.name, descriptor.parent_uuid)
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        event = packet.track_event
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == BEGIN:
            span = Span(event.track_uuid, event, packet.timestamp)
            span.parent = stack[-1] if stack else None
            stack.append(span)
            spans.append(span)
        else:
            assert event.type == END and stack, "an end without a begin"
            stack.pop().end = packet.timestamp
    assert not any(stacks.values()), "a begin without an end"
    for span in spans:
        assert span.track in tracks, "a span on a track that nothing describes"
    return tracks, spans


def path_of(tracks, uuid):
    name, parent = tracks[uuid]
    return (path_of(tracks, parent) if parent else []) + [name]


PHASES = ["source and headers", "compiler", "nvrtcCompileProgram", "log", "names", "object"]


def by_kind(tracks, spans):
    """The spans of each kind of track, of which each lies within its parent."""
    on = {}
    for span in spans:
        assert span.begin < span.end and (span.parent is None or span.within(span.parent)), span.name
        on.setdefault(path_of(tracks, span.track)[0].split(" ")[0], []).append(span)
    return on


def compiles_of(on, phases):
    """The compiles, each with its phases in their order, which take no longer than it does; and the
    row of each kernel is stored after them."""
    compiled = [span for span in on["compilers"] if span.parent is None]
    for span in compiled:
        parts = [part for part in on["compilers"] if part.parent is span]
        assert [part.name for part in parts] == phases, [part.name for part in parts]
        assert sum(part.end - part.begin for part in parts) <= span.end - span.begin
        # Another part is the worker's own; most of a compile is the compiler.
        assert 2 * sum(part.end - part.begin for part in parts) + TURN_NS > span.end - span.begin
        stored = [store for store in on["lookups"] if store.flows & span.flows
                  and store.name == "store"]
        assert len(stored) == 1 and stored[0].begin >= span.end - 1000, stored
        assert [write.name for write in on["lookups"] if write.parent is stored[0]] == ["write"]
        steps = [step.name for step in on["lookups"] if step.flows & span.flows]
        assert steps[:3] == ["look", "compile", "store"], steps
    assert all(span.parent is None or span.parent in compiled for span in on["compilers"])
    return compiled


def waits(file):
    """The frees, each with its wait for the last use of its buffer; and the copies between host and
    buffer, of which each leads to the device and ends after it there."""
    tracks, spans = read(file)
    on = by_kind(tracks, spans)
    def parts(span):
        return [part for part in on["session"] if part.parent is span]
    whole = [span for span in on["session"] if span.parent is None]
    frees = [span for span in whole if span.name == "free"]
    for free in frees:
        assert [part.name for part in parts(free)] == ["queue", "last use"], parts(free)
        queue, last = parts(free)
        assert last.begin - queue.end < 10 and free.end - last.end < 10, (queue.end, last.begin)
        assert free.about["about"].endswith(" bytes"), free.about
    copies = [span for span in whole if span.name in ("read", "write")]
    for copy in copies:
        ends = [span for name in on if name != "session" for span in on[name]
                if span.flows & copy.flows]
        assert [end.name for end in ends] == ["copy"], (copy.name, copy.flows, ends)
        assert ends[0].within(copy, TURN_NS)
        assert copy.about["about"].endswith(" bytes"), copy.about
    assert frees and {copy.name for copy in copies} == {"read", "write"}
    print("%d frees, %d copies" % (len(frees), len(copies)))


def alone(file, op, least):
    tracks, spans = read(file)
    on = by_kind(tracks, spans)
    sessions = [name for name, parent in tracks.values() if name.startswith("session") and not parent]
    assert len(sessions) == 1, sessions
    number = sessions[0].split(" ")[1]
    lines = {path_of(tracks, span.track)[1] for span in on["cpu"]}
    assert all(line.startswith("session %s, " % number) for line in lines), lines
    ran = [span for span in on["cpu"] if span.name == op]
    assert len(ran) >= int(least), (len(ran), least)
    kernels = [span for span in on["compilers"] if span.parent is None]
    waits = [span for span in on["session"] if span.name == op]
    assert kernels and all(any(kernel.flows & wait.flows for wait in waits) for kernel in kernels)
    assert {span.name for span in on["session"]} >= {"prepare", "load", "trace.begin", op}
    whole = [span for span in on["session"] if span.name == "trace.begin"][0]
    assert all(span.within(whole, TURN_NS) for span in ran)
    print("%d spans of one session" % len(spans))


def cuda(file):
    tracks, spans = read(file)
    on = by_kind(tracks, spans)
    compiled = compiles_of(on, [phase for phase in PHASES if phase != "compiler"])
    assert compiled
    loads = [span for span in on["session"] if span.name == "load"]
    assert loads
    for load in loads:
        quiet = [span for span in on["session"] if span.parent is load]
        assert [span.name for span in quiet] == ["quiet point"], [span.name for span in quiet]
    print("%d compiles, %d loads" % (len(compiled), len(loads)))


def main(file, launches, compiles):
    tracks, spans = read(file)
    on = by_kind(tracks, spans)
    assert set(on) >= {"session", "loop", "lookups", "compilers", "cpu"}, sorted(on)

    # The trace has as many launches as the daemon counts, and no line has two at once.
    ran = [span for span in on["cpu"] if span.name == "permute"]
    assert len(ran) == int(launches), (len(ran), launches)
    assert all(span.parent is None for span in on["cpu"]), "two calls of a line at once"
    kernels = compiles_of(on, ["source and headers", "compiler", "log", "object"])
    assert len(kernels) == int(compiles), (len(kernels), compiles)

    # A call leads to its kernel, which runs while the call waits.
    submits = [span for span in on["session"] if span.name == "submit"]
    assert submits
    for submit in submits:
        ends = [span for span in on["cpu"] if span.flows & submit.flows]
        assert len(ends) == 1 and ends[0].name == "permute", [span.name for span in ends]
        # A device process has the time once a turn.
        assert ends[0].within(submit, TURN_NS), (submit.begin, ends[0].begin, ends[0].end, submit.end)
        assert any(span.parent is submit for span in on["session"] if span.name == "queue")

    # The loop plans within a request.
    plans = [span for span in on["loop"] if span.name == "plan"]
    assert plans and all(span.parent for span in plans), [span.begin for span in plans]
    assert {span.parent.name for span in plans} >= {"prepare"}

    # A program waits for a kernel while the daemon looks for it and compiles it.
    for compiled in kernels:
        waits = [span for span in on["session"] if span.flows & compiled.flows
                 and span.name == "permute"]
        looks = [span for span in on["lookups"] if span.flows & compiled.flows and span.name == "look"]
        assert waits and looks and waits[0].about["about"] == "compiled"
        assert compiled.within(waits[0], TURN_NS) and looks[0].within(waits[0], TURN_NS)
        assert looks[0].end <= compiled.begin + TURN_NS
    print("%d spans on %d tracks" % (len(spans), len(tracks)))


if __name__ == "__main__":
    if sys.argv[2] == "alone":
        alone(sys.argv[1], *sys.argv[3:])
    elif sys.argv[2] == "cuda":
        cuda(sys.argv[1])
    elif sys.argv[2] == "waits":
        waits(sys.argv[1])
    else:
        main(*sys.argv[1:])
