"""torch.ops.kiln.map: a statement for torch's dispatcher, and without memory.

How far indices go is read here, since sizes may be symbols; the type of the result, and whether the
statement makes sense, is the planner's word: of the same statement on tensors of no elements.
"""
import functools
import re

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import _map
from ._errors import InvalidArgument, NotSupported

SCHEMA = ("map(str statement, Tensor[] tensors, str[] names, Scalar[] scalars, str[] scalar_names, "
          "str? bounds=None, bool? checked=None, Tensor? like=None) -> Tensor")


def subscripts(text):
    """The names that have subscripts, each with its subscripts, those within others included."""
    found = []
    for match in re.finditer(r"(\w+)\s*\[", text):
        depth, words = 1, [""]
        for letter in text[match.end():]:
            depth += (letter in "[(") - (letter in "])")
            if depth == 0:
                break
            if letter == "," and depth == 1:
                words.append("")
            else:
                words[-1] += letter
        found.append((match[1], [word.strip() for word in words if word.strip()]))
    return found


def shape(statement, operands):
    """The shape of the left side: an index goes as far as an operand of which it is a subscript."""
    left, _, right = statement.partition("=")
    indices = subscripts(left)[0][1] if "[" in left else []
    sizes = {index: [] for index in indices}
    for name, words in subscripts(right):
        if name in operands:
            for word, size in zip(words, operands[name].shape):
                if word in sizes:
                    sizes[word].append(size)
    result = []
    for index, found in sizes.items():
        # A dimension of size 1 goes with any other.
        size = found[0] if len(found) == 1 else next((one for one in found if one != 1), 1)
        result.append(size)
    return result


def _number(value):
    """A number in the place of a symbol: its kind alone counts for the type of the result."""
    return value if isinstance(value, (int, float)) else \
        1 if isinstance(value, torch.SymInt) else 0.5


@functools.lru_cache(maxsize=1024)
def _dtype(statement, operands, scalars, like):
    # A single element may be the maximum of something, and not of nothing.
    size = 0 if re.match(r"\s*\w+\s*\[\s*\w", statement) else 1
    with _disable_current_modes():
        def empty(rank, dtype):
            return torch.empty((size,) * rank, dtype=dtype)

        return _map.run(statement, {name: empty(*rest) for name, *rest in operands}, dict(scalars),
                        None if like is None else empty(*like), "zero", None).dtype


def _scalars(scalars, names):
    return dict(zip(names, scalars))


def kernel(statement, tensors, names, scalars, scalar_names, bounds=None, checked=None, like=None):
    out = None if like is None else torch.empty_like(like, memory_format=torch.contiguous_format)
    return _map.run(statement, dict(zip(names, tensors)), _scalars(scalars, scalar_names), out,
                    bounds, checked)


def fake(statement, tensors, names, scalars, scalar_names, bounds=None, checked=None, like=None):
    operands = dict(zip(names, tensors))
    dtype = _dtype(statement, tuple((name, one.dim(), one.dtype) for name, one in operands.items()),
                   tuple(zip(scalar_names, map(_number, scalars))),
                   None if like is None else (like.dim(), like.dtype))
    if like is not None:
        return like.new_empty(like.shape)
    if not tensors:
        raise InvalidArgument("map: a statement without tensors has no device: pass the left side")
    return tensors[0].new_empty(shape(statement, operands), dtype=dtype)


def _keep(ctx, inputs, output):
    statement, tensors, names, scalars, scalar_names, *rest = inputs
    ctx.statement, ctx.names = statement, names
    ctx.scalars, ctx.bounds = _scalars(scalars, scalar_names), rest[0] if rest else None
    # torch wants a list for a list of nothing, and None for any other.
    ctx.others = [[] if one == [] else None for one in inputs[2:]]
    ctx.save_for_backward(*tensors, output)
    if not output.dtype.is_floating_point:
        ctx.mark_non_differentiable(output)


def _gradients(ctx, grad, needs):
    from ._map_gradient import Gradient

    *tensors, output = ctx.saved_tensors
    wanted = [name for name, need in zip(ctx.names, needs) if need]
    found = Gradient(ctx.statement, dict(zip(ctx.names, tensors)), ctx.scalars, ctx.bounds,
                     output).apply(grad, wanted)
    found = dict(zip(wanted, found))
    return [found.get(name) for name in ctx.names]


def _backward(ctx, grad):
    # Older torch leaves out arguments at the end that have their defaults.
    others = ctx.others[:len(ctx.needs_input_grad) - 2]
    return (None, _gradients(ctx, grad, ctx.needs_input_grad[1]), *others)


def _batched(info, dims, statement, tensors, names, scalars, scalar_names, bounds=None,
             checked=None, like=None):
    """The calls of a batch are made one after the other."""
    def at(value, dim, place):
        return value if dim is None else value.select(dim, place)

    like_dim = dims[7] if len(dims) > 7 else None
    results = [call(
        statement, [at(one, dim, place) for one, dim in zip(tensors, dims[1])], names, scalars,
        scalar_names, bounds, checked, None if like is None else at(like, like_dim, place))
        for place in range(info.batch_size)]
    return torch.stack(results), 0


class _Inside(torch.autograd.Function):
    """A call inside the transforms of torch.func, which take no lists of tensors."""

    @staticmethod
    def forward(statement, names, scalars, scalar_names, bounds, checked, like, *tensors):
        return torch.ops.kiln.map(statement, list(tensors), names, scalars, scalar_names, bounds,
                                  checked, like)

    @staticmethod
    def setup_context(ctx, inputs, output):
        statement, names, scalars, scalar_names, bounds, _, _, *tensors = inputs
        _keep(ctx, (statement, tensors, names, scalars, scalar_names, bounds), output)

    @staticmethod
    def backward(ctx, grad):
        return (*[None] * 7, *_gradients(ctx, grad, ctx.needs_input_grad[7:]))

    @staticmethod
    def vmap(info, dims, statement, names, scalars, scalar_names, bounds, checked, like, *tensors):
        return _batched(info, (None, dims[7:], *[None] * 5, dims[6]), statement, tensors, names,
                        scalars, scalar_names, bounds, checked, like)


def call(statement, tensors, names, scalars, scalar_names, bounds=None, checked=None, like=None):
    """torch.ops.kiln.map, with gradients wherever it stands."""
    if not torch.compiler.is_dynamo_compiling() and \
            torch._C._functorch.peek_interpreter_stack() is not None:
        return _Inside.apply(statement, names, scalars, scalar_names, bounds, checked, like,
                             *tensors)
    return torch.ops.kiln.map(statement, tensors, names, scalars, scalar_names, bounds, checked,
                              like)


def define(library):
    library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("map", kernel, "CompositeExplicitAutograd")
    torch.library.register_fake("kiln::map", fake, lib=library)
    torch.library.register_autograd("kiln::map", _backward, setup_context=_keep, lib=library)
    torch.library.register_vmap("kiln::map", _batched, lib=library)


def traced(statement, /, *, out=None, bounds=None, checked=None, **operands):
    """kiln.map through torch.ops.kiln; torch.compile() follows it instead of kiln.map."""
    name = _map.left(statement)
    if out is None:
        out = operands.pop(name, None)
    if out is not None and torch.is_grad_enabled() and any(
            getattr(value, "requires_grad", False) for value in (*operands.values(), out)):
        raise NotSupported(f"map: {name} is given and a tensor requires grad: a call that is "
                           "recorded makes its result; leave it out, or use torch.no_grad()")
    names = [key for key, value in operands.items() if isinstance(value, torch.Tensor)]
    rest = [key for key in operands if key not in names]
    result = call(statement, [operands[key] for key in names], names,
                  [operands[key] for key in rest], rest, bounds, checked, out)
    return result if out is None else out.copy_(result)
