#!/usr/bin/env python3
"""torch_times: what PyTorch takes for the cases of bench_kernels.

  bench_kernels --list | python3 torch_times.py [--seconds N] [--workers N] [--device cuda] > times

Reads the cases (JSON, a line each), writes "name TAB eager TAB compiled" in microseconds, 0 for what
was not measured; a later line of the same name replaces an earlier one.  All cases eagerly first,
then with torch.compile as long as there is time, operators in turn.  Measured as bench_kernels does:
an event before and one behind each launch, launches queued behind a pause of the device, buffers in
turn, medians.  Both must agree, or no time of torch.compile is given.

What is timed:
  permute                    permute().contiguous()
  softmax, log_softmax       torch.softmax, torch.log_softmax; x is scaled before where scale is not 1
  ... their backward         eager: aten._softmax_backward_data; compiled: the formula, in f32
  masked_softmax             masked_fill(-inf) and softmax, or x + mask.  For kinds lengths and causal
                             the mask is made before the clock starts when eager, and within the
                             compiled function
  ... its backward           as softmax's, then masked_fill(0)
  layer_norm, rms_norm       F.layer_norm, F.rms_norm; a residual is added before
  ... their backward         eager: aten.native_layer_norm_backward, aten._fused_rms_norm_backward;
                             compiled: the formula, in f32
  gather                     torch.gather(-1); the index is widened to i64 and repeated along the
                             leading dimensions before the clock starts when eager, and within the
                             compiled function
  gather_backward            zeros and scatter_add_(-1), likewise
  giou, giou_loss            the formula on padded boxes; the loss is the sum over the valid pairs by
                             their number
  act_mul                    F.silu and its like of one half times the other
  ... its backward           aten.silu_backward and its like
  cross_entropy              F.cross_entropy, of capped logits where there is a cap; with the gradient
                             eager: autograd's; compiled: the formula
  ... its backward           the formula, from log_softmax
  rope                       the formula on q, and on k, with rows of the tables by the positions
  map                        the statement, as PyTorch writes it

A kernel that PyTorch does not have is replaced by the formula, eagerly.
Before the compiled times, worker processes compile everything into PyTorch's cache on disk, several
at once.  What they found out about speed is thrown away: they were not alone on the device.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8",
    "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool",
    "c64": "complex64", "c128": "complex128", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}
POOL = 1536 << 20
MOST_SETS = 32
LAUNCHES = 40
ENOUGH_US = 25000
PAUSE_CYCLES = 16_000_000
COMPARED = 1 << 22  # elements, of the beginning and of the end
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-4, "float64": 1e-9,
             "float8_e4m3fn": 0.13, "float8_e5m2": 0.26}


def say(*words):
    print("torch_times:", *words, file=sys.stderr, flush=True)


# ---- Operands ----

def flat_values(torch, device, operand, count):
    """count elements in memory, as the operand's fill wants them."""
    dtype, fill = getattr(torch, DTYPES[operand["dtype"]]), operand["fill"]
    columns = operand["shape"][-1] if operand["shape"] else 1
    if fill == "flags":
        return torch.randint(0, 2, (count,), device=device).to(dtype)
    if fill == "indices":
        return torch.randint(0, max(1, operand["most"]), (count,), device=device).to(dtype)
    if fill in ("boxes", "targets"):
        boxes = torch.rand(count // 4, 2, 2, device=device).cumsum(1)
        if fill == "targets":  # some pairs do not count
            boxes[::8] = 0
        return (boxes * (1 if dtype.is_floating_point else 100)).flatten().to(dtype)
    if fill == "lengths":
        return torch.randint(0, operand["most"] + 1, (count,), device=device).to(dtype)
    if fill == "bits" or not dtype.is_floating_point:
        element = torch.empty(0, dtype=dtype).element_size()
        most = 2 if dtype == torch.bool else 256
        return torch.randint(0, most, (count * element,), dtype=torch.uint8,
                             device=device).view(dtype)
    if fill in ("probable", "logarithm") and count % columns == 0:
        rows = torch.randn(count // columns, columns, device=device, dtype=torch.float32)
        make = torch.softmax if fill == "probable" else torch.log_softmax
        return make(rows, -1).to(dtype).flatten()
    wide = torch.float32 if torch.finfo(dtype).bits == 8 else dtype
    return torch.randn(count, device=device, dtype=wide).to(dtype)


def tensor(torch, device, operand, empty=False):
    shape, strides = operand["shape"], operand["strides"]
    count = sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
    if empty:
        flat = torch.empty(count, device=device, dtype=getattr(torch, DTYPES[operand["dtype"]]))
    else:
        flat = flat_values(torch, device, operand, count)
    return flat.as_strided(shape, strides)


def inputs(torch, device, case, empty=False):
    """The inputs that are there, by name."""
    made = {name: tensor(torch, device, operand, empty)
            for name, operand in case["operands"].items() if operand and not operand["output"]}
    if "rstd" in made:
        made["rstd"] = made["rstd"].abs() + 0.5
    return made


# ---- Operators: (names of tensors, eager, function to compile) ----

def permute(torch, case, tensors):
    perm = case["attrs"]["perm"]

    def run(x):
        return x.permute(perm).contiguous()
    return ["x"], run, run


def softmax(torch, case, tensors):
    axis, scale = case["attrs"].get("axis", -1), case["attrs"].get("scale", 1)
    make = torch.log_softmax if case["op"] == "log_softmax" else torch.softmax

    def run(x):
        return make(x if scale == 1 else x * scale, axis)
    return ["x"], run, run


def softmax_gradient(torch, y, dy, axis, logarithm):
    wide = torch.float64 if y.dtype == torch.float64 else torch.float32
    a, d = y.to(wide), dy.to(wide)
    if logarithm:
        return d - a.exp() * d.sum(axis, keepdim=True)
    return (d - (d * a).sum(axis, keepdim=True)) * a


def softmax_backward(torch, case, tensors):
    axis, scale = case["attrs"].get("axis", -1), case["attrs"].get("scale", 1)
    logarithm = case["op"] == "log_softmax_backward"
    aten = torch.ops.aten
    make = aten._log_softmax_backward_data if logarithm else aten._softmax_backward_data

    def eager(y, dy):
        dx = make(dy, y, axis, y.dtype)
        return dx if scale == 1 else dx * scale

    def formula(y, dy):
        return (softmax_gradient(torch, y, dy, axis, logarithm) * scale).to(y.dtype)
    return ["y", "dy"], eager, formula


def hidden(torch, case, like, mask):
    """Which elements are masked: a bool that can be broadcast to `like`."""
    kind, attrs = case["attrs"]["kind"], case["attrs"]
    columns = torch.arange(like.shape[-1], device=like.device)
    if kind == "bool":
        return (mask == 0) if attrs.get("keep", 0) else (mask != 0)
    if kind == "lengths":
        return columns >= mask.unsqueeze(-1)
    rows = torch.arange(like.shape[-2], device=like.device)
    return columns > rows.unsqueeze(-1) + attrs.get("diagonal", 0)


def masked_softmax(torch, case, tensors):
    kind, scale = case["attrs"]["kind"], case["attrs"].get("scale", 1)

    def scaled(x):
        return x if scale == 1 else x * scale

    def additive(x, mask):
        return torch.softmax(scaled(x) + mask.to(x.dtype), -1)

    def eager(x, masked):
        return torch.softmax(scaled(x).masked_fill(masked, float("-inf")), -1)

    def within(x, mask=None):
        return eager(x, hidden(torch, case, x, mask))
    if kind == "additive":
        return ["x", "mask"], additive, additive
    tensors["masked"] = hidden(torch, case, tensors["x"], tensors.get("mask"))
    if kind == "bool":
        return ["x", "masked"], eager, eager
    return ["x", "masked"], eager, within


def masked_softmax_backward(torch, case, tensors):
    kind, scale = case["attrs"]["kind"], case["attrs"].get("scale", 1)

    def eager(y, dy, masked=None):
        dx = torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)
        dx = dx if scale == 1 else dx * scale
        return dx if masked is None else dx.masked_fill(masked, 0)

    def formula(y, dy, masked=None):
        dx = (softmax_gradient(torch, y, dy, -1, False) * scale).to(y.dtype)
        return dx if masked is None else dx.masked_fill(masked, 0)

    def within(y, dy, mask=None):
        return formula(y, dy, hidden(torch, case, y, mask))
    if kind == "additive" or (kind != "causal" and "mask" not in tensors):
        return ["y", "dy"], eager, formula
    tensors["masked"] = hidden(torch, case, tensors["y"], tensors.get("mask"))
    return ["y", "dy", "masked"], eager, formula if kind == "bool" else within


def norm(torch, case, tensors):
    functional = torch.nn.functional
    eps, axes = case["attrs"].get("eps", 1e-5), case["attrs"].get("axes", 1)
    shape = tuple(tensors["x"].shape[-axes:])
    layer = case["op"] == "layer_norm"
    optional = [name for name in ("gamma", "beta", "residual") if name in tensors]

    def run(x, *others):
        given = dict(zip(optional, others))
        gamma, beta = given.get("gamma"), given.get("beta")
        total = x + given["residual"] if "residual" in given else x
        if layer:
            y = functional.layer_norm(total, shape, gamma, beta, eps)
        else:
            y = functional.rms_norm(total, shape, gamma, eps)
            y = y if beta is None else y + beta
        return (y, total) if "residual" in given else y
    return ["x"] + optional, run, run


def norm_backward(torch, case, tensors):
    layer = case["op"] == "layer_norm_backward"
    axes = case["attrs"].get("axes", 1)
    x = tensors["x"]
    shape, lead = list(x.shape[-axes:]), tuple(range(x.dim() - axes))
    over = tuple(range(-axes, 0))
    wanted = [case["operands"].get(name) is not None for name in ("dx", "dgamma", "dbeta")]
    names = ["x", "dy", "rstd"] + [n for n in ("mean", "gamma") if n in tensors]
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    inner = [1] * axes

    def unpack(rest):
        given = dict(zip(names[3:], rest))
        return given.get("mean"), given.get("gamma")

    def eager(x, dy, rstd, *rest):
        mean, gamma = unpack(rest)
        rstd = rstd.reshape(list(rstd.shape) + inner)
        if layer:
            mean = mean.reshape(rstd.shape)
            # A bias must be there for its gradient; it is not read.
            bias = torch.empty(shape, dtype=x.dtype, device=x.device) if wanted[2] else None
            weight = gamma
            if wanted[1] and gamma is None:
                weight = torch.ones(shape, dtype=x.dtype, device=x.device)
            got = torch.ops.aten.native_layer_norm_backward(dy, x, shape, mean, rstd, weight, bias,
                                                            wanted)
        else:
            got = torch.ops.aten._fused_rms_norm_backward(dy, x, shape, rstd, gamma, wanted[:2])
        return tuple(t for t, want in zip(got, wanted) if want)

    def formula(x, dy, rstd, *rest):
        mean, gamma = unpack(rest)
        r = rstd.reshape(list(rstd.shape) + inner)
        centred = x.to(wide) - mean.reshape(r.shape) if layer else x.to(wide)
        normal, d = centred * r, dy.to(wide)
        g = d if gamma is None else d * gamma.to(wide)
        results = []
        if wanted[0]:
            dx = g - normal * (g * normal).mean(over, keepdim=True)
            dx = dx - g.mean(over, keepdim=True) if layer else dx
            results.append((dx * r).to(x.dtype))
        if wanted[1]:
            results.append((d * normal).sum(lead).to(x.dtype if gamma is None else gamma.dtype))
        if wanted[2]:
            results.append(d.sum(lead).to(x.dtype if gamma is None else gamma.dtype))
        return tuple(results)
    return names, eager, formula


def widened(idx, like):
    """The index as torch wants it: of like's leading dimensions, and i64."""
    return idx.long().expand(like.shape[:-2] + idx.shape)


def gather(torch, case, tensors):
    tensors["wide"] = widened(tensors["idx"], tensors["src"]).contiguous()

    def eager(src, wide):
        return torch.gather(src, -1, wide)

    def widens(src, idx):
        return torch.gather(src, -1, widened(idx, src))
    return ["src", "wide"], eager, widens


def gather_backward(torch, case, tensors):
    size = case["operands"]["dsrc"]["shape"][-1]
    tensors["wide"] = widened(tensors["idx"], tensors["ddst"]).contiguous()

    def eager(ddst, wide):
        shape = ddst.shape[:-1] + (size,)
        return torch.zeros(shape, dtype=ddst.dtype, device=ddst.device).scatter_add_(-1, wide, ddst)

    def widens(ddst, idx):
        return eager(ddst, widened(idx, ddst))
    return ["ddst", "wide"], eager, widens


def pair_scores(torch, pred, target, clamp):
    p, t = pred.float(), target.float()
    low, high = torch.maximum(p[..., :2], t[..., :2]), torch.minimum(p[..., 2:], t[..., 2:])
    sides = (high - low).clamp(min=0) if clamp else high - low
    inter = sides[..., 0] * sides[..., 1]
    around = torch.maximum(p[..., 2:], t[..., 2:]) - torch.minimum(p[..., :2], t[..., :2])
    enclosing = around[..., 0] * around[..., 1]
    areas = [(b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1]) for b in (p, t)]
    joined = areas[0] + areas[1] - inter
    score = inter / joined.clamp(min=1e-5) - (enclosing - joined) / enclosing.clamp(min=1e-5)
    return torch.where(t[..., 3] != 0, score, torch.zeros_like(score))


def giou(torch, case, tensors):
    clamp = case["attrs"].get("clamp", 0)

    def run(pred, target):
        return pair_scores(torch, pred, target, clamp).to(pred.dtype)
    return ["pred", "target"], run, run


def giou_loss(torch, case, tensors):
    clamp = case["attrs"].get("clamp", 0)
    if "offsets" in tensors:
        raise NotImplementedError("boxes that are not padded")

    def run(pred, target):
        return pair_scores(torch, pred, target, clamp).sum() / (target[..., 3] != 0).sum().clamp(min=1)
    return ["pred", "target"], run, run


def halves(x, other):
    return x.chunk(2, -1) if other is None else (x, other)


def act_mul(torch, case, tensors):
    functional, act = torch.nn.functional, case["attrs"].get("act", "silu")
    function = {"silu": functional.silu, "gelu": functional.gelu, "relu": functional.relu,
                "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}[act]

    def run(x, other=None):
        a, b = halves(x, other)
        return function(a) * b
    return ["x"] + ["other"] * ("other" in tensors), run, run


def act_mul_backward(torch, case, tensors):
    act, aten = case["attrs"].get("act", "silu"), torch.ops.aten
    slope = {"silu": aten.silu_backward, "gelu": aten.gelu_backward,
             "gelu_tanh": lambda d, x: aten.gelu_backward(d, x, approximate="tanh"),
             "relu": lambda d, x: aten.threshold_backward(d, x, 0)}[act]
    forward = act_mul(torch, case, {})[1]

    def run(x, dy, other=None):
        a, b = halves(x, other)
        found = slope(dy * b, a), forward(a, dy)
        return torch.cat(found, -1) if other is None else found
    return ["x", "dy"] + ["other"] * ("other" in tensors), run, run


def rope(torch, case, tensors):
    attrs = case["attrs"]
    heads_at = -3 if attrs.get("layout") == "bhsd" else -2

    def turned(x, cos, sin):
        dim = 2 * cos.shape[-1]
        cos, sin = (table.unsqueeze(heads_at) for table in (cos, sin))
        turn, rest = x[..., :dim], x[..., dim:]
        if attrs.get("interleaved"):
            a, b = turn[..., ::2], turn[..., 1::2]
            turn = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        else:
            a, b = turn.chunk(2, -1)
            turn = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        return torch.cat([turn, rest], -1).to(x.dtype)

    names = ["q", "cos", "sin", *(name for name in ("k", "positions") if name in tensors)]

    def run(q, cos, sin, *others):
        there = dict(zip(names[3:], others))
        k, positions = there.get("k"), there.get("positions")
        if positions is not None and cos.dim() > 2:
            cos, sin = (table.take_along_dim(positions.long().unsqueeze(-1), -2)
                        for table in (cos, sin))
        elif positions is not None:
            cos, sin = cos[positions], sin[positions]
        sin = -sin if attrs.get("inverse") else sin
        return turned(q, cos, sin) if k is None else (turned(q, cos, sin), turned(k, cos, sin))
    return names, run, run


def cross_entropy(torch, case, tensors):
    attrs, functional = case["attrs"], torch.nn.functional
    cap, reduction = attrs.get("softcap", 0), attrs.get("reduction", "mean")

    def loss(x, target):
        z = cap * torch.tanh(x / cap) if cap else x
        return functional.cross_entropy(z, target.long(), reduction=reduction,
                                        ignore_index=attrs.get("ignore_index", -100),
                                        label_smoothing=attrs.get("label_smoothing", 0.0))

    def eager(x, target):
        x = x.detach().requires_grad_()
        found = loss(x, target)
        return found.detach(), torch.autograd.grad(found.sum(), x)[0]

    def formula(x, target):
        powers = torch.log_softmax(x.float(), -1).exp()
        hot = torch.arange(x.shape[-1], device=x.device) == target[:, None]
        share = x.shape[0] if reduction == "mean" else 1
        return loss(x, target), ((powers - hot.float()) / share).to(x.dtype)
    if case["operands"].get("grad") is None:
        return ["x", "target"], loss, loss
    return ["x", "target"], eager, formula


def cross_entropy_backward(torch, case, tensors):
    reduction = case["attrs"].get("reduction", "mean")

    def run(x, target, lse, count, dloss):
        powers = (x.float() - lse[:, None]).exp()
        hot = torch.arange(x.shape[-1], device=x.device) == target[:, None]
        by = dloss / count if reduction == "mean" else dloss
        by = by[:, None] if by.dim() else by
        return ((powers - hot.float()) * by).to(x.dtype)
    return ["x", "target", "lse", "count", "dloss"], run, run


STATEMENTS = {
    "y[i,j] = x[i,j] * s + b[j]": lambda torch, s: lambda x, b: x * s + b,
    "y[i] = x[i] / (1 + exp(-x[i]))": lambda torch, s: lambda x: torch.nn.functional.silu(x),
    "y[i,j] = x[i,j] / (1 + exp(-x[i,j])) * g[i,j]":
        lambda torch, s: lambda x, g: torch.nn.functional.silu(x) * g,
    "y[i] = a[i] + b[i]": lambda torch, s: lambda a, b: a + b,
    "y[i] = u8(clamp(x[i] * 127 + 128, 0, 255))":
        lambda torch, s: lambda x: (x * 127 + 128).clamp(0, 255).to(torch.uint8),
    "y[i,j] = sat_f8e4m3(x[i,j] * s)":
        lambda torch, s: lambda x: (x * s).clamp(-448, 448).to(torch.float8_e4m3fn),
    "y[i,j] = x[i,j] * s[i]":
        lambda torch, s: lambda x, s: (x.float() * s[:, None]).bfloat16(),
    "dst[i,j,k] = src[i,j,idx[j,k]]":
        lambda torch, s: lambda src, idx: torch.gather(src, -1, widened(idx, src)),
    "y[i] += x[i,j] * w[j]": lambda torch, s: lambda x, w: x @ w,
    "y[j] += x[i,j]": lambda torch, s: lambda x: x.sum(0),
    "y += x[i]": lambda torch, s: lambda x: x.sum(),
}


def map_statement(torch, case, tensors):
    attrs = case["attrs"]
    run = STATEMENTS[attrs["statement"]](torch, attrs.get("s"))
    return [name for name in attrs["names"].split(",") if name in tensors], run, run


OPERATORS = {
    "act_mul": act_mul, "act_mul_backward": act_mul_backward, "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "gather": gather, "gather_backward": gather_backward, "giou": giou, "giou_loss": giou_loss,
    "map": map_statement,
    "permute": permute, "rope": rope, "softmax": softmax, "log_softmax": softmax,
    "softmax_backward": softmax_backward, "log_softmax_backward": softmax_backward,
    "masked_softmax": masked_softmax, "masked_softmax_backward": masked_softmax_backward,
    "layer_norm": norm, "rms_norm": norm,
    "layer_norm_backward": norm_backward, "rms_norm_backward": norm_backward,
}


def functions(torch, case, tensors):
    """Eager function and its tensors, function to compile and its tensors."""
    names, eager, compiled = OPERATORS[case["op"]](torch, case, tensors)
    compiled_names = names
    if compiled.__name__ == "widens":  # the index
        compiled_names = [n if n != "wide" else "idx" for n in names]
    if compiled.__name__ == "within":  # makes the mask by itself
        compiled_names = [n for n in names if n != "masked"] + ["mask"] * ("mask" in tensors)
    return eager, names, compiled, compiled_names


# ---- Time ----

class Bench:
    def __init__(self, torch, device):
        self.torch, self.device = torch, device

    def sets(self, case):
        """Sets of inputs that take turns."""
        torch = self.torch
        first = inputs(torch, self.device, case)
        size = sum(t.numel() * t.element_size() for t in first.values())
        count = min(MOST_SETS, max(1, POOL // max(1, size))) if case["big"] else 1
        return [first] + [inputs(torch, self.device, case) for _ in range(count - 1)]

    def once(self, function, arguments, launches):
        torch = self.torch
        if self.device == "cpu":
            times = []
            for i in range(launches):
                begin = time.perf_counter()
                function(*arguments[i % len(arguments)])
                times.append((time.perf_counter() - begin) * 1e6)
            return times
        begins = [torch.cuda.Event(enable_timing=True) for _ in range(launches)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(launches)]
        torch.cuda._sleep(PAUSE_CYCLES)
        kept = []
        for i in range(launches):
            begins[i].record()
            kept.append(function(*arguments[i % len(arguments)]))
            ends[i].record()
            if len(kept) > 3:
                kept.pop(0)
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1000 for begin, end in zip(begins, ends)]

    def median_us(self, function, arguments):
        about = sorted(self.once(function, arguments, 3))[1]
        launches = int(min(LAUNCHES, max(5, ENOUGH_US / max(about, 1))))
        times = sorted(self.once(function, arguments, launches))
        return times[len(times) // 2]

    def agree(self, a, b):
        torch = self.torch
        a, b = (t if isinstance(t, tuple) else (t,) for t in (a, b))
        for x, y in zip(a, b, strict=True):
            x, y = x.flatten(), y.flatten()
            tolerance = TOLERANCE.get(str(x.dtype).split(".")[-1])
            if tolerance and x.element_size() == 1:
                x, y = x.float(), y.float()
            for part in (slice(0, COMPARED), slice(-COMPARED, None)):
                if not x.dtype.is_floating_point:
                    if not torch.equal(x[part].view(torch.uint8), y[part].view(torch.uint8)):
                        return False
                    continue
                scale = y[part].nan_to_num(0, 0, 0).abs().max().item()
                if not torch.allclose(x[part], y[part], rtol=tolerance,
                                      atol=tolerance * max(scale, 1e-3), equal_nan=True):
                    return False
        return True

    def reset(self):
        self.torch._dynamo.reset()
        if self.device != "cpu":
            self.torch.cuda.empty_cache()


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def prepare(bench, case):
    """The functions, and for each the arguments of every set."""
    sets = bench.sets(case)
    eager, names, plain, plain_names = [functions(bench.torch, case, t) for t in sets][0]
    arguments = [[t[name] for name in names] for t in sets]
    plain_arguments = [[t[name] for name in plain_names] for t in sets]
    try:
        eager(*arguments[0])
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        # A kernel that this PyTorch or device does not have.
        say(f"{case['name']}: the formula instead: {first_line(error)}")
        eager, arguments = plain, plain_arguments
    return eager, arguments, plain, plain_arguments


def time_eager(bench, case):
    eager, arguments, _, _ = prepare(bench, case)
    return bench.median_us(eager, arguments)


def time_compiled(bench, case):
    eager, arguments, plain, plain_arguments = prepare(bench, case)
    function = bench.torch.compile(plain, dynamic=False)
    if not bench.agree(function(*plain_arguments[0]), eager(*arguments[0])):
        raise RuntimeError("torch.compile and eager disagree")
    return bench.median_us(function, plain_arguments)


# ---- All ----

def in_turn(cases):
    """One of each operator, then the next of each."""
    by_op = {}
    for case in cases:
        by_op.setdefault(case["op"], []).append(case)
    longest = max(map(len, by_op.values()), default=0)
    return [rows[i] for i in range(longest) for rows in by_op.values() if i < len(rows)]


def warm(bench, cases, share, shares, deadline):
    """A worker: compiles its share into the cache on disk."""
    for case in in_turn(cases)[share::shares]:
        if time.monotonic() > deadline:
            return
        try:
            tensors = inputs(bench.torch, bench.device, case, empty=True)
            _, _, plain, names = functions(bench.torch, case, tensors)
            bench.torch.compile(plain, dynamic=False)(*(tensors[name] for name in names))
            del tensors
            bench.reset()
        except Exception as error:  # the one that times it says so, too
            say(f"{case['name']}: {first_line(error)}")


def run_workers(options, lines, seconds):
    start = time.monotonic()
    workers = []
    for i in range(options.workers):
        command = [sys.executable, __file__, "--device", options.device, "--seconds",
                   str(seconds), "--warm", f"{i}/{options.workers}"]
        workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                        text=True))
    for worker in workers:
        try:
            worker.communicate("".join(lines), timeout=max(1, start + 1.5 * seconds + 20
                                                           - time.monotonic()))
        except (subprocess.TimeoutExpired, BrokenPipeError):
            worker.kill()
            worker.wait()
    for path in pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        path.unlink()
    say(f"{options.workers} processes compiled for {time.monotonic() - start:.0f} s")


def run(options, lines, bench, cases, start):
    eager = {}
    for case in cases:
        eager[case["name"]] = 0.0
        try:
            eager[case["name"]] = time_eager(bench, case)
        except Exception as error:  # what a backend cannot do is no reason to stop
            say(f"{case['name']}: eager: {first_line(error)}")
        bench.reset()
        print(f"{case['name']}\t{eager[case['name']]:.2f}\t0.00", flush=True)
    say(f"{len(cases)} cases eagerly in {time.monotonic() - start:.0f} s")
    left = options.seconds - (time.monotonic() - start)
    if options.workers > 1 and left > 20:
        run_workers(options, lines, left / 2)
    reached = 0
    for case in in_turn(cases):
        if time.monotonic() - start > options.seconds:
            break
        reached += 1
        try:
            compiled = time_compiled(bench, case)
            print(f"{case['name']}\t{eager[case['name']]:.2f}\t{compiled:.2f}", flush=True)
        except Exception as error:
            say(f"{case['name']}: torch.compile: {first_line(error)}")
        bench.reset()
    say(f"{reached} of {len(cases)} cases reached with torch.compile, "
        f"{time.monotonic() - start:.0f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=150, help="torch.compile ends after so long")
    parser.add_argument("--workers", type=int, default=min(6, max(1, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--device", default="cuda", help="cpu: to try this program out")
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    options = parser.parse_args()
    start = time.monotonic()
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        work(options, start)
        return
    with tempfile.TemporaryDirectory(prefix="torch-times-") as directory:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory
        work(options, start)


def work(options, start):
    import torch
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_times: this PyTorch sees no GPU")
    lines = sys.stdin.readlines()
    cases = [case for case in map(json.loads, lines)
             if case["op"] in OPERATORS
             and all(o is None or o["dtype"] in DTYPES for o in case["operands"].values())]
    bench = Bench(torch, options.device)
    if options.warm:
        share, shares = map(int, options.warm.split("/"))
        warm(bench, cases, share, shares, start + options.seconds)
    else:
        run(options, lines, bench, cases, start)


if __name__ == "__main__":
    main()
