"""Kiln inside torch: gradients, and every operator as torch.ops.kiln.NAME.

Nobody need import this: the first call that asks for it does, and so does torch.compile().

- A call on tensors of which none requires grad runs in the extension, and knows nothing of this.
- A call that is recorded is one torch.autograd.Function, which goes round the dispatcher, too.
- Everything else (tracing, fake and batched tensors, subclasses) goes through torch.ops.kiln.
"""
import torch

from . import _kinds, _map, _operators, _torch_map
from ._errors import InvalidArgument, NotSupported
from ._rows import ROWS
from ._torch_gradient import find
from ._torch_operator import Operator, cast_input, cast_result
from ._torch_record import make as make_recorded, watched
from ._torch_vmap import batched

OPERATORS = {name: Operator(name) for name in ROWS}
find(OPERATORS)

# An operator is cast under autocast where torch casts its own of that name, or the like of it.
_CAST_LIKE = {"softmax": "softmax.int", "log_softmax": "log_softmax.int",
              "masked_softmax": "softmax.int", "dequantize": "dequantize.self"}
_CAST = {name: devices for name in OPERATORS
         if name in _CAST_LIKE or hasattr(torch.ops.aten, name)
         if (devices := [device for device in ("cuda", "cpu")
                         if torch._C._dispatch_has_kernel_for_dispatch_key(
                             "aten::" + _CAST_LIKE.get(name, name), "Autocast" + device.upper())])}

_no_torch_dispatch = torch._C._disabled_torch_dispatch_impl
_transform = torch._C._functorch.peek_interpreter_stack
_HALF = (torch.float16, torch.bfloat16)
_forward = torch.autograd.forward_ad


# ---- Calls that are recorded ----

def _no_second(operator):
    return NotSupported(f"{operator.name}() has no gradient: Kiln has first derivatives of what "
                        "it computes, and no second ones; torch's own operators have them")


def _record(operator, values):
    """Runs a call, recorded where grad is enabled: its outputs, None where one is not wanted."""
    if not torch.is_grad_enabled():
        return operator.run(values, anywhere=True)
    if watched():
        return _call_op(operator, values)
    if operator.gradient and operator.gradient.computed and not values[operator.first].numel():
        return _recorded_of_nothing(operator, values)
    places = operator.wanted(values)
    results = operator.function.apply(*values)
    if len(places) == 1:
        results = (results,)
    whole = [None] * len(operator.outputs)
    for place, result in zip(places, results):
        whole[place] = result
    return whole


def _recorded_of_nothing(operator, values):
    """Results without elements have gradients of zeros.  What the gradient would read besides, the
    mean of a row of nothing, there may not be."""
    results = operator.run(values)
    reached = sum(tensor.sum() for tensor in operator.tensors(values) if tensor.requires_grad)
    return [result + reached.to(result.dtype)
            if result is not None and place in operator.gradient.differentiable else result
            for place, result in enumerate(results)]


def _function(operator):
    gradient = operator.gradient
    count = len(operator.names)

    def forward(ctx, *values):
        places = operator.wanted(values)
        results = operator.run(gradient.widened(values) if gradient else values)
        ctx.places = places
        ctx.set_materialize_grads(False)
        if gradient:
            ctx.rest = gradient.rest(values)
            ctx.save_for_backward(*gradient.kept(values, results))
            ctx.mark_non_differentiable(*(results[place] for place in places
                                          if place not in gradient.differentiable))
        if len(places) == 1:
            return results[places[0]]
        return tuple(results[place] for place in places)

    def backward(ctx, *given):
        if not gradient:
            raise _no_second(operator)
        grads = [None] * len(operator.outputs)
        for place, grad in zip(ctx.places, given):
            grads[place] = grad
        found = gradient.apply(ctx.rest, ctx.saved_tensors, grads, ctx.needs_input_grad, _record)
        return tuple(found.get(place) for place in range(count))

    name = "".join(word.capitalize() for word in operator.name.split("_"))
    return type(name, (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward)})


# ---- torch.ops.kiln ----

def _call_op(operator, values):
    """The same through the dispatcher, and through the transforms of torch.func."""
    inside = not torch.compiler.is_dynamo_compiling() and _transform() is not None
    results = (operator.inside.apply if inside else operator.op)(*operator.plain(values))
    return [results] * len(operator.outputs) if len(operator.outputs) < 2 else list(results)


def _setup(operator):
    def setup(ctx, inputs, output):
        gradient = operator.gradient
        ctx.set_materialize_grads(False)
        inputs = operator.filled(inputs)
        results = [output] if len(operator.outputs) == 1 else list(output)
        ctx.places = [place for place in operator.wanted(inputs)
                      if not gradient or place in gradient.differentiable]
        ctx.mark_non_differentiable(*(result for place, result in enumerate(results)
                                      if place not in ctx.places))
        if gradient:
            wide = gradient.widened(inputs)
            # The gradient computes then what it reads and the call left out.
            ctx.again = wide if operator.wanted(wide) != operator.wanted(inputs) else None
            ctx.rest = gradient.rest(inputs)
            if ctx.again is None:
                ctx.save_for_backward(*gradient.kept(inputs, results))
            else:
                places = list(operator.inputs.values())
                ctx.save_for_backward(*(inputs[place] for place in places))
                ctx.again = [None if place in places else value
                             for place, value in enumerate(wide)]
    return setup


def _backward(operator):
    def backward(ctx, *grads):
        gradient = operator.gradient
        if not gradient:
            raise _no_second(operator)
        kept = ctx.saved_tensors
        if ctx.again is not None:
            values = list(ctx.again)
            for place, tensor in zip(operator.inputs.values(), kept):
                values[place] = tensor
            kept = gradient.kept(values, _call_op(operator, values))
        needs = [*ctx.needs_input_grad, *[False] * len(operator.names)]
        grads = [grad if place in ctx.places else None for place, grad in enumerate(grads)]
        found = gradient.apply(ctx.rest, kept, grads, needs, _call_op)
        return tuple(found.get(place) for place in range(len(ctx.needs_input_grad)))
    return backward


def _inside(operator):
    """The Function that a transform of torch.func differentiates: those of torch.library are not
    made for it."""
    rule = batched(operator, _call_op)

    def forward(*values):
        return operator.op(*values)

    def jvp(_ctx, *_tangents):
        raise _no_forward_derivative(operator.name)

    return type(operator.function.__name__ + "Inside", (torch.autograd.Function,), {
        "forward": staticmethod(forward), "setup_context": staticmethod(_setup(operator)),
        "backward": staticmethod(_backward(operator)), "jvp": staticmethod(jvp),
        "vmap": staticmethod(rule)})


def _no_forward_derivative(name):
    return NotSupported(f"{name}() has no forward derivative: Kiln has gradients, and torch's own "
                        "operators have both")


def _register_autocast(library, operator, device):
    if hasattr(torch.library, "register_autocast"):  # torch 2.7
        torch.library.register_autocast(f"kiln::{operator.name}", device, torch.float32, lib=library)
        return
    key = "Autocast" + device.upper()
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def kernel(*values):
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator.op(*_cast(values))

    library.impl(operator.name, kernel, key)


def _cast(values):
    return [value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value
            for value in values]


def _define(library, operator):
    name = f"kiln::{operator.name}"
    library.define(operator.schema(), tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(operator.name, operator.kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(name, operator.fake, lib=library)
    if not operator.kept:
        torch.library.register_autograd(name, _backward(operator), setup_context=_setup(operator),
                                        lib=library)
    operator.op = getattr(torch.ops.kiln, operator.name).default
    if not operator.kept:
        torch.library.register_vmap(name, batched(operator, _call_op), lib=library)
    for device in _CAST.get(operator.name, ()):
        _register_autocast(library, operator, device)
    operator.function = _function(operator)
    operator.inside = _inside(operator)


_library = torch.library.Library("kiln", "DEF")
for _operator in OPERATORS.values():
    _define(_library, _operator)
_torch_map.define(_library)
traced_map = _torch_map.traced


# ---- Calls of kiln.NAME ----

def _given(operator, values, out):
    """The tensors to be written, by the places of the outputs."""
    given = {} if out is None else dict(enumerate(out)) if isinstance(out, tuple) else {
        place: out for place, output in enumerate(operator.outputs) if output.want is None}
    for place, output in enumerate(operator.outputs):
        if output.want is not None and isinstance(values[output.want], torch.Tensor):
            given[place] = values[output.want]
    return given


def _returned(operator, places, results):
    found = tuple(results[place] for place in places)
    if not found:
        return None
    return found[0] if len(found) == 1 else found


def _refuse_grad(operator):
    if operator.kept:
        raise NotSupported(f"a tensor of {operator.name}() requires grad, and the operator has no "
                           "gradient: detach() it, or use torch.no_grad()")


def _traced(name, values, out):
    """A call through torch.ops.kiln: torch.compile() follows it instead of kiln.NAME."""
    operator = OPERATORS[name]
    given = _given(operator, values, out)
    values = operator.plain(values)
    places = operator.wanted(values)
    if (operator.gradient or operator.kept) and torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in operator.tensors(values)):
        _refuse_grad(operator)
        operator.gradient.refuse(values)
        values = operator.gradient.widened(values)
    results = _call_op(operator, values)
    for place, tensor in given.items():
        results[place] = tensor.copy_(results[place])
    return _returned(operator, places, results)


def _recorded(operator, values, out):
    _refuse_grad(operator)
    if _given(operator, values, out):
        raise NotSupported(f"a tensor of {operator.name}() requires grad, and a call that writes "
                           "a given tensor is not recorded: leave it away, or use torch.no_grad()")
    if operator.gradient:
        operator.gradient.refuse(values)
    return _returned(operator, operator.wanted(values), _record(operator, values))


_RECORDED = {name: make_recorded(operator, _recorded) for name, operator in OPERATORS.items()}


def redirect(name, args, named):
    """A call on tensors of which one requires grad."""
    return _RECORDED[name](*args, **named)


def _is_plain(tensor):
    return type(tensor).__torch_dispatch__ is _no_torch_dispatch and \
        tensor.device.type in ("cuda", "cpu")


def dispatch(name, args, named):
    """A call while torch watches: under autocast, in a mode, on tensors without memory."""
    operator = OPERATORS[name]
    values, out = operator.bind(*args, **named)
    tensors = operator.tensors(values)
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise NotSupported(f"{name}() takes dense tensors, and one has the layout "
                               f"{tensor.layout}: to_dense() it")
    if _forward._current_level >= 0:
        for tensor in tensors:
            if _forward.unpack_dual(tensor).tangent is not None:
                raise _no_forward_derivative(name)
    metas = sum(tensor.device.type == "meta" for tensor in tensors)
    if 0 < metas < len(tensors):
        raise InvalidArgument(f"{name}() got tensors of memory and tensors of device meta, which "
                              "have none: all tensors of a call are on one device")
    device = tensors[0].device.type
    casts = device in ("cuda", "cpu") and torch.is_autocast_enabled(device)
    if not casts or watched() or not all(map(_is_plain, tensors)) or \
            _given(operator, values, out):
        return _traced(name, values, out)
    # A dispatcher's work for each call is saved where autocast is all that there is.
    if device in _CAST.get(name, ()):
        values = _cast(values)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _recorded(operator, values, out)
    return _returned(operator, operator.wanted(values), operator.run(values))


# ---- Being found ----

def trace(dynamo):
    """Makes torch.compile() follow a call of kiln.NAME into torch.ops.kiln."""
    for operator in OPERATORS.values():
        # The tracer finds what a function uses by the names in its module alone.
        call = f"_traced('{operator.name}', ({operator.sources}), {operator.out_source})"
        if operator.narrows:
            call = f"cast_result({call}, dtype, out)"
        source = f"lambda {operator.signature}: {call}"
        traced = eval(source, globals())
        dynamo.substitute_in_graph(getattr(_operators, operator.name),
                                   skip_signature_check=True)(traced)
    dynamo.substitute_in_graph(_map.map, skip_signature_check=True)(traced_map)


def _describe(type):
    if not issubclass(type, torch.Tensor):
        return None
    return dict(_kinds.of_torch(type), redirect=_RECORDED, dispatch=dispatch)


_kinds.register("torch", _describe)
