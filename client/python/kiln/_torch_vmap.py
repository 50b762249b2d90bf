"""torch.vmap of the operators: a batch is one more leading dimension, where the rows' rules leave
one free; else the calls of a batch are made one after the other.
"""
import torch

from ._errors import InvalidArgument

# An operand of these shapes has a place for a batch only if all of the batch share it.
_SHARED = ("trailing", "lists", "list", "per_box", "boundaries", "one", "tokens", "angles")


def _is_free(operator, dims, values):
    rank = values[operator.first].dim() - (dims[operator.first] is not None)
    causal = "kind" in operator.names and values[operator.names.index("kind")] == "causal"
    if rank <= causal:
        return False  # a sample has no dimension of its own to go along, or none of queries
    if rank > 3 and any(rule[0] == "angles" for rule in operator.rules.values()):
        return False  # a sample has a batch of its own
    if rank < 2 and any(rule[0] == "transposed" for rule in operator.rules.values()):
        return False  # a sample is no matrix
    for name, place in operator.inputs.items():
        if dims[place] is not None and operator.rules[name][0] in _SHARED:
            return False
        if operator.rules[name][0] == "groups":
            return False  # the shape of the scale says what it is for
    if operator.indexed == "None":
        return False  # rows of a table have no dimension before them
    outputs = [operator.outputs[place] for place in operator.wanted(values)]
    return all(output.shape not in ("trailing", "one") for output in outputs)


def _in_front(tensor, dim, size, rank):
    """The tensor with its batch as first dimension, and ones behind it up to a rank."""
    if dim is None:
        tensor = tensor.unsqueeze(0).expand(size, *tensor.shape)
    else:
        tensor = tensor.movedim(dim, 0)
    while tensor.dim() < rank:
        tensor = tensor.unsqueeze(1)
    return tensor


def _behind_batch(operator, name, dim, rank):
    """The number of a dimension of one sample, which has the rank, in the whole batch."""
    if not -rank <= dim < rank:
        raise InvalidArgument(f"{operator.name}(): {name} is {dim}; it may be {-rank} to {rank - 1}",
                              "KILN_EINVAL")
    return dim + 1 if dim >= 0 else dim


def _as_one(operator, size, dims, values):
    """The values of the one call that does the whole batch."""
    values = list(values)
    rank = values[operator.first].dim() + (dims[operator.first] is None)
    for name, place in operator.inputs.items():
        shape = operator.rules[name][0]
        if values[place] is None or shape in _SHARED:
            continue
        if shape != "mask":
            values[place] = _in_front(values[place], dims[place], size, 0)
            if shape == "leading":  # statistics, which the kernels read as they were written
                values[place] = values[place].contiguous()
        elif dims[place] is not None:
            lengths = values[operator.names.index("kind")] == "lengths"
            values[place] = _in_front(values[place], dims[place], size, rank - lengths)
    if operator.over_at is not None:
        over = operator.reduced([value if place != operator.first else value.select(0, 0)
                                 for place, value in enumerate(values)])
        values[operator.over_at] = [axis + 1 for axis in sorted(over)]
    elif "dim" in operator.names:
        place = operator.names.index("dim")
        if values[place] is not None:
            values[place] = _behind_batch(operator, "dim", values[place], rank - 1)
    if operator.order_at is not None:
        axes = values[operator.order_at]
        values[operator.order_at] = [0] + [
            _behind_batch(operator, "dims", axis, rank - 1) % rank for axis in axes]
    return values


def _one_by_one(operator, size, dims, values, call):
    results = []
    for at in range(size):
        results.append(call(operator, [
            value if dim is None else value.select(dim, at) for value, dim in zip(values, dims)]))
    if len(operator.outputs) == 1:
        return torch.stack([result for result, in results])
    return tuple(torch.stack(column) for column in zip(*results))


def batched(operator, call):
    """What torch.library.register_vmap() wants of an operator; call(operator, values) calls it."""
    many = len(operator.outputs) > 1

    def rule(info, dims, *values):
        values = operator.filled(values)
        dims = [*dims, *[None] * (len(values) - len(dims))]
        dims = [dim if isinstance(dim, int) else None for dim in dims]
        if not _is_free(operator, dims, values):
            results = _one_by_one(operator, info.batch_size, dims, values, call)
            return results, (0,) * len(results) if many else 0
        results = call(operator, _as_one(operator, info.batch_size, dims, values))
        if not many:
            return results[0], 0
        # An output that is not wanted has no batch.
        wanted = operator.wanted(values)
        return tuple(results), tuple(0 if at in wanted else None for at in range(len(results)))

    return rule
