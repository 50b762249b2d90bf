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

def say(request, number=0, /, **members):
    say.id += 1
    return step(0, number, pack({"t": request, "id": say.id, **members}))


say.id = 0
LAUNCH = {"mod": 1, "grid": [4, 1, 1], "block": [256, 1, 1], "shared": 0,
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
    sample("exec", "copy_launch", *buffers(), say("launch", stream=1, ops=OPS, copy=4000, args=[]),
           say("cancel", ticket=4), step(4, 2), head=b"\0")


# ---- The broker ----

def permute(rows=4, columns=6, **more):
    return {"op": "permute", "tensors": [dict({"d": DTYPE, "s": [rows, columns]}, **more), {"d": DTYPE, "s": [columns, rows]}],
            "attrs": {"perm": [1, 0]}}


def hello(client=0, **more):
    return [step(0, client, pack({"t": "hello", "id": 1, "proto": 1, "version": "0.1.0", "pid": 7, "device": "cpu", **more}))]


def ask(request, number=0, /, **members):
    ask.id += 1
    return step(0, number, pack({"t": request, "id": ask.id, **members}))


def child(number, message, /, **members):
    return step(2, number, pack({"t": message, "id": 0, **members}))


ask.id = 1
DTYPE = 3
TURN = step(1, 255)  # until all is answered
FD = 1 << 2  # a descriptor goes along
# Numbers are the daemon's, in the order in which it gives them: a session, buffers, a kernel, a call.
RAW = {"raw": {"name": "user.cu", "entry": "k", "bytes": 100, "headers": [{"n": "a.cuh", "c": 20}],
               "macros": [{"n": "N", "v": "4"}], "options": [{"o": "-std=c++17"}]}}


def broker_samples():
    sample("broker", "look", *hello(), ask("info"), ask("info", section="requests"), ask("devices"), ask("ops"),
           ask("cache.ls", limit=5, sort="used"), ask("cache.failed"), ask("tuned.ls"), ask("key.ls"))
    sample("broker", "launch", *hello(), TURN, ask("alloc", bytes=4096, flags=0, name="x"), TURN,
           ask("alloc", bytes=4096, flags=1, name="y"), TURN, ask("prepare", **permute()), TURN,
           ask("submit", call=5, operands=[[2, 0], [3, 0]], after=0), TURN,
           ask("submit", call=5, operands=[[2, 0], [3, 1024]], after=5, lane=1), TURN,
           ask("write", FD, buf=2, offset=0, bytes=100), ask("read", FD, buf=3, offset=0, bytes=100), TURN,
           ask("graph", works=[{"call": 5, "operands": [[2, 0], [3, 0]]}]), TURN, ask("object", call=5, alignments=[4, 4]), TURN,
           ask("object", call=5, alignments=[4, 4], generic=True), TURN, ask("object", call=5, alignments=[4, 4], generic=True, launches=1 << 40), TURN,
           ask("submit", call=5, operands=[[2, 0], [3, 0]], after=0), ask("cancel", ticket=6), ask("release", call=5), TURN,
           ask("free", buf=2), TURN)
    sample("broker", "order", *hello(), TURN, ask("alloc", bytes=4096, flags=0), TURN, ask("prepare", **permute()), TURN,
           *(ask("submit", call=4, operands=[[2, 0], [2, 2048]], after=0) for _ in range(4)), step(3, 2), step(1, 1),
           ask("cancel", entry=1), step(4, 0), ask("submit", call=4, operands=[[2, 0], [2, 2048]], after=0), TURN)
    sample("broker", "compile", *hello(), ask("explain", **permute()), ask("compile", **permute()), TURN,
           ask("compile", target="sm_90", **permute(8, 9)), step(3, 1), ask("compile", **permute(7, 8)), TURN,
           ask("explain", **permute(7, 8)), ask("cache.failed"), ask("cache.retry", all=1), TURN, ask("cache.ls", limit=3),
           ask("cache.verify"), ask("cache.trim", bytes=1, dry_run=1), ask("cache.clear"), TURN)
    sample("broker", "raw", *hello(), ask("raw.prepare", FD, **RAW), TURN, ask("alloc", bytes=64, flags=0), TURN,
           ask("raw.submit", call=3, grid=[1, 1, 1], block=[32, 1, 1], shared=0, timeout=1000,
               args=[[4, 0, 64, 3], b"\0" * 4], after=0), TURN, ask("raw.explain", FD, **RAW), ask("raw.compile", FD, target="cpu", **RAW), TURN)
    sample("broker", "lend", *hello(), ask("lend", FD, kind="fd", bytes=4096, offset=0, span=65536, pid=7, name="lent"), TURN,
           ask("lend", kind="ipc", bytes=16, span=16, handle=b"h" * 64, bufid=3, pid=7), ask("object", call=9, alignments=[4, 4]),
           ask("alloc", bytes=1 << 40, flags=0), ask("alloc", bytes=0, flags=9))
    sample("broker", "two", *hello(), *hello(1), *hello(2, background=1), ask("compile", 0, **permute()), ask("compile", 1, **permute()),
           ask("compile", 2, **permute()), TURN, step(5, 0), ask("compile", 1, **permute(9, 9)), step(5, 1), TURN)
    sample("broker", "upkeep", *hello(), ask("compile", **permute()), TURN, ask("cache.show", key="a"), ask("cache.get", key=""),
           ask("cache.pin", key="0"), ask("cache.recompile", key="f"), ask("key.new", name="mine"), ask("key.distrust", name="mine"),
           ask("key.trust", public="no key", name="x"), ask("debug", what="corrupt", key="0"), ask("debug", what="expire"),
           ask("debug", what="children"), ask("debug", what="fail-compile", count=1), ask("compile", **permute(5, 5)), TURN)
    sample("broker", "tuned", *hello(), ask("tuned.put", op="permute", model="nothing", target="cpu", signature="s", choice="generic",
                                            micros=1.5, own_micros=2.5, candidates=3, when=7, version="0.1.0"), TURN,
           ask("tuned.ls"), ask("explain", **permute()), ask("tuned.rm"), TURN)
    sample("broker", "children", *hello(), TURN, ask("alloc", bytes=64, flags=0), child(0, "event", what="progress"),
           child(1, "event", what="lane", stream=4, err="nonsense"), child(0, "reply", st=0), TURN, step(4, 0), TURN,
           ask("prepare", **permute()), step(4, 1), TURN)
    sample("broker", "nonsense", ask("info"), *hello(1), step(6, 1, b"KF\0\0\5\0\0\0\xdd\xff\xff\xff\xff"), *hello(2, proto=9),
           ask("make.coffee", 2))
    softmax = {"op": "softmax", "tensors": [{"d": DTYPE, "s": [4, 64], "t": [64, 1]}], "attrs": {"axis": -1, "scale": 0.5}}
    smap = {"op": "map", "tensors": [{"d": DTYPE, "s": [4, 5]}, {"d": DTYPE, "s": [5]}, {"d": 0}],
            "attrs": {"statement": "y[i,j] = x[i,j] * s + b[j]", "names": "x,b,y", "s": 2.5}}
    sample("broker", "operators", *hello(), ask("explain", **softmax), ask("prepare", **smap), TURN, TURN,
           ask("explain", **dict(softmax, attrs={"axis": 0, "choice": "generic"})),
           ask("explain", op="gather", tensors=[{"d": DTYPE, "s": [4, 3, 5]}, {"d": 6, "s": [3, 7]}], attrs={"bounds": "clamp"}),
           ask("explain", op="layer_norm", tensors=[{"d": DTYPE, "s": [4, 64]}], attrs={"eps": 1e-5, "axes": 1}),
           ask("explain", op="giou", tensors=[{"d": DTYPE, "s": [4, 4]}, {"d": DTYPE, "s": [4, 4]}], attrs={"clamp": 1}))


# ---- The library ----

GOOD = step(0, 0)


def answer(number=0, /, **members):
    return step(1, number, pack({"t": "reply", "id": 1, "st": 0, **members}))


def client_samples():
    hello_answer = answer(proto=1, version="0.1.0", session=5, device="cpu", max_message=1048576)
    allocs = [answer(buf=7, offset=0, bytes=64), answer(1, buf=8, offset=0, bytes=4096)]
    sample("client", "good", GOOD)
    sample("client", "usual", hello_answer, *allocs, GOOD, answer(call=9, origin="hit", text="variant tile", key="ab" * 32),
           answer(2, micros=4.5, bound=7, generation=1, alignments=[4, 4], extents=[64, 64], reports=False),
           GOOD, GOOD, answer(rows=[{"name": "x", "n": [1, -1, 2.5, None, True]}], server={"sessions": 3}), answer(object=b"abc"))
    sample("client", "failed", hello_answer, answer(st=-2, err="no memory is left", log="a\nb"), GOOD)
    sample("client", "events", hello_answer, GOOD, GOOD, step(2, 0, pack({"t": "event", "id": 0, "what": "lane.lost", "st": -6, "err": "gone"})),
           step(2, 0, pack({"t": "reply", "id": 1, "st": 0, "buf": 3})), step(2, 0, pack({"t": "event", "id": 0, "what": "new"})), GOOD)
    sample("client", "lane", GOOD, GOOD, GOOD, GOOD, GOOD, GOOD, step(5, 0, struct.pack("<H", 10272) + b"\1\0\0\0\0\0\0\0\xfa\xff\xff\xff" + b"x" * 500),
           GOOD)
    sample("client", "poked", GOOD, GOOD, GOOD, GOOD, GOOD, step(5, 0, struct.pack("<H", 0) + b"\xff" * 256), GOOD)
    sample("client", "silent", GOOD, step(6, 0), GOOD, step(6, 0), GOOD)
    sample("client", "leaves", GOOD, GOOD, GOOD, GOOD, GOOD, step(4, 0))
    sample("client", "bytes", GOOD, GOOD, step(3, 0, b"KF\0\0\1\0\0\0\x90"))
    sample("client", "odd", hello_answer, answer(4, buf=0), answer(3, buf=8, offset=1 << 63, bytes=4096), GOOD, answer(call=0),
           answer(2, bound=1, generation=1, alignments=[0], extents=[1]))
    sample("client", "first", answer(proto=99), GOOD)


# ---- The compiler worker ----

def job(message, **members):
    return step(0, 0, pack({"t": message, "id": 3, **members}))


def job_samples():
    files = [{"n": "common/a.cuh", "b": b"int a;\n"}, {"n": "ops/x.cuh", "b": b"#include \"common/a.cuh\"\nint x;\n"}]
    ours = {"target": "sm_90", "source": "ops/x.cuh", "inst": "k<u8, 2>", "files": files}
    sample("job", "ours", job("job", **ours), job("job", **dict(ours, target="cpu", check=True)), job("job", **dict(ours, whole=True)))
    sample("job", "user", job("job", **dict(ours, target="cpu", user=2, macros=[{"n": "N", "v": "4"}], options=[{"o": "--use_fast_math"}],
                                            delay=5, fault=1)))
    sample("job", "result", job("result", st=0, err="", entry="k", source="int x;", log="", object=b"elf", regs=8, shared=0, spill=-1, local=0, us=9),
           job("result", st=-8, err="it is wrong", log="error", regs=-1))
    sample("job", "ready", job("ready", nvrtc={"id": "nvrtc 13.0 ab", "stamp": "1:2", "reason": "", "targets": "sm_80 sm_90"}, host={"id": "", "reason": "none"}))
    sample("job", "wrong", job("job", files=7), job("result"), job("ready", nvrtc=3, host={}), job("job", **dict(ours, user=9)))


# ---- The Redis ----

SAY, ASK, ANSWER, WAIT, HANG_UP, END, FLOOD = range(7)


def redis(name, *steps, login=0):
    sample("redis", name, *([step(END, login)] if login else []), *steps)


def redis_samples():
    pongs = step(ANSWER, 4)
    get = step(ASK, 1, b"kiln:1:entry:" + b"ab" * 32)
    redis("usual", pongs, get, step(ANSWER, 5, b"bytes"), get, step(ANSWER, 1), step(ASK, 2, b"x"), step(ANSWER, 0), step(END, 0))
    redis("login", step(ANSWER, 0), step(ANSWER, 0), pongs, get, step(ANSWER, 2), step(HANG_UP, 0), login=7)
    redis("refused", step(ANSWER, 3), login=2)
    redis("database", step(ANSWER, 3), login=1)
    redis("unasked", pongs, step(SAY, 0, b"+OK\r\n+OK\r\n:3\r\n"))
    redis("lists", pongs, get, step(SAY, 0, b"*2\r\n$1\r\na\r\n*0\r\n"), get, step(SAY, 0, b"*-1\r\n"))
    redis("nested", pongs, get, step(SAY, 0, b"*1\r\n" * 12 + b":1\r\n"))
    redis("lengths", pongs, get, step(SAY, 0, b"$-2\r\n"), get, step(SAY, 0, b"$18446744073709551616\r\n"))
    redis("half", pongs, get, step(SAY, 0, b"$5\r\nab"), step(WAIT, 3), step(SAY, 0, b"cde\r"), step(SAY, 0, b"\n"), get, step(SAY, 0, b"$9\r\n"),
          step(HANG_UP, 0))
    redis("types", pongs, get, get, get, get, get, step(SAY, 0, b",3.5\r\n#t\r\n_\r\n(123\r\n=7\r\ntxt:abc\r\n~1\r\n:1\r\n%0\r\n>1\r\n+x\r\n"))
    redis("nonsense", step(SAY, 0, bytes(range(256))), get)
    redis("flood", pongs, get, step(FLOOD, 255))
    redis("hung_up", get, step(HANG_UP, 1), get, step(END, 0), get)


redis_samples()
job_samples()
client_samples()
exec_samples()
broker_samples()
