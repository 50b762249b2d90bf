"""The short way of a call that is recorded: one output, no sum with a residual, nothing watching.

The general way, in torch.py, works out from the row what a call keeps and what its gradient reads.
That is the same for every call but for its tensors, and takes longer than a launch.  So a function
is written for each operator here, as the names in its row say, once.
"""
import torch

from ._torch_operator import cast_input

_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack


def watched():
    """Is a mode of torch, or a transform of torch.func, about to see what is done?"""
    return _modes() or _transform() is not None


def _apply(function):
    """Function.apply without what it does for transforms, which the short way excludes."""
    return super(torch.autograd.Function, function).apply


def _call(operator, given):
    """Arguments of the extension's function: those of (given), by the names of parameters."""
    return ", ".join(text if place < operator.positional else f"{name}={text}"
                     for place, name in enumerate(operator.order)
                     if (text := given.get(name)) is not None)


def _tuple(words):
    return "".join(f"{word}, " for word in words)


class Recorder:
    """The sources of an operator's two functions."""

    def __init__(self, operator):
        self.operator, self.gradient, self.names = operator, operator.gradient, operator.names
        self.required = [output for output in operator.outputs if output.want is None]
        self.wants = {output.want: output.name for output in operator.outputs
                      if output.want is not None}

    def has_short_way(self):
        """Does it take such calls at all?"""
        return self.gradient is not None and len(self.required) == 1 and \
            not self.operator.sized and 0 in self.gradient.differentiable and \
            self.operator.outputs[0].want is None

    def condition(self):
        """True of the arguments of a call that goes the short way."""
        gradient, words = self.gradient, ["not modes()", "transform() is None"]
        reached = {place for _, place in gradient.writes}
        words += [f"{word} is None" for word in self.operator.extra]
        if gradient.computed:  # rows without elements have no mean
            words.append(f"{self.names[self.operator.first]}.numel()")
        words += [f"not {self.names[place]}" for place in self.wants]
        for place in self.operator.inputs.values():
            name = self.names[place]
            if place == gradient.residual:
                words.append(f"{name} is None")
            elif place not in reached:
                words.append(f"({name} is None or not {name}.requires_grad)")
        return " and ".join(words)

    def forward(self):
        operator, gradient = self.operator, self.gradient
        given = {name: name for place, name in enumerate(self.names) if place not in self.wants}
        if gradient.residual is not None:
            del given[self.names[gradient.residual]]
        given.update((self.names[want], "True") for want in gradient.computed)
        results = {0: "result"}
        for place, output in enumerate(operator.outputs):
            if output.want in gradient.computed:
                results[place] = f"result_{output.name}"
        kept = [results[place] if kind == "output" else self.names[place]
                for _, kind, place in gradient.reads if kind != "grad"]
        inputs = operator.inputs.values()
        rest = [f"None if {name} is None else {name}.dtype" if place in inputs else name
                for place, name in enumerate(self.names)]
        if gradient.back and gradient.back.sized:
            along = {"dim": "dim", "None": "0"}.get(operator.indexed, "-1")
            if along == "dim":
                along = self.names[operator.names.index("dim")]
            rest.append(f"{self.names[operator.first]}.shape[{along}]")
        if gradient.shaped:
            rest.append(f"{self.names[operator.first]}.shape")
        return [
            f"def forward(ctx, {', '.join(self.names)}):",
            f"    {', '.join(results.values())} = here({_call(operator, given)})",
            f"    ctx.rest = ({_tuple(rest)})",
            f"    ctx.save_for_backward({', '.join(kept)})",
            "    return result",
        ]

    def backward(self):
        """Of a gradient that is not recorded itself; the general way takes the others."""
        gradient, back = self.gradient, self.gradient.back
        if gradient.own or any(source is None for _, source in gradient.attributes):
            return []
        values, kept, outputs = {}, [], {}
        for place, kind, _ in gradient.reads:
            values[back.names[place]] = "grad" if kind == "grad" else f"kept_{place}"
            kept += [f"kept_{place}"] if kind != "grad" else []
        for place, source in gradient.attributes:
            values[back.names[place]] = f"rest[{source}]"
        for place, target in gradient.writes:
            outputs[place] = f"needs[{target}]"
            want = back.outputs[place].want
            if want is not None:
                values[back.names[want]] = outputs[place]
        if len(outputs) < len(back.outputs):
            return []
        asks = "grad_enabled() or modes() or transform() is not None"
        factor, bias = (self.operator.inputs.get(name) for name in ("gamma", "beta"))
        if bias is not None:  # of a type of its own
            asks += (f" or ctx.needs_input_grad[{bias}] and ctx.rest[{bias}] is not "
                     f"(ctx.rest[{factor}] or ctx.rest[{self.operator.first}])")
        found = ["None"] * len(self.names)
        for place, target in gradient.writes:
            always = back.outputs[place].want is None
            found[target] = "next(found)" if always else f"next(found) if needs[{target}] else None"
        if len(outputs) == 1:
            found = [word.replace("next(found)", "found") for word in found]
        elif [target for _, target in gradient.writes] != sorted(
                target for _, target in gradient.writes):
            return []  # they are taken in the order of the operator's inputs
        return [
            "def backward(ctx, grad):",
            f"    if {asks}:",
            "        return general(ctx, grad)",
            "    rest, needs = ctx.rest, ctx.needs_input_grad",
            *([f"    {_tuple(kept)}= ctx.saved_tensors"] if kept else []),
            f"    found = call({_call(back, values)})",
            *(["    found = iter(found if type(found) is tuple else (found,))"]
              if len(outputs) > 1 else []),
            f"    return {_tuple(found)}",
        ]


def make(operator, general):
    """The function that a call of kiln.NAME goes through where a tensor requires grad.

    general(operator, values, out) takes the calls that do not go the short way.
    """
    recorder = Recorder(operator)
    lines = [f"def recorded({operator.signature}):"]
    room = {"operator": operator, "general": general, **_ASKED}
    if recorder.has_short_way():
        lines += [f"    if {recorder.condition()}:",
                  f"        return apply({', '.join(operator.names)})"]
        room["apply"] = _apply(_function(operator, recorder))
    lines += [f"    return general(operator, ({operator.sources}), {operator.out_source})"]
    exec("\n".join(lines), room)
    return room["recorded"]


_ASKED = {"grad_enabled": torch.is_grad_enabled, "modes": _modes, "transform": _transform,
          "cast_input": cast_input}


def _function(operator, recorder):
    backward = operator.function.backward

    def general(ctx, grad):
        ctx.places = [0]
        return backward(ctx, grad)

    # A gradient may be batched, which the function that looks at its tensors sees.
    back = operator.gradient.back
    room = {"here": operator.here, "call": back and back.anywhere, "general": general,
            "backward": general, **_ASKED}
    exec("\n".join([*recorder.forward(), *recorder.backward()]), room)
    return type(operator.function.__name__, (torch.autograd.Function,), {
        "forward": staticmethod(room["forward"]), "backward": staticmethod(room["backward"])})
