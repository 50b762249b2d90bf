"""Kiln's operators as modules of torch: torch's own parameters, state dicts and initialization.

Where torch has the module, these are subclasses of it: kiln.nn.LayerNorm is a torch.nn.LayerNorm,
and takes its state dict.
"""
import torch

from . import _operators as operators
from ._errors import InvalidArgument

__all__ = ["GIoULoss", "LayerNorm", "MaskedSoftmax", "RMSNorm", "Softmax"]


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm by kiln.layer_norm: input and result are of shape (*, *normalized_shape).

    The parameters are torch's.  f16 and bf16 are computed in f32 and rounded once; weight and bias
    may have another float type than the input, and the result has the input's.
    """

    def forward(self, input):
        return operators.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm by kiln.rms_norm: input and result are of shape (*, *normalized_shape).

    The parameters are torch's; without eps it is torch.finfo(t).eps of the type t that is computed
    in.  f16 and bf16 are computed in f32 and rounded once; the result has the input's type.
    """

    def forward(self, input):
        return operators.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class Softmax(torch.nn.Softmax):
    """softmax of scale * input along a dimension, by kiln.softmax; the result is of input's shape.

    dim has no default that depends on the rank: None is refused with InvalidArgument.
    """

    def __init__(self, dim=-1, *, scale=1.0):
        if dim is None:
            raise InvalidArgument("dim is None: give the dimension that softmax goes along")
        super().__init__(dim)
        self.scale = scale

    def forward(self, input):
        return operators.softmax(input, self.dim, scale=self.scale)

    def extra_repr(self):
        return f"dim={self.dim}" + ("" if self.scale == 1.0 else f", scale={self.scale}")


class MaskedSoftmax(torch.nn.Module):
    """softmax of scale * input along the last dimension over what a mask leaves, 0 elsewhere.

    kind: "bool" (a mask of bool or u8 that broadcasts to input's shape: True is masked, or with
    keep kept), "lengths" (i32: so many elements of a row are kept), "causal" (no mask: row q keeps
    the columns up to q + diagonal) or "additive" (floats that are added to scale * input);
    empty: "zero", "nan" or "uniform", for a row of which nothing is kept.
    """

    def __init__(self, kind="bool", *, keep=False, empty="zero", scale=1.0, diagonal=0):
        super().__init__()
        self.kind = kind
        self.keep = keep
        self.empty = empty
        self.scale = scale
        self.diagonal = diagonal
        # The operator refuses what its kind has no use for, even a default.
        self._named = {"keep": int(keep)} if kind == "bool" else {}
        if kind == "causal":
            self._named = {"diagonal": diagonal}

    def forward(self, input, mask=None):
        return operators.masked_softmax(input, mask, kind=self.kind, empty=self.empty,
                                        scale=self.scale, **self._named)

    def extra_repr(self):
        return f"{self.kind!r}, keep={self.keep}, empty={self.empty!r}, scale={self.scale}" + (
            f", diagonal={self.diagonal}" if self.kind == "causal" else "")


class GIoULoss(torch.nn.Module):
    """The mean of the generalized intersection over union of pairs of boxes x1, y1, x2, y2.

    forward(pred, target, offsets=None) is kiln.giou_loss: one number, over the pairs whose target's
    y2 is not 0.  Boxes that agree have 1, so training makes 1 - the result small.  target has pred's
    shape; with offsets, of i32, pred is (B, M, 4), target (T, 4) has the boxes of all samples, and
    those of sample s are offsets[s] .. offsets[s+1]-1.
    clamp: False if boxes that are apart in both directions count as intersecting.
    """

    def __init__(self, *, clamp=True):
        super().__init__()
        self.clamp = clamp

    def forward(self, pred, target, offsets=None):
        return operators.giou_loss(pred, target, offsets, clamp=int(self.clamp))

    def extra_repr(self):
        return f"clamp={self.clamp}"
