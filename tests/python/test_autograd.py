"""test_autograd.py: derivatives of kiln.NAME, against finite differences and torch's own, in f64."""
import unittest

import support  # noqa: F401  a daemon of the tests' own
import torch_cases
from torch_cases import cases, leaves, prepared, torch

import kiln

F = torch.nn.functional


def call(name, args, named):
    """A call as a function of the tensors that require grad, of its differentiable outputs."""
    args, named = prepared(name, args, named)
    inputs = leaves(args, named)

    def function(*tensors):
        found = iter(tensors)
        again = [next(found) if value is not None and any(value is one for one in inputs)
                 else value for value in (*args, *named.values())]
        result = getattr(kiln, name)(*again[:len(args)],
                                     **dict(zip(named, again[len(args):])))
        return tuple(one for one in (result if isinstance(result, tuple) else (result,))
                     if one.requires_grad)

    return function, inputs


class Gradients(unittest.TestCase):
    def test_every_operator_has_a_case(self):
        named = {name for name, _, _ in cases()} | {"embedding_backward", "gather_backward",
                                                    "index_select_backward"}
        self.assertEqual(named, {name for name, operator in kiln.torch.OPERATORS.items()
                                 if operator.gradient})

    def test_gradcheck(self):
        for name, args, named in cases():
            with self.subTest(name, **named):
                function, inputs = call(name, args, named)
                self.assertTrue(inputs)
                self.assertTrue(torch.autograd.gradcheck(function, inputs))

    def test_only_what_is_needed(self):
        x, w = torch.randn(6, 5, dtype=torch.double), torch.randn(5, dtype=torch.double)
        for needs in [(True, False), (False, True)]:
            one, two = x.clone().requires_grad_(needs[0]), w.clone().requires_grad_(needs[1])
            kiln.layer_norm(one, 5, two).square().sum().backward()
            a, b = x.clone().requires_grad_(needs[0]), w.clone().requires_grad_(needs[1])
            F.layer_norm(a, (5,), b).square().sum().backward()
            for got, expected in [(one, a), (two, b)]:
                self.assertEqual(got.grad is None, expected.grad is None)
                if got.grad is not None:
                    torch.testing.assert_close(got.grad, expected.grad)

    def test_rows_without_elements(self):
        for shape in [(4, 0), (0, 6), (0,)]:
            x, w = torch.zeros(shape, requires_grad=True), torch.ones(shape[-1:], requires_grad=True)
            for y in (kiln.layer_norm(x, shape[-1:], w), kiln.rms_norm(x, shape[-1:], w)):
                grads = torch.autograd.grad(y.sum(), (x, w))
                self.assertEqual((y.shape, grads[0].shape), (x.shape, x.shape))
                self.assertTrue(torch.equal(grads[1], torch.zeros_like(w)))

    def test_types(self):
        # Factors in f32 with rows in bf16, and a bias without a factor.
        x = torch.randn(9, 33).bfloat16().requires_grad_()
        bias = torch.randn(33, requires_grad=True)
        kiln.layer_norm(x, 33, None, bias).sum().backward()
        self.assertEqual((x.grad.dtype, bias.grad.dtype), (torch.bfloat16, torch.float32))
        torch.testing.assert_close(bias.grad, torch.full((33,), 9.0))
        # Nothing is rounded to the type of the rows, or of a narrower factor.
        dy = torch.randn(9, 33).bfloat16()
        for weight in (None, torch.ones(33).half()):
            for norm in (lambda w, b: kiln.layer_norm(x, 33, w, b),
                         lambda w, b: kiln.rms_norm(x, 33, w, bias=b)):
                grad, = torch.autograd.grad(norm(weight, bias), bias, dy)
                torch.testing.assert_close(grad, dy.float().sum(0))

    def test_empty_and_expanded(self):
        x = torch.empty(0, 5, requires_grad=True)
        kiln.softmax(x).sum().backward()
        self.assertEqual(x.grad.shape, (0, 5))
        x = torch.randn(4, dtype=torch.double, requires_grad=True)
        kiln.softmax(x.expand(3, 4)).sum(0)[1].backward()
        y = x.detach().requires_grad_()
        (3 * torch.softmax(y, 0)[1]).backward()
        torch.testing.assert_close(x.grad, y.grad)

    def test_embedding_in_any_layout(self):
        weight = torch.randn(9, 4, dtype=torch.double, requires_grad=True)
        index = torch.arange(24).reshape(4, 6) % 9
        dy = torch.randn(3, 4, 4, dtype=torch.double)
        for idx in (index[:, 1:4], index[:, :3].contiguous()):
            grads = [torch.autograd.grad(embedding(idx, weight).transpose(0, 1), weight, dy)[0]
                     for embedding in (kiln.embedding, F.embedding)]
            torch.testing.assert_close(*grads)
        kiln.embedding(index[:2, :3], torch.empty(9, 0, requires_grad=True)).sum().backward()

    def test_statistics_are_no_variables(self):
        x = torch.randn(6, 5, requires_grad=True)
        y, mean, rstd = kiln.layer_norm(x, 5, mean=True, rstd=True)
        self.assertEqual((y.requires_grad, mean.requires_grad, rstd.requires_grad),
                         (True, False, False))

    def test_what_is_kept_is_guarded(self):
        x = torch.randn(6, 5, requires_grad=True)
        y = kiln.softmax(x)
        y.detach().add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_modes(self):
        x = torch.randn(6, 5, requires_grad=True)
        with torch.no_grad():
            self.assertFalse(kiln.softmax(x).requires_grad)
        with torch.inference_mode():
            self.assertTrue(kiln.softmax(x).is_inference())
        parameter = torch.nn.Parameter(torch.ones(5))
        self.assertTrue(kiln.rms_norm(x.detach(), 5, parameter).requires_grad)
        from torch.utils.checkpoint import checkpoint

        y = checkpoint(kiln.softmax, x, use_reentrant=False)
        y[0, 0].backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(torch.softmax(x, -1)[0, 0], x)[0])

    def test_second_derivatives(self):
        index = torch.tensor([[4, 0], [1, 1]], dtype=torch.int32)
        tables = torch.rand(2, 3, 2, dtype=torch.double)
        x = torch.randn(3, 2, 5, dtype=torch.double, requires_grad=True)
        for function in [lambda x: kiln.cumsum(x, 2), lambda x: kiln.gather(x, index),
                         lambda x: kiln.index_select(x, 2, index[0]),
                         lambda x: kiln.embedding(index % 3, x[:, 0], -2),
                         lambda x: kiln.take_along_axis(x, index.expand(3, 2, 2)),
                         lambda x: kiln.index_add(x, 2, index[0], x[:, :, :2]),
                         lambda x: kiln.scatter_add(x, 2, index.expand(3, 2, 2), x[:, :, :2]),
                         lambda x: kiln.permute(x, (1, 2, 0)),
                         lambda x: kiln.rope(x[..., :4], *tables)]:
            self.assertTrue(torch.autograd.gradgradcheck(function, (x,)))
        y = kiln.softmax(x)
        grad, = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        with self.assertRaisesRegex(kiln.NotSupported, "softmax_backward.* no second ones"):
            grad.sum().backward()

    def test_refused(self):
        x, target = torch.rand(3, 4, requires_grad=True), torch.rand(3, 4, requires_grad=True)
        with self.assertRaisesRegex(kiln.NotSupported, "giou.. has no gradient for target"):
            kiln.giou(x, target)
        with self.assertRaisesRegex(kiln.NotSupported, "is not recorded"):
            kiln.softmax(x, out=torch.empty(3, 4))
        # As a tensor that is written is.
        plain, y = x.detach(), x * 2
        with self.assertRaisesRegex(kiln.NotSupported, "is not recorded"):
            kiln.softmax(plain, out=y)
        for given in ({"out": y}, {"y": y}):
            with self.assertRaisesRegex(kiln.NotSupported, "map: y is given and a tensor"):
                kiln.map("y[i,j] = x[i,j] * 3", x=plain, **given)
        torch.testing.assert_close(y, x * 2)
        with torch.no_grad():
            torch.testing.assert_close(kiln.softmax(plain, out=y.detach()), plain.softmax(-1))
            self.assertIs(kiln.softmax(plain, out=y), y)
            torch.testing.assert_close(kiln.map("y[i,j] = x[i,j] * 2", x=x), x * 2)


class Autocast(unittest.TestCase):
    def test_as_torch_casts(self):
        x = torch.randn(6, 5).bfloat16()
        for own, other in [(kiln.softmax, lambda x: torch.softmax(x, -1)),
                           (lambda x: kiln.layer_norm(x, 5), lambda x: F.layer_norm(x, (5,))),
                           (lambda x: kiln.rms_norm(x, 5), lambda x: F.rms_norm(x, (5,))),
                           (lambda x: kiln.cumsum(x, 0), lambda x: torch.cumsum(x, 0))]:
            for grad in [False, True]:
                one = x.clone().requires_grad_(grad)
                with torch.autocast("cpu", torch.bfloat16):
                    got, expected = own(one), other(one)
                self.assertEqual((got.dtype, got.requires_grad), (expected.dtype, grad))

    def test_policy(self):
        # Where torch casts on CUDA: its list, without a GPU.
        for name in ["softmax", "log_softmax", "layer_norm", "masked_softmax", "cumsum"]:
            self.assertIn("cuda", kiln.torch._CAST[name])
        self.assertNotIn("permute", kiln.torch._CAST)


if __name__ == "__main__":
    unittest.main()
