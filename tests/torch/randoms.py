"""
randoms.py: statements over random integers of small odd sizes, in all of Kiln's integer types; the
unsigned ones, of which PyTorch computes little, are NumPy's.  docs/map.md says what a statement
means: the type that it is computed in, and that integers wrap.
"""
import numpy
import torch

from case import Output, map_case

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
COMPUTED = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32",
            "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64"}


def divide(a, b):
    """C's, and 0 by 0."""
    if a.dtype.kind == "u":
        return numpy.where(b == 0, a * 0, a // numpy.where(b == 0, b * 0 + 1, b))
    safe = numpy.where((b == 0) | (b == -1), b * 0 + 1, b)
    whole = a // safe
    whole = whole + ((a - whole * safe != 0) & ((a < 0) != (safe < 0)))
    return numpy.where(b == 0, a * 0, numpy.where(b == -1, -a, whole)).astype(a.dtype)


def modulo(a, b):
    rest = a - divide(a, b) * b
    return numpy.where(b == 0, a * 0, rest).astype(a.dtype)


def summed(a):
    """Sums of i32 and u32 are kept in i64."""
    return a.astype("uint64" if a.dtype == numpy.uint64 else "int64")


def shift(b, a):
    return b & a.dtype.type(a.dtype.itemsize * 8 - 1)


# The statement, what it is of a and b (computed type), and the output's dtype if it is not a's.
STATEMENTS = [
    ("y[i] += a[i,j]", lambda a, b: summed(a).sum(1), None),
    ("y[j] += a[i,j]", lambda a, b: summed(a).sum(0), None),
    ("y[] += a[i,j]", lambda a, b: summed(a).sum(), "int64"),
    ("y[i] += a[i,j] * b[i,j]", lambda a, b: summed(a * b).sum(1), None),
    ("y[j] += a[i,j] * b[i,j]", lambda a, b: summed(a * b).sum(0), None),
    ("y[i,k] += a[i,j] * b[k,j]", lambda a, b: summed(a[:, None, :] * b[None]).sum(2), None),
    ("y[i] *= a[i,j]", lambda a, b: summed(a).prod(1), None),
    ("y[j] *= a[i,j]", lambda a, b: summed(a).prod(0), None),
    ("y[i] max= a[i,j]", lambda a, b: a.max(1), None),
    ("y[j] min= a[i,j]", lambda a, b: a.min(0), None),
    ("y[i,j] = a[i,j] * 3 + b[i,j] - 7",
     lambda a, b: a * a.dtype.type(3) + b - a.dtype.type(7), None),
    ("y[i,j] = a[i,j] / b[i,j]", divide, None),
    ("y[i,j] = a[i,j] % b[i,j]", modulo, None),
    ("y[i,j] = a[i,j] & b[i,j] | ~a[i,j] ^ b[i,j]", lambda a, b: a & b | ~a ^ b, None),
    ("y[i,j] = a[i,j] << b[i,j]", lambda a, b: a << shift(b, a), None),
    ("y[i,j] = a[i,j] >> b[i,j]", lambda a, b: a >> shift(b, a), None),
    ("y[i,j] = a[i,j] < b[i,j]", lambda a, b: a < b, "bool"),
    ("y[i,j] = a[i,j] > b[i,j] ? a[i,j] : -b[i,j]",
     lambda a, b: numpy.where(a > b, a, (b ^ b) - b), None),
    ("y[i,j] = clamp(min(a[i,j], b[i,j]), 3, 99)",
     lambda a, b: numpy.clip(numpy.minimum(a, b), a.dtype.type(3), a.dtype.type(99)), None),
    ("y[j,i] = a[i,j]", lambda a, b: a.T, None),
    ("y[i,j] = f64(a[i,j])", lambda a, b: a.astype("float64"), "float64"),
    ("y[i,j] = a[i,j]", lambda a, b: a, "int16"),
]
OUTER = 2  # how often a kernel runs: the slowest size is no part of it


def draw(random, dtype, shape):
    """Half of the tensors hold small numbers, the others all there are."""
    limits = numpy.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if random.random() < 0.5:
        low, high = max(low, -9), min(high, 9)
    generator = numpy.random.default_rng(random.getrandbits(32))
    values = generator.integers(low, high, size=shape, dtype=dtype, endpoint=True)
    return values


def build(number, dtype, inner, way, random, relayout):
    """A case of the statement, with a random number of rows."""
    statement, compute, out = STATEMENTS[number]
    rows = random.randint(2, 33)
    # The slowest dimension of what k goes over belongs to the kernel.
    a = draw(random, dtype, (rows, inner))
    b = draw(random, dtype, (5 if "k" in statement else rows, inner))
    kind = COMPUTED[dtype]
    with numpy.errstate(all="ignore"):
        value = numpy.asarray(compute(a.astype(kind), b.astype(kind)))
        value = numpy.ascontiguousarray(value.astype(out or dtype)).reshape(value.shape)
    inputs = {"a": relayout(torch.from_numpy(a), random, way)}
    if "b[" in statement:
        inputs["b"] = relayout(torch.from_numpy(b), random, way)
    expected = torch.from_numpy(value)
    return map_case(statement, inputs, Output(expected.dtype, expected))


def cases(random, relayout, most):
    """Pairs of a label and a builder: each statement in each type, `most` inner sizes of it."""
    for number in range(len(STATEMENTS)):
        for dtype in INTEGERS:
            for inner in random.sample(range(1, 71), most):
                way = random.choice(["plain", "offset", "step"])
                for _ in range(OUTER):
                    yield (f"integers {dtype}", lambda n=number, d=dtype, i=inner, w=way:
                           build(n, d, i, w, random, relayout))
