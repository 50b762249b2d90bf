"""What torch's side of Kiln knows of an operator: all of it follows from the operator's row.

A call is a flat tuple of values here, one for each parameter but out=, in the row's order: tensors
or None, attributes or None, and for an output that may be left out whether it is wanted.
"""
import torch

from . import _kiln
from ._errors import InvalidArgument
from ._kinds import TORCH, cast
from ._rows import ROWS

_TYPES = {"TEXT": "str?", "TYPE": "str?", "REAL": "float?", "INT": "SymInt?", "INTS": "int[]", "SHAPE": "SymInt[]",
          "OVER": "int[]?", "WANT": "bool"}


# Operators of torch.ops take Kiln's word for an element type.
_WORDS = {getattr(torch, name): word for word, name in TORCH.items() if hasattr(torch, name)}
_SMALL = {torch.bool, torch.int8, torch.uint8, torch.int16, getattr(torch, "uint16", torch.int16)}


def cast_input(tensor, dtype, widens):
    """The first input as a call with dtype= takes it; widens: small integers become int64."""
    if dtype is not None:
        tensor = tensor.to(dtype) if dtype in _WORDS else cast("dtype", tensor, dtype)
    return tensor.to(torch.int64) if widens and tensor.dtype in _SMALL else tensor


def cast_result(result, dtype, out):
    """The result of an operator that narrows, of the element type that dtype= asks for."""
    return result if dtype is None or out is not None else cast_input(result, dtype, False)


def _resized(shape, dim, size):
    """The shape with another size along a dimension; of rows, which have none, with so many."""
    if dim is None:
        return (size, shape[-1])
    resized = list(shape)
    resized[dim] = size
    return tuple(resized)


class Output:
    """One output of an operator."""

    def __init__(self, name, shape, dtype, want, source):
        self.name, self.shape, self.dtype = name, shape, dtype
        self.want = want  # the place of the value that asks for it; None: it is always there
        self.source = source  # that of the input without which it is not there, or None


class Operator:
    """An operator: how a call of it is read, run, and described to torch."""

    def __init__(self, name):
        operands, parameters, positional = ROWS[name]
        self.name = name
        self.parameters = [row for row in parameters if row[1] not in ("OUT", "DTYPE", "IGNORED")]
        dtype = [row for row in parameters if row[1] == "DTYPE"]
        self.casts, self.widens = bool(dtype), any(row[4] for row in dtype)
        # Nothing but such an output says how large it is along its dimension.
        self.sized = any(row[1] == "out" and row[2] in ("last", "along") for row in operands) and \
            operands[0][0].startswith("d")
        if self.sized:
            required = sum(row[3] for row in self.parameters)
            self.parameters.insert(required, ("last", "INT", -1, True, False))
        self.names = [row[0] for row in self.parameters]
        # The dimension that indices are for: a parameter, the last one, or that of rows.
        self.indexed = "dim" if "dim" in self.names else \
            "None" if any(row[2] == "along" for row in operands) else "-1"
        self.kinds = [row[1] for row in self.parameters]
        self.inputs = {operands[row[2]][0]: place for place, row in enumerate(self.parameters)
                       if row[1] == "INPUT"}
        # Inputs that are outputs, too: a call writes them in part.
        self.kept = {operand[0] for operand in operands if operand[1] == "kept"}
        self.rules = {operand[0]: operand[2:] for operand in operands}
        wants = {row[2]: place for place, row in enumerate(self.parameters) if row[1] == "WANT"}
        self.outputs = [Output(row[0], *row[2:], wants.get(place),
                               self.inputs[row[0].removesuffix("_out")] if row[2] == "input"
                               else None)
                        for place, row in enumerate(operands) if row[1] == "out"]
        # Integers are computed in int64, and the result is of the type that dtype= asks for.
        self.narrows = self.widens or any(output.dtype == "summed" for output in self.outputs)
        self.first = self.inputs[operands[0][0]]
        self.shape_at = self.kinds.index("SHAPE") if "SHAPE" in self.kinds else None
        self.order_at = self.kinds.index("INTS") if "INTS" in self.kinds else None
        self.over_at = self.kinds.index("OVER") if "OVER" in self.kinds else None
        self.signature = self._signature(parameters, positional)
        self.usual = [row[1] == "WANT" and row[4] or None for row in self.parameters]
        self.sources = self._sources()
        self.out_source = "out" if any(row[1] == "OUT" for row in parameters) else "None"
        # The extension's functions: one runs here and now, one looks first what the tensors are.
        self.here, self.anywhere = _kiln.here[name], getattr(_kiln, name)
        self.positional = positional
        self.order = [row[0] for row in parameters]
        self.extra = [name for name in self.order if name not in self.names]  # dtype, out, ignored ones
        self.bind = eval(f"lambda {self.signature}: (({self.sources}), {self.out_source})")
        self._here = self._runner(positional, self.here)
        self._anywhere = self._runner(positional, self.anywhere)
        self.op = None  # torch.ops.kiln.NAME, once it is defined

    # ---- Texts ----

    @staticmethod
    def _signature(parameters, positional):
        words = []
        for place, (name, kind, _, required, preset) in enumerate(parameters):
            if place == positional:
                words.append("*")
            usual = str(preset) if kind == "WANT" else "None"
            words.append(name if required else f"{name}={usual}")
        return ", ".join(words)

    def _sources(self):
        words = list(self.names)
        if self.casts:
            words[0] = f"cast_input({words[0]}, dtype, {self.widens})"
        if self.sized:
            along = 0 if self.indexed == "None" else self.indexed
            words[words.index("last")] = f"None if out is None else out.shape[{along}]"
        return ", ".join(words) + ","

    def _runner(self, positional, function):
        words = []
        for place, name in enumerate(row[0] for row in ROWS[self.name][1]):
            if name in self.names:
                words.append(name if place < positional else f"{name}={name}")
        if self.sized:
            first = self.names[self.first]
            words.append(f"out={first}.new_empty(resized({first}.shape, {self.indexed}, last))")
        return eval(f"lambda {', '.join(self.names)}: function({', '.join(words)})",
                    {"function": function, "resized": _resized})

    def schema(self):
        """The operator in the language of torch.library."""
        words, kept = [], []
        for name, kind, _, required, preset in self.parameters:
            if kind == "INPUT":
                tensor = f"Tensor({'abcd'[len(kept)]}!)" if name in self.kept else "Tensor"
                kept += [name] * (name in self.kept)
                words.append(f"{tensor} {name}" if required else f"{tensor}? {name}=None")
            elif kind == "WANT":
                words.append(f"bool {name}={preset}")
            else:
                type = _TYPES[kind]
                words.append(f"{type.rstrip('?')} {name}" if required else f"{type} {name}=None")
        results = ["Tensor"] * len(self.outputs)
        result = results[0] if len(results) == 1 else f"({', '.join(results)})"
        return f"{self.name}({', '.join(words)}) -> {result}"

    # ---- Values ----

    def plain(self, values):
        """The values as torch.ops takes them: lists for shapes, numbers and flags for the rest."""
        plain = list(values)
        for place, kind in enumerate(self.kinds):
            value = plain[place]
            if kind == "WANT":
                plain[place] = value is not None and value is not False
            elif kind == "OVER" and value is None:
                continue
            elif kind in ("SHAPE", "OVER") and not isinstance(value, (list, tuple)):
                plain[place] = [value]
            elif kind in ("SHAPE", "INTS", "OVER"):
                plain[place] = list(value)
            elif kind == "INT" and isinstance(value, bool):
                plain[place] = int(value)
            elif kind == "TYPE" and not isinstance(value, str):
                plain[place] = _WORDS.get(value, value)
        return plain

    def filled(self, values):
        """The values with the defaults that torch's dispatcher leaves out."""
        return [*values, *self.usual[len(values):]]

    def wanted(self, values):
        """The places of the outputs that a call has."""
        return [place for place, output in enumerate(self.outputs)
                if (output.want is None or values[output.want]) and
                (output.source is None or values[output.source] is not None)]

    def dimension(self, values):
        """The dimension that indices are for; None: they are for rows."""
        if self.indexed != "dim":
            return None if self.indexed == "None" else -1
        dim = values[self.names.index("dim")]
        return -1 if dim is None else dim

    def tensors(self, values):
        """The inputs that are there."""
        return [values[place] for place in self.inputs.values() if values[place] is not None]

    # ---- Running ----

    def run(self, values, anywhere=False):
        """Runs a call: a list of its outputs, None where one is not wanted.

        It runs here and now, or anywhere: as kiln.NAME, which sees what the tensors are.
        """
        results = (self._anywhere if anywhere else self._here)(*values)
        if len(self.outputs) < 2:
            return [results] * len(self.outputs)
        places = self.wanted(values)
        whole = [None] * len(self.outputs)
        if len(places) == 1:
            whole[places[0]] = results
        else:
            for place, result in zip(places, results):
                whole[place] = result
        return whole

    def kernel(self, *values):
        """torch.ops.kiln.NAME: an output that is not wanted has no elements."""
        values = self.filled(values)
        results = self.run(values)
        if len(results) < 2:
            return results[0] if results else None
        empty = values[self.first].new_empty
        return tuple(empty((0,)) if result is None else result for result in results)

    def fake(self, *values):
        """The same without memory: by the rules of the row."""
        values = self.filled(values)
        wanted = self.wanted(values)
        first = values[self.first]
        results = tuple(
            first.new_empty(self._shape(output, values), dtype=self._dtype(output, values))
            if place in wanted else first.new_empty((0,))
            for place, output in enumerate(self.outputs))
        if len(results) < 2:
            return results[0] if results else None
        return results

    def _shape(self, output, values):
        shape = values[self.first].shape
        split = len(shape) - (1 if self.shape_at is None else len(values[self.shape_at]))
        if output.shape == "trailing":
            return shape[split:]
        if output.shape == "leading":
            return shape[:split]
        if output.shape == "one":
            return ()
        if output.shape == "loss":
            whole = values[self.names.index("reduction")] == "none"
            return shape[:-1] if whole else ()
        if output.shape in ("halved", "halved_groups") and values[self.inputs["other"]] is None:
            shape = (*shape[:-1], shape[-1] // 2)
        if output.shape == "input":
            return values[output.source].shape
        if output.shape == "reduced":
            over = self.reduced(values)
            return [1 if axis in over else size for axis, size in enumerate(shape)
                    if axis not in over or values[self.names.index("keepdim")]]
        if output.shape == "along" and self.sized:
            return _resized(shape, self.dimension(values), values[self.names.index("last")])
        if output.shape == "along":
            idx, dim = values[self.inputs["idx"]].shape, self.dimension(values)
            if dim is None:
                return (*idx, shape[-1])
            return idx if self.rules["idx"][0] == "along" else _resized(shape, dim, idx[0])
        if output.shape == "transposed":
            return (*shape[:-2], shape[-1], shape[-2])
        if output.shape == "first_k":
            return _resized(shape, self.dimension(values), values[self.names.index("k")])
        if output.shape in ("groups", "halved_groups"):
            group = values[self.names.index("group")]
            return (*shape[:-1], shape[-1] // group) if group else shape[:-1]
        if output.shape == "last":
            return (*shape[:-1], values[self.names.index("last")] if self.sized else
                    self._of_rule("lists", values)[0].shape[-1])
        return shape if self.order_at is None else [shape[axis] for axis in values[self.order_at]]

    def reduced(self, values):
        """The dimensions of the first input that a reduction goes over."""
        rank, dims = values[self.first].dim(), values[self.over_at]
        dims = dims if dims is None or isinstance(dims, (list, tuple)) else [dims]
        for axis in dims or ():
            if not -rank <= axis < max(rank, 1):
                raise InvalidArgument(f"{self.name}(): dim is {axis}; it may be "
                                      f"{-max(rank, 1)} to {max(rank - 1, 0)}", "KILN_EINVAL")
        return {axis % max(rank, 1) for axis in dims or range(rank)}

    def _of_rule(self, shape, values):
        return [values[place] for name, place in self.inputs.items()
                if self.rules[name][0] == shape and values[place] is not None]

    def _dtype(self, output, values):
        first = values[self.first].dtype
        if output.dtype == "computed":
            return torch.float64 if first == torch.float64 else torch.float32
        if output.dtype == "i64" or (
                output.dtype == "summed" and not first.is_floating_point):
            return torch.int64
        if output.dtype == "bool":
            return torch.bool
        if output.dtype == "to":
            return getattr(torch, TORCH[values[self.names.index("to")]])
        if output.dtype == "own":
            # A gradient of a factor has the factor's type.
            factors = self._of_rule("trailing", values)
            return factors[0].dtype if factors else first
        return first
