"""Memory that this process and the daemon share."""
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


def lend(tensor):
    """Lends the memory of a CUDA tensor to the daemon, for calls of mode "daemon" on any part of it.

    It is lent until the object that this returns is closed (close(), or the end of `with`) or gone;
    it keeps the tensor.  Only calls of this thread, or of the client that is chosen by `with`, can
    use it.  kiln.NotSupported says of memory that cannot be lent what to use instead.
    """
    return _kiln.Lent(tensor)
