"""torch_operators: the operators and statements of bench_kernels' cases, as PyTorch has them.

What stands for each:
  permute                    permute().clone(), contiguous: a copy even where a view would do
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
  cumsum                     torch.cumsum, of flipped x from the end, less x where it is exclusive
  cumprod and its like       torch.cumprod, torch.cummax, torch.cummin, torch.logcumsumexp
  ... their backward         aten.cumprod_backward; of logcumsumexp the formula
  topk, sort                 torch.topk, torch.sort of equals in order
  kv_store                   caches[blocks, places] = k, v, divided by the scales before; with rope: it,
                             then so
  giou's backward            torch.func.grad of the formula
  reductions                 torch.sum and its like
  index_select, embedding    torch.index_select, F.embedding
  take_along_axis            torch.take_along_dim, scatter_add, index_add: torch's; indices as gather's
  ... embedding's backward   aten.embedding_dense_backward
  quantize and its like      the formula, in f32; with a norm: F.layer_norm, F.rms_norm, then it
  cast_transpose             the formula, and its transposed copy

Each function takes torch, the case and its tensors, and returns the names of the tensors, what is
timed eagerly, and what torch.compile gets.
"""
DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8",
    "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool",
    "c64": "complex64", "c128": "complex128", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}


def permute(torch, case, tensors):
    perm = case["attrs"]["perm"]

    def run(x):
        return x.permute(perm).clone(memory_format=torch.contiguous_format)
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
        # PyTorch wants them in x's type.
        gamma, beta = (t if t is None else t.to(x.dtype)
                       for t in (given.get("gamma"), given.get("beta")))
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


def giou_backward(torch, case, tensors):
    clamp = case["attrs"].get("clamp", 0)

    def run(pred, target, dy):
        def total(boxes):
            return (pair_scores(torch, boxes, target, clamp) * dy).sum()
        return torch.func.grad(total)(pred)
    return ["pred", "target", "dy"], run, run


def giou_loss_backward(torch, case, tensors):
    clamp = case["attrs"].get("clamp", 0)
    if "offsets" in tensors:
        raise NotImplementedError("boxes that are not padded")

    def run(pred, target, count, dloss):
        def total(boxes):
            return pair_scores(torch, boxes, target, clamp).sum() * (dloss / count.clamp(min=1))
        return torch.func.grad(total)(pred)
    return ["pred", "target", "count", "dloss"], run, run


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


def caches(torch, case, tensors):
    """Makes the caches that are written in place; their names."""
    for name in ("k_cache", "v_cache"):
        operand = case["operands"][name]
        tensors[name] = torch.empty_strided(operand["shape"], operand["strides"],
                                            dtype=getattr(torch, DTYPES[operand["dtype"]]),
                                            device=tensors["k"].device)
    return ["k_cache", "v_cache"]


def put(torch, case, cache, values, slots, scale):
    """Puts the heads of each token into the slot that it names."""
    heads_first = case["attrs"].get("kv_layout") == "hnd"
    size = cache.shape[2 if heads_first else 1]
    if scale is not None:
        by = scale if scale.dim() == 0 else scale[:, None]
        values = in_type(torch, values.float() / by, case["operands"]["k_cache"]["dtype"])
    if cache.dtype.is_floating_point and cache.element_size() == 1:  # moved as they are
        cache, values = cache.view(torch.uint8), values.view(torch.uint8)
    slots = slots.long()
    if heads_first:
        cache[slots // size, :, slots % size] = values
    else:
        cache[slots // size, slots % size] = values


def kv_store(torch, case, tensors):
    scales = [name for name in ("k_scale", "v_scale") if name in tensors]

    def run(k, v, slots, k_cache, v_cache, *given):
        by = dict(zip(scales, given))
        put(torch, case, k_cache, k, slots, by.get("k_scale"))
        put(torch, case, v_cache, v, slots, by.get("v_scale"))
        return k_cache, v_cache
    return ["k", "v", "slots"] + caches(torch, case, tensors) + scales, run, run


def rope_kv_store(torch, case, tensors):
    turned, turn, _ = rope(torch, case, tensors)
    stored, store, _ = kv_store(torch, case, tensors)

    def run(*operands):
        q, k = turn(*operands[:len(turned)])
        return q, *store(k, *operands[len(turned):])
    return turned + stored[1:], run, run


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


def cumsum(torch, case, tensors):
    attrs = case["attrs"]
    axis = attrs.get("axis", -1)
    name = "dy" if "dy" in tensors else "x"
    # The gradient of sums from one end goes from the other.
    reverse = bool(attrs.get("reverse")) != (name == "dy")

    def run(x):
        y = x.flip(axis).cumsum(axis).flip(axis) if reverse else x.cumsum(axis)
        return y - x if attrs.get("exclusive") else y
    return [name], run, run


def scan(torch, case, tensors):
    axis, plain = case["attrs"].get("axis", -1), getattr(torch, case["op"])

    def run(x):
        found = plain(x, axis)
        return found if isinstance(found, torch.Tensor) else tuple(found)
    return ["x"], run, run


def cumprod_backward(torch, case, tensors):
    axis = case["attrs"].get("axis", -1)

    def run(x, y, dy):
        return torch.ops.aten.cumprod_backward(dy, x, axis, y)
    return ["x", "y", "dy"], run, run


def logcumsumexp_backward(torch, case, tensors):
    axis = case["attrs"].get("axis", -1)

    def run(x, y, dy):
        def share(positive):
            terms = (positive.log() - y).flip(axis).logcumsumexp(axis).flip(axis)
            return (terms + x).exp()
        return share(dy.clamp(min=0)) - share((-dy).clamp(min=0))
    return ["x", "y", "dy"], run, run


def topk(torch, case, tensors):
    attrs = case["attrs"]

    def run(x):
        return tuple(torch.topk(x, attrs.get("k", 1), attrs.get("axis", -1),
                                bool(attrs.get("largest", 1))))
    return ["x"], run, run


def sort(torch, case, tensors):
    attrs = case["attrs"]

    def run(x):
        return tuple(torch.sort(x, dim=attrs.get("axis", -1), stable=True,
                                descending=bool(attrs.get("descending", 0))))
    return ["x"], run, run


def reduction(torch, case, tensors):
    attrs = case["attrs"]
    over, op = tuple(attrs.get("over", range(tensors["x"].dim()))), case["op"]
    makes = {
        "vector_norm": lambda x: torch.linalg.vector_norm(x, attrs.get("ord", 2), over),
        "var": lambda x: torch.var(x, over, correction=attrs.get("correction", 1)),
        "prod": lambda x: torch.prod(x, over[0]), "argmax": lambda x: torch.argmax(x, over[0]),
        "argmin": lambda x: torch.argmin(x, over[0]),
    }
    plain = getattr(torch, op, None)
    run = makes.get(op) or (lambda x: plain(x, over))
    return ["x"], run, run


def index_select(torch, case, tensors):
    axis = case["attrs"].get("axis", 0)

    def run(src, idx):
        return torch.index_select(src, axis, idx)
    return ["src", "idx"], run, run


def embedding(torch, case, tensors):
    def run(weight, idx):
        return torch.nn.functional.embedding(idx, weight)
    return ["weight", "idx"], run, run


def embedding_backward(torch, case, tensors):
    rows = case["operands"]["dweight"]["shape"][0]

    def run(ddst, idx):
        return torch.ops.aten.embedding_dense_backward(ddst, idx, rows, -1, False)
    return ["ddst", "idx"], run, run


def take_along_axis(torch, case, tensors):
    axis = case["attrs"].get("axis", -1)
    tensors["wide"] = tensors["idx"].long()

    def eager(src, wide):
        return torch.take_along_dim(src, wide, axis)

    def widens(src, idx):
        return torch.take_along_dim(src, idx.long(), axis)
    return ["src", "wide"], eager, widens


def index_add(torch, case, tensors):
    axis, alpha = case["attrs"].get("axis", 0), case["attrs"].get("alpha", 1)

    def run(x, idx, src):
        return torch.index_add(x, axis, idx, src, alpha=alpha)
    return ["x", "idx", "src"], run, run


def scatter_add(torch, case, tensors):
    axis = case["attrs"].get("axis", -1)
    tensors["wide"] = tensors["idx"].long()

    def eager(x, wide, src):
        return torch.scatter_add(x, axis, wide, src)

    def widens(x, idx, src):
        return torch.scatter_add(x, axis, idx.long(), src)
    return ["x", "wide", "src"], eager, widens


def group_of(columns, scale):
    """How many columns one of scale's numbers is for, where it is not for all rows."""
    return columns // scale.shape[-1] if scale.dim() > 1 else columns


def spread(values, scale):
    """values, seen as groups, and scale, one number for each."""
    if scale.dim() == 0:
        return values, scale
    group = group_of(values.shape[-1], scale)
    return values.unflatten(-1, (-1, group)), scale.reshape(*values.shape[:-1], -1, 1)


def in_type(torch, values, name):
    dtype = getattr(torch, DTYPES[name])
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        return values.clamp(-most, most).to(dtype)
    return values.round().clamp(torch.iinfo(dtype).min, torch.iinfo(dtype).max).to(dtype)


def largest_of(torch, name):
    dtype = getattr(torch, DTYPES[name])
    return torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max


def quantize(torch, case, tensors):
    to = case["operands"]["y"]["dtype"]

    def run(x, scale):
        values, by = spread(x.float(), scale)
        return in_type(torch, values / by, to).reshape(x.shape)
    return ["x", "scale"], run, run


def dequantize(torch, case, tensors):
    dtype = getattr(torch, DTYPES[case["operands"]["y"]["dtype"]])

    def run(x, scale):
        values, by = spread(x.float(), scale)
        return (values * by).reshape(x.shape).to(dtype)
    return ["x", "scale"], run, run


def dynamic(torch, x, to, group):
    """x in 8 bits, and the scale of each group."""
    values = x.float().unflatten(-1, (-1, group or x.shape[-1]))
    scale = values.abs().amax(-1, keepdim=True) / largest_of(torch, to)
    y = in_type(torch, values / scale.clamp(min=1e-12), to)
    return y.reshape(x.shape), scale.squeeze(-1)


def dynamic_quantize(torch, case, tensors):
    to, group = case["operands"]["y"]["dtype"], case["attrs"].get("group", 0)

    def run(x):
        return dynamic(torch, x, to, group)
    return ["x"], run, run


def norm_quantize(torch, case, tensors):
    kind = "layer_norm" if case["op"].startswith("layer") else "rms_norm"
    names, plain, _ = norm(torch, {**case, "op": kind}, tensors)
    to, group = case["operands"]["y"]["dtype"], case["attrs"].get("group", 0)
    given = "scale" in tensors

    def run(*operands):
        made = plain(*operands[:len(names)])
        y, rest = (made[0], made[1:]) if isinstance(made, tuple) else (made, ())
        if given:
            return in_type(torch, y.float() / operands[-1], to), *rest
        return *dynamic(torch, y, to, group), *rest
    return names + ["scale"] * given, run, run


def act_mul_quantize(torch, case, tensors):
    names, plain, _ = act_mul(torch, case, tensors)
    to, group = case["operands"]["y"]["dtype"], case["attrs"].get("group", 0)
    given = "scale" in tensors

    def run(*operands):
        y = plain(*operands[:len(names)])
        return in_type(torch, y.float() / operands[-1], to) if given else dynamic(torch, y, to, group)
    return names + ["scale"] * given, run, run


def cast_transpose(torch, case, tensors):
    to = case["operands"]["y"]["dtype"]

    def run(x, *scale):
        y = in_type(torch, x.float() / scale[0] if scale else x, to)
        return y, y.transpose(-1, -2).contiguous()
    return ["x"] + ["scale"] * ("scale" in tensors), run, run


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
    "y[i] = sum[j](x[i,j] * w[j])": lambda torch, s: lambda x, w: x @ w,
    "y[j] = sum[i](x[i,j])": lambda torch, s: lambda x: x.sum(0),
    "y[i] = max[j](x[i,j])": lambda torch, s: lambda x: x.amax(1),
    "y[i,j] = exp(x[i,j] - max[k](x[i,k])) / sum[k](exp(x[i,k] - max[l](x[i,l])))":
        lambda torch, s: lambda x: torch.softmax(x, -1),
    "y[i,j] = (x[i,j] - sum[k](x[i,k]) / n) * rsqrt(sum[k](x[i,k] * x[i,k]) / n) * g[j]":
        lambda torch, s: lambda x, g: (x - x.mean(1, keepdim=True))
        * torch.rsqrt((x * x).mean(1, keepdim=True)) * g,
}


def map_statement(torch, case, tensors):
    attrs = case["attrs"]
    run = STATEMENTS[attrs["statement"]](torch, attrs.get("s"))
    return [name for name in attrs["names"].split(",") if name in tensors], run, run


REDUCTIONS = ("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "any", "all", "vector_norm",
              "logsumexp", "var")
OPERATORS = {
    **dict.fromkeys(REDUCTIONS, reduction), "cumsum": cumsum, "cumsum_backward": cumsum,
    "index_select": index_select, "embedding": embedding, "embedding_backward": embedding_backward,
    "take_along_axis": take_along_axis, "index_add": index_add, "scatter_add": scatter_add,
    "quantize": quantize, "dequantize": dequantize, "dynamic_quantize": dynamic_quantize,
    "layer_norm_quantize": norm_quantize, "rms_norm_quantize": norm_quantize,
    "cast_transpose": cast_transpose, "act_mul_quantize": act_mul_quantize,
    "kv_store": kv_store, "rope_kv_store": rope_kv_store, "topk": topk, "sort": sort,
    **dict.fromkeys(("cumprod", "cummax", "cummin", "logcumsumexp"), scan),
    "cumprod_backward": cumprod_backward, "logcumsumexp_backward": logcumsumexp_backward,
    "giou_backward": giou_backward, "giou_loss_backward": giou_loss_backward,
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
