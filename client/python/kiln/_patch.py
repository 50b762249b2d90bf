"""kiln.patch and kiln.unpatch: Kiln's operators in the place of those that a model of torch has.

A patched module stays the same object: its class becomes a subclass of the one it had, with another
forward().  Parameters, buffers, hooks, state dict, and who else holds the module, do not change.
A softmax that is a line of a function of transformers, `eager_attention_forward`, is reached by a
function in the place of that one, which looks at the class of the module that calls it.
"""
import sys
import weakref

from . import _operators as operators
from ._errors import refusal

_KILN_RUNS_ON = ("cpu", "cuda")  # a tensor of another device goes the way that it went before
_FAMILIES = ("bert", "llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "vit")

_classes = {}  # (class, what is mixed in): the class of a patched module


class Replaced(dict):
    """The modules that are replaced: {name in the model: operator}.  Its text is for people.

    left: {name: reason}, of the norms and attentions that stay as they were.
    """

    def __init__(self):
        super().__init__()
        self.left = {}
        self._counts = {}

    def _add(self, name, module, operator):
        what = f"{operator} in {type(module)._kiln_original.__name__}"
        self[name] = operator
        self._counts[what] = self._counts.get(what, 0) + 1

    def __str__(self):
        lines = [f"{what}: {count}" for what, count in self._counts.items()]
        reasons = {}
        for name, reason in self.left.items():
            reasons.setdefault(reason, []).append(name)
        lines += [f"left {len(names)}, of which {names[0]}: {reason}"
                  for reason, names in reasons.items()]
        return "\n".join(lines) or "nothing to replace"


def _check(function, model):
    # A caller that has a module has imported torch.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise refusal(function, "model", model, "a torch.nn.Module")


def patch(model):
    """Puts Kiln's operators into a model of torch, in place; says what it replaced.

    Reached are torch.nn.LayerNorm, RMSNorm and Softmax in any model, the RMSNorm of transformers'
    Llama and Qwen and of classes that compute the same, and the softmax of Llama's, Qwen's, BERT's
    and ViT's attention where it is "eager".  f16 and bf16 are rounded once, at the end.

    Returns a Replaced, {name: operator}, which prints as what was replaced and what was left; a
    module that is patched already is not in it.  unpatch(model) undoes it.
    """
    _check("patch", model)
    import torch

    mixins = {torch.nn.LayerNorm: _LayerNorm, torch.nn.RMSNorm: _RMSNorm, torch.nn.Softmax: _Softmax}
    replaced, asked = Replaced(), {}
    for name, module in model.named_modules():
        kind = type(module)
        if issubclass(kind, _Patched):
            continue
        if kind not in asked:
            asked[kind] = _mixin_of(kind, module, mixins)
        mixin, reason = asked[kind]
        if mixin is not None:
            reason = mixin._kiln_refuses(module)
        if mixin is not None and reason is None:
            _become(module, mixin)
            replaced._add(name, module, mixin._kiln_operator)
        elif reason is not None:
            replaced.left[name] = reason
    return replaced


def unpatch(model):
    """Undoes patch(model): each module has its own class again.  Returns the names of the modules."""
    _check("unpatch", model)
    names = []
    for name, module in model.named_modules():
        if isinstance(module, _Patched):
            type(module)._kiln_undo(module)
            names.append(name)
    return names


# ---- The classes of patched modules ----


class _Patched:
    """Mixed in before a module's own class, _kiln_original."""

    @classmethod
    def _kiln_refuses(cls, module):
        """Why this module of a class that is reached is not; None: it is."""
        return None

    @classmethod
    def _kiln_undo(cls, module):
        module.__class__ = cls._kiln_original

    def __reduce_ex__(self, protocol):
        # The class is made at run time, so a copy, or a pickle, names what it is made of.
        return _copied, (self._kiln_original, self._kiln_mixin), self.__dict__.copy()


def _class_of(original, mixin):
    key = original, mixin
    if key not in _classes:
        _classes[key] = type("Kiln" + original.__name__, (mixin, original), {
            "__doc__": original.__doc__, "__module__": original.__module__,
            "_kiln_original": original, "_kiln_mixin": mixin})
    return _classes[key]


def _become(module, mixin):
    module.__class__ = _class_of(type(module), mixin)
    if mixin is _Attention:
        _reach(module)


def _copied(original, mixin):
    module = original.__new__(original)
    _become(module, mixin)
    return module


class _LayerNorm(_Patched):
    _kiln_operator = "layer_norm"

    def forward(self, input):
        if input.device.type not in _KILN_RUNS_ON:
            return super().forward(input)
        return operators.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class _RMSNorm(_Patched):
    _kiln_operator = "rms_norm"

    def forward(self, input):
        if input.device.type not in _KILN_RUNS_ON:
            return super().forward(input)
        return operators.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class _Softmax(_Patched):
    _kiln_operator = "softmax"

    @classmethod
    def _kiln_refuses(cls, module):
        return "its dim is None" if module.dim is None else None

    def forward(self, input):
        if input.device.type not in _KILN_RUNS_ON:
            return super().forward(input)
        return operators.softmax(input, self.dim)


class _TransformersRMSNorm(_Patched):
    """The result has the type of weight * input, which is not the input's where weight's is wider."""
    _kiln_operator = "rms_norm"

    def forward(self, hidden_states):
        if hidden_states.device.type not in _KILN_RUNS_ON:
            return super().forward(hidden_states)
        weight = self.weight
        if hidden_states.dtype != weight.dtype:
            import torch

            hidden_states = hidden_states.to(torch.promote_types(hidden_states.dtype, weight.dtype))
        result = operators.rms_norm(hidden_states, weight.shape, weight, _eps_of(self))
        # Under autocast an operator's result is wider, and this one's is not.
        return result if result.dtype == hidden_states.dtype else result.to(hidden_states.dtype)


class _Attention(_Patched):
    """Has the forward() of its class, which calls the function that _reach() put there."""
    _kiln_operator = "masked_softmax"

    @classmethod
    def _kiln_refuses(cls, module):
        way = module.config._attn_implementation
        return None if way == "eager" else f"attention is {way!r}; Kiln reaches 'eager'"

    @classmethod
    def _kiln_undo(cls, module):
        module.__class__ = cls._kiln_original
        _ends.pop(module)()


# ---- Which module is what ----


def _mixin_of(kind, module, mixins):
    """(what is to be mixed into a class, None), or (None, why nothing is, or None: no norm)."""
    if kind in mixins:
        return mixins[kind], None
    if kind.__name__.endswith("RMSNorm"):
        if _computes_rms_norm(kind, module):
            return _TransformersRMSNorm, None
        return None, f"{kind.__name__} does not compute weight * input / sqrt(mean of squares + eps)"
    parts = kind.__module__.split(".")
    if kind.__name__.endswith("Attention") and parts[:2] == ["transformers", "models"] and \
            hasattr(module, "config"):
        eager = getattr(sys.modules[kind.__module__], "eager_attention_forward", None)
        if eager is None or parts[2] not in _FAMILIES or not _computes_attention(eager, module):
            return None, f"{kind.__name__} is not an attention that Kiln knows"
        return _Attention, None
    return None, None


def _eps_of(module):
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


def _computes_rms_norm(kind, module):
    """Is it Llama's norm?  The class is asked, by a few numbers: names do not tell who adds 1 to the
    weight, or rounds elsewhere."""
    import torch

    weight = module._parameters.get("weight")
    if list(module.state_dict()) != ["weight"] or weight is None or weight.dim() != 1 or \
            not isinstance(_eps_of(module), float):
        return False
    count = weight.numel()
    with torch.no_grad(), torch.device("cpu"):
        probe = kind.__new__(kind)
        probe.__dict__.update(module.__dict__)
        weight = torch.linspace(0.5, 1.5, count)
        probe.__dict__["_parameters"] = {"weight": weight}
        x = torch.linspace(-1, 2, 3 * count).sin().reshape(3, count) / 64
        try:
            got, mixed = kind.forward(probe, x), kind.forward(probe, x.bfloat16())
        except (AttributeError, RuntimeError, TypeError):
            return False
        x = x.double()
        expected = x / (x.square().mean(-1, keepdim=True) + _eps_of(module)).sqrt() * weight
    return got.dtype == mixed.dtype == torch.float32 and \
        torch.allclose(got.double(), expected, rtol=1e-5, atol=1e-6)


def _computes_attention(eager, module):
    """Does a function do softmax(scaling * query key' + mask) value, and nothing else?"""
    import types

    import torch

    grouped = hasattr(module, "num_key_value_groups")
    with torch.no_grad(), torch.device("cpu"):
        query = torch.linspace(-2, 2, 2 * 4 * 3 * 8).sin().reshape(2, 4, 3, 8)
        key = torch.linspace(-9, 9, 2 * 4 * 5 * 8).cos().reshape(2, 4, 5, 8)
        value = torch.linspace(-5, 5, 2 * 4 * 5 * 8).sin().reshape(2, 4, 5, 8)
        mask = torch.linspace(-3, 3, 2 * 3 * 5).tan().reshape(2, 1, 3, 5)
        probe = types.SimpleNamespace(training=False)
        if grouped:
            probe.num_key_value_groups = 2
            key, value = key[:, :2], value[:, :2]
        try:
            got = [eager(probe, query, key, value, mask, scaling=0.3),
                   eager(probe, query, key, value, None, scaling=0.5)]
        except (AttributeError, RuntimeError, TypeError):
            return False
        if grouped:
            key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
        scores = query @ key.transpose(2, 3)
        weights = [torch.softmax(scores * 0.3 + mask, -1), torch.softmax(scores * 0.5, -1)]
    return all(torch.allclose(mine, theirs[1], 1e-4, 1e-5) and
               torch.allclose((mine @ value).transpose(1, 2), theirs[0], 1e-4, 1e-5)
               for mine, theirs in zip(weights, got))


# ---- Attention ----

_reached = {}  # a module of Python: [its own eager_attention_forward, how many modules are patched]
_ends = weakref.WeakKeyDictionary()  # a patched module: _leave() of it, which its death calls, too


def _reach(module):
    """Puts attend() in the place of the function that the class of a patched module calls."""
    place = sys.modules[type(module).__module__]
    if place not in _reached:
        _reached[place] = [place.eager_attention_forward, 0]
        place.eager_attention_forward = _attention_beside(place.eager_attention_forward)
    _reached[place][1] += 1
    _ends[module] = weakref.finalize(module, _leave, place)
    _ends[module].atexit = False


def _leave(place):
    _reached[place][1] -= 1
    if _reached[place][1] == 0:
        place.eager_attention_forward = _reached.pop(place)[0]


def _attention_beside(eager):
    import functools

    from torch.nn.functional import dropout as drop

    @functools.wraps(eager)
    def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **named):
        # A mask that is no floats to add, or has a gradient, is not what masked_softmax has.
        if not isinstance(module, _Attention) or query.device.type not in _KILN_RUNS_ON or \
                attention_mask is not None and (
                    attention_mask.requires_grad or not attention_mask.is_floating_point()):
            return eager(module, query, key, value, attention_mask, scaling=scaling,
                         dropout=dropout, **named)
        groups = getattr(module, "num_key_value_groups", 1)
        if groups > 1:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        if scaling is None:
            scaling = query.shape[-1] ** -0.5
        scores = query @ key.transpose(2, 3)
        if attention_mask is None:
            weights = operators.softmax(scores, -1, scale=scaling)
        else:
            weights = operators.masked_softmax(scores, attention_mask, kind="additive", empty="nan",
                                               scale=scaling)
        if weights.dtype != query.dtype:  # under autocast
            weights = weights.to(query.dtype)
        weights = drop(weights, p=dropout, training=module.training)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    return attend
