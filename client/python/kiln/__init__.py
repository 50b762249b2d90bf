"""Kiln from Python: operators on tensors of torch, NumPy, CuPy and anything with DLPack.

    import kiln, numpy
    print(kiln.softmax(numpy.ones((2, 3), "f4")))

The first call connects to the daemon, and starts it if none runs.  Importing this does nothing but
load; NumPy and torch are imported by nobody but the caller.
"""
from . import _late
from ._client import Client, connect, synchronize
from ._errors import (
    CompileError,
    ConnectionLost,
    DeviceError,
    Error,
    Frozen,
    IndexOutOfRange,
    InvalidArgument,
    NotSupported,
    OutOfMemory,
    Timeout,
    WrongType,
)
from ._kiln import version as __version__
from ._map import map
from ._memory import empty, lend
from ._operators import *
from ._operators import __all__ as _names
from ._patch import patch, unpatch
from ._raw import RawKernel

__all__ = [
    "Client", "CompileError", "ConnectionLost", "DeviceError", "Error", "Frozen",
    "IndexOutOfRange", "InvalidArgument", "NotSupported", "OutOfMemory", "RawKernel", "Timeout",
    "WrongType", "connect", "empty", "lend", "map", "patch", "synchronize",
    "unpatch",
] + _names


def __getattr__(name):
    if name == "nn":  # it imports torch, which `import kiln` does not
        from importlib import import_module

        return import_module("kiln.nn")
    raise AttributeError(f"module 'kiln' has no attribute {name!r}")


_late.watch()
