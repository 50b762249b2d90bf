"""
case.py: one comparison: a call of Kiln, and what PyTorch says that its outputs are.

Integers and truth values must be the same bit for bit.  A float may be off by

    one rounding of its dtype + ULPS roundings of the type it is computed in, of `scale`

where scale is the size of what was added up on the way: |result|, unless the case says more.  The
expected value is PyTorch's in f64, from the same (rounded) inputs.
"""
import torch

import kiln

ULPS = 16
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24,
        torch.float64: 2.0**-53}
LEAST = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-126, torch.float32: 2.0**-126,
         torch.float64: 2.0**-1022}


class Output:
    """What an output must hold: `value` of f64 or, of an integer dtype, of that dtype itself."""

    def __init__(self, dtype, value, scale=None, computed=None):
        self.dtype = dtype
        self.value = value
        self.shape = tuple(value.shape)
        self.scale = scale
        # f16 and bf16 are computed in f32.
        self.computed = computed or (torch.float64 if dtype == torch.float64 else torch.float32)

    def wrong(self, memory):
        """None, or one sentence about the first element that is wrong."""
        if self.value.numel() == 0:
            return None
        got = torch.frombuffer(memory, dtype=torch.uint8).view(self.dtype).reshape(self.shape)
        if self.dtype not in UNIT:
            # Compared as bytes: torch has no == of all unsigned types.
            wanted = self.value.flatten().clone(memory_format=torch.contiguous_format)
            width = self.dtype.itemsize
            bad = (got.reshape(-1).view(torch.uint8).reshape(-1, width) !=
                   wanted.view(torch.uint8).reshape(-1, width)).any(1)
            allowed = None
        else:
            value = self.value.double()
            scale = value.abs() if self.scale is None else self.scale.double().expand(self.shape)
            allowed = (UNIT[self.dtype] * value.abs() + LEAST[self.dtype] +
                       ULPS * UNIT[self.computed] * scale.abs())
            bad = self.far(got.double(), value, allowed).reshape(-1)
        if not bool(bad.any()):
            return None
        at = int(bad.nonzero()[0])
        place = torch.unravel_index(torch.tensor(at), self.shape) if self.shape else ()
        index = "[" + ",".join(str(int(i)) for i in place) + "]"
        bound = "" if allowed is None else f" +- {float(allowed.reshape(-1)[at]):.3g}"
        return (f"{int(bad.sum())} of {bad.numel()} are wrong; {index} is "
                f"{got.reshape(-1)[at].item()}, and PyTorch has "
                f"{self.value.reshape(-1)[at].item()}{bound}")

    def far(self, got, value, allowed):
        # The value may round to an infinity of a short type.
        rounded = value.to(self.dtype).double()
        same = (got == value) | (got == rounded) | (got.isnan() & value.isnan())
        return ~same & ~((got - value).abs() <= allowed)


class Case:
    """operands: tensors (read), Outputs (written) or None (left out), in the operator's order."""

    def __init__(self, op, operands, attrs, refusal=None):
        self.op = op
        self.operands = operands
        self.attrs = attrs
        self.refusal = refusal  # a pattern of the sentence with which Kiln must refuse it
        self.label = ""

    def run(self, client):
        """("compared", None), ("refused", sentence), or ("wrong", sentence)."""
        written = [operand for operand in self.operands if isinstance(operand, Output)]
        given = [(operand.dtype, operand.shape) if isinstance(operand, Output) else operand
                 for operand in self.operands]
        try:
            memory = client.run(self.op, given, self.attrs)
        except kiln.Refused as refused:
            return "refused", str(refused)
        except RuntimeError as error:
            return "wrong", str(error)
        for output, bytes_of in zip(written, memory):
            words = output.wrong(bytes_of)
            if words:
                return "wrong", words
        return "compared", None

    def __str__(self):
        def one(operand):
            if operand is None:
                return "-"
            name = kiln.SHORT[kiln.dtype_name(operand.dtype)]
            shape = "x".join(map(str, operand.shape))
            if isinstance(operand, Output):
                return f"{name}:{shape}"
            strides = ",".join(map(str, operand.stride()))
            return f"{name}:{shape}/{strides}+{operand.storage_offset()}"

        attrs = ", ".join(f"{name}={value!r}" for name, value in self.attrs.items())
        return f"{self.label}: {self.op} ({' '.join(map(one, self.operands))}; {attrs})"


def map_case(statement, inputs, output, scalars=None, bounds=None, refusal=None):
    """A statement over named tensors; the output is y."""
    attrs = {"statement": statement, "names": ",".join(list(inputs) + ["y"])}
    if bounds:
        attrs["bounds"] = bounds
    attrs.update(scalars or {})
    return Case("map", list(inputs.values()) + [output], attrs, refusal)


def wide(value):
    """A float tensor as f64; others as they are."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


def relayout(tensor, random, way=None):
    """The same elements in memory of another layout: behind an offset, with steps, or with the axes
    in another order.  Both "plain" and "offset" are contiguous."""
    way = way or random.choice(["plain", "offset", "step", "axes"])
    if tensor.numel() == 0 or way == "plain" or 0 in tensor.stride():
        return tensor
    before = 3
    if way == "offset" or tensor.dim() == 0:
        made = torch.zeros(before + tensor.numel(), dtype=tensor.dtype)[before:].view(tensor.shape)
    elif way == "step":
        last = tensor.shape[-1]
        made = torch.zeros(tensor.shape[:-1] + (last * 2 + before,), dtype=tensor.dtype)
        made = made[..., before:before + last * 2:2]
    else:
        order = list(range(tensor.dim()))
        random.shuffle(order)
        made = torch.zeros([tensor.shape[k] for k in order], dtype=tensor.dtype)
        made = made.permute([order.index(k) for k in range(tensor.dim())])
    return made.copy_(tensor)
