"""
elements.py: OpInfo's operators of single elements, as statements of Kiln's map.

A row is the statement's right side, where {0}, {1} are the tensors and numbers of the sample in
their order, the input first.  `ints`, `bools`: the right side for those dtypes, where it is another
one; "" where there is none.  `scale`: what the bound is a part of, where the result itself will not
do, from the same arguments in f64.
"""
import re

import torch

from case import Output, map_case, wide

LETTERS = "ijklmnop"


class Row:
    def __init__(self, floats, ints=None, bools=None, scale=None, numbers=()):
        self.floats = floats
        self.ints = floats if ints is None else ints
        self.bools = self.ints if bools is None else bools
        self.scale = scale
        self.numbers = numbers  # defaults of (name, value) that the sample may give by name

    def right(self, dtype):
        if dtype == torch.bool:
            return self.bools
        return self.floats if dtype.is_floating_point else self.ints


def both(a, b, *_):
    return abs(a) + abs(b)


def one(a, *_):
    return 1 + abs(a)


def clamp(texts):
    x, least, most = (texts + ["", ""])[:3]
    if least and most:
        return f"clamp({x}, {least}, {most})"
    return f"max({x}, {least})" if least else f"min({x}, {most})"


FLOOR = "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0) ? 1 : 0)"
MODULO = "{0} % {1} + ({0} % {1} != 0 && ({0} < 0) != ({1} < 0) ? {1} : 0)"
SIGMOID = "1 / (1 + exp(-{0}))"
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
PLAIN = ("asin acos atan cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 rsqrt sin sinh "
         "sqrt tan tanh isfinite isinf isnan")

ROWS = {name: Row(name + "({0})") for name in PLAIN.split()}
ROWS.update({name: Row("{0} " + sign + " {1}") for name, sign in COMPARED.items()})
ROWS.update({
    "abs": Row("abs({0})"),
    "add": Row("{0} + s * {1}", bools="bool({0} + s * {1})",
               scale=lambda a, b, s: abs(a) + abs(s * b), numbers=(("alpha", 1),)),
    "sub": Row("{0} - s * {1}", bools="", scale=lambda a, b, s: abs(a) + abs(s * b),
               numbers=(("alpha", 1),)),
    "rsub": Row("{1} - s * {0}", bools="", scale=lambda a, b, s: abs(b) + abs(s * a),
                numbers=(("alpha", 1),)),
    "mul": Row("{0} * {1}", bools="bool({0} * {1})"),
    "addcmul": Row("{0} + s * {1} * {2}", scale=lambda a, b, c, s: abs(a) + abs(s * b * c),
                   numbers=(("value", 1),)),
    "addcdiv": Row("{0} + s * {1} / {2}", scale=lambda a, b, c, s: abs(a) + abs(s * b / c),
                   numbers=(("value", 1),)),
    "asinh": Row("({0} < 0 ? -1 : 1) * log(abs({0}) + sqrt(1.0 * {0} * {0} + 1))", scale=one),
    "atan2": Row("atan2({0}, {1})"),
    "atanh": Row("0.5 * log((1.0 + {0}) / (1.0 - {0}))", scale=lambda a: 1 + abs(torch.atanh(a))),
    "acosh": Row("log({0} + sqrt(1.0 * {0} * {0} - 1))",
                 scale=lambda a: 1 + 1 / (a - 1).abs() ** 0.5),
    "bitwise_and": Row("", "{0} & {1}"),
    "bitwise_or": Row("", "{0} | {1}"),
    "bitwise_xor": Row("", "{0} ^ {1}"),
    "bitwise_not": Row("", "~{0}", "!{0}"),
    "bitwise_left_shift": Row("", "{0} << {1}", ""),
    "bitwise_right_shift": Row("", "{0} >> {1}", ""),
    "ceil": Row("ceil({0})", "{0}"),
    "floor": Row("floor({0})", "{0}"),
    "trunc": Row("trunc({0})", "{0}"),
    "round": Row("rint({0})", "{0}"),
    "frac": Row("{0} - trunc({0})", scale=abs),
    "clamp_min": Row("max({0}, {1})", bools="{0} | {1}"),
    "clamp_max": Row("min({0}, {1})", bools="{0} & {1}"),
    "clamp": Row(clamp),
    "clone": Row("{0}"),
    "contiguous": Row("{0}"),
    "positive": Row("{0}"),
    "copysign": Row("abs({0}) * ({1} < 0 || ({1} == 0 && 1.0 / {1} < 0) ? -1.0 : 1.0)",
                    "abs({0}) * ({1} < 0 ? -1.0 : 1.0)", ""),
    "deg2rad": Row("{0} * 0.017453292519943295"),
    "rad2deg": Row("{0} * 57.29577951308232"),
    "div/no_rounding_mode": Row("{0} / {1}", "1.0 * {0} / {1}"),
    "true_divide": Row("{0} / {1}", "1.0 * {0} / {1}"),
    "div/trunc_rounding": Row("", "{0} / {1}", ""),
    "div/floor_rounding": Row("", FLOOR, ""),
    "floor_divide": Row("", FLOOR, ""),
    "remainder": Row("", MODULO, ""),
    "fmod": Row("fmod({0}, {1})", "{0} % {1}", ""),
    "fmax": Row("max({0}, {1})", bools="bool(max({0}, {1}))"),
    "fmin": Row("min({0}, {1})", bools="bool(min({0}, {1}))"),
    "maximum": Row("max({0}, {1})", bools="{0} | {1}"),
    "minimum": Row("min({0}, {1})", bools="{0} & {1}"),
    "float_power": Row("pow(f64({0}), f64({1}))"),
    "heaviside": Row("{0} < 0 ? 0 : {0} > 0 ? 1 : {1}", bools="{0} ? {0} : {1}"),
    "hypot": Row("hypot({0}, {1})"),
    "ldexp": Row("{0} * exp2(1.0 * {1})"),
    "lerp": Row("{0} + {2} * ({1} - {0})", scale=lambda a, b, w: abs(a) + abs(w) * both(a, b)),
    "logaddexp": Row("max({0}, {1}) + log1p(exp(-abs({0} - {1})))",
                     scale=lambda a, b: 1 + both(a, b)),
    "logaddexp2": Row("max({0}, {1}) + log2(1 + exp2(-abs({0} - {1})))",
                      scale=lambda a, b: 1 + both(a, b)),
    "logical_and": Row("{0} && {1}"),
    "logical_or": Row("{0} || {1}"),
    "logical_xor": Row("bool({0}) != bool({1})"),
    "logical_not": Row("!{0}"),
    "masked_fill": Row("{1} ? {2} : {0}", bools="bool({1} ? {2} : {0})"),
    "neg": Row("-{0}"),
    "pow": Row("pow({0}, {1})", ""),
    "reciprocal": Row("1.0 / {0}"),
    "sgn": Row("({0} > 0) - ({0} < 0)", bools="{0}"),
    "sign": Row("({0} > 0) - ({0} < 0)", bools="{0}"),
    "sigmoid": Row(SIGMOID, scale=lambda a: (1 + abs(a)) * torch.sigmoid(a)),
    "signbit": Row("{0} < 0"),
    "sinc": Row("{0} == 0 ? 1.0 : sin(3.141592653589793 * {0}) / (3.141592653589793 * {0})",
                scale=one),
    "square": Row("{0} * {0}", bools=""),
    "where": Row("{1} ? {0} : {2}"),
    "xlogy": Row("{0} == 0 ? 0.0 : {0} * log({1})"),
    "nn.functional.relu": Row("max({0}, 0)"),
    "nn.functional.relu6": Row("clamp({0}, 0, 6)"),
    "nn.functional.silu": Row("{0} / (1 + exp(-{0}))", scale=lambda a: (1 + abs(a)) * abs(a)),
    "nn.functional.mish": Row("{0} * tanh(log1p(exp({0})))", scale=lambda a: (1 + abs(a)) * abs(a)),
    "nn.functional.softsign": Row("{0} / (1.0 + abs({0}))"),
    "nn.functional.tanhshrink": Row("{0} - tanh({0})", scale=abs),
    "nn.functional.hardswish": Row("{0} * clamp({0} + 3, 0, 6) / 6", scale=one),
    "nn.functional.hardsigmoid": Row("clamp({0} / 6 + 0.5, 0, 1)", scale=one),
    "nn.functional.logsigmoid": Row("min({0}, 0) - log1p(exp(-abs({0})))", scale=one),
    "nn.functional.leaky_relu": Row("{0} > 0 ? {0} : s * {0}", numbers=(("negative_slope", 0.01),)),
    "nn.functional.threshold": Row("{0} > {1} ? {0} : {2}"),
    "nn.functional.softplus": Row("{0} * s > t ? {0} : log1p(exp({0} * s)) / s", scale=one,
                                  numbers=(("beta", 1), ("threshold", 20))),
    "nn.functional.elu": Row("{0} > 0 ? {0} : s * expm1({0})", numbers=(("alpha", 1.0),)),
    "nn.functional.hardtanh": Row("clamp({0}, s, t)", "",
                                  numbers=(("min_val", -1), ("max_val", 1))),
    # Conversions.
    "bfloat16": Row("{0}"), "half": Row("{0}"), "float": Row("{0}"), "double": Row("{0}"),
    "bool": Row("bool({0})"), "byte": Row("u8({0})", "{0}"), "char": Row("i8({0})", "{0}"),
    "short": Row("i16({0})", "{0}"), "int": Row("i32({0})", "{0}"), "long": Row("i64({0})", "{0}"),
    # The same elements at other places.
    "broadcast_to": Row("{0}"), "expand": Row("{0}"), "expand_as": Row("{0}"),
    "expand_copy": Row("{0}"),
})


def subscripted(name, rank, all_rank):
    """x[j,k]: aligned with the last of the output's indices."""
    return name + "[" + ",".join(LETTERS[all_rank - rank:all_rank]) + "]" if rank else name + "[]"


def name_arguments(row, sample, rank):
    """The texts of the arguments, the tensors and the scalars by name; None: not expressible."""
    arguments = [sample.input] + list(sample.args)
    named = dict(sample.kwargs)
    numbers = [named.pop(name, default) for name, default in row.numbers]
    named = {name: value for name, value in named.items()
             if name in ("other", "weight", "value", "exponent", "min", "max")}
    arguments += list(named.values())
    texts, tensors, scalars = [], {}, {}
    for number, argument in enumerate(arguments):
        name = "abcde"[number]
        if argument is None or isinstance(argument, (tuple, list, torch.Size)):
            texts.append("")  # no bound; a shape, which the output has
        elif isinstance(argument, torch.Tensor):
            tensors[name] = argument
            texts.append(subscripted(name, argument.dim(), rank))
        elif isinstance(argument, (bool, int, float)):
            scalars[name] = int(argument) if isinstance(argument, bool) else argument
            texts.append(name)
        else:
            return None
    for name, value in zip("st", numbers):
        if not isinstance(value, (bool, int, float)):
            return None
        scalars[name] = int(value) if isinstance(value, bool) else value
    return texts, tensors, scalars


def fits(row, result, dtype, tensors):
    """Conversions of floats that an integer type does not hold are C's to say, not PyTorch's."""
    if dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        limits = torch.iinfo(dtype)
        return all(not t.is_floating_point() or t.numel() == 0 or
                   bool(((t >= limits.min) & (t <= limits.max)).all()) for t in tensors.values())
    return True


def build(name, op, sample, random, relayout):
    """A case, or None where the sample is not one for a statement."""
    row = ROWS.get(name)
    dtype = sample.input.dtype
    right = row.right(dtype)
    if not right:
        return None
    result = op(sample.input, *sample.args, **sample.kwargs)
    rank = result.dim()
    named = name_arguments(row, sample, rank)
    if named is None:
        return None
    texts, tensors, scalars = named
    expression = right(texts) if callable(right) else right.format(*texts)
    used = set(re.findall(r"\w+", expression))
    tensors = {key: value for key, value in tensors.items() if key in used}
    scalars = {key: value for key, value in scalars.items() if key in used}
    if not fits(row, result, result.dtype, tensors):
        return None
    if len(result.shape) > 8:
        return None
    statement = f"{subscripted('y', rank, rank)} = {expression}"
    output = expected(row, op, sample, result)
    inputs = {key: relayout(value, random) for key, value in tensors.items()}
    return map_case(statement, inputs, output, scalars)


def widen_sample(sample, floats_only):
    """The sample with f64 for its floats; where it has none and the result is a float, for all."""
    def one_of(value):
        if not isinstance(value, torch.Tensor):
            return value
        if floats_only or value.is_floating_point():
            return wide(value)
        return value.double()

    return ([one_of(sample.input)] + [one_of(a) for a in sample.args],
            {key: one_of(value) for key, value in sample.kwargs.items()})


def expected(row, op, sample, result):
    if not result.is_floating_point():
        return Output(result.dtype, result)
    arguments, named = widen_sample(sample, any_float(sample))
    named = {key: value for key, value in named.items() if key != "dtype"}
    value = op(*arguments, **named)
    scale = None
    if row.scale:
        numbers = [sample.kwargs.get(name, default) for name, default in row.numbers]
        given = arguments + [v for k, v in named.items() if k in ("other", "weight")]
        scale = row.scale(*given, *numbers).expand(value.shape)
    computed = torch.float64 if sample.input.dtype == torch.float64 else None
    if result.dtype == torch.float64 and computed is None and "f64" not in str(row.floats):
        # Computed in f32, and only then made f64.
        computed = torch.float32
    return Output(result.dtype, value.double(), scale, computed)


def any_float(sample):
    return any(isinstance(value, torch.Tensor) and value.is_floating_point()
               for value in [sample.input, *sample.args, *sample.kwargs.values()])
