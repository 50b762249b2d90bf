"""liger_operators: what Liger-Kernel has of bench_kernels' cases.

function() returns the names of the tensors and what is timed, or None where Liger has no such
operator, or not in this form (other dtypes, a mask, an axis that is not the last).  Results need not
be kept: its gradients of cross_entropy go over the logits.
"""


def is_rows(case, name="x"):
    """The dimension that an operator goes along is the last, and lies together."""
    operand = case["operands"][name]
    attrs = case["attrs"]
    last = len(operand["shape"]) - 1
    return attrs.get("axis", -1) in (-1, last) and attrs.get("axes", 1) == 1 and \
        operand["strides"][-1:] == [1]


def present(case):
    return {name for name, operand in case["operands"].items() if operand}


def softmax(ops, torch, case):
    if not is_rows(case) or case["attrs"].get("scale", 1) != 1:
        return None
    return ["x"], ops.LigerSoftmaxFunction.apply


def rms_norm(ops, torch, case):
    eps, there = case["attrs"].get("eps", 1e-5), present(case)
    if not is_rows(case) or "beta" in there or "gamma" not in there:
        return None
    if "residual" in there:
        return ["x", "residual", "gamma"], lambda x, residual, gamma: \
            ops.LigerFusedAddRMSNormFunction.apply(x, residual, gamma, eps, 0.0, "llama", False)
    return ["x", "gamma"], lambda x, gamma: \
        ops.LigerRMSNormFunction.apply(x, gamma, eps, 0.0, "llama", False)


def layer_norm(ops, torch, case):
    eps, there = case["attrs"].get("eps", 1e-5), present(case)
    if not is_rows(case) or "residual" in there or not {"gamma", "beta"} <= there:
        return None
    return ["x", "gamma", "beta"], lambda x, gamma, beta: \
        ops.LigerLayerNormFunction.apply(x, gamma, beta, eps)


def act_mul(ops, torch, case):
    make = {"silu": ops.LigerSiLUMulFunction, "gelu_tanh": ops.LigerGELUMulFunction}.get(
        case["attrs"].get("act", "silu"))
    if not make:
        return None
    if "other" in present(case):
        return ["x", "other"], make.apply
    # It takes two tensors that lie together each: how they come apart is part of the work.
    return ["x"], lambda x: make.apply(*(half.contiguous() for half in x.chunk(2, -1)))


def cross_entropy(ops, torch, case):
    attrs = case["attrs"]
    gradient = case["operands"].get("grad") is not None

    def run(x, target):
        x = x.detach().requires_grad_(gradient)
        return ops.LigerCrossEntropyFunction.apply(
            x, target, None, attrs.get("ignore_index", -100), attrs.get("lse_square_scale", 0.0),
            attrs.get("label_smoothing", 0.0), attrs.get("reduction", "mean"),
            attrs.get("softcap") or None)
    return ["x", "target"], run


def rope(ops, torch, case):
    attrs, there = case["attrs"], present(case)
    q, cos = case["operands"]["q"], case["operands"]["cos"]
    dim, width = 2 * cos["shape"][-1], q["shape"][-1]
    if attrs.get("interleaved") or dim != width or attrs.get("layout") == "bhsd" or \
            len(q["shape"]) != 4 or not {"k", "positions"} <= there:
        return None

    def run(q, k, cos, sin, positions):
        # Its tables have each number twice; rows by positions are looked up before it.
        tables = [torch.cat([table, table], -1) if table.dim() == 3
                  else torch.cat([table[positions]] * 2, -1) for table in (cos, sin)]
        return ops.LigerRopeFunction.apply(q.transpose(1, 2), k.transpose(1, 2), *tables)
    return ["q", "k", "cos", "sin", "positions"], run


OPERATORS = {
    "softmax": softmax, "rms_norm": rms_norm, "layer_norm": layer_norm, "act_mul": act_mul,
    "cross_entropy": cross_entropy, "rope": rope,
}


def function(torch, case):
    import liger_kernel.ops as ops
    make = OPERATORS.get(case["op"])
    return make(ops, torch, case) if make else None
