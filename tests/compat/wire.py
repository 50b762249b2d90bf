"""
wire.py: the protocol as a peer written by somebody else has it: msgpack, frames, and the form in
which transcripts keep them: JSON, with {"$bin": hexadecimal} for bytes.
"""

import array
import fcntl
import os
import socket
import struct

INLINE_MOST = 48 << 10
FDS_MOST = 5


# ---- msgpack ----

def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        if -32 <= value < 0:
            return struct.pack(">b", value)
        return b"\xcf" + struct.pack(">Q", value) if value > 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return b"\xdb" + struct.pack(">I", len(text)) + text
    if isinstance(value, dict) and list(value) == ["$bin"]:
        data = bytes.fromhex(value["$bin"])
        return b"\xc6" + struct.pack(">I", len(data)) + data
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    items = b"".join(pack(key) + pack(item) for key, item in value.items())
    return b"\xdf" + struct.pack(">I", len(value)) + items


FIXED = {0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i",
         0xd3: ">q", 0xca: ">f", 0xcb: ">d"}
SIZED = {0xd9: ("str", ">B"), 0xda: ("str", ">H"), 0xdb: ("str", ">I"), 0xc4: ("bin", ">B"),
         0xc5: ("bin", ">H"), 0xc6: ("bin", ">I"), 0xdc: ("list", ">H"), 0xdd: ("list", ">I"),
         0xde: ("map", ">H"), 0xdf: ("map", ">I")}


def number(data, at, form):
    return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)


def unpack(data, at=0):
    """The value that begins there, and where the next one does."""
    kind = data[at]
    at += 1
    if kind < 0x80 or kind >= 0xe0:
        return kind if kind < 0x80 else kind - 256, at
    if kind in FIXED:
        return number(data, at, FIXED[kind])
    if kind in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[kind], at
    if kind in SIZED:
        what, form = SIZED[kind]
        size, at = number(data, at, form)
    else:
        what = "map" if kind < 0x90 else "list" if kind < 0xa0 else "str"
        size = kind & (0x1f if what == "str" else 0x0f)
    if what in ("str", "bin"):
        part = data[at:at + size]
        return (part.decode() if what == "str" else {"$bin": part.hex()}), at + size
    items = []
    for _ in range(size * 2 if what == "map" else size):
        item, at = unpack(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2])) if what == "map" else items), at


# ---- Frames ----

def connect(path):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(30)
    sock.connect(path)
    return sock


def send(sock, data, fds=()):
    flags, ours = 0, list(fds)
    if len(data) > INLINE_MOST:
        flags, inline = 1, b""
        ours.append(memory(data, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK))
    else:
        inline = data
    header = b"KF" + bytes([flags, len(fds)]) + struct.pack("<I", len(data))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", ours))] if ours else []
    sock.sendmsg([header + inline], rights)


def receive(sock):
    """The payload and its descriptors; None: the peer hung up."""
    fds = array.array("i")
    data, rights, _, _ = sock.recvmsg(INLINE_MOST + 8, socket.CMSG_SPACE(FDS_MOST * fds.itemsize))
    for level, kind, part in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(part[:len(part) - len(part) % fds.itemsize])
    if not data:
        return None
    size, fds, payload = struct.unpack_from("<I", data, 4)[0], list(fds), data[8:]
    if data[2] & 1:
        bulk = fds.pop()
        payload = os.pread(bulk, size, 0)
        os.close(bulk)
    return payload, fds


def memory(data, seals):
    """A memfd with these bytes."""
    fd = os.memfd_create("kiln-compat", os.MFD_ALLOW_SEALING)
    os.pwrite(fd, data, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
