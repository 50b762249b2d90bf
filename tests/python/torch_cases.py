"""torch_cases.py: one or more calls of each operator that has a gradient, in f64, on odd shapes."""
import torch

import kiln.torch


def normal(*shape):
    return torch.randn(*shape, dtype=torch.double)


def boxes(*shape):
    low, size = torch.rand(2, *shape, 2, dtype=torch.double)
    return torch.cat([low * 4, low * 4 + size + 0.5], -1)


def cases():
    """Triples of a name, positional arguments and named ones; what is floating gets a gradient."""
    torch.manual_seed(11)
    x, w, b = normal(3, 2, 5), normal(5), normal(5)
    index = torch.tensor([[4, 0], [1, 1]], dtype=torch.int32)
    labels = torch.tensor([[4, 0], [1, 1], [2, 3]])
    mask = torch.rand(2, 5) > 0.6
    target = boxes(2, 3).float()
    q, k = normal(2, 3, 2, 6), normal(2, 3, 1, 6)
    angles = torch.rand(5, 2, dtype=torch.double)
    target[0, 2] = 0
    return [
        ("softmax", (x,), {}),
        ("softmax", (x.transpose(0, 2), 1), {"scale": 0.5}),
        ("log_softmax", (x, 0), {"scale": 2.0}),
        ("masked_softmax", (x, mask), {}),
        ("masked_softmax", (x[:, :, :4],), {"kind": "causal", "scale": 0.5}),
        ("masked_softmax", (x, torch.tensor([[5], [1], [3]], dtype=torch.int32)),
         {"kind": "lengths"}),
        ("masked_softmax", (x, normal(2, 5)), {"kind": "additive", "scale": 0.5}),
        ("layer_norm", (x, (5,), w, b), {}),
        ("layer_norm", (x, (2, 5)), {"eps": 1e-3}),
        ("layer_norm", (x, 5, None, b), {"residual": normal(3, 2, 5), "sum": True}),
        ("rms_norm", (x, (5,), w), {}),
        ("rms_norm", (x[::2, :, :], 5), {"residual": normal(2, 2, 5), "bias": b}),
        ("act_mul", (x, normal(3, 2, 5)), {}),
        ("act_mul", (normal(3, 6),), {"act": "gelu"}),
        ("act_mul", (normal(6, 3).t(),), {"act": "gelu_tanh"}),
        ("act_mul", (x, normal(3, 2, 5)), {"act": "relu"}),
        ("cross_entropy", (x, labels), {}),
        ("cross_entropy", (x, labels), {"ignore_index": 1, "label_smoothing": 0.1,
                                        "reduction": "none", "lse": True}),
        ("cross_entropy", (x, labels.int()), {"reduction": "sum", "softcap": 2.0,
                                              "lse_square_scale": 0.1, "count": True}),
        ("permute", (x, (2, 0, 1)), {}),
        ("cumsum", (x, 1), {}),
        ("cumsum", (x, -1), {"exclusive": True, "reverse": True}),
        ("cumprod", (torch.where(x.abs() < 0.4, 0, x), 2), {}),
        ("cumprod", (x.transpose(0, 2), 0), {"exclusive": True, "reverse": True}),
        ("cummax", (x, -1), {}),
        ("topk", (x, 2, 0), {"largest": False}),
        ("sort", (x, -1), {"descending": True}),
        ("cummin", (x, 1), {"reverse": True}),
        ("logcumsumexp", (x, 2), {}),
        ("logcumsumexp", (x, 0), {"reverse": True}),
        ("sum", (x, (0, -1)), {}),
        ("mean", (x, 1), {"keepdim": True}),
        ("prod", (x, 1), {}),
        ("amax", (x, -1), {}),
        ("amin", (x,), {}),
        ("logsumexp", (x, (0, 2)), {}),
        ("var", (x, (1, 2)), {"correction": 0.5}),
        ("vector_norm", (x, 2, 1), {}),
        ("vector_norm", (x, 3.5), {}),
        ("cumsum_backward", (x,), {"dim": 1}),
        ("gather", (x, index), {}),
        ("rope", (q, angles.cos(), angles.sin()), {"start": 2}),
        ("rope", (q.transpose(1, 2), angles.cos(), angles.sin(), k.transpose(1, 2)),
         {"interleaved": True, "inverse": True, "layout": "bhsd"}),
        ("rope", (q, angles.cos(), angles.sin(), k, torch.tensor([[4, 0, 1], [3, 3, 2]])), {}),
        ("index_select", (x, 2, index[0]), {}),
        ("embedding", (index, normal(5, 3)), {}),
        ("embedding", (index, normal(5, 3), 2), {}),
        ("embedding", (labels[:, :1].expand(3, 2), normal(5, 3)), {}),
        ("take_along_axis", (x, torch.randint(0, 3, (4, 2, 5)), 0), {}),
        ("take_along_axis", (x, torch.randint(0, 5, (2, 1, 4))), {}),
        ("index_add", (x, -1, index[0], normal(3, 2, 2)), {"alpha": 0.5}),
        ("scatter_add", (x, 1, torch.randint(0, 2, (3, 4, 5)), normal(3, 4, 5)), {}),
        ("giou", (boxes(2, 3), target), {}),
        ("giou_loss", (boxes(2, 3), target), {}),
        ("giou_loss", (boxes(2, 3), target.double()), {"clamp": True, "count": True}),
    ]


NO_GRADIENT = ("mask", "target", "cos", "sin")  # of those that are floating, but a bias


def prepared(name, args, named):
    """The arguments again, detached, with requires_grad where a gradient is."""
    operator = kiln.torch.OPERATORS[name]

    def leaf(parameter, value):
        if not isinstance(value, torch.Tensor):
            return value
        wanted = value.is_floating_point() and (
            parameter not in NO_GRADIENT or named.get("kind") == "additive")
        # A layout is kept: as_strided() of a copy of what lies below it.
        return value.detach().requires_grad_(wanted)

    places = [row[0] for row in operator.parameters]
    return (tuple(leaf(place, value) for place, value in zip(places, args)),
            {key: leaf(key, value) for key, value in named.items()})


def leaves(args, named):
    """The tensors that require grad."""
    return [value for value in (*args, *named.values())
            if isinstance(value, torch.Tensor) and value.requires_grad]
