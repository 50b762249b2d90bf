#!/usr/bin/env python3
"""make_corpus_steps.py: writes the corpora of the targets that are talked to (steps.h): conversations
as they should be, for the mutator to spoil.  Run it again after a change; the files are committed."""
import os
import struct

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def pack(value):
    """msgpack, in as few forms as the wire needs."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        return b"\xcf" + struct.pack(">Q", value) if value > 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"\xc5" + struct.pack(">H", len(value)) + value
    if isinstance(value, str):
        return b"\xda" + struct.pack(">H", len(value)) + value.encode()
    if isinstance(value, (list, tuple)):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))
    pairs = b"".join(pack(key) + pack(of) for key, of in value.items())
    return b"\xde" + struct.pack(">H", len(value)) + pairs


def step(kind, number, data=b""):
    return struct.pack("<BBH", kind, number, len(data)) + data


def sample(corpus, name, *steps, head=b""):
    folder = os.path.join(HERE, corpus)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(head + b"".join(steps))


# ---- The device process ----

def say(name, number=0, **members):
    say.id += 1
    return step(0, number, pack({"t": name, "id": say.id, **members}))


say.id = 0
LAUNCH = {"mod": 1, "grid": [4, 1, 1], "block": [256, 1, 1], "shared": 0, "copy": 0,
          "args": [[0, 0], [0, 1], [1, 4, 1000]]}
OPS = [[1, 0, 4000, 4, 0], [2, 0, 4000, 4, 1]]


def buffers(stream=1):
    return [say("alloc", buf=1, bytes=4000, stream=stream), say("alloc", buf=2, bytes=4000, stream=stream),
            say("load", mod=1, entry="kernel", shared=0, object=b"object")]


def entry(call, after=0, operands=((1, 0), (2, 0)), flags=0, stream=0, lane=0):
    data = struct.pack("<QQIIII", call, after, len(operands), flags, stream, 0)
    return step(2, lane, data + b"".join(struct.pack("<QQ", *operand) for operand in operands))


def exec_samples():
    for quiet in (b"\0", b"\1"):
        tail = "_quiet" if quiet == b"\1" else ""
        sample("exec", "launch" + tail, *buffers(),
               say("launch", stream=1, ops=OPS, names=[{"n": "x"}, {"n": "y"}], **LAUNCH), step(4, 1),
               say("launch", stream=1, sub=3, ops=OPS, scratch=[4096, 256], report=[1000, 10],
                   **dict(LAUNCH, args=[[2], [3], [0, 0], [0, 1], b"value"])),
               step(4, 1, b"\1"), say("free", buf=1), say("unload", mod=1), say("ping"), head=quiet)
        sample("exec", "copies" + tail, *buffers(), say("copy", 1, buf=1, offset=0, bytes=4000, to=True, stream=1),
               say("copy", 1, buf=2, offset=16, bytes=100, to=False, stream=1), say("free", buf=1), step(4, 9),
               say("share", buf=2), say("import", 1, buf=3, kind="fd", span=65536, offset=256, bytes=4096,
                                        stream=1, pid=7),
               say("import", buf=4, kind="ipc", handle=b"h" * 64, bufid=9, pid=7, span=4096, offset=0, bytes=4096,
                   stream=1, origin=3), head=quiet)
        sample("exec", "graph" + tail, *buffers(),
               say("graph", graph=5, stream=1, parts=[dict(LAUNCH, ops=OPS, op="permute"), dict(LAUNCH, ops=OPS, op="map")]),
               say("graph.launch", graph=5, stream=1, sub=1), say("free", buf=2), step(4, 1),
               say("graph.launch", graph=5, stream=1, sub=1), say("graph.free", graph=5, stream=1), head=quiet)
        sample("exec", "lane" + tail, *buffers(), step(1, 0),
               say("lane.bind", stream=1, call=7, **LAUNCH, ops=[[0, 0, 4000, 4, 0], [0, 0, 4000, 4, 1]]),
               entry(7), entry(7, after=1, stream=2), entry(7, flags=2), step(4, 1), step(5, 3),
               entry(9), entry(7, operands=((1, 0), (2, 400))), step(4, 2, b"\1"),
               say("lane.cancel", stream=1, number=2, count=1), say("lane.unbind", stream=1, call=7),
               say("launch", stream=1, ops=OPS, lane=1, tail=4, follows=1, **LAUNCH), step(4, 9),
               say("lane.close", stream=1), head=quiet)
        sample("exec", "lane_ready" + tail, *buffers(), step(1, 0),
               say("lane.bind", stream=1, call=7, **LAUNCH, ops=[[0, 0, 4000, 4, 0], [0, 0, 4000, 4, 1]]),
               entry(7, flags=2), entry(7, after=1, stream=1), entry(7, flags=6),
               step(3, 0, struct.pack("<H", 0) + b"\xff" * 8), say("free", buf=1), step(5, 7), step(4, 9), head=quiet)
    sample("exec", "lanes", *buffers(), *(step(1, lane) for lane in range(4)), entry(7, lane=3), entry(1, lane=2),
           step(3, 1, struct.pack("<H", 16) + bytes(range(64))), say("end", stream=2), say("end", stream=4), head=b"\0")
    sample("exec", "copy_launch", *buffers(), say("launch", stream=1, ops=OPS, **dict(LAUNCH, mod=0, copy=4000)),
           say("cancel", ticket=4), step(4, 2), head=b"\0")


exec_samples()
