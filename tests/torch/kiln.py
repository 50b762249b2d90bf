"""
kiln.py: libkiln from Python, by its public C interface alone, and a daemon of the test's own.

A call here takes tensors of PyTorch as they lie in memory (strides, offset) and gives back the
bytes of its outputs.  It must not know what is computed.
"""
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import time

MAX_RANK = 8
GUARD = 64  # bytes before and behind an output that no kernel may touch
FILL = 0xA5
BUFFER = 8 << 20

DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "float64": 4, "int8": 5, "uint8": 6,
          "int16": 7, "uint16": 8, "int32": 9, "uint32": 10, "int64": 11, "uint64": 12, "bool": 13}
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8",
         "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
         "int64": "i64", "uint64": "u64", "bool": "bool"}


def dtype_name(dtype):
    """float32 of torch.float32."""
    return str(dtype).split(".")[-1]


class Tensor(ctypes.Structure):
    _fields_ = [("buffer", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("dtype", ctypes.c_int),
                ("rank", ctypes.c_int), ("contiguous", ctypes.c_int),
                ("shape", ctypes.c_int64 * MAX_RANK), ("stride", ctypes.c_int64 * MAX_RANK)]


class Attr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("i", ctypes.c_int64),
                ("f", ctypes.c_double), ("ints", ctypes.POINTER(ctypes.c_int64)),
                ("count", ctypes.c_int), ("s", ctypes.c_char_p)]


class ConnectOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("socket", ctypes.c_char_p),
                ("device", ctypes.c_char_p), ("daemon", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_int), ("flags", ctypes.c_uint),
                ("on_miss", ctypes.c_char_p)]


class Refused(Exception):
    """A status that is not OK, with its sentence."""


def load(path):
    library = ctypes.CDLL(path)
    library.kiln_errmsg.restype = ctypes.c_char_p
    library.kiln_status_name.restype = ctypes.c_char_p
    library.kiln_alloc.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint, ctypes.c_char_p,
                                   ctypes.c_void_p]
    library.kiln_map.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.kiln_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int,
                                 ctypes.c_void_p, ctypes.c_int]
    library.kiln_close.argtypes = [ctypes.c_void_p]
    library.kiln_close.restype = None
    return library


def make_attr(name, value):
    """An attribute, with the kind that its value has."""
    attr = Attr(name=name.encode())
    if isinstance(value, str):
        attr.kind, attr.s = 3, value.encode()
    elif isinstance(value, float):
        attr.kind, attr.f = 1, value
    elif isinstance(value, int):
        attr.kind, attr.i = 0, value
    else:
        attr.kind, attr.count = 2, len(value)
        attr.ints = (ctypes.c_int64 * max(1, len(value)))(*value)
    return attr


class Client:
    """A connection with a piece of shared memory, in which the operands of a call are laid out."""

    def __init__(self, library, socket):
        options = ConnectOptions(size=ctypes.sizeof(ConnectOptions), socket=socket.encode(),
                                 device=b"cpu", timeout_ms=120000)
        self.library = library
        self.handle = ctypes.c_void_p()
        self.buffer = ctypes.c_void_p()
        address = ctypes.c_void_p()
        self.check(library.kiln_connect(ctypes.byref(options), ctypes.byref(self.handle)))
        self.check(library.kiln_alloc(self.handle, BUFFER, 1, b"operands",
                                      ctypes.byref(self.buffer)))
        self.check(library.kiln_map(self.buffer, ctypes.byref(address)))
        self.address = address.value

    def check(self, status):
        if status < 0:
            raise Refused(f"{self.library.kiln_status_name(status).decode()}: "
                          f"{self.library.kiln_errmsg().decode()}")

    def close(self):
        self.library.kiln_close(self.handle)

    def input(self, tensor, free):
        """The tensor where its storage lies in the buffer, and the first byte behind it."""
        storage = tensor.untyped_storage()
        if free + storage.nbytes() > BUFFER:
            raise RuntimeError("a sample is larger than the buffer")
        ctypes.memmove(self.address + free, storage.data_ptr(), storage.nbytes())
        made = self.tensor(tensor.dtype, tensor.shape,
                           free + tensor.storage_offset() * tensor.element_size())
        made.contiguous = 0
        made.stride[:tensor.dim()] = tensor.stride()
        return made, free + (storage.nbytes() + 63 & ~63)

    def tensor(self, dtype, shape, offset):
        made = Tensor(buffer=self.buffer, offset=offset, dtype=DTYPES[dtype_name(dtype)],
                      rank=len(shape), contiguous=1)
        # A rank that Kiln does not have is for Kiln to refuse.
        made.shape[:min(len(shape), MAX_RANK)] = list(shape)[:MAX_RANK]
        return made

    def run(self, op, operands, attrs):
        """Runs one call.  An operand is a tensor that is read, a pair (dtype, shape) that is
        written, or None.  The bytes of those written come back, in order."""
        tensors = (Tensor * max(1, len(operands)))()
        written, free = [], 0
        for number, operand in enumerate(operands):
            if operand is None:
                continue
            if not isinstance(operand, tuple):
                tensors[number], free = self.input(operand, free)
                continue
            dtype, shape = operand
            size = dtype.itemsize
            for extent in shape:
                size *= extent
            tensors[number] = self.tensor(dtype, shape, free + GUARD)
            ctypes.memset(self.address + free, FILL, size + 2 * GUARD)
            written.append((free, size))
            free += size + 2 * GUARD + 63 & ~63
        made = (Attr * max(1, len(attrs)))(*[make_attr(*pair) for pair in attrs.items()])
        self.check(self.library.kiln_run(self.handle, op.encode(), tensors, len(operands), made,
                                         len(attrs)))
        return [self.output(*place) for place in written]

    def output(self, at, size):
        memory = ctypes.string_at(self.address + at, size + 2 * GUARD)
        guard = bytes([FILL]) * GUARD
        if memory[:GUARD] != guard or memory[GUARD + size:] != guard:
            raise RuntimeError("bytes beside an output were written")
        return bytearray(memory[GUARD:GUARD + size])


class Daemon:
    """A kilnd with a directory, a socket and a cache of its own."""

    def __init__(self, program, specialize):
        self.directory = tempfile.mkdtemp(prefix="kiln-torch.")
        self.socket = os.path.join(self.directory, "kiln.sock")
        self.log = open(os.path.join(self.directory, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [program, "--socket", self.socket, "--device", "cpu", "--specialize", specialize,
             "--cache-dir", os.path.join(self.directory, "cache")],
            env={name: value for name, value in os.environ.items()
                 if name not in ("KILN_REMOTE", "KILN_ON_MISS", "KILN_DEVICES")},
            stdin=subprocess.DEVNULL, stderr=self.log)

    def words(self):
        self.log.seek(0)
        return self.log.read()

    def wait(self, seconds=60):
        """Until it says that it serves."""
        until = time.monotonic() + seconds
        while not re.search(r"\bserves\b", self.words()):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("kilnd does not start: " + self.words())
            time.sleep(0.05)

    def end(self):
        """Ends it; what it has logged as an error comes back."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        words = [line for line in self.words().splitlines() if re.search(r"\] (error|warn)", line)]
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        return words
