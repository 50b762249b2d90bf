"""The gradient of a statement, as statements.

Each reduction of floats becomes a tensor of its own, by a statement before the one that needs it.
The statements are then gone through from the last to the first, each with the gradient of what it
writes: that of an operand that it reads is one more statement, a sum over the indices that the
operand lacks.  Where a subscript is computed, the terms are added up at the places that it says.
"""
import math
import re

import torch

from . import _torch_map
from ._map_parse import Statement, free, kids, names, write

_FLOATS = {"f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "sat_f8e4m3", "sat_f8e5m2"}
_TYPES = _FLOATS | {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"}
_ROOM, _PARTS = 1200, 280  # letters and parts of a text, which a statement has room for
_LARGE = 6  # parts of an argument that is worked out once, for a gradient that repeats it
_SAME = {"abs", "min", "max", "clamp"}
_FLAT = {"floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite"}

# Factors of a function's gradient, one for each of its arguments.
_FACTORS = {
    "exp": ("* exp({0})",), "exp2": (f"* exp2({{0}}) * {math.log(2)}",), "expm1": ("* exp({0})",),
    "log": ("/ {0}",), "log2": (f"/ {{0}} / {math.log(2)}",),
    "log10": (f"/ {{0}} / {math.log(10)}",), "log1p": ("/ (1 + {0})",),
    "sqrt": ("* 0.5 / sqrt({0})",), "rsqrt": ("* -0.5 * rsqrt({0}) / {0}",),
    "cbrt": ("/ 3 / cbrt({0}) / cbrt({0})",), "sin": ("* cos({0})",), "cos": ("* -sin({0})",),
    "tan": ("* (1 + tan({0}) * tan({0}))",), "asin": ("* rsqrt(1 - {0} * {0})",),
    "acos": ("* -rsqrt(1 - {0} * {0})",), "atan": ("/ (1 + {0} * {0})",), "sinh": ("* cosh({0})",),
    "cosh": ("* sinh({0})",), "tanh": ("* (1 - tanh({0}) * tanh({0}))",),
    "erf": (f"* exp(-{{0}} * {{0}}) * {2 / math.sqrt(math.pi)}",),
    "erfc": (f"* exp(-{{0}} * {{0}}) * {-2 / math.sqrt(math.pi)}",),
    "pow": ("* ({1} == 0 ? 0 : {1} * pow({0}, {1} - 1))",
            "* ({0} == 0 && {1} >= 0 ? 0 : pow({0}, {1}) * log({0}))"),
    "atan2": ("* {1} / ({0} * {0} + {1} * {1})", "* -{0} / ({0} * {0} + {1} * {1})"),
    "fmod": ("", "* -trunc({0} / {1})"),
    "hypot": ("* {0} / hypot({0}, {1})", "* {1} / hypot({0}, {1})"),
    "fma": ("* {1}", "* {0}", ""),
    "abs": ("* ({0} > 0 ? 1 : {0} < 0 ? -1 : 0)",),
    # A number wins against a NaN, and equal numbers share the gradient.
    "max": ("* ({0} > {1} || isnan({1}) ? 1 : {0} == {1} ? 0.5 : 0)",
            "* ({1} > {0} || isnan({0}) ? 1 : {0} == {1} ? 0.5 : 0)"),
    "min": ("* ({0} < {1} || isnan({1}) ? 1 : {0} == {1} ? 0.5 : 0)",
            "* ({1} < {0} || isnan({0}) ? 1 : {0} == {1} ? 0.5 : 0)"),
}


def _pairs(node):
    """clamp, min and max as min and max of two."""
    name, arguments = node[1], node[2]
    if name == "clamp":
        return ("call", "min", [("call", "max", arguments[:2]), arguments[2]])
    if name in ("min", "max") and len(arguments) > 2:
        return ("call", name, [_pairs(("call", name, arguments[:-1])), arguments[-1]])
    return node


def _size(node):
    return 1 + sum(map(_size, kids(node)))


def _sums(terms):
    """The sum of terms as texts, each of which one statement has room for."""
    texts = [""]
    for term in terms:
        text = f"{texts[-1]} + {term}" if texts[-1] else term
        if texts[-1] and (len(text) > _ROOM or len(re.findall(r"\w+|[^\w\s(),[\]]", text)) > _PARTS):
            texts.append(term)
        else:
            texts[-1] = text
    return texts


class Gradient:
    """One call's: the values of its tensors and scalars, how far its indices go, what is found."""

    def __init__(self, statement, tensors, scalars, bounds, output):
        self.tensors, self.scalars, self.bounds = dict(tensors), scalars, bounds
        self.statement = Statement(statement, tensors)
        self.mark = self.statement.mark  # of names that are made here
        self.some = next(iter(tensors.values()))
        self.work = torch.float64 if any(
            one.dtype == torch.float64 for one in (*tensors.values(), output)) else torch.float32
        self.extents, self.found, self.count, self.whole = {}, {}, 0, set()
        self._measure(("access", None, [("name", one) for one in self.statement.indices]),
                      output.shape)
        self.fixed = set(self.statement.indices)
        self._measure_all(self.statement.right)
        # (target, its indices, reduction, that one's indices, term)
        self.steps = []
        right = self._split(self.statement.right)
        rest = [one for one in self.extents if one not in self.fixed
                and one in free(right, set(self.extents))]
        self.steps.append((None, self.statement.indices, self.statement.reduction,
                           rest if self.statement.reduction else [], right))

    # ---- What is known of a statement ----

    def _is_index(self, node):
        return node[0] == "name" and node[1] not in self.scalars

    def _measure(self, node, shape):
        for subscript, size in zip(node[2], shape):
            if self._is_index(subscript):
                known = self.extents.get(subscript[1], 1)
                self.extents[subscript[1]] = size if known == 1 else known

    def _measure_all(self, node):
        if node[0] == "access":
            left = {name: self.extents[name] for name in self.fixed}
            self._measure(node, self.tensors[node[1]].shape)
            self.extents.update(left)
        for kid in kids(node):
            self._measure_all(kid)

    def _is_float(self, node):
        kind = node[0]
        if kind == "access":
            return self.tensors[node[1]].dtype.is_floating_point
        if kind == "number":
            return not node[1].isdigit()
        if kind == "name":
            return isinstance(self.scalars.get(node[1]), float)
        if kind == "call" and node[1] not in _SAME:
            return node[1] in _FLOATS or node[1] not in (_TYPES | _FLAT) or \
                node[1] in ("floor", "ceil", "trunc", "rint")
        if kind == "reduce":
            return node[1] not in ("any", "all") and self._is_float(node[3])
        if kind == "unary":
            return node[1] == "-" and self._is_float(node[2])
        if kind == "binary":
            return node[1] in "+-*/" and any(map(self._is_float, node[2:]))
        return any(map(self._is_float, node[2:] if kind == "choice" else kids(node)))

    def _split(self, node, always=True):
        """A node with tensors in the place of its reductions, and of what would be repeated often.
        always: it is read wherever the statement is, behind no condition."""
        kind = node[0]
        if kind in ("number", "name"):
            return node
        if kind == "reduce" and self._is_float(node):
            return self._let(node, node[1], node[2], self._split(node[3], always))
        if kind == "choice":
            return (kind, self._split(node[1], always),
                    *(self._split(kid, False) for kid in node[2:]))
        if kind == "binary" and node[1] in ("&&", "||"):
            return (kind, node[1], self._split(node[2], always), self._split(node[3], False))
        if kind == "call" and always and node[1] in _FACTORS and len(node[2]) > 1 or \
                kind == "call" and always and node[1] == "clamp":
            node = _pairs(node)
            return (kind, node[1], [
                self._let(kid, "", [], self._split(kid)) if _size(kid) > _LARGE and
                self._is_float(kid) else self._split(kid) for kid in node[2]])
        if kind in ("access", "call"):
            return (kind, node[1], [self._split(kid, always) for kid in node[2]])
        return (*node[:len(node) - len(kids(node))],
                *(self._split(kid, always) for kid in kids(node)))

    def _let(self, node, reduction, own, inner):
        """The tensor of a node's values, and the access that stands for the node."""
        indices = [one for one in self.extents if one in free(node, set(self.extents))]
        target = f"{self.mark}r{len(self.steps)}"
        self.steps.append((target, indices, reduction, own, inner))
        self.tensors[target] = self._run(indices, write(inner), own, reduction)
        return ("access", target, [("name", one) for one in indices])

    # ---- Statements that are run ----

    def _run(self, indices, text, own=(), reduction="sum", dtype=None):
        """The values of a text over indices, reduced over its own, as a tensor."""
        tensors = dict(self.tensors)
        right = Statement(f"y = {text}", tensors, rename=False).right
        # An index that no operand has is that of an operand of ones.
        for name in own:
            if name not in self._plain(right):
                one = f"{self.mark}o{len(tensors)}"
                tensors[one] = self.some.new_ones(1, dtype=self.work).expand(self.extents[name])
                text = f"{one}[{name}] * ({text})"
                right = ("binary", "*", ("name", one), right)
        found = names(right)
        tensors = {name: one for name, one in tensors.items() if name in found}
        scalars = {name: one for name, one in self.scalars.items() if name in found}
        if own:
            text = f"{reduction}[{','.join(own)}]({text})"
        like = self.some.new_empty((), dtype=dtype or self.work).expand(
            [self.extents[one] for one in indices])
        return _torch_map.call(
            f"{self.mark}y[{','.join(indices)}] = {text}", list(tensors.values()), list(tensors),
            list(scalars.values()), list(scalars), self.bounds, like=like)

    def _plain(self, node):
        found = {one[1] for one in node[2] if self._is_index(one)} if node[0] == "access" else set()
        return found.union(*map(self._plain, kids(node)))

    # ---- The gradients ----

    def apply(self, grad, wanted):
        """The gradients of the operands that are wanted, None for others."""
        self.wanted = set(wanted)
        for target, _, _, _, term in self.steps:
            if target and names(term) & self.wanted:
                self.wanted.add(target)
        for target, indices, reduction, own, term in reversed(self.steps):
            given = grad if target is None else self.found.pop(target, None)
            if given is not None and names(term) & self.wanted:
                self._step(indices, reduction, own, term, given)
        return [self.found[name].to(self.tensors[name].dtype) if name in self.found else None
                for name in wanted]

    def _step(self, indices, reduction, own, term, given):
        self.tensors[self.mark + "g"] = given
        self.terms = {}
        seed = self._at("g", indices)
        if reduction in ("min", "max"):
            seed = self._shares(indices, reduction, own, term)
        elif reduction == "prod":
            seed += self._others(indices, own, term)
        self._descend(term, seed, [])
        for access, found in list(self.terms.values()):
            for text in _sums(found):
                self._add(access, text, [*indices, *own])

    def _at(self, name, indices):
        """The text of one of the tensors that are made here."""
        return self.mark + name + (f"[{','.join(indices)}]" if indices else "")

    def _shares(self, indices, reduction, own, term):
        """Those that are the least, or the greatest, share the gradient."""
        value, most = self._at("v", [*indices, *own]), self._at("m", indices)
        self.tensors[self.mark + "v"] = self._run([*indices, *own], write(term))
        self.tensors[self.mark + "m"] = self._run(indices, value, own, reduction)
        self.tensors[self.mark + "n"] = self._run(indices, f"f32({value} == {most})", own)
        return f"({value} == {most} ? {self._at('g', indices)} / {self._at('n', indices)} : 0)"

    def _others(self, indices, own, term):
        """The product of all but one: where there is a zero, only that one's is none."""
        text, p, z = write(term), self._at("p", indices), self._at("z", indices)
        self.tensors[self.mark + "p"] = self._run(indices, f"({text} == 0 ? 1 : {text})", own,
                                                  "prod")
        self.tensors[self.mark + "z"] = self._run(indices, f"f32({text} == 0)", own)
        return f" * ({z} == 0 ? {p} / {text} : {z} == 1 && {text} == 0 ? {p} : 0)"

    def _descend(self, node, seed, guards):
        """Notes what reaches each access: seed, where all guards hold."""
        kind = node[0]
        if not names(node) & self.wanted:
            return
        if kind == "access" and node[1] in self.wanted:
            text = f"({' && '.join(guards)} ? {seed} : 0)" if guards else seed
            self.terms.setdefault(write(node), ((node, list(guards)), []))[1].append(text)
        elif kind == "unary" and node[1] == "-":
            self._descend(node[2], f"-{seed}", guards)
        elif kind == "binary" and node[1] in "+-*/":
            a, b = write(node[2]), write(node[3])
            first = {"*": f"{seed} * {b}", "/": f"{seed} / {b}"}.get(node[1], seed)
            second = {"+": seed, "-": f"-{seed}", "*": f"{seed} * {a}"}.get(
                node[1], f"-{seed} * {a} / {b} / {b}")
            self._descend(node[2], first, guards)
            self._descend(node[3], second, guards)
        elif kind == "choice":
            self._descend(node[2], seed, [*guards, f"bool({write(node[1])})"])
            self._descend(node[3], seed, [*guards, f"!{write(node[1])}"])
        elif kind == "call" and node[1] in _FLOATS:
            self._descend(node[2][0], seed, guards)
        elif kind == "call" and node[1] not in _TYPES | _FLAT:
            node = _pairs(node)
            arguments = [write(one) for one in node[2]]
            for factor, argument in zip(_FACTORS[node[1]], node[2]):
                self._descend(argument, f"{seed} {factor.format(*arguments)}".rstrip(), guards)

    def _add(self, place, text, indices):
        """Adds the terms of an access to its operand's gradient."""
        access, guards = place
        name, subscripts = access[1], access[2]
        tensor = self.tensors[name]
        # A dimension of size 1 that was repeated has its gradient added up over it as well.
        kept = [one for one, size in zip(subscripts, tensor.shape)
                if not (self._is_index(one) and size == 1 and self.extents[one[1]] != 1)]
        plain = [one[1] for one in kept if self._is_index(one)]
        if len(set(plain)) == len(kept):
            grad = self._run(plain, text, [one for one in indices if one not in plain])
            grad = grad.reshape(tensor.shape)
        else:
            grad = self._scattered(tensor, subscripts, guards, text, indices)
        self.found[name] = self.found[name] + grad if name in self.found else grad

    def _scattered(self, tensor, subscripts, guards, text, indices):
        """Terms added up where computed subscripts say, in an order that is always the same."""
        reached = set().union(*(free(one, set(indices)) for one in subscripts))
        kept = [one for one in indices if one in reached]
        own = [one for one in indices if one not in reached]
        values = self._run(kept, text, own)
        place, within = "0", [guard for guard in guards if not own]
        for subscript, size in zip(subscripts, tensor.shape):
            at = f"i64({write(subscript)})"
            if self._is_index(subscript) and size == 1:
                at = "0"
            elif self.bounds == "clamp":
                at = f"clamp({at}, 0, {size - 1})"
            else:
                within.append(f"({at} >= 0 && {at} < {size})")
            place = f"({place} * {size} + {at})"
        if within:
            place = f"({' && '.join(within)} ? {place} : {tensor.numel()})"
        places = self._run(kept, place, dtype=torch.int64)
        grad = values.new_zeros(tensor.numel() + 1)
        grad = grad.index_put((places.reshape(-1),), values.reshape(-1), accumulate=True)
        return grad[:-1].reshape(tensor.shape)
