"""Memory that this process and the daemon share."""
from . import _kiln
from ._errors import Error, refusal, shown
from ._kinds import numpy_type


def empty(shape, dtype="float32"):
    """A NumPy array, of zeros, that calls on device cpu use without a copy.

    It belongs to the thread that makes it; calls of other threads copy it.  torch.from_numpy() and
    memoryview() share it, too.
    """
    from math import prod
    from operator import index

    import numpy

    try:
        element = numpy.dtype(dtype)
    except TypeError:
        element = numpy.dtype(numpy_type("empty", dtype))
    if element.hasobject or element.itemsize == 0:
        raise refusal("empty", "dtype", dtype, "an element type of NumPy, no object and not empty")
    try:
        try:
            extents = (index(shape),)
        except TypeError:
            extents = tuple(map(index, shape))
    except TypeError:
        raise refusal("empty", "shape", shape, "an integer, or a tuple of integers") from None
    memory_bytes = prod(extents) * element.itemsize
    if any(extent < 0 for extent in extents) or memory_bytes >= 2**63 or len(extents) > 32:
        raise refusal("empty", "shape", shape, "at most 32 sizes from 0 on, of less than 2**63 bytes "
                      "in all", wrong_type=False)
    try:
        memory = numpy.asarray(_kiln.Shared(memory_bytes))
    except Error as error:
        error.args = (f"empty(): shape is {shown(shape)}: {error}",)
        raise
    return memory.view(element).reshape(extents)


def lend(tensor):
    """Lends the memory of a CUDA tensor to the daemon, for calls of mode "daemon" on any part of it.

    It is lent until the object that this returns is closed (close(), or the end of `with`) or gone;
    it keeps the tensor.  Only calls of this thread, or of the client that is chosen by `with`, can
    use it.  kiln.NotSupported says of memory that cannot be lent what to use instead.
    """
    return _kiln.Lent(tensor)
