"""masked_softmax: attention over sequences that end early, with its gradients.

    pip install kiln-jit numpy torch
    python masked_softmax.py
"""
import kiln
import torch

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
batch, heads, length, size = 3, 4, 33, 16
lengths = torch.tensor([33, 20, 1], dtype=torch.int32, device=device)


def attention(query, key, value, softmax):
    scores = query @ key.transpose(-1, -2)
    return softmax(scores) @ value


def by_kiln(scores):
    """One kernel: the factor, the mask and the softmax."""
    return kiln.masked_softmax(scores, lengths[:, None, None].expand(scores.shape[:-1]),
                               kind="lengths", scale=size ** -0.5)


def by_torch(scores):
    masked = torch.arange(length, device=device) >= lengths[:, None, None, None]
    return torch.softmax((scores * size ** -0.5).masked_fill(masked, -torch.inf), -1)


inputs = [torch.randn(batch, heads, length, size, device=device, requires_grad=True)
          for _ in range(3)]
weights = torch.randn(batch, heads, length, size, device=device)
found = []
for softmax in [by_kiln, by_torch]:
    result = attention(*inputs, softmax)
    found.append([result, *torch.autograd.grad((result * weights).sum(), inputs)])
for name, mine, theirs in zip(["result", "d query", "d key", "d value"], *found):
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    print(f"{name}: at most {(mine - theirs).abs().max():.0e} from torch's")
