"""Connections: what those are made with that calls open on demand, and clients of one's own."""
from os import PathLike, fspath

from . import _kiln
from ._errors import InvalidArgument, check

_AUTOSTART = 1
_BACKGROUND = 2


_MODES = {"local": 0, "daemon": 1}


def _settings(function, socket, device, daemon, timeout, autostart, background, on_miss, mode):
    for name, value in [("socket", socket), ("daemon", daemon)]:
        check(function, name, value, (str, PathLike, type(None)), "a path or None")
    for name, value in [("device", device), ("on_miss", on_miss)]:
        check(function, name, value, (str, type(None)), "a text or None")
    if mode not in _MODES:
        raise InvalidArgument(f'mode is "local" or "daemon", not {mode!r}')
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise InvalidArgument(f"timeout is a number of seconds above 0, not {timeout!r}")
    milliseconds = 0 if timeout is None else max(1, round(min(timeout * 1000, 2**31 - 1)))
    flags = (_AUTOSTART if autostart else 0) | (_BACKGROUND if background else 0)
    path = [None if text is None else fspath(text) for text in (socket, daemon)]
    return {"socket": path[0], "device": device, "daemon": path[1], "on_miss": on_miss,
            "timeout_ms": milliseconds, "flags": flags, "mode": _MODES[mode]}


# Settings with which a connection was made last, or those of the library.
_standing = _settings("connect", None, None, None, None, True, False, None, "local")


def connect(socket=None, device=None, *, daemon=None, timeout=None, autostart=True,
            background=False, on_miss=None, mode="local"):
    """Sets what connections are made with from now on, in all threads, and makes this thread's.

    socket: the daemon's; device: of all calls, where a tensor's own is not meant ("cpu", "cuda:0");
    daemon: the kilnd to start; timeout: seconds that a call may wait (30); autostart: a daemon is
    started if none answers; background: nobody waits for these compiles; on_miss: "compile",
    "warn", "fallback" or "error", where a kernel is not compiled yet; mode: who launches calls on
    CUDA tensors, "local" this process, or "daemon" on tensors that are lent to it by lend().
    Where no connection can be made so, everything stays as it was.
    """
    global _standing
    wanted = _settings("connect", socket, device, daemon, timeout, autostart, background, on_miss,
                       mode)
    _kiln.configure(**wanted)
    try:
        _kiln.current()
    except BaseException:
        _kiln.configure(**_standing)
        raise
    _standing = wanted


def synchronize(device=0):
    """Waits for the calls on a CUDA device that this thread has begun in mode "daemon".

    Raises the first failure of one.  Work on the tensors' stream needs no such wait: it comes after
    the calls.  Without it a later call raises the failure.
    """
    check("synchronize", "device", device, int, "the number of a CUDA device")
    _kiln.synchronize(_kiln.current(max(-2, min(device, 2**31 - 1))))


class Client:
    """A connection of one's own: for requests, and by `with` for all calls of a thread.

        with kiln.Client(device="cpu") as client:
            y = kiln.softmax(x)

    The arguments are those of connect().  It connects when it is first used, belongs to one thread
    at a time, and connects anew after its daemon went away.
    """

    def __init__(self, socket=None, device=None, *, daemon=None, timeout=None, autostart=True,
                 background=False, on_miss=None, mode="local"):
        self._connection = _kiln.Connection(
            **_settings("Client", socket, device, daemon, timeout, autostart, background, on_miss,
                        mode))
        self._before = []

    def __enter__(self):
        self._before.append(_kiln.use(self._connection))
        return self

    def __exit__(self, *unused):
        _kiln.use(self._before.pop())

    @property
    def device(self):
        """The daemon's device: "cpu", "cuda:0"."""
        return self._connection.device

    def request(self, request, **arguments):
        """Any request of the daemon ("info", "devices", "ops", ...), its reply as a dictionary."""
        import json

        return json.loads(self._connection.request(request, arguments))

    def synchronize(self):
        """Waits for the calls that mode "daemon" has begun, and raises the first failure."""
        _kiln.synchronize(self._connection)

    def close(self):
        """Ends the connection."""
        self._connection.close()
