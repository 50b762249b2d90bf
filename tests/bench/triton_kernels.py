"""triton_kernels.py: what bench_python measures of Triton."""
import triton
import triton.language as tl


@triton.jit
def _softmax(x, y, columns, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


def softmax(torch, x, into):
    """A function that launches the softmax of the rows of x, into a tensor or a new one."""
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)

    def call():
        y = torch.empty_like(x) if into is None else into
        _softmax[(rows,)](x, y, columns, block)
        return y

    return call
