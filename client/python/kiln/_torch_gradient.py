"""Gradients of the operators, found by the names of operands: softmax_backward(y, dy) -> dx is the
gradient of softmax(x) -> y, since it reads an output and its d, and writes the d of an input.

An operator whose gradient reads nothing but gradients and indices is linear: it is the gradient of
its gradient.  Everything else has first derivatives only.
"""
import torch

from . import _torch_reduce
from ._errors import NotSupported


def _permute(operator, values, kept, grads, run):
    # The gradient of a reordering is the reverse one.
    if grads[0] is None:
        return {}
    rank = len(values[operator.order_at])
    back = [0] * rank
    for place, axis in enumerate(values[operator.order_at]):
        back[axis % rank] = place
    return {operator.first: run(operator, [grads[0], back])[0]}


def _rope(operator, values, kept, grads, run):
    # The gradient of a rotation is the rotation back: of q's heads, k's, or both in one launch.
    names, back = operator.names, list(values)
    places = [names.index("q"), names.index("k")]
    there = [(place, grad if grad.stride(-1) == 1 else grad.contiguous())
             for place, grad in zip(places, grads) if grad is not None]
    for name, tensor in zip(("cos", "sin", "positions"), kept):
        back[names.index(name)] = tensor
    back[names.index("inverse")] = int(not values[names.index("inverse")])
    back[names.index("k_out")] = len(there) > 1
    back[places[1]] = None
    for place, (_, grad) in zip(places, there):
        back[place] = grad
    return {place: grad for (place, _), grad in zip(there, run(operator, back))} if there else {}


def _values(operator, **named):
    """The values of a call by their names; those that are left out are None."""
    return [named.get(name) for name in operator.names]


def _take_along_axis(operator, values, kept, grads, run):
    # Sums by the same indices, which begin at one zero that is everywhere.
    if grads[0] is None:
        return {}
    back = operator.others["scatter_add"]
    dim, bounds = (values[operator.names.index(name)] for name in ("dim", "bounds"))
    shape, dim = values[-1], -1 if dim is None else dim
    within = [size if axis == dim % len(shape) else most
              for axis, (size, most) in enumerate(zip(shape, kept[0].shape))]
    begin = grads[0].new_zeros(()).expand(within)
    found = run(back, _values(back, input=begin, dim=dim, idx=kept[0], src=grads[0],
                              bounds=bounds))[0]
    # Elements beyond the indices along another dimension were not taken.
    beyond = [size - most for size, most in zip(shape, within)]
    if any(beyond):
        found = torch.nn.functional.pad(found, [one for size in reversed(beyond)
                                                for one in (0, size)])
    return {operator.first: found}


def _sums(operator, values, kept, grads, run):
    # A summand has the gradient of its sum.
    if grads[0] is None:
        return {}
    back = operator.others["take_along_axis" if operator.name == "scatter_add" else "index_select"]
    dim, bounds = (values[operator.names.index(name)] for name in ("dim", "bounds"))
    taken = run(back, _values(back, src=grads[0], dim=dim, idx=kept[0], bounds=bounds))[0]
    alpha = values[operator.names.index("alpha")] if "alpha" in operator.names else None
    return {operator.first: grads[0],
            operator.inputs["src"]: taken if alpha is None else taken * alpha}


def _best(operator, values, kept, grads, run):
    # Each element takes the gradients of the results that it is; those of nothing go nowhere.
    if grads[0] is None:
        return {}
    back, grad, idx = operator.others["scatter_add"], grads[0], kept[0]
    dim = values[operator.names.index("dim")]
    if "exclusive" in operator.names and values[operator.names.index("exclusive")]:
        grad, idx = torch.where(idx < 0, 0, grad), idx.clamp(min=0)
    begin = grad.new_zeros(()).expand(values[-1])
    return {operator.first: run(back, _values(
        back, input=begin, dim=-1 if dim is None else dim, idx=idx, src=grad))[0]}


def _embedding_backward(operator, values, kept, grads, run):
    # Rows of the table's gradient; the row of padding_idx was made of nothing.
    if grads[0] is None:
        return {}
    padding, bounds = (values[operator.names.index(name)] for name in ("padding_idx", "bounds"))
    table = grads[0]
    if padding is not None:
        table = table.index_fill(0, torch.tensor(padding % len(table), device=table.device), 0)
    return {operator.first: run(operator.others["embedding"], _values(
        operator.others["embedding"], idx=kept[0], weight=table, padding_idx=padding,
        bounds=bounds))[0]}


# Gradients that no operator of Kiln's is, the operands that they read, and those that they are of;
# values have types where tensors were.
_OWN = {"permute": (_permute, (), ("x",)), "rope": (_rope, ("cos", "sin", "positions"), ("q", "k")),
        "cummax": (_best, ("indices",), ("x",)), "cummin": (_best, ("indices",), ("x",)),
        "topk": (_best, ("indices",), ("x",)), "sort": (_best, ("indices",), ("x",)),
        "take_along_axis": (_take_along_axis, ("idx",), ("src",)),
        "embedding_backward": (_embedding_backward, ("idx",), ("ddst",)),
        "index_add": (_sums, ("idx",), ("x", "src")),
        "scatter_add": (_sums, ("idx",), ("x", "src"))}


def find(operators):
    """Gives each operator its gradient, or None."""
    def reduce(*call):
        return _torch_reduce.reduce(*call, operators)

    for name, (_, reads) in _torch_reduce.GRADIENTS.items():
        _OWN[name] = reduce, ("x", "y") if reads else (), ("x",)
    for operator in operators.values():
        operator.gradient, operator.others = None, operators
        back = operators.get(operator.name + "_backward")
        if operator.name in _OWN:
            operator.gradient = Gradient(operator, None)
        elif back:
            operator.gradient = Gradient(operator, back)
    for operator in list(operators.values()):
        forward = operators.get(operator.name.removesuffix("_backward"))
        if forward is not operator and forward and forward.gradient.is_linear():
            operator.gradient = Gradient(operator, forward)


class Gradient:
    """The gradient of an operator: what a call keeps, and what is done with it."""

    def __init__(self, operator, back):
        self.operator, self.back = operator, back
        places = {output.name: place for place, output in enumerate(operator.outputs)}
        self.reads, self.writes, self.attributes = [], [], []
        self.own, read, found = _OWN.get(operator.name, (None, (), ()))
        # The gradient asks for the shape of the first input.
        self.shaped = operator.over_at is not None or bool(
            self.own and {"idx", "indices"} & operator.rules.keys())
        self.sum = places.get("sum")
        self.residual = operator.inputs.get("residual")
        self.differentiable = set() if self.sum is None else {self.sum}
        self.computed = []  # the wants that a recorded call has in any case
        # A bias that is added before a softmax has the gradient of the softmax's input.
        self.bias = operator.inputs.get("mask")
        if self.own:
            self.differentiable.update(range(len(found)))
            self.reads = [(None, "output", places[name]) if name in places else
                          (None, "input", operator.inputs[name]) for name in read]
            self.writes = [(None, operator.inputs[name]) for name in found]
            self.computed = [operator.outputs[places[name]].want for name in read
                             if name in places and operator.outputs[places[name]].want is not None]
            return
        for name, place in back.inputs.items():
            self._read(name, place, places)
        for place, output in enumerate(back.outputs):
            name = output.name[1:] if output.name[1:] in operator.inputs else "d" + output.name
            self.writes.append((place, operator.inputs[name]))
        # A size comes behind the values of the call; what the gradient alone has keeps its default.
        for place, name in enumerate(back.names):
            if name in operator.names and back.kinds[place] not in ("INPUT", "WANT"):
                self.attributes.append((place, operator.names.index(name)))
            elif name == "last":
                self.attributes.append((place, None))

    def _read(self, name, place, places):
        grad = places.get(name[1:] if name[:1] == "d" and name[1:] in places else "d" + name)
        if grad is not None:
            self.reads.append((place, "grad", grad))
            self.differentiable.add(grad)
        elif name in places:
            self.reads.append((place, "output", places[name]))
            want = self.operator.outputs[places[name]].want
            if want is not None:
                self.computed.append(want)
        else:
            self.reads.append((place, "input", self.operator.inputs[name]))

    def is_linear(self):
        """Does it read nothing but gradients and indices?"""
        return bool(self.back) and "padding_idx" not in self.back.names and all(
            kind == "grad" or self.back.rules[name][1] == "index"
            for (name, _), (_, kind, _) in zip(self.back.inputs.items(), self.reads))

    def refuse(self, values):
        """Raises where an input that requires grad has no gradient."""
        reached = {place for _, place in self.writes} | {self.residual, self.bias}
        for place in self.operator.inputs.values():
            value = values[place]
            if value is not None and value.requires_grad and place not in reached:
                raise NotSupported(f"{self.operator.name}() has no gradient for "
                                   f"{self.operator.names[place]}: detach() it")

    # ---- A call that is recorded ----

    def widened(self, values):
        """The values of a call that computes what the gradient reads."""
        values = list(values)
        for want in self.computed:
            values[want] = True
        if self.residual is not None and values[self.residual] is not None:
            values[self.operator.outputs[self.sum].want] = True
        return values

    def kept(self, values, results):
        """The tensors to be kept, None where one is not there."""
        kept = []
        for _, kind, place in self.reads:
            if kind == "output":
                kept.append(results[place])
            elif kind == "input" and place == self.operator.first and self._sums(values):
                kept.append(results[self.sum])  # of which the norm was taken
            elif kind == "input":
                kept.append(values[place])
        return kept

    def _sums(self, values):
        return self.residual is not None and values[self.residual] is not None

    def rest(self, values):
        """The values with the types of the tensors, and a shape where the gradient asks for one."""
        rest = list(values)
        for place in self.operator.inputs.values():
            rest[place] = None if values[place] is None else values[place].dtype
        if self.back and self.back.sized:
            dim = self.operator.dimension(values)
            rest.append(values[self.operator.first].shape[0 if dim is None else dim])
        if self.shaped:
            rest.append(values[self.operator.first].shape)
        if self.bias is not None and values[self.bias] is not None:
            rest.append(values[self.bias].shape)
        return rest

    def apply(self, rest, kept, grads, needs, run):
        """The gradients of the inputs, by their places; run(operator, values) is how to call."""
        if self.own:
            return self.own(self.operator, rest, kept, grads, run)
        found = {}
        sources = iter(kept)
        values = [None] * len(self.back.names)
        for place, kind, source in self.reads:
            values[place] = grads[source] if kind == "grad" else next(sources)
        known = all(grads[source] is not None for _, kind, source in self.reads if kind == "grad")
        for place, source in self.attributes:
            values[place] = rest[source] if source is not None else rest[-1]
        if known and self.back.name == "embedding_backward":
            # The sums go over rows, evenly spaced, and indices in a row: a copy where they are not.
            grad, idx = (self.back.names.index(name) for name in ("ddst", "idx"))
            values[grad] = values[grad].reshape(values[idx].numel(), values[grad].shape[-1])
            values[idx] = values[idx].reshape(-1)
        beta = self.operator.inputs.get("beta")
        if known and beta is not None and needs[beta]:
            self._widen_weight(values, rest, rest[beta])
        if known:
            self._run(values, needs, run, found)
            if self.bias is not None and needs[self.bias]:
                self._add_bias(values, rest[-1], run, found)
        if self.sum is not None and grads[self.sum] is not None:
            given = grads[self.sum]
            dx = found.get(self.operator.first)
            found[self.operator.first] = given if dx is None else dx + given
        if self.residual is not None and needs[self.residual]:
            found[self.residual] = found.get(self.operator.first)
        return {place: grad.to(rest[place]) for place, grad in found.items()
                if needs[place] and grad is not None}

    def _widen_weight(self, values, rest, wide):
        """The gradients of weight and bias have weight's type, or input's: that of a wider bias
        would be rounded to it."""
        weight = self.back.names.index("weight")
        given, shape = values[weight], values[self.back.names.index("normalized_shape")]
        like = rest[self.operator.first] if given is None else given.dtype
        if torch.finfo(wide).bits <= torch.finfo(like).bits:
            return
        if given is None:
            dy = values[self.back.names.index("dy")]
            given = dy.new_ones(shape if isinstance(shape, (list, tuple)) else [shape])
        values[weight] = given.to(wide)

    def _run(self, values, needs, run, found):
        wanted = False
        for place, target in self.writes:
            need = needs[target] or (target == self.operator.first and
                                     self.residual is not None and needs[self.residual])
            want = self.back.outputs[place].want
            if want is not None:
                values[want] = bool(need)
            wanted = wanted or need
        if wanted:
            for (place, target), result in zip(self.writes, run(self.back, values)):
                found[target] = result

    def _add_bias(self, values, shape, run, found):
        scale = self.back.names.index("scale")
        dz = run(self.back, [None if place == scale else value
                             for place, value in enumerate(values)])[0]
        wide = dz if dz.dtype == torch.float64 else dz.float()
        found[self.bias] = wide.sum_to_size(shape)
