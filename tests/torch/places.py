"""
places.py: OpInfo's operators that only say where an element comes from: by Kiln's permute and
gather, and by statements with computed subscripts.
"""
import torch

from case import Case, Output, map_case

LETTERS = "ijklmnop"
PERMUTES = ["permute", "permute_copy", "transpose", "movedim", "t", "t_copy", "T", "mT"]


def exact(value):
    """Elements that are only moved are the same, bit for bit: compared as integers."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return value.clone(memory_format=torch.contiguous_format).view(kinds[value.dtype.itemsize])


class Moved(Output):
    def __init__(self, value):
        super().__init__(value.dtype, value)
        self.bits = exact(value)

    def wrong(self, memory):
        return Output(self.bits.dtype, self.bits).wrong(memory)


def permute(op, sample, random, relayout):
    """permute, or what it refuses.  Which axis went where is seen on a tensor of other sizes."""
    x = sample.input
    rank = x.dim()
    if rank > 8:
        return None
    sizes = torch.empty([2 + k for k in range(rank)])
    perm = [size - 2 for size in op(sizes, *sample.args, **sample.kwargs).shape]
    result = op(x, *sample.args, **sample.kwargs)
    return Case("permute", [relayout(x, random), Moved(result)], {"perm": perm})


def gather(op, sample, random, relayout):
    """Kiln's gather where it is one: along the last axis, with a row of indices for each row."""
    x, (dim, index) = sample.input, sample.args[:2]
    result = op(x, *sample.args, **sample.kwargs)
    if x.dim() == 2 and dim % 2 == 1 and index.dim() == 2 and index.shape[0] == x.shape[0]:
        return Case("gather", [relayout(x, random), relayout(index, random), Moved(result)],
                    {"bounds": "check"})
    return picked(x, dim, index, result, random, relayout)


def gather_gradient(name, op, sample, random, relayout):
    """What each element of the source is due, in f64 or the integer type itself."""
    x, (dim, index) = sample.input, sample.args[:2]
    if x.dim() != 2 or dim % 2 != 1 or index.dim() != 2 or index.shape[0] != x.shape[0]:
        return None
    if x.dtype == torch.bool:
        return None
    given = torch.testing.make_tensor(index.shape, dtype=x.dtype, device="cpu")
    wide = given.double() if x.is_floating_point() else given
    value = torch.zeros(x.shape, dtype=wide.dtype).scatter_add(1, index.long(), wide)
    scale = None
    if x.is_floating_point():
        scale = torch.zeros(x.shape, dtype=wide.dtype).scatter_add(1, index.long(), wide.abs())
    return Case("gather_backward", [relayout(given, random), relayout(index, random),
                                    Output(x.dtype, value, scale)], {"bounds": "check"})


def counted(letters, size):
    """An index, where negative ones count from the end."""
    index = f"n[{','.join(letters)}]"
    return f"{index} < 0 ? {index} + {size} : {index}"


def picked(x, dim, index, result, random, relayout):
    """y[i,j] = x[i,idx[i,j]] with the index at any dimension; sizes may be shorter than x's."""
    rank = index.dim()
    if rank != x.dim():
        return None
    letters = list(LETTERS[:rank])
    # A part of a longer dimension is written with + 0; one of size 1 is repeated.
    of_x = [letter + ("" if size in (1, many) else "+0")
            for letter, size, many in zip(letters, x.shape, index.shape)]
    if rank:
        of_x[dim % rank] = counted(letters, x.shape[dim])
    statement = f"y[{','.join(letters)}] = x[{','.join(of_x)}]"
    if rank == 0:
        return map_case("y[] = x[]", {"x": x}, Moved(result))
    return map_case(statement, {"x": relayout(x, random), "n": relayout(index, random)},
                    Moved(result))


def take_along_dim(op, sample, random, relayout):
    x, arguments = sample.input, list(sample.args)
    dim = arguments[1] if len(arguments) > 1 else sample.kwargs.get("dim")
    result = op(x, *sample.args, **sample.kwargs)
    index = arguments[0]
    if dim is None or index.dim() != x.dim() or result.shape != index.shape:
        return None
    return picked(x, dim, index, result, random, relayout)


def index_select(op, sample, random, relayout):
    x, (dim, index) = sample.input, sample.args
    result = op(x, dim, index)
    if x.dim() == 0 or index.dim() != 1:
        return None
    letters = LETTERS[:x.dim()]
    of_x = list(letters)
    of_x[dim % x.dim()] = f"n[{letters[dim % x.dim()]}]"
    return map_case(f"y[{','.join(letters)}] = x[{','.join(of_x)}]",
                    {"x": relayout(x, random), "n": relayout(index, random)}, Moved(result))


def take(op, sample, random, relayout):
    x, index = sample.input, sample.args[0]
    result = op(x, index)
    if x.dim() != 1:
        return None
    letters = LETTERS[:index.dim()]
    return map_case(f"y[{','.join(letters)}] = x[{counted(letters, x.shape[0])}]",
                    {"x": relayout(x, random), "n": relayout(index, random)}, Moved(result))


def embedding(op, sample, random, relayout):
    table, index = sample.input, sample.args[0]
    if sample.kwargs.get("max_norm") is not None:
        return None
    result = op(table, index, **sample.kwargs)
    letters = list(LETTERS[:index.dim()])
    return map_case(f"y[{','.join(letters + ['w'])}] = x[n[{','.join(letters)}],w]",
                    {"x": relayout(table, random), "n": relayout(index, random)}, Moved(result))


def diagonal(op, sample, random, relayout):
    x = sample.input
    offset = sample.kwargs.get("offset", 0)
    if x.dim() != 2 or set(sample.kwargs) - {"offset"} or sample.args:
        return None
    where = f"x[i+0,i+{offset}]" if offset >= 0 else f"x[i+{-offset},i+0]"
    return map_case(f"y[i] = {where}", {"x": relayout(x, random)}, Moved(op(x, **sample.kwargs)))


def flip(op, sample, random, relayout):
    x = sample.input
    dims = {d % x.dim() for d in sample.kwargs["dims"]} if x.dim() else set()
    letters = LETTERS[:x.dim()]
    of_x = [f"{size - 1} - {letter}" if k in dims and size else letter
            for k, (letter, size) in enumerate(zip(letters, x.shape))]
    return map_case(f"y[{','.join(letters)}] = x[{','.join(of_x)}]", {"x": relayout(x, random)},
                    Moved(op(x, *sample.args, **sample.kwargs)))


def triangle(op, sample, random, relayout, sign):
    x = sample.input
    if x.dim() < 2:
        return None
    diagonal = sample.args[0] if sample.args else sample.kwargs.get("diagonal", 0)
    letters = LETTERS[:x.dim()]
    all_of = ",".join(letters)
    return map_case(f"y[{all_of}] = {letters[-1]} {sign} {letters[-2]} + d ? x[{all_of}] : "
                    + ("bool(0)" if x.dtype == torch.bool else "0"),
                    {"x": relayout(x, random)}, Moved(op(x, *sample.args, **sample.kwargs)),
                    {"d": int(diagonal)})


def roll(op, sample, random, relayout):
    x = sample.input
    shifts = sample.args[0] if sample.args else sample.kwargs.get("shifts")
    dims = sample.args[1] if len(sample.args) > 1 else sample.kwargs.get("dims")
    if not isinstance(shifts, int) or not isinstance(dims, int) or x.numel() == 0 or not x.dim():
        return None
    letters = LETTERS[:x.dim()]
    dim = dims % x.dim()
    size = x.shape[dim]
    of_x = list(letters)
    of_x[dim] = f"({letters[dim]} + {-shifts % size}) % {size}"
    return map_case(f"y[{','.join(letters)}] = x[{','.join(of_x)}]", {"x": relayout(x, random)},
                    Moved(op(x, *sample.args, **sample.kwargs)))


BUILDERS = {"gather": gather, "take_along_dim": take_along_dim, "index_select": index_select,
            "take": take, "nn.functional.embedding": embedding, "flip": flip, "roll": roll,
            "diagonal": diagonal,
            "tril": lambda *words: triangle(*words, "<="),
            "triu": lambda *words: triangle(*words, ">=")}
BUILDERS.update({name: permute for name in PERMUTES})
NAMES = list(BUILDERS)
STATEMENTS = [name for name in NAMES if name not in PERMUTES + ["gather"]]


def build(name, op, sample, random, relayout):
    return BUILDERS[name](op, sample, random, relayout)


GRADIENTS = {"gather": gather_gradient}


def build_gradient(name, op, sample, random, relayout):
    return GRADIENTS[name](name, op, sample, random, relayout)
