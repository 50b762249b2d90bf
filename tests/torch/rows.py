"""
rows.py: OpInfo's softmaxes and norms by Kiln's operators of those names, and their gradients by
PyTorch's own functions of them.
"""
import torch

from case import Case, Output


def computed_in(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def softmax_arguments(sample, default=-1):
    dim = sample.args[0] if sample.args else sample.kwargs.get("dim", default)
    dtype = sample.args[1] if len(sample.args) > 1 else sample.kwargs.get("dtype")
    return dim, dtype


def refusal_of_rows(x, dtype):
    """A row runs along an axis, and x and y have one float dtype: the rest Kiln refuses."""
    if x.dim() == 0:
        return "rank 0"
    if not x.is_floating_point():
        return "it must be f16, bf16, f32 or f64"
    if dtype not in (None, x.dtype):
        return "they must agree"
    return None


def softmax(name, op, sample, random, relayout):
    x = sample.input
    dim, dtype = softmax_arguments(sample)
    refusal = refusal_of_rows(x, dtype)
    result = op(x, *sample.args, **sample.kwargs)
    negative = -1.0 if "softmin" in name else 1.0
    log = "log_softmax" in name
    function = torch.log_softmax if log else torch.softmax
    value = function(negative * x.double(), dim)
    output = Output(result.dtype, value, row_scale(x, value, log), computed_in(x.dtype))
    return Case("log_softmax" if log else "softmax", [relayout(x, random), output],
                {"axis": dim, "scale": negative}, refusal)


def row_scale(x, value, log):
    """A term is off by the rounding of its exponent, and their sum by one for each term."""
    finite = torch.nan_to_num(x.double(), 0, 0, 0).abs()
    most = finite.max() if x.numel() else finite.sum()
    if log:
        return value.abs() + most + x.numel() / 16
    return value.abs() * (1 + most + x.numel() / 16)


def masked_softmax(name, op, sample, random, relayout):
    x, mask = sample.input, sample.kwargs.get("mask")
    dim, dtype = softmax_arguments(sample)
    if dtype is not None or mask is None or x.dim() == 0 or dim % x.dim() != x.dim() - 1:
        return None
    if mask.dim() > x.dim() or not x.is_floating_point():
        return None
    value = op(x.double(), *sample.args, **sample.kwargs)
    output = Output(x.dtype, value, row_scale(x, value, False))
    return Case("masked_softmax", [relayout(x, random), relayout(mask, random), output],
                {"kind": "bool", "scale": 1.0, "keep": 1, "empty": "nan"})


def safe_softmax(name, op, sample, random, relayout):
    """Rows that are all -inf are 0: those elements are masked, and such a row is empty."""
    x, dim = sample.input, sample.kwargs["dim"]
    if dim % x.dim() != x.dim() - 1 or not x.is_floating_point():
        return None
    value = op(x.double(), dim=dim)
    return Case("masked_softmax", [relayout(x, random), relayout(x == -torch.inf, random),
                                   Output(x.dtype, value, row_scale(x, value, False))],
                {"kind": "bool", "scale": 1.0, "empty": "zero"})


def softmax_gradient(name, op, sample, random, relayout):
    """From what the forward call gave, rounded as it is."""
    x = sample.input
    if x.dim() == 0 or not x.is_floating_point():
        return None
    dim, dtype = softmax_arguments(sample)
    if dtype is not None:
        return None
    log = "log_softmax" in name
    y = (torch.log_softmax if log else torch.softmax)(x.double(), dim).to(x.dtype)
    dy = torch.testing.make_tensor(x.shape, dtype=x.dtype, device="cpu", low=-3, high=3)
    function = torch._log_softmax_backward_data if log else torch._softmax_backward_data
    value = function(dy.double(), y.double(), dim, torch.float64)
    size = dy.double().abs()
    scale = (size + size.sum(dim, keepdim=True)) * (1 + x.numel() / 16)
    output = Output(x.dtype, value, scale)
    return Case("log_softmax_backward" if log else "softmax_backward",
                [relayout(y, random), relayout(dy, random), output], {"axis": dim, "scale": 1.0})


def norm_arguments(name, sample):
    x = sample.input
    words = dict(zip(("shape", "weight", "bias", "eps"), sample.args))
    if "rms" in name:
        words = dict(zip(("shape", "weight", "eps"), sample.args))
    words.update(sample.kwargs)
    words["shape"] = words.pop("normalized_shape", words.get("shape"))
    eps = words.get("eps")
    if eps is None:
        eps = torch.finfo(x.dtype).eps if "rms" in name else 1e-5
    return x, tuple(words["shape"]), words.get("weight"), words.get("bias"), eps


def normalized(name, x, dims, eps):
    """The rows without mean and size, their rstd, and by how many roundings an element of them is
    off: as many as the mean is larger than what is left."""
    mean = 0 if "rms" in name else x.mean(dims, keepdim=True)
    rstd = (((x - mean) ** 2).mean(dims, keepdim=True) + eps).rsqrt()
    return (x - mean) * rstd, rstd, 1 + x.abs().amax(dims, keepdim=True) * rstd


def norm_scales(name, x, dims, weight, bias, eps):
    """Of y, and of the mean and rstd of each row."""
    rows, rstd, blur = normalized(name, x, dims, eps)
    terms = 1 + x.numel() / 16
    y = blur * (1 + rows.abs()) * (1 if weight is None else weight.abs())
    y = y + (0 if bias is None else bias.abs())
    return y * terms, x.abs().amax(dims, keepdim=True) * terms, rstd * blur * terms


def norm(name, op, sample, random, relayout):
    x, shape, weight, bias, eps = norm_arguments(name, sample)
    if not x.is_floating_point() or (x.numel() == 0 and x.dim() == 0):
        return None
    axes = len(shape)
    kind = computed_in(x.dtype)
    refusal = None if eps >= 0 else "it must be 0 or more"
    doubles = [t.double() if t is not None else None for t in (x, weight, bias)]
    leading = x.shape[:x.dim() - axes]
    if "rms" in name:
        value = torch.nn.functional.rms_norm(doubles[0], shape, doubles[1], eps)
        outputs = []
    else:
        value, mean, rstd = torch.native_layer_norm(*[doubles[0], shape, *doubles[1:], eps])
        outputs = [mean.reshape(leading), rstd.reshape(leading)]
    scales = [None] * 3
    if x.numel() and eps >= 0:
        dims = tuple(range(x.dim() - axes, x.dim()))
        scales = norm_scales(name, doubles[0], dims, *doubles[1:], eps)
    made = [Output(kind, one, None if scale is None else scale.reshape(leading))
            for one, scale in zip(outputs, scales[1:])]
    given = [None if t is None else relayout(t, random, "offset") for t in (weight, bias)]
    operands = [relayout(x, random)] + given + [None, Output(x.dtype, value, scales[0])] + made
    return Case("rms_norm" if "rms" in name else "layer_norm", operands,
                {"eps": float(eps), "axes": axes}, refusal)


def norm_gradient(name, op, sample, random, relayout):
    x, shape, weight, bias, eps = norm_arguments(name, sample)
    if not x.is_floating_point() or x.numel() == 0 or eps < 0:
        return None
    axes, kind = len(shape), computed_in(x.dtype)
    leading = x.shape[:x.dim() - axes]
    dy = torch.testing.make_tensor(x.shape, dtype=x.dtype, device="cpu", low=-2, high=2)
    wide_x, wide_dy = x.double().requires_grad_(), dy.double()
    wide_weight = torch.ones(shape, dtype=torch.float64) if weight is None else weight.double()
    wide_weight.requires_grad_()
    dims = tuple(range(x.dim() - axes, x.dim()))
    if "rms" in name:
        value = torch.nn.functional.rms_norm(wide_x, shape, wide_weight, eps)
        rstd = ((wide_x * wide_x).mean(dims) + eps).rsqrt()
        rows = [rstd.detach()]
    else:
        value = torch.nn.functional.layer_norm(wide_x, shape, wide_weight, None, eps)
        mean, variance = wide_x.mean(dims), wide_x.var(dims, unbiased=False)
        rows = [mean.detach(), (variance + eps).rsqrt().detach()]
    dx, dweight = torch.autograd.grad(value, (wide_x, wide_weight), wide_dy)
    sums = tuple(range(x.dim() - axes))
    dbeta = wide_dy.sum(sums) if sums else wide_dy
    with torch.no_grad():
        n, spread, blur = normalized(name, wide_x, dims, eps)
        terms, g = 1 + x.numel() / 16, (wide_dy * wide_weight).abs()
        reach = n.abs() + blur
        of_dx = spread * (g + g.mean(dims, keepdim=True) +
                          reach * (g * reach).mean(dims, keepdim=True)) * terms
        of_dweight, of_dbeta = [(t.sum(sums) if sums else t) * terms
                                for t in (wide_dy.abs() * reach, wide_dy.abs())]
    given = [row.reshape(leading).to(kind) for row in rows]
    gamma = None if weight is None else relayout(weight, random, "offset")
    operands = [relayout(x, random), relayout(dy, random), gamma] + given
    operands += [Output(x.dtype, dx, of_dx), Output(x.dtype, dweight, of_dweight),
                 Output(x.dtype, dbeta, of_dbeta)]
    return Case("rms_norm_backward" if "rms" in name else "layer_norm_backward", operands,
                {"axes": axes})


BUILDERS = {"softmax": softmax, "softmax/with_dtype": softmax, "log_softmax": softmax,
            "log_softmax/with_dtype": softmax, "nn.functional.softmin": softmax,
            "masked.softmax": masked_softmax,
            "torch.ops.aten._safe_softmax.default": safe_softmax, "nn.functional.layer_norm": norm,
            "nn.functional.rms_norm": norm, "native_layer_norm": norm}
GRADIENTS = {"softmax": softmax_gradient, "log_softmax": softmax_gradient,
             "nn.functional.layer_norm": norm_gradient, "nn.functional.rms_norm": norm_gradient}
NAMES = list(BUILDERS)


def build(name, op, sample, random, relayout):
    return BUILDERS[name](name, op, sample, random, relayout)


def build_gradient(name, op, sample, random, relayout):
    return GRADIENTS[name](name, op, sample, random, relayout)


def own(random, relayout):
    """The masks that PyTorch has no operator for, as its softmax of what they leave; and what
    flows back through them.  Pairs of a label and a case."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for kind in ("causal", "lengths", "additive", "bool"):
            shape = [random.randint(1, 3), random.randint(1, 9), random.choice([1, 3, 17, 31, 130])]
            x = torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=-4, high=4)
            attrs = {"kind": kind, "scale": 0.5}
            mask, hidden, added = draw_mask(kind, x, random, attrs)
            wide = (0.5 * x.double() + added).masked_fill(hidden, -torch.inf)
            value = torch.softmax(wide, -1).nan_to_num(0) * ~hidden
            given = None if mask is None else relayout(mask, random)
            yield f"masked_softmax {kind} {dtype}", Case(
                "masked_softmax",
                [relayout(x, random), given, Output(dtype, value, row_scale(wide, value, False))],
                dict(attrs, empty="zero"))
            y = value.to(dtype)
            dy = torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=-3, high=3)
            dx = 0.5 * torch._softmax_backward_data(dy.double(), y.double(), -1, torch.float64)
            size = dy.double().abs()
            scale = (size + size.sum(-1, keepdim=True)) * (1 + shape[2] / 16)
            yield f"masked_softmax_backward {kind} {dtype}", Case(
                "masked_softmax_backward",
                [relayout(y, random), relayout(dy, random), given,
                 Output(dtype, dx * ~hidden, scale)], attrs)


def draw_mask(kind, x, random, attrs):
    """The mask's tensor, which elements it hides, and what it adds."""
    rows, columns = x.shape[-2:]
    hidden, added, mask = torch.zeros(x.shape, dtype=torch.bool), 0, None
    column = torch.arange(columns)
    if kind == "causal":
        attrs["diagonal"] = random.randint(-3, 9)
        hidden = (column > torch.arange(rows)[:, None] + attrs["diagonal"]).expand(x.shape)
    elif kind == "lengths":
        mask = torch.randint(-1, columns + 2, x.shape[:-1], dtype=torch.int32)
        hidden = column >= mask[..., None]
    elif kind == "additive":
        mask = torch.testing.make_tensor((rows, columns), dtype=x.dtype, device="cpu")
        added = mask.double()
    else:
        mask = torch.randint(0, 2, (rows, columns), dtype=torch.uint8)
        hidden = (mask != 0).expand(x.shape)
    return mask, hidden, added
