"""test_torch_ops.py: torch.ops.kiln.NAME, and what reaches it: torch.compile, export, vmap."""
import unittest

import support
from torch_cases import cases, leaves, normal, prepared, torch

import kiln


def both(function, *args):
    """What a function gives plainly and compiled, with the gradients of both."""
    def run(function):
        inputs = [value.detach().requires_grad_(value.requires_grad) for value in args]
        results = function(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        loss = sum((one.double() * one.double().cos()).sum() for one in results)
        if loss.requires_grad:
            loss.backward()
        return [*results, *(one.grad for one in inputs if one.requires_grad)]
    return run(function), run


class Operators(unittest.TestCase):
    def test_opcheck(self):
        for name, args, named in cases():
            operator = kiln.torch.OPERATORS[name]
            args, named = prepared(name, args, named)
            with self.subTest(name, **named):
                values, _ = operator.bind(*args, **named)
                torch.library.opcheck(operator.op, tuple(operator.plain(values)))
        x, scale = normal(3, 8).float(), torch.rand(3) + 0.5
        for call in [(x, "i8"), (x, "f8e4m3", 4), (x, "f8e5m2", None, False)]:
            torch.library.opcheck(torch.ops.kiln.dynamic_quantize.default, call)
        for call in [(x, "i8"), (x, "f8e4m3", scale[0]), (x.t(), "f8e5m2", None, False)]:
            torch.library.opcheck(torch.ops.kiln.cast_transpose.default, call)
        for name, args, named in [
                ("rms_norm_quantize", (x, "i8", x[0]), {"residual": x, "sum": True}),
                ("layer_norm_quantize", (x, "f8e4m3"), {"group": 4}),
                ("layer_norm_quantize", (x, "f8e5m2"), {"scale": scale[0], "scales": False}),
                ("act_mul_quantize", (x, "i8"), {"group": 2}),
                ("act_mul_quantize", (x, "f8e4m3", x), {"act": "relu"}),
                ("act_mul_quantize", (x, "f8e4m3"), {"scale": scale[0]})]:
            operator = kiln.torch.OPERATORS[name]
            values, _ = operator.bind(*args, **named)
            with self.subTest(name, **named):
                torch.library.opcheck(operator.op, tuple(operator.plain(values)))
        torch.library.opcheck(torch.ops.kiln.quantize.default, (x, scale, "f8e4m3"))
        torch.library.opcheck(torch.ops.kiln.dequantize.default, ((x * 9).char(), scale, "f16"))

    def test_gradients(self):
        # Through the dispatcher, with the statistics that the call did not ask for.
        for name, args, named in cases():
            operator = kiln.torch.OPERATORS[name]
            args, named = prepared(name, args, named)
            inputs = leaves(args, named)
            values, _ = operator.bind(*args, **named)
            with self.subTest(name, **named):
                got, expected = (
                    [result for result in (results if isinstance(results, tuple) else (results,))
                     if result.requires_grad]
                    for results in (operator.op(*operator.plain(values)),
                                    getattr(kiln, name)(*args, **named)))
                torch.testing.assert_close(got, expected, rtol=0, atol=0)
                dy = [torch.randn_like(result) for result in got]
                for one, other in zip(torch.autograd.grad(got, inputs, dy),
                                      torch.autograd.grad(expected, inputs, dy)):
                    torch.testing.assert_close(one, other)

    def test_all_are_there(self):
        for name in kiln._operators.__all__:
            self.assertTrue(hasattr(torch.ops.kiln, name))

    def test_there_once_both_are_imported(self):
        asked = "import kiln, importlib.util as util; util.find_spec('torch'); import torch"
        for imports in ("import torch, kiln", asked):
            seen = support.run(
                f"{imports}\nimport sys, threading\n"
                "seen = ['kiln.torch' in sys.modules]\n"
                "def look(): seen.append(torch.ops.kiln.softmax(torch.zeros(2)).tolist())\n"
                "threads = [threading.Thread(target=look) for _ in range(4)]\n"
                "[one.start() for one in threads], [one.join() for one in threads]\n"
                "print(seen, hasattr(torch.ops.kiln, 'nothing'))")
            self.assertEqual(seen, f"{[False] + [[0.5, 0.5]] * 4} False\n")

    def test_second_derivative(self):
        x = normal(3, 5).requires_grad_()
        grad, = torch.autograd.grad(torch.ops.kiln.softmax(x).square().sum(), x,
                                    create_graph=True)
        with self.assertRaisesRegex(kiln.NotSupported, "no second ones"):
            grad.sum().backward()


class Traced(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()

    def compare(self, function, *args, **how):
        plain, run = both(function, *args)
        for got, expected in zip(run(torch.compile(function, fullgraph=True, **how)), plain):
            torch.testing.assert_close(got, expected)

    def test_compile(self):
        x, w = normal(3, 4, 5).requires_grad_(), normal(5).requires_grad_()

        def block(x, w):
            y, total = kiln.layer_norm(x * 2, x.shape[-1:], w, residual=x, sum=True)
            z = kiln.rms_norm(total, 5, w, 1e-3) + kiln.softmax(y, dim=1, scale=0.5)
            return kiln.permute(z, (2, 0, 1)), kiln.masked_softmax(y[..., :4], kind="causal")

        self.compare(block, x, w, backend="aot_eager")
        self.compare(block, x.detach(), w.detach(), backend="aot_eager")

    def test_compile_with_a_dtype(self):
        x = normal(3, 4)
        compiled = torch.compile(lambda x: kiln.softmax(x, 1, dtype=torch.float64), fullgraph=True,
                                 backend="eager")
        torch.testing.assert_close(compiled(x), torch.softmax(x, 1, dtype=torch.float64))

    def test_compile_for_any_size(self):
        function = torch.compile(lambda x: kiln.rms_norm(kiln.softmax(x), x.shape[-1]),
                                 fullgraph=True, dynamic=True, backend="aot_eager")
        for rows in (3, 7):
            x = normal(rows, rows + 2)
            torch.testing.assert_close(function(x), kiln.rms_norm(kiln.softmax(x), rows + 2))

    def test_compile_writes(self):
        def function(x):
            out = torch.zeros_like(x)
            y, mean = kiln.layer_norm(x, 5, out=out, mean=True)
            return y + out, mean

        self.compare(function, normal(4, 5), backend="aot_eager")

    def test_inductor(self):
        x = normal(4, 5).float().requires_grad_()
        self.compare(lambda x: kiln.softmax(x * 2) + 1, x)

    def test_autocast(self):
        def function(x):
            with torch.autocast("cpu", torch.bfloat16):
                return kiln.softmax(x @ x)

        self.compare(function, normal(5, 5).float(), backend="aot_eager")

    def test_export(self):
        class Model(torch.nn.Module):
            def forward(self, x):
                return kiln.softmax(kiln.layer_norm(x, x.shape[-1:]))

        x = normal(4, 5)
        for strict in (False, True):
            program = torch.export.export(Model(), (x,), strict=strict)
            called = {str(node.target) for node in program.graph.nodes}
            self.assertLessEqual({"kiln.softmax.default", "kiln.layer_norm.default"}, called)
            torch.testing.assert_close(program.module()(x), Model()(x))

    def test_make_fx(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        for mode in ("real", "fake", "symbolic"):
            graph = make_fx(lambda x: kiln.softmax(x, 0), tracing_mode=mode)(normal(3, 5))
            self.assertIn("kiln.softmax.default", graph.code)
            x = normal(3, 5)
            torch.testing.assert_close(graph(x), torch.softmax(x, 0))

    def test_no_memory(self):
        y, rstd = kiln.rms_norm(torch.empty(3, 5, device="meta", dtype=torch.half), 5, rstd=True)
        self.assertEqual((y.shape, y.dtype, rstd.shape, rstd.dtype, y.device.type),
                         ((3, 5), torch.half, (3,), torch.float, "meta"))
        with self.assertRaisesRegex(kiln.NotSupported, "dense tensors.*sparse_coo"):
            kiln.softmax(torch.eye(3).to_sparse())


class Vmap(unittest.TestCase):
    def compare(self, function, dims, *args):
        size = next(value.shape[dim] for value, dim in zip(args, dims) if dim is not None)
        expected = torch.stack([function(*(value if dim is None else value.select(dim, at)
                                           for value, dim in zip(args, dims)))
                                for at in range(size)])
        torch.testing.assert_close(torch.vmap(function, in_dims=dims)(*args), expected)

    def test_operators(self):
        x, w, b = normal(3, 4, 5), normal(4, 5), normal(4, 5)
        index = torch.tensor([[4, 0], [1, 1], [2, 3]], dtype=torch.int32)
        mask = torch.rand(4, 5) > 0.5
        self.compare(kiln.softmax, (1,), x)
        self.compare(lambda x: kiln.log_softmax(x, 0), (2,), x)
        self.compare(lambda x: kiln.cumsum(x, -2), (0,), x)
        self.compare(lambda x: kiln.permute(x, (1, -2)), (1,), x)
        self.compare(lambda x: kiln.cumsum(x, 0), (0,), x[0, 0])  # one element each
        self.compare(kiln.softmax_backward, (None, 0), torch.tensor(1.0), torch.arange(3.0))
        self.compare(kiln.softmax_backward, (0, None), torch.arange(3.0), torch.tensor(1.0))
        with self.assertRaisesRegex(ValueError, "dim is -2; it may be -1 to 0"):
            torch.vmap(lambda x: kiln.cumsum(x, -2))(x[0])
        self.compare(lambda x: kiln.masked_softmax(x, kind="causal"), (0,), x)
        with self.assertRaisesRegex(ValueError, "masked_softmax.*rank"):
            torch.vmap(lambda x: kiln.masked_softmax(x, kind="causal"))(x[0])
        self.compare(lambda x, m: kiln.masked_softmax(x, m), (1, 0), x, mask)
        self.compare(lambda x, m: kiln.masked_softmax(x, m), (0, None), x, mask)
        self.compare(lambda x, m: kiln.masked_softmax(x, m), (None, 0), x[0], mask[:, None])
        self.compare(lambda x, w: kiln.layer_norm(x, 5, w), (0, None), x, w[0])
        self.compare(lambda x, w: kiln.layer_norm(x, 5, w), (1, 0), x, w)
        self.compare(lambda x, r: kiln.rms_norm(x, 5, residual=r, sum=True)[1], (0, None), x, b)
        self.compare(lambda s, i: kiln.gather(s, i), (1, None), x.movedim(1, 0)[:, :, None],
                     index[:1])
        self.compare(lambda s, i: kiln.gather(s, i), (None, 0), x[:1, :3],
                     torch.stack([index, index.flip(0)]))

    def test_gradients(self):
        x = normal(3, 5).requires_grad_()
        got, = torch.autograd.grad(torch.vmap(kiln.softmax)(x)[0, 1], x)
        torch.testing.assert_close(got, torch.autograd.grad(torch.softmax(x, -1)[0, 1], x)[0])
        # Gradients of one element, which is its own sum.
        for function in (kiln.softmax, kiln.log_softmax):
            backward = torch.func.vjp(function, torch.tensor(2.0))[1]
            self.assertEqual(torch.vmap(backward)(torch.arange(3.0))[0].tolist(), [0, 0, 0])
        # A batch of gradients of one recorded call.
        for y in (kiln.softmax(x), torch.ops.kiln.softmax(x)):
            rows, = torch.autograd.grad(y, x, torch.eye(15).double().reshape(15, 3, 5),
                                        is_grads_batched=True)
            torch.testing.assert_close(
                rows.reshape(3, 5, 3, 5),
                torch.autograd.functional.jacobian(lambda x: torch.softmax(x, -1), x))


class Transforms(unittest.TestCase):
    """torch.func on Kiln's operators and on torch's."""

    def same(self, mine, theirs, transformed, *args):
        torch.testing.assert_close(transformed(mine)(*args), transformed(theirs)(*args))

    def test_as_torch_has_them(self):
        f, func, x = torch.nn.functional, torch.func, normal(3, 5)
        pairs = [(lambda x: kiln.softmax(x, -1), lambda x: torch.softmax(x, -1)),
                 (lambda x: kiln.rms_norm(x, 5), lambda x: f.rms_norm(x, (5,)))]
        for mine, theirs in pairs:
            self.same(mine, theirs, lambda g: func.grad(lambda x: g(x)[1].square().sum()), x)
            self.same(mine, theirs, lambda g: func.vmap(func.grad(lambda x: g(x)[1])), x)
            self.same(mine, theirs, lambda g: lambda x: func.vjp(g, x)[1](x.cos()), x)
            self.same(mine, theirs, func.jacrev, x)

    def test_of_two_arguments(self):
        func, x, w = torch.func, normal(3, 5), normal(5)

        def mine(x, w):
            return kiln.layer_norm(x, (5,), w).square().sum()

        def theirs(x, w):
            return torch.nn.functional.layer_norm(x, (5,), w).square().sum()

        for dims in [(0, None), (0, 0)]:
            weights = w if dims[1] is None else normal(3, 5)
            self.same(mine, theirs, lambda g: func.vmap(func.grad(g, argnums=(0, 1)),
                                                        in_dims=dims), x, weights)
            self.same(mine, theirs, lambda g: func.grad(
                lambda x, w: func.vmap(g, in_dims=dims)(x, w).sum(), argnums=(0, 1)), x, weights)

    def test_captured(self):
        # Captured tensors are recorded outside of the transform.
        w = normal(5).requires_grad_()
        x = normal(3, 5)
        found = []
        for norm in (kiln.rms_norm, torch.nn.functional.rms_norm):
            dx, y = torch.func.grad_and_value(lambda x: norm(x, (5,), w).square().sum())(x)
            found.append((dx.detach(), *torch.autograd.grad(y, w)))
        torch.testing.assert_close(*found)

    def test_second_derivatives(self):
        func, x = torch.func, normal(3, 5)

        def twice(g):
            first = func.grad(lambda x: (g(x) ** 3).sum())
            return func.grad(lambda x: first(x).square().sum())

        self.same(lambda x: kiln.cumsum(x, 1), lambda x: torch.cumsum(x, 1), twice, x)
        with self.assertRaisesRegex(kiln.NotSupported, "softmax_backward.* no second ones"):
            twice(kiln.softmax)(x)


class Map(unittest.TestCase):
    """kiln.map through torch.ops.kiln.map."""

    @staticmethod
    def function(x, b):
        return kiln.map("y[i,j] = x[i,j] * s + b[j]", x=x * 2, b=b, s=2.5) + 1

    def check(self, function, x, b):
        torch.testing.assert_close(function(x, b), x * 5 + b + 1)

    def test_opcheck(self):
        x, b, k = normal(3, 5).float(), normal(5), torch.tensor([4, 0, 1])
        for args in [("y[i,j] = x[i,j] * s + b[j]", [x, b], ["x", "b"], [2.5], ["s"]),
                     ("y[j] += x[i,j] > 0", [x], ["x"], [], []),
                     ("y[i,j] = x[i, k[j] + n]", [x, k], ["x", "k"], [0], ["n"], "clamp", True),
                     ("y[i] = x[i] * 2", [b], ["x"], [], [], None, None, b.half())]:
            with self.subTest(args[0]):
                torch.library.opcheck(torch.ops.kiln.map.default, args)

    def test_compile(self):
        torch._dynamo.reset()
        compiled = torch.compile(self.function, fullgraph=True, dynamic=True, backend="aot_eager")
        for rows in (3, 7):
            self.check(compiled, normal(rows, rows + 2), normal(rows + 2))

    def test_compile_writes(self):
        torch._dynamo.reset()

        def function(x):
            out = torch.zeros(5, 3, dtype=torch.half)
            return kiln.map("y[j,i] = x[i,j]", x=x, out=out), out * 2

        x = normal(3, 5)
        y, twice = torch.compile(function, fullgraph=True, backend="aot_eager")(x)
        torch.testing.assert_close((y, twice), (x.T.half(), x.T.half() * 2))

    def test_export_and_make_fx(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        x, b = normal(3, 5), normal(5)
        graph = make_fx(self.function, tracing_mode="symbolic")(x, b)
        self.assertIn("kiln.map.default", graph.code)
        self.check(graph, normal(4, 6), normal(6))

        class Model(torch.nn.Module):
            def forward(self, x, b):
                return Map.function(x, b)

        program = torch.export.export(Model(), (x, b), strict=False)
        self.assertIn("kiln.map.default", {str(node.target) for node in program.graph.nodes})
        self.check(program.module(), x, b)

    def test_no_memory(self):
        y = kiln.map("y[i,k] = x[k,i,m[k]] > n", x=torch.empty(1, 4, 6, device="meta"), n=3,
                     m=torch.empty(5, device="meta", dtype=torch.int32))
        self.assertEqual((y.shape, y.dtype, y.device.type), ((4, 5), torch.bool, "meta"))
        y = kiln.map("\n\ty max= x[i,j]", x=torch.empty(4, 6, device="meta"))
        self.assertEqual((y.shape, y.device.type), ((), "meta"))
        y = kiln.map("y = max[i,j](x[i,j]) > 2", x=torch.empty(4, 6, device="meta"))
        self.assertEqual((y.shape, y.dtype), ((), torch.bool))
        with self.assertRaisesRegex(kiln.InvalidArgument, "there is no function sine"):
            kiln.map("y[i] = sine(x[i])", x=torch.empty(4, device="meta"))

    def test_vmap_and_gradients(self):
        x, w = normal(3, 5), normal(3, 5)
        torch.testing.assert_close(
            torch.vmap(lambda x, w: kiln.map("y[i] = x[i] * w[i]", x=x, w=w))(x, w), x * w)
        torch.testing.assert_close(
            torch.func.grad(lambda x: kiln.map("y += x[i,j] * x[i,j]", x=x))(x), 2 * x)


if __name__ == "__main__":
    unittest.main()
