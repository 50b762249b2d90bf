"""Kiln from Python: operators on tensors of torch, NumPy, CuPy and anything with DLPack.

    import kiln, numpy
    print(kiln.softmax(numpy.ones((2, 3), "f4")))

The first call connects to the daemon, and starts it if none runs.  Importing this does nothing but
load; NumPy and torch are imported by nobody but the caller.
"""
from ._client import Client, connect
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
from ._memory import empty
from ._operators import *
from ._operators import __all__ as _names

__all__ = [
    "Client", "CompileError", "ConnectionLost", "DeviceError", "Error", "Frozen",
    "IndexOutOfRange", "InvalidArgument", "NotSupported", "OutOfMemory", "Timeout", "WrongType",
    "connect", "empty", "map",
] + _names
