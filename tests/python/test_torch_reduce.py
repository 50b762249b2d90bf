"""test_torch_reduce.py: reductions, scans and orders of torch's tensors, against torch's own
functions of the same names and words."""
import unittest

import support  # noqa: F401  a daemon of the tests' own
import torch

import kiln

NAMES = ["sum", "mean", "prod", "amax", "amin", "logsumexp", "var"]


def norm(x, *args, **named):
    return torch.linalg.vector_norm(x, *args, **named)


class Reduce(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def test_dimensions(self):
        x = torch.randn(3, 4, 50, dtype=torch.double)
        for name in NAMES:
            mine, theirs = getattr(kiln, name), getattr(torch, name)
            for dim, keepdim in [(-1, False), (1, True), ((0, 2), True)][:2 if name == "prod" else 3]:
                with self.subTest(name, dim=dim, keepdim=keepdim):
                    torch.testing.assert_close(mine(x, dim, keepdim=keepdim),
                                               theirs(x, dim, keepdim=keepdim))
        torch.testing.assert_close(kiln.sum(x), x.sum())
        torch.testing.assert_close(kiln.var(x, 1, correction=0), torch.var(x, 1, correction=0))
        for order in [0, 1, 2, 3.5, float("inf"), float("-inf")]:
            torch.testing.assert_close(kiln.vector_norm(x, order, 1), norm(x, order, 1))
        self.assertEqual(kiln.sum(torch.tensor(3.0), 0).shape, ())
        self.assertEqual(kiln.sum(torch.tensor(3.0), keepdim=True).shape, ())

    def test_places(self):
        x = torch.randint(0, 4, (5, 60)).float()
        x[2, 7] = x[2, 9] = torch.nan
        for mine, theirs in [(kiln.argmax, torch.argmax), (kiln.argmin, torch.argmin)]:
            self.assertTrue(torch.equal(mine(x[2]), torch.tensor(7)))
            self.assertTrue(torch.equal(mine(x, 1, keepdim=True)[:, 0][2:3], torch.tensor([7])))
            row = x[0].flip(0)
            first = (row == getattr(row, mine.__name__[3:])()).nonzero()[0, 0]
            self.assertEqual(int(mine(row)), int(first))
            self.assertEqual(mine(x.T, 0).dtype, theirs(x.T, 0).dtype)

    def test_types(self):
        for dtype in [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]:
            x = torch.randint(0, 2 if dtype == torch.bool else 9, (6, 40)).to(dtype)
            for name in ["sum", "prod", "amax", "amin", "any", "all"]:
                got, expected = getattr(kiln, name)(x, 1), getattr(torch, name)(x, 1)
                if name in ("any", "all"):
                    expected = expected.bool()  # torch has u8 for u8
                self.assertEqual(got.dtype, expected.dtype)
                self.assertTrue(torch.equal(got, expected), name)
        for dtype in [torch.float16, torch.bfloat16, torch.float32]:
            x = torch.randn(6, 400).to(dtype)
            for name in ["sum", "mean", "amax", "var"]:
                got, expected = getattr(kiln, name)(x, 1), getattr(torch, name)(x, 1)
                self.assertEqual(got.dtype, dtype)
                torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
        half = torch.full((70000,), 1.0, dtype=torch.half)
        self.assertEqual(kiln.sum(half, dtype=torch.float32), 70000)

    def test_nothing(self):
        x = torch.empty(3, 0)
        for name in ["sum", "mean", "prod", "logsumexp", "any", "all"]:
            torch.testing.assert_close(getattr(kiln, name)(x, 1), getattr(torch, name)(x, 1),
                                       equal_nan=True)
        with self.assertRaisesRegex(ValueError, r"amax\(\): dimension 1 of input has size 0"):
            kiln.amax(x, 1)
        with self.assertRaisesRegex(ValueError, "dim names dimension 1 twice"):
            kiln.sum(torch.ones(3, 4), (1, -1))

    def test_gradients(self):
        # Ties, zeros, and orders at which a power has no derivative; against torch's own.
        x = torch.tensor([[1.0, 3, 3, -2], [0, 2, 5, 5], [0, 0, 1, 7], [-7, 7, 2, 1]]).double()
        calls = [(name, getattr(torch, name), (1,)) for name in ["amax", "amin", "prod"]]
        calls += [("vector_norm", norm, (order, 1)) for order in [1, 2, 3, float("inf")]]
        for name, theirs, args in calls:
            a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
            weight = torch.arange(1.0, 5).double()
            (getattr(kiln, name)(a, *args) * weight).sum().backward()
            (theirs(b, *args) * weight).sum().backward()
            torch.testing.assert_close(a.grad, b.grad, msg=f"{name} {args}")
        a = x.clone().requires_grad_()
        kiln.vector_norm(a, 0, 1).sum().backward()
        self.assertFalse(a.grad.any())
        half = torch.randn(5, 300).bfloat16().requires_grad_()
        kiln.logsumexp(half, 1).sum().backward()
        self.assertEqual(half.grad.dtype, torch.bfloat16)
        self.assertFalse(kiln.argmax(half, 1).requires_grad or kiln.any(half).requires_grad)
        self.assertTrue(torch.autograd.gradgradcheck(lambda x: kiln.logsumexp(x, 1),
                                                     x.requires_grad_()))

    def test_traced(self):
        x = torch.randn(3, 4, 50)
        for name in ["sum", "var", "argmax", "any"]:
            torch._dynamo.reset()
            function = torch.compile(getattr(kiln, name), fullgraph=True, backend="eager")
            torch.testing.assert_close(function(x, 1, keepdim=True),
                                       getattr(kiln, name)(x, 1, keepdim=True))
            op = getattr(torch.ops.kiln, name)
            torch.library.opcheck(op, (x,), {"dim": [1]},
                                  test_utils=("test_schema", "test_faketensor"))

    def test_batched(self):
        x = torch.randn(3, 4, 50)
        for dim in [0, -1, (0, 1), None]:
            got = torch.vmap(lambda row: kiln.sum(row, dim))(x)
            torch.testing.assert_close(got, torch.vmap(lambda row: torch.sum(row, dim))(x))


class Scan(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)

    def test_results(self):
        x = torch.randn(3, 40, 5, dtype=torch.double)
        for name in ["cumprod", "cummax", "cummin", "logcumsumexp"]:
            mine, theirs = getattr(kiln, name), getattr(torch, name)
            for dim in [1, -1]:
                torch.testing.assert_close(mine(x, dim), tuple(theirs(x, dim))
                                           if name in ("cummax", "cummin") else theirs(x, dim))

    def test_ties_and_nan(self):
        x = torch.randint(0, 4, (3, 70)).float()
        x[1, 20] = x[1, 30] = torch.nan
        x[2, :9] = -torch.inf
        for mine, theirs in [(kiln.cummax, torch.cummax), (kiln.cummin, torch.cummin)]:
            torch.testing.assert_close(mine(x, 1), tuple(theirs(x, 1)), equal_nan=True)
            y, indices = mine(x.flip(1), 1, reverse=True)
            torch.testing.assert_close((y.flip(1), 69 - indices.flip(1)), tuple(theirs(x, 1)),
                                       equal_nan=True)
        y, indices = kiln.cummax(x, 1, exclusive=True)
        torch.testing.assert_close(y[:, 1:], torch.cummax(x, 1)[0][:, :-1], equal_nan=True)
        self.assertEqual(indices[:, 0].tolist(), [-1] * 3)
        alone = kiln.cummax(x, 1, indices=False)
        torch.testing.assert_close(alone, torch.cummax(x, 1)[0], equal_nan=True)

    def test_gradients(self):
        x = torch.randn(2, 300, dtype=torch.double)
        x[0, 7] = x[0, 90] = x[1, 5] = 0
        dy = torch.randn_like(x)
        for name in ["cumprod", "cummax", "cummin", "logcumsumexp"]:
            found = []
            for one in [kiln, torch]:
                leaf = x.clone().requires_grad_()
                y = getattr(one, name)(leaf, 1)
                (y[0] if isinstance(y, tuple) else y).backward(dy)
                found.append(leaf.grad)
            torch.testing.assert_close(*found)

    def test_gradients_without_the_element(self):
        x = torch.randn(4, 30, dtype=torch.double)
        for name in ["cumprod", "cummax", "logcumsumexp"]:
            found = []
            for one, more in [(kiln, {"exclusive": True}), (torch, {})]:
                leaf = x.clone().requires_grad_()
                y = getattr(one, name)(leaf, 1, **more)
                y = y[0] if isinstance(y, tuple) else y
                (y[:, 1:] if more else y[:, :-1]).square().sum().backward()
                found.append(leaf.grad)
            torch.testing.assert_close(*found)

    def test_a_gradient_of_large_numbers(self):
        x = torch.randn(3, 500) * 300  # exp(x) overflows
        leaf, wide = x.clone().requires_grad_(), x.double().requires_grad_()
        kiln.logcumsumexp(leaf, 1).sum().backward()
        torch.logcumsumexp(wide, 1).sum().backward()
        torch.testing.assert_close(leaf.grad, wide.grad.float(), rtol=1e-3, atol=1e-3)


class Order(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def test_results(self):
        x = torch.randn(3, 300, 4, dtype=torch.double) * 50
        for dtype in [torch.half, torch.double, torch.int32]:
            one = x.to(dtype)
            if dtype.is_floating_point:
                one[0, 5, 1], one[2, 7] = torch.nan, torch.inf
            for dim, most in [(1, True), (-1, False)]:
                values, indices = kiln.topk(one, 3, dim, most)
                theirs = torch.topk(one, 3, dim, most)[0]
                torch.testing.assert_close(values, theirs, rtol=0, atol=0, equal_nan=True)
                torch.testing.assert_close(one.gather(dim, indices), theirs, rtol=0, atol=0,
                                           equal_nan=True)
                theirs = torch.sort(one, stable=True, dim=dim, descending=most)
                torch.testing.assert_close(kiln.sort(one, dim, most), tuple(theirs), rtol=0,
                                           atol=0, equal_nan=True)
        self.assertEqual(kiln.topk(torch.tensor(3.0), 1)[1].shape, ())
        self.assertEqual(kiln.topk(x, 2, indices=False).shape, (3, 300, 2))
        with self.assertRaisesRegex(kiln.InvalidArgument, "k is 5"):
            kiln.topk(x, 5)

    def test_gradients(self):
        x = torch.randn(3, 40, 5)
        for mine, theirs in [(lambda x: kiln.topk(x, 7, 1), lambda x: torch.topk(x, 7, 1)),
                             (lambda x: kiln.sort(x, 1), lambda x: torch.sort(x, 1)),
                             (lambda x: kiln.topk(x, 2, indices=False)[None],
                              lambda x: torch.topk(x, 2))]:
            found = []
            for function in [mine, theirs]:
                leaf = x.clone().requires_grad_()
                function(leaf)[0].square().sum().backward()
                found.append(leaf.grad)
            torch.testing.assert_close(*found)

    def test_transforms(self):
        x = torch.randn(3, 4, 50)
        for dim in [0, -1]:
            got = torch.vmap(lambda row: kiln.topk(row, 3, dim))(x)
            torch.testing.assert_close(got, torch.vmap(
                lambda row: tuple(torch.topk(row, 3, dim)))(x))
        function = torch.compile(lambda x: kiln.sort(x, 1)[0], fullgraph=True, backend="eager")
        torch.testing.assert_close(function(x), torch.sort(x, 1)[0])


if __name__ == "__main__":
    unittest.main()
