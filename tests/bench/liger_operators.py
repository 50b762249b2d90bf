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


def softmax_backward(ops, torch, case):
    columns = case["operands"]["y"]["shape"][-1]
    if not is_rows(case, "dy") or not is_rows(case, "y") or columns > 65536 or \
            case["attrs"].get("scale", 1) != 1:
        return None
    block, warps = ops.utils.calculate_settings(columns)
    return ["dy", "y"], lambda dy, y: ops.softmax._softmax_backward(dy, y, block, warps, False)


def rms_norm_backward(ops, torch, case):
    there = present(case)
    columns = case["operands"]["x"]["shape"][-1]
    if not is_rows(case) or "dx" not in there or "dbeta" in there or \
            ("gamma" in there) != ("dgamma" in there) or columns > 65536:
        return None
    block, warps = ops.utils.calculate_settings(columns)
    names = ["dy", "x", "rstd"] + ["gamma"] * ("gamma" in there)
    return names, lambda dy, x, rstd, gamma=None: ops.rms_norm_backward(
        dy, x.view(-1, columns), gamma, rstd.flatten(), 0.0, 0, block, warps, False, None)


def layer_norm_backward(ops, torch, case):
    there = present(case)
    columns = case["operands"]["x"]["shape"][-1]
    if not is_rows(case) or not {"gamma", "dx", "dgamma", "dbeta"} <= there or columns > 65536:
        return None
    return ["dy", "x", "gamma", "mean", "rstd"], lambda dy, x, gamma, mean, rstd: \
        ops.layer_norm_backward(dy, x.view(-1, columns), gamma, gamma, mean.flatten(),
                                rstd.flatten())


def act_mul(ops, torch, case):
    make = {"silu": ops.LigerSiLUMulFunction, "gelu_tanh": ops.LigerGELUMulFunction}.get(
        case["attrs"].get("act", "silu"))
    if not make:
        return None
    if "other" in present(case):
        return ["x", "other"], make.apply
    if make is ops.LigerSiLUMulFunction:
        return ["x"], ops.LigerFusedGateUpSiLUMulFunction.apply
    # It takes two tensors that lie together each: how they come apart is part of the work.
    return ["x"], lambda x: make.apply(*(half.contiguous() for half in x.chunk(2, -1)))


def act_mul_backward(ops, torch, case):
    # Gradients go over the inputs.
    act, there = case["attrs"].get("act", "silu"), present(case)
    make = {"silu": ops.swiglu_backward, "gelu_tanh": ops.geglu_backward}.get(act)
    if not make or ("other" in there) != ("dother" in there):
        return None
    if "other" in there:
        return ["x", "other", "dy"], make
    if act == "silu":
        return ["x", "dy"], ops.swiglu.swiglu_fused_gate_up_backward
    return ["x", "dy"], lambda x, dy: torch.cat(
        make(*(half.contiguous() for half in x.chunk(2, -1)), dy), -1)


def embedding(ops, torch, case):
    return ["weight", "idx"], ops.LigerEmbeddingFunction.apply


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
    "cross_entropy": cross_entropy, "rope": rope, "embedding": embedding,
    "softmax_backward": softmax_backward, "rms_norm_backward": rms_norm_backward,
    "layer_norm_backward": layer_norm_backward, "act_mul_backward": act_mul_backward,
}


def function(torch, case):
    import liger_kernel.ops as ops
    make = OPERATORS.get(case["op"])
    return make(ops, torch, case) if make else None
