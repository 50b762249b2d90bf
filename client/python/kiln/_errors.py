"""Exceptions: each is a kiln.Error, and also what Python has for the same."""


class Error(Exception):
    """A failure, with the library's sentence.

    status: the name of the status, "KILN_EINVAL"; log: all that a compiler said, or "".
    """

    def __init__(self, sentence="", status="", log=""):
        super().__init__(sentence)
        self.status = status
        self.log = log

    def __reduce__(self):
        return type(self), (str(self), self.status, self.log)


class InvalidArgument(Error, ValueError):
    """A shape, stride, value or attribute that does not fit."""


class WrongType(Error, TypeError):
    """An argument that is no tensor, or no number, or of an element type that does not fit."""


class OutOfMemory(Error, MemoryError):
    """Memory, or a limit of the daemon."""


class Timeout(Error, TimeoutError):
    """A deadline passed."""

    __str__ = Exception.__str__


class IndexOutOfRange(Error, IndexError):
    """An index was out of range; the outputs are written."""


class NotSupported(Error, NotImplementedError):
    """Not available here; the sentence says what is."""


class CompileError(Error, RuntimeError):
    """A kernel did not compile: log has all that the compiler said."""


class ConnectionLost(Error, ConnectionError):
    """No daemon answers, or it went away."""

    __str__ = Exception.__str__


class Frozen(Error, RuntimeError):
    """The kernel is not compiled, and nothing may be compiled for it now."""


class DeviceError(Error, RuntimeError):
    """The device failed, or another failure of the daemon."""


_CLASSES = {
    "KILN_EINVAL": InvalidArgument, "KILN_ENOMEM": OutOfMemory, "KILN_ELIMIT": OutOfMemory,
    "KILN_ETIMEDOUT": Timeout, "KILN_ECOMPILE": CompileError, "KILN_ENOTSUP": NotSupported,
    "KILN_ENOENT": InvalidArgument, "KILN_ECONN": ConnectionLost, "KILN_EVERSION": ConnectionLost,
    "KILN_EINDEX": IndexOutOfRange, "KILN_EFROZEN": Frozen,
}
_TYPE = 1  # no status of the library: errors.c has it for arguments of a wrong type


def shown(value):
    """What a sentence calls an argument that was passed: the value, or of which type it is."""
    if isinstance(value, (int, float, complex, str, bytes, tuple, list, dict, type(None))):
        try:
            text = " ".join(repr(value).split())
        except ValueError:  # more digits than Python prints
            text = "an integer of %d bits" % value.bit_length() if isinstance(value, int) else ""
        if text:
            return text if len(text) <= 60 else text[:57] + "..."
    if type(value).__qualname__ == "dtype":
        return str(value)
    return f"of type {type(value).__module__}.{type(value).__qualname__}"


def refusal(function, name, value, rule, wrong_type=True):
    """The exception for an argument: function and name as the caller wrote them, what must be."""
    sentence = f"{function}(): {name} is {shown(value)}; it must be {rule}"
    return WrongType(sentence) if wrong_type else InvalidArgument(sentence, "KILN_EINVAL")


def check(function, name, value, types, rule):
    """Refuses a value that is none of the types."""
    if not isinstance(value, types):
        raise refusal(function, name, value, rule)


def make(number, status, sentence, log):
    """The exception for a status; the extension raises it."""
    if number == _TYPE:
        return WrongType(sentence)
    return _CLASSES.get(status, DeviceError)(sentence, status, log or "")
