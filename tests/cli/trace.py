#!/usr/bin/env python3
"""trace.py FILE LAUNCHES COMPILES: reads a trace of `kiln trace` by Perfetto's own definitions, and
checks what must hold between its spans.  Exit status 77: those are not here.
"""

import sys

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2
except ImportError:
    sys.exit(77)

BEGIN, END = 1, 2
TURN_NS = 20_000_000


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


def main(file, launches, compiles):
    tracks, spans = read(file)
    on = {}
    for span in spans:
        assert span.begin < span.end and (span.parent is None or span.within(span.parent)), span.name
        on.setdefault(path_of(tracks, span.track)[0].split(" ")[0], []).append(span)
    assert set(on) >= {"session", "loop", "lookups", "compilers", "cpu"}, sorted(on)

    # What ran on the device is what the daemon counts, and no line has two at once.
    ran = [span for span in on["cpu"] if span.name == "permute"]
    assert len(ran) == int(launches), (len(ran), launches)
    assert all(span.parent is None for span in on["cpu"]), "two calls of a line at once"
    assert len(on["compilers"]) == int(compiles), (len(on["compilers"]), compiles)

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

    # Whoever waits for a kernel waits while it is looked for and compiled.
    for compiled in on["compilers"]:
        waits = [span for span in on["session"] if span.flows & compiled.flows
                 and span.name == "permute"]
        looks = [span for span in on["lookups"] if span.flows & compiled.flows]
        assert waits and looks and waits[0].about["about"] == "compiled"
        assert compiled.within(waits[0], 1000) and looks[0].within(waits[0], 1000)
        assert looks[0].end <= compiled.begin + 1000
    print("%d spans on %d tracks" % (len(spans), len(tracks)))


if __name__ == "__main__":
    main(*sys.argv[1:])
