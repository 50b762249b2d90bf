"""kiln.map: a kernel of one statement (docs/map.md is the language)."""
import sys

from . import _kiln
from ._errors import InvalidArgument, NotSupported, check, refusal


def _refuse_what_torch_follows(operands):
    torch = sys.modules.get("torch")
    for name, value in operands.items():
        if torch and isinstance(value, torch.Tensor) and (value.is_neg() or value.is_conj()):
            raise NotSupported(f"map: the memory of {name} is to be read negated or conjugated: pass "
                               f"{name}.resolve_neg().resolve_conj()")


def _is_followed(operands):
    """Is torch to see the call: for a gradient, in a mode or a transform, without memory?"""
    torch = sys.modules.get("torch")
    tensors = [value for value in operands if isinstance(value, torch.Tensor)] if torch else ()
    return tensors and bool(
        torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None or
        torch._C._functorch.peek_interpreter_stack() is not None or
        any(tensor.requires_grad and torch.is_grad_enabled() or tensor.device.type == "meta" or
            type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
            for tensor in tensors))


def left(statement):
    """The name of the left side: "y" of "y[i] = ...", "y += ..." and "y max= ..."."""
    words = statement.partition("=")[0].partition("[")[0].split()
    return words[0].rstrip("+*") if words else ""


def map(statement, /, *, out=None, bounds=None, checked=None, **operands):
    """Runs a statement for each element of the operand on its left side.

        kiln.map("y[i,j] = x[i,j] * s + b[j]", x=x, b=b, s=2.0)

    Tensors and scalars are passed by their names in the statement; numbers are scalars.  The left
    side is made, unless it is passed by its name or as out.  bounds: "check", "clamp" or "zero", for
    subscripts that are out of range; checked: the first of them is named.
    """
    check("map", "statement", statement, str, 'a text, "y[i] = x[i] * s"')
    name = left(statement)
    if not name.isidentifier():
        raise refusal("map", "statement", statement, "NAME[i,j] = ..., or NAME = ...",
                      wrong_type=False)
    if out is None:
        out = operands.pop(name, None)
    elif operands.pop(name, None) is not None:
        raise InvalidArgument(f"{name} is passed twice, by its name and as out")
    for key, value in operands.items():
        if value is None or isinstance(value, str):
            raise refusal("map", key, value, "a tensor or a number")
    _refuse_what_torch_follows({**operands, name: out})
    if _is_followed((*operands.values(), out)):
        from . import torch as integration

        return integration.traced_map(statement, out=out, bounds=bounds, checked=checked, **operands)
    scalars = {key: value for key, value in operands.items() if isinstance(value, (int, float))}
    return run(statement, {key: value for key, value in operands.items() if key not in scalars},
               scalars, out, bounds, checked)


def run(statement, tensors, scalars, out, bounds, checked):
    """Runs a statement here and now: its result."""
    name = left(statement)
    attributes = {"statement": statement, "names": ",".join([*tensors, name])}
    if bounds is not None:
        check("map", "bounds", bounds, str, '"check", "clamp" or "zero"')
        attributes["bounds"] = bounds
    if checked is not None:
        check("map", "checked", checked, int, "True or False")
        attributes["checked"] = int(checked)
    # A whole number goes with integers, too.
    for key, value in scalars.items():
        whole = isinstance(value, float) and value.is_integer() and abs(value) <= 2.0 ** 53
        attributes[key] = int(value) if whole or isinstance(value, bool) else value
    return _kiln.call("map", tuple(tensors.values()), (out,), attributes, (*tensors, name))
