"""Gradients of the reductions: what each element of x has of the gradient of its result.

They are written in torch's own operators, so torch.compile() fuses them, and they may be
differentiated again.  f16 and bf16 are computed in f32.
"""
import torch


def _sum(row):
    return row.grad


def _mean(row):
    return row.grad / row.count


def _most(row):
    """Equals share alike, as in torch."""
    return row.shared(row.x == row.y)


def _logsumexp(row):
    return row.grad * (row.x - row.y).exp()


def _prod(row):
    # In a row with one zero only the zero has a gradient: the product of the others.
    zero = row.x == 0
    others = torch.where(zero, 1, row.x)
    product, zeros = row.again("prod", others), row.total(zero)
    return row.grad * torch.where(zeros == 0, product / others,
                                  torch.where(zero & (zeros == 1), product, 0))


def _var(row):
    less = row.value("correction")
    left = max(row.count - (1 if less is None else less), 0)
    apart = row.x - row.again("mean", row.x)
    return row.grad * apart * (2 / left if left else float("nan"))


def _norm(row):
    order = row.value("ord")
    order = 2.0 if order is None else float(order)
    if abs(order) == float("inf"):
        return row.shared(row.x.abs() == row.y) * row.x.sign()
    if order == 0:
        return torch.zeros_like(row.x) * row.grad
    if order == 1:
        return row.grad * row.x.sign()
    if order == 2:
        return torch.where(row.y == 0, 0, row.grad * row.x / row.y)
    slope = row.x.sign() * (row.x.abs() / row.y) ** (order - 1)
    return torch.where((row.y == 0) | (row.x == 0), 0, row.grad * slope)


# By operator: the function, and whether it reads x and y.
GRADIENTS = {"sum": (_sum, False), "mean": (_mean, False), "prod": (_prod, True),
             "amax": (_most, True), "amin": (_most, True), "vector_norm": (_norm, True),
             "logsumexp": (_logsumexp, True), "var": (_var, True)}


class _Rows:
    """What a function above asks of a call: x, and grad and y as they lie along x."""

    def __init__(self, operator, values, kept, grad, run):
        self.operator, self.values, self.run = operator, values, run
        shape = values[-1]
        rank = len(shape)
        dims = values[operator.over_at]
        dims = dims if dims is None or isinstance(dims, (list, tuple)) else [dims]
        self.over = sorted({axis % max(rank, 1) for axis in dims or range(rank)})
        self.over = self.over if rank else []
        self.count = 1
        for axis in self.over:
            self.count = self.count * shape[axis]
        self.one = [1 if axis in self.over else size for axis, size in enumerate(shape)]
        self.type = torch.float64 if values[operator.first] == torch.float64 else torch.float32
        self.grad = self.wide(grad)
        if kept:
            self.x, self.y = kept[0].to(self.type), self.wide(kept[1])

    def wide(self, result):
        return result.to(self.type).reshape(self.one)

    def value(self, name):
        return self.values[self.operator.names.index(name)]

    def total(self, flags):
        return flags.sum(self.over, keepdim=True) if self.over else flags.long()

    def shared(self, flags):
        return self.grad * flags / self.total(flags)

    def again(self, name, x):
        """Another reduction of the same rows, by Kiln."""
        return self.run(name, x, self.over) if self.over else x


def reduce(operator, values, kept, grads, run, operators):
    if grads[0] is None:
        return {}

    def again(name, x, over):
        other = operators[name]
        given = [None] * len(other.names)
        given[other.first], given[other.over_at] = x, over
        given[other.names.index("keepdim")] = True
        return run(other, given)[0]

    row = _Rows(operator, values, kept, grads[0], again)
    found = GRADIENTS[operator.name][0](row).to(values[operator.first])
    return {operator.first: found.expand(values[-1])}
