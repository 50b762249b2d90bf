"""test_torch_map.py: gradients of statements, against finite differences and torch's own, in f64."""
import unittest

import support  # noqa: F401  a daemon of the tests' own
from torch_cases import torch

import kiln

D = torch.double


def _values(*shape, low=0.2, high=1.5):
    return torch.linspace(low, high, max(1, torch.Size(shape).numel()), dtype=D)[
        torch.randperm(torch.Size(shape).numel(), generator=torch.Generator().manual_seed(3))
    ].reshape(shape)


def _leaves(**tensors):
    return {name: one.clone().requires_grad_(one.is_floating_point())
            for name, one in tensors.items()}


X, W, B = _values(3, 4), _values(4), _values(3)
K = torch.tensor([2, 0, 0, 3])

# A statement, its tensors, and its scalars and settings.
CASES = [
    ("y[i,j] = max(exp(x[i,j]) * tanh(w[j]), pow(x[i,j], w[j]) * erf(x[i,j]), s) - -b[i] / w[j]",
     {"x": X, "w": W, "b": B}, {"s": 0.51}),
    ("y[i,j] = x[i,j] > 0.7 ? log(x[i,j]) : clamp(x[i,j], 0.4, 0.6) * abs(w[j] - 1)",
     {"x": X, "w": W}, {}),
    ("y[j,i] = atan2(x[i,j], c[i,j]) + fma(x[i,j], 2, hypot(c[i,j], 1))",
     {"x": X, "c": _values(3, 1)}, {}),
    ("y[i] *= x[i,j]", {"x": X}, {}),
    ("y max= x[i,j] * w[j]", {"x": X, "w": W}, {}),
    ("y[i] = sum[j,k](x[i,j] + w[k] * w[j])", {"x": X, "w": W}, {}),
    ("y[i,j] = exp(x[i,j] - max[k](x[i,k])) / sum[k](exp(x[i,k] - max[l](x[i,l])))", {"x": X}, {}),
    ("y[i] = sum[j](x[i,j] * max[k](w[k] * x[i,j] + b[i] * k))", {"x": X, "w": W, "b": B}, {}),
    ("y[i,j] = any[l](x[i,l] > 1.4) ? x[i,k[j]] * w[k[j]] : w[j] * j", {"x": X, "w": W, "k": K},
     {}),
    ("y[i] = w[i-1] * w[i]", {"w": W}, {"bounds": "clamp"}),
    ("y[j] = j > 0 ? w[j] * w[j-1] : w[0]", {"w": W}, {}),
    # The terms of a gradient that one statement has no room for.
    ("y[i] = (((((((b[i] * 0.1 + 0.2) * b[i] + 0.3) * b[i] + 0.4) * b[i] + 0.5) * b[i] + 0.6) "
     "* b[i] + 1.5) * b[i] + 0.5) * b[i] + 0.2", {"b": B}, {}),
]


class Gradients(unittest.TestCase):
    def test_gradcheck(self):
        for statement, tensors, more in CASES:
            leaves = _leaves(**tensors)
            wanted = [name for name, one in leaves.items() if one.requires_grad]

            def function(*values):
                return kiln.map(statement, **{**leaves, **dict(zip(wanted, values))}, **more)

            with self.subTest(statement):
                torch.autograd.gradcheck(function, [leaves[name] for name in wanted])

    def test_twice(self):
        x = X.clone().requires_grad_()
        self.assertTrue(torch.autograd.gradgradcheck(
            lambda x: kiln.map("y[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))", x=x), [x]))

    def test_like_torch(self):
        for dtype in torch.bfloat16, torch.float32:
            x = torch.randn(5, 77, generator=torch.Generator().manual_seed(1)).to(dtype)
            x.requires_grad_()
            w = torch.randn(5, 77, generator=torch.Generator().manual_seed(2)).to(dtype)
            y = kiln.map("y[i,j] = exp(x[i,j] - max[k](x[i,k])) / sum[k](exp(x[i,k] - "
                         "max[l](x[i,l])))", x=x)
            got, = torch.autograd.grad(y, x, w)
            # torch rounds y, and takes the gradient from that.
            expected, = torch.autograd.grad(x.float().softmax(-1), x, w.float())
            self.assertEqual(got.dtype, dtype)
            torch.testing.assert_close(got, expected)

    def test_those_that_are_equal_share(self):
        x = torch.tensor([[1., 3, 3, 2], [0, 0, 0, 0]], requires_grad=True)
        for name in "max", "min":
            got, = torch.autograd.grad(kiln.map(f"y[i] = {name}[j](x[i,j])", x=x).sum(), x)
            expected, = torch.autograd.grad(getattr(x, f"a{name}")(1).sum(), x)
            self.assertEqual(got.tolist(), expected.tolist())

    def test_products_with_zeros(self):
        x = torch.tensor([[2., 0, 3], [0, 0, 4], [1, 2, 3]], requires_grad=True)
        got, = torch.autograd.grad(kiln.map("y[i] = prod[j](x[i,j])", x=x).sum(), x)
        expected, = torch.autograd.grad(x.prod(1).sum(), x)
        self.assertEqual(got.tolist(), expected.tolist())

    def test_only_what_is_wanted(self):
        leaves = _leaves(x=X, w=W)
        leaves["w"].requires_grad_(False)
        kiln.map("y[i] += x[i,j] * w[j]", **leaves).sum().backward()
        torch.testing.assert_close(leaves["x"].grad, W.expand(3, 4))
        self.assertIsNone(leaves["w"].grad)
        y = kiln.map("y[i,j] = x[i,j] > w[j]", **leaves)
        self.assertFalse(y.requires_grad)

    def test_a_given_result_is_refused(self):
        with self.assertRaisesRegex(kiln.NotSupported, "y is given and a tensor requires grad"):
            kiln.map("y[i] = x[i]", x=W.clone().requires_grad_(), y=torch.empty(4, dtype=D))

    def test_compiled(self):
        def function(x, w):
            return kiln.map("y[i,j] = x[i,j] / sum[k](x[i,k] * w[k])", x=x, w=w)

        leaves = list(_leaves(x=X, w=W).values())
        expected = torch.autograd.grad(function(*leaves).square().sum(), leaves)
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        got = torch.autograd.grad(compiled(*leaves).square().sum(), leaves)
        torch.testing.assert_close(got, expected)


if __name__ == "__main__":
    unittest.main()
