"""
sums.py: OpInfo's reductions and products of matrices, as statements that sum up.
"""
import torch

from case import Output, map_case, wide

LETTERS = "ijklmnop"
# The sign, and the right side of a tensor's element.
REDUCTIONS = {"sum": ("+=", "{0}"), "nansum": ("+=", "isnan(1.0 * {0}) ? 0 : {0}"),
              "prod": ("*=", "{0}"), "amax": ("max=", "{0}"), "amin": ("min=", "{0}"),
              "max/reduction_no_dim": ("max=", "{0}"), "min/reduction_no_dim": ("min=", "{0}"),
              "mean": ("+=", "{0} * part"), "all": ("min=", "bool({0})"),
              "any": ("max=", "bool({0})"), "count_nonzero": ("+=", "{0} != 0")}
PRODUCTS = {"mv": "ij,j->i", "mm": "ij,jk->ik", "bmm": "bij,bjk->bik", "dot": "i,i->",
            "vdot": "i,i->", "outer": "i,j->ij", "trace": "ii->"}


def dims_of(sample, rank):
    """The dimensions that are summed up, and whether they stay with size 1."""
    named = dict(sample.kwargs)
    dims = named.get("dim", sample.args[0] if sample.args else None)
    keep = named.get("keepdim", False)
    if dims is None or (isinstance(dims, (tuple, list)) and not dims):
        dims = range(rank)
    if isinstance(dims, int):
        dims = [dims]
    return ({d % rank for d in dims} if rank else set()), keep


def reduction(name, op, sample, random, relayout):
    sign, right = REDUCTIONS[name]
    x = sample.input
    if set(sample.kwargs) - {"dim", "keepdim", "dtype"} or len(sample.args) > 1:
        return None
    if sample.kwargs.get("dim") == () and name in ("all", "any"):
        return None  # there () is no dimension
    result = op(x, *sample.args, **sample.kwargs)
    dims, keep = dims_of(sample, x.dim())
    letters = LETTERS[:x.dim()]
    left = [letter for k, letter in enumerate(letters) if k not in dims]
    # With keepdim the same bytes are there; the statement has no index for them.
    shape = tuple(size for k, size in enumerate(x.shape) if k not in dims)
    output = sum_output(name, op, sample, result, shape)
    scalars = {}
    if name == "mean":
        count = x.numel() // max(1, result.numel())
        if count == 0 or x.numel() == 0:
            return None
        scalars["part"] = 1.0 / count
    if result.dtype.is_floating_point and not x.is_floating_point():
        right = right.replace("{0}", "f32({0})")
    statement = f"y[{','.join(left)}] {sign} {right.format('x[' + ','.join(letters) + ']')}"
    # A statement that goes over nothing is refused.
    refusal = None if dims else "every index is on the left side"
    return map_case(statement, {"x": relayout(x, random)}, output, scalars, refusal=refusal)


def sum_output(name, op, sample, result, shape):
    if not result.is_floating_point():
        return Output(result.dtype, result.reshape(shape))
    named = {key: value for key, value in sample.kwargs.items() if key != "dtype"}
    x = sample.input.double()
    value = op(x, *sample.args, **named).reshape(shape)
    scale = None
    if name in ("sum", "nansum", "mean"):
        scale = op(x.abs(), *sample.args, **named).reshape(shape) * (1 + x.numel() / 16)
    elif name == "prod":
        scale = value.abs() * (1 + x.numel() / 16)
    computed = torch.float64 if sample.input.dtype == torch.float64 else torch.float32
    return Output(result.dtype, value, scale, computed)


def matmul_text(a, b):
    """The einsum of torch.matmul for the ranks of two tensors."""
    if a == 1 and b == 1:
        return "i,i->"
    left = "ABCDEF"[max(0, max(a, b) - a):max(a, b) - 2] if a > 2 else ""
    right = "ABCDEF"[max(0, max(a, b) - b):max(a, b) - 2] if b > 2 else ""
    batch = left if len(left) > len(right) else right
    rows, columns = ("i" if a > 1 else ""), ("k" if b > 1 else "")
    return f"{left}{rows}j,{right}j{columns}->{batch}{rows}{columns}"


def inner_text(a, b):
    if a == 0 or b == 0:
        return None
    rows, columns = "abcdef"[:a - 1], "ghklmn"[:b - 1]
    return f"{rows}j,{columns}j->{rows}{columns}"


def einsum_text(text, tensors):
    """The text with its dots written out."""
    text = text.replace(" ", "")
    sides, result = text.split("->") if "->" in text else (text, None)
    most, parts = 0, []
    for part, tensor in zip(sides.split(","), tensors):
        more = tensor.dim() - len(part.replace("...", ""))
        if "..." in part:
            most = max(most, more)
        parts.append((part, more))
    dots = "UVWXYZ"[:most]
    parts = [part.replace("...", dots[len(dots) - more:]) for part, more in parts]
    if result is None:
        return None
    return ",".join(parts) + "->" + result.replace("...", dots)


def product_text(name, sample):
    """The tensors, and what einsum would be told; None: it is no sum of products."""
    x = sample.input
    if name == "einsum":
        return list(x), einsum_text(sample.args[0], x)
    tensors = [x] + [a for a in sample.args if isinstance(a, torch.Tensor)]
    if name in ("matmul", "__rmatmul__"):
        if name == "__rmatmul__":
            tensors.reverse()
        return tensors, matmul_text(tensors[0].dim(), tensors[1].dim())
    if name == "inner":
        return tensors, inner_text(x.dim(), tensors[1].dim())
    if name == "nn.functional.linear":
        if len(tensors) != 2 or tensors[1].dim() != 2:
            return tensors, None
        batch = "abcdef"[:x.dim() - 1]
        return tensors, f"{batch}j,kj->{batch}k"
    if sample.kwargs or (name == "trace" and x.shape[0] != x.shape[1]):
        return tensors, None
    return tensors, PRODUCTS[name]


def product(name, op, sample, random, relayout):
    tensors, text = product_text(name, sample)
    if not text:
        return None
    sides, left = text.split("->")
    sides = sides.split(",")
    result = op(sample.input, *sample.args, **sample.kwargs)
    names = [f"x{k}" for k in range(len(tensors))]
    right = " * ".join(f"{name}[{','.join('i_' + c for c in side)}]"
                       for name, side in zip(names, sides))
    # An index of the left side alone with no sum is a plain statement.
    summed = set("".join(sides)) - set(left)
    if result.dtype == torch.bool:
        right = f"bool({right})"
    statement = f"y[{','.join('i_' + c for c in left)}] {'+=' if summed else '='} {right}"
    if result.is_floating_point():
        doubles = [wide(tensor) for tensor in tensors]
        value = torch.einsum(text, *doubles)
        scale = torch.einsum(text, *[d.abs() for d in doubles])
        terms = max([1] + [tensor.numel() for tensor in tensors])
        output = Output(result.dtype, value, scale * (1 + terms / 16))
    else:
        output = Output(result.dtype, result)
    return map_case(statement, {name: relayout(tensor, random)
                                for name, tensor in zip(names, tensors)}, output)


def build(name, op, sample, random, relayout):
    if name in REDUCTIONS:
        return reduction(name, op, sample, random, relayout)
    return product(name, op, sample, random, relayout)


NAMES = list(REDUCTIONS) + list(PRODUCTS) + [
    "einsum", "matmul", "__rmatmul__", "inner", "nn.functional.linear"]
