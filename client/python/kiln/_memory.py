"""Memory that this process and the daemon's device cpu share."""
from . import _kiln


def empty(shape, dtype="float32"):
    """A NumPy array, of zeros, that calls on device cpu use without a copy.

    It belongs to the thread that makes it; calls of other threads copy it.  torch.from_numpy() and
    memoryview() share it, too.
    """
    import numpy

    dtype = numpy.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = 1
    for extent in shape:
        count *= extent
    memory = numpy.asarray(_kiln.Shared(count * dtype.itemsize))
    return memory.view(dtype).reshape(shape)
