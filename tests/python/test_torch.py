"""test_torch.py: tensors of torch on the CPU, by the C exchange table and by attributes."""
import math
import unittest
import warnings

from support import kiln, numpy

try:
    import torch
except ImportError:
    torch = None


@unittest.skipUnless(torch, "torch cannot be imported")
class Torch(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def test_types(self):
        for dtype in [torch.float16, torch.bfloat16, torch.float32, torch.float64]:
            x = torch.randn(4, 33, dtype=dtype)
            y = kiln.softmax(x)
            self.assertEqual((type(y), y.dtype, y.shape), (torch.Tensor, dtype, x.shape))
            torch.testing.assert_close(y, torch.softmax(x, -1))

    def test_quantize(self):
        x = torch.randn(5, 384, dtype=torch.bfloat16) * 100
        for to, dtype in [("f8e4m3", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)]:
            for group, parts in [(0, x[:, None]), (128, x.view(5, 3, 128))]:
                most = torch.finfo(dtype).max
                expected = parts.abs().amax(-1).float() / most
                y, scale = kiln.dynamic_quantize(x, to, group=group)
                self.assertEqual((y.dtype, scale.shape), (dtype, (5, 3) if group else (5,)))
                torch.testing.assert_close(scale.view_as(expected), expected)
                whole = (parts / scale.view_as(expected)[..., None]).clamp(-most, most).to(dtype)
                self.assertTrue(torch.equal(y.float(), whole.float().view(5, 384)))
                self.assertTrue(torch.equal(kiln.quantize(x, scale, to).float(), y.float()))
                torch.testing.assert_close(
                    kiln.dequantize(y, scale, "f32"),
                    (whole.float() * scale.view_as(expected)[..., None]).view(5, 384))
        with self.assertRaisesRegex(kiln.NotSupported, "no gradient"):
            kiln.dynamic_quantize(x.requires_grad_(), "f8e4m3")[0].float().sum().backward()

    def test_rows_quantized(self):
        functional = torch.nn.functional
        x, gate, weight = (torch.randn(5, 384) * 3, torch.randn(5, 384), torch.rand(384) + 0.5)
        rows = [(kiln.rms_norm_quantize, (weight,), {"eps": 1e-5},
                 functional.rms_norm(x, (384,), weight, 1e-5)),
                (kiln.layer_norm_quantize, (weight, weight), {},
                 functional.layer_norm(x, (384,), weight, weight)),
                (kiln.act_mul_quantize, (gate,), {}, functional.silu(x) * gate)]
        for function, args, named, v in rows:
            for to, dtype in [("f8e4m3", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)]:
                most, step = torch.finfo(dtype).max, torch.finfo(dtype).eps
                for group, parts in [(0, v[:, None]), (128, v.view(5, 3, 128))]:
                    y, scales = function(x, to, *args, group=group, **named)
                    expected = parts.abs().amax(-1) / most
                    torch.testing.assert_close(scales.view_as(expected), expected)
                    back = y.float().view_as(parts) * scales.view_as(expected)[..., None]
                    self.assertEqual(y.dtype, dtype)
                    least = torch.finfo(dtype).tiny * scales.max().item()
                    torch.testing.assert_close(back, parts, rtol=step * 0.51, atol=least)
                y = function(x, to, *args, scale=torch.tensor(0.5), scales=False, **named)
                expected = (v / 0.5).clamp(-most, most).to(dtype).float()
                torch.testing.assert_close(y.float(), expected, rtol=step * 1.01, atol=1e-5)
                self.assertGreater((y.float() == expected).float().mean(), 0.99)

    def test_scales_by_columns(self):
        x = torch.randn(5, 384)
        for function, name in [(kiln.dynamic_quantize, "scale"), (kiln.rms_norm_quantize, "scales")]:
            y, found = function(x, "f8e4m3", group=128)
            turned = torch.zeros(3, 8).t()[:5]
            z, given = function(x, "f8e4m3", group=128, **{name: turned})
            self.assertEqual((given.data_ptr(), given.stride()), (turned.data_ptr(), (1, 8)))
            self.assertTrue(torch.equal(found, turned) and torch.equal(y.float(), z.float()))
            if function is kiln.dynamic_quantize:
                self.assertTrue(torch.equal(kiln.quantize(x, turned, "f8e4m3").float(), y.float()))
                back = kiln.dequantize(y, turned, "f32")
                self.assertTrue(torch.equal(back, kiln.dequantize(y, found, "f32")))
            self.assertFalse(turned.t().as_strided((3, 3), (8, 1), 5).any())

    def test_floats_of_8_bits_back(self):
        codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
        every = torch.stack([codes.roll(k) for k in range(16)])  # each code in each place
        for dtype in [torch.float8_e4m3fn, torch.float8_e5m2]:
            for to, wide in [("f32", torch.float32), ("f16", torch.float16),
                             ("bf16", torch.bfloat16)]:
                y = kiln.dequantize(every.view(dtype), torch.tensor(1.0), to)
                torch.testing.assert_close(y, every.view(dtype).to(wide), rtol=0, atol=0,
                                           equal_nan=True)

    def test_cast_transpose(self):
        x, scale = torch.randn(40, 64, dtype=torch.bfloat16) * 300, torch.tensor(1.5)
        for to, dtype in [("f8e4m3", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)]:
            most = torch.finfo(dtype).max
            for given, matrix in [(scale, x), (None, x), (scale, x.t())]:
                expected = (matrix.float() / (1 if given is None else given)).clamp(-most, most)
                y, transposed = kiln.cast_transpose(matrix, to, given)
                self.assertEqual((y.dtype, transposed.dtype), (dtype, dtype))
                self.assertTrue(torch.equal(y.float(), expected.to(dtype).float()))
                self.assertTrue(torch.equal(transposed.float(), y.float().t()))

    def test_floats_of_8_bits(self):
        halves = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16)
        codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
        words = torch.randint(-2**31, 2**31, (1 << 16,), dtype=torch.int64).to(torch.int32)
        for name, dtype in [("f8e4m3", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)]:
            most, numbers = torch.finfo(dtype).max, codes.view(dtype)
            near = torch.cat([numbers.float(), (numbers.float() + numbers.float().roll(1)) / 2])
            for x in [halves, halves.view(torch.bfloat16), torch.cat([words.view(torch.float32),
                      near, near.nextafter(torch.tensor(1e9)), torch.randn(4099) * most / 2])]:
                # Newer torch saturates float8_e4m3fn by itself.
                beyond = (x.abs() > 464) & (most == 448)
                for statement, expected in [
                        (f"y[i] = {name}(x[i])", x.masked_fill(beyond, math.nan).to(dtype)),
                        (f"y[i] = sat_{name}(x[i])", x.float().clamp(-most, most).to(dtype))]:
                    y = kiln.map(statement, x=x)
                    nan = expected.float().isnan()
                    self.assertEqual((y.dtype, y.shape), (dtype, x.shape))
                    self.assertTrue(torch.equal(y.view(torch.uint8)[~nan],
                                                expected.view(torch.uint8)[~nan]), statement)
                    self.assertTrue((y.view(torch.uint8)[nan] == 0x7f).all(), statement)
            torch.testing.assert_close(kiln.map("y[i] = f32(x[i])", x=numbers), numbers.float(),
                                       rtol=0, atol=0, equal_nan=True)
            turned = kiln.permute(numbers.view(32, 8), (1, 0))
            self.assertEqual(turned.dtype, dtype)
            self.assertTrue(torch.equal(turned.view(torch.uint8), codes.view(32, 8).T))
            with self.assertRaisesRegex(ValueError, f"input is {name}; it must be"):
                kiln.softmax(numbers)

    def test_dtype_and_rank_0(self):
        x = torch.randn(4, 5, dtype=torch.bfloat16, requires_grad=True)
        point = torch.tensor(2.0, requires_grad=True)
        for mine, theirs in [(kiln.softmax, torch.softmax), (kiln.cumsum, torch.cumsum),
                             (kiln.log_softmax, torch.log_softmax)]:
            results = [function(x, 1, dtype=torch.float32) for function in (mine, theirs)]
            results += [function(point, 0) for function in (mine, theirs)]
            grads = [torch.autograd.grad(result.sin().sum(), of)[0]
                     for result, of in zip(results, [x, x, point, point])]
            for place in (0, 2):
                torch.testing.assert_close(results[place], results[place + 1])
                # torch rounds a sum of bf16 more than once.
                torch.testing.assert_close(grads[place], grads[place + 1], rtol=2e-2,
                                           atol=2e-2 if place == 0 else 1e-5)
        for word in ["f64", "float64", numpy.float64, numpy.dtype("f8")]:
            self.assertEqual(kiln.softmax(x.detach(), dtype=word).dtype, torch.float64)
        with self.assertRaisesRegex(TypeError, "dtype is 'f4'; it must be an element type, such"):
            kiln.softmax(x, dtype="f4")

    def test_types_by_their_names(self):
        x, scale = torch.randn(3, 40), torch.tensor(0.5)
        y = kiln.quantize(x, scale, "f8e4m3")
        for to in [torch.float8_e4m3fn, "float8_e4m3fn"]:
            self.assertTrue(torch.equal(kiln.quantize(x, scale, to).float(), y.float()))
        for to in [torch.int8, numpy.int8, numpy.dtype("int8"), "int8"]:
            self.assertEqual(kiln.dynamic_quantize(x, to, scale=False).dtype, torch.int8)
        traced = torch.compile(lambda y: kiln.dequantize(y, scale, torch.bfloat16), fullgraph=True,
                               backend="eager")
        self.assertTrue(torch.equal(traced(y), kiln.dequantize(y, scale, "bf16")))
        for to in [3, [4], "int9", torch.float8_e4m3fnuz]:
            with self.assertRaisesRegex(TypeError, "to is .*; it must be an element type, such as"):
                kiln.quantize(x, scale, to)

    def test_small_integers_are_summed_as_in_torch(self):
        for dtype in [torch.bool, torch.uint8, torch.int8, torch.int16]:
            x = torch.tensor([[3, 0, 100], [1, 2, 120]]).to(dtype)
            for name in ["cumsum", "cumprod"]:
                mine, theirs = getattr(kiln, name), getattr(torch, name)
                traced = torch.compile(lambda x: mine(x, 1), fullgraph=True, backend="eager")
                for result in [mine(x, 1), traced(x)]:
                    self.assertEqual(result.dtype, torch.int64)
                    self.assertTrue(torch.equal(result, theirs(x, 1)))

    def test_sums_have_the_type_that_is_asked_for(self):
        x = torch.tensor([[3, 0, 100], [1, 2, 120]])
        for dtype in [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                      torch.float16, torch.float64]:
            for name in ["sum", "prod", "cumsum", "cumprod"]:
                if name[0] == "c" and dtype == torch.bool:
                    continue  # torch has none
                mine, theirs = getattr(kiln, name), getattr(torch, name)
                for of in (x, x.float(), x > 2):
                    result = mine(of, 1, dtype=dtype)
                    self.assertEqual(result.dtype, dtype)
                    self.assertTrue(torch.equal(result, theirs(of, 1, dtype=dtype)))
                if dtype in (torch.uint8, torch.int32):
                    traced = torch.compile(lambda x: mine(x, 1, dtype=dtype), fullgraph=True,
                                           backend="eager")(x)
                    self.assertEqual(traced.dtype, dtype)
                    self.assertTrue(torch.equal(traced, theirs(x, 1, dtype=dtype)))
        out, both = torch.zeros(2, dtype=torch.int64), (torch.zeros(2, 3), torch.zeros(2, 3).long())
        traced = torch.compile(lambda x: kiln.sort(x, out=both), fullgraph=True, backend="eager")
        self.assertTrue(all(map(torch.equal, traced(x.float()), torch.sort(x.float()))))
        self.assertTrue(all(map(torch.equal, both, torch.sort(x.float()))))
        self.assertIs(kiln.sum(x, 1, dtype=torch.int32, out=out), out)

    def test_what_torch_does_not_show(self):
        # torch's own sentence has its stack in further lines; an older torch says the type alone.
        sentence = r"softmax\(\): input (cannot be read: [^\n]+|has an element type [^\n]+)$"
        with self.assertRaisesRegex(TypeError, sentence):
            kiln.softmax(torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8))

    def test_small_integers_are_sorted_as_in_torch(self):
        for dtype in [torch.bool, torch.uint8, torch.int8, torch.int16]:
            x = torch.arange(-90, 60).view(5, 30)[:, torch.randperm(30)] // 3
            x = (x > 0 if dtype == torch.bool else x).to(dtype)
            for mine, theirs in zip(kiln.sort(x), torch.sort(x, dim=1, stable=True)):
                self.assertTrue(mine.dtype == theirs.dtype and torch.equal(mine, theirs))
            for mine, theirs in zip(kiln.topk(x, 7), torch.sort(x, stable=True, descending=True)):
                self.assertTrue(torch.equal(mine, theirs[:, :7]))

    def test_keywords_of_torch(self):
        x, idx = torch.randn(4, 6, requires_grad=True), torch.tensor([2, 0])
        F = torch.nn.functional
        for mine, theirs in [
                (kiln.index_select(input=x, dim=1, index=idx), torch.index_select(x, 1, idx)),
                (kiln.index_add(x, dim=0, index=idx, source=x[:2]), x.index_add(0, idx, x[:2])),
                (kiln.embedding(input=idx, weight=x), F.embedding(idx, x)),
                (kiln.sum(x, axis=0, keepdims=True), x.sum(0, True)),
                (kiln.topk(x, 2, 1, True, True)[0], torch.topk(x, 2, 1)[0]),
                (kiln.sort(x, stable=True)[0], torch.sort(x, stable=True)[0])]:
            torch.testing.assert_close(mine, theirs)
            for result in torch.autograd.grad(mine.sin().sum(), x), \
                    torch.autograd.grad(theirs.sin().sum(), x):
                x.grad = result[0] if x.grad is None else x.grad - result[0]
            torch.testing.assert_close(x.grad, torch.zeros_like(x), rtol=0, atol=1e-5)
            x.grad = None

    def test_weights_of_any_layout(self):
        x, many = torch.randn(6, 5, 8, requires_grad=True), torch.randn(8, 10, requires_grad=True)
        F = torch.nn.functional
        for weight in [many.t()[::2], many[0, :1].expand(5, 8)]:
            for name in ["layer_norm", "rms_norm"]:
                mine, theirs = (getattr(at, name)(x, (5, 8), weight) for at in (kiln, F))
                torch.testing.assert_close(mine, theirs)
                grads = [torch.autograd.grad(y.sin().sum(), (x, many)) for y in (mine, theirs)]
                torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
        weight = many.detach()[:, 3]
        y, scales = kiln.rms_norm_quantize(x.detach(), torch.int8, weight)
        again, same = kiln.rms_norm_quantize(x.detach(), torch.int8, weight.contiguous())
        self.assertTrue(torch.equal(y, again) and torch.equal(scales, same))

    def test_layouts_and_outputs(self):
        x = torch.randn(6, 5, 8)
        torch.testing.assert_close(kiln.softmax(x.permute(2, 0, 1), 1),
                                   torch.softmax(x.permute(2, 0, 1), 1))
        out = torch.empty(6, 5, 8)
        self.assertIs(kiln.softmax(x, out=out), out)
        y, mean, rstd = kiln.layer_norm(x.half(), (8,), mean=True, rstd=True)
        self.assertEqual((y.dtype, mean.dtype, rstd.shape), (torch.half, torch.float32, (6, 5)))
        self.assertTrue(kiln.permute(x, (1, 0, 2)).is_contiguous())

    def test_bits_that_torch_reads_late(self):
        c = torch.randn(3, 4, dtype=torch.complex64)
        self.assertTrue(torch.equal(kiln.permute(c.conj(), (1, 0)), c.conj().T))
        self.assertTrue(c.conj().imag.is_neg())
        torch.testing.assert_close(kiln.softmax(c.conj().imag), torch.softmax(-c.imag, -1))
        out = torch.zeros(4, 3, dtype=torch.complex64).conj()
        kiln.permute(c, (1, 0), out=out)
        self.assertTrue(torch.equal(out, c.T))
        with self.assertRaisesRegex(kiln.NotSupported, "resolve_neg"):
            kiln.map("y[i,j] = x[i,j] * 2", x=c.conj().imag)

    def test_tensors_with_and_without_memory(self):
        with self.assertRaisesRegex(ValueError, "layer_norm.. got .* device meta"):
            kiln.layer_norm(torch.randn(3, 8), (8,), torch.ones(8, device="meta"))

    def test_forward_derivatives_are_refused(self):
        x = torch.randn(3, 4)
        with self.assertRaisesRegex(kiln.NotSupported, "softmax.. has no forward derivative"):
            torch.func.jvp(kiln.softmax, (x,), (torch.ones_like(x),))
        with self.assertRaisesRegex(kiln.NotSupported, "cumsum.. has no forward derivative"):
            torch.func.hessian(lambda x: kiln.cumsum(x, 0).square().sum())(x)
        with torch.autograd.forward_ad.dual_level():
            with self.assertRaisesRegex(kiln.NotSupported, "softmax.. has no forward derivative"):
                kiln.softmax(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
            torch.testing.assert_close(kiln.softmax(x), torch.softmax(x, -1))

    def test_jit_trace(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(lambda a: kiln.softmax(a, -1), torch.randn(3, 4))
        x = torch.randn(3, 4)
        torch.testing.assert_close(traced(x), torch.softmax(x, -1))

    def test_autograd_sees_outputs_that_were_given(self):
        kept = torch.randn(3, 4, requires_grad=True).exp()
        kiln.softmax(torch.randn(3, 4), out=kept.detach())
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            kept.sum().backward()
        with torch.inference_mode():
            out = torch.empty(3, 4)
            self.assertIs(kiln.softmax(torch.randn(3, 4), out=out), out)

    def test_autograd_sees_what_a_kernel_may_write(self):
        kernel = kiln.RawKernel("""extern "C" __global__ void twice(const float *x, float *y)
            {
                y[threadIdx.x] = 2 * x[threadIdx.x];
            }""", "twice")
        x, y = torch.randn(4), torch.randn(4, requires_grad=True).exp()
        kept = y.detach()  # of one version with y
        versions = [x._version, y._version]
        kernel(1, 4, (x, kept))
        self.assertTrue(torch.equal(kept, 2 * x))
        self.assertEqual([x._version, y._version], [versions[0], versions[1] + 1])
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()
        with torch.inference_mode():
            kernel(1, 4, [x, torch.zeros(4)])

    def test_cross_entropy(self):
        f = torch.nn.functional
        x, target = torch.randn(20, 1003), torch.randint(0, 1003, (20,))
        target[3] = target[9] = -100
        for reduction in ["mean", "sum", "none"]:
            for named in [{}, {"label_smoothing": 0.1}, {"ignore_index": int(target[0])}]:
                wanted = target.clamp(0) if "ignore_index" in named else target
                mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
                loss = kiln.cross_entropy(mine, wanted, reduction=reduction, **named)
                expected = f.cross_entropy(theirs, wanted, reduction=reduction, **named)
                torch.testing.assert_close(loss, expected)
                loss.square().sum().backward()
                expected.square().sum().backward()
                torch.testing.assert_close(mine.grad, theirs.grad)
        loss, lse, count, grad = kiln.cross_entropy(x, target, lse=True, count=True, grad=True)
        rows = target >= 0
        torch.testing.assert_close(lse[rows], x.logsumexp(-1)[rows])
        self.assertEqual((int(count), loss.shape), (18, ()))
        y = x.clone().requires_grad_()
        f.cross_entropy(y, target).backward()
        torch.testing.assert_close(grad, y.grad)
        for columns in (1003, 1008):  # the gradient where the logits were
            z, named = x[:, :2].repeat(1, 504)[:, :columns].clone(), target.clamp(max=7)
            _, grad = kiln.cross_entropy(z.clone(), named, grad=True)
            _, given = kiln.cross_entropy(z, named, grad=z)
            self.assertIs(given, z)
            self.assertTrue(torch.equal(z, grad))
        with self.assertRaisesRegex(IndexError, "1 of 20"):
            kiln.cross_entropy(x, target.clamp(0).index_fill(0, torch.tensor([4]), 1003))
        halves = kiln.cross_entropy(x.bfloat16(), target)
        self.assertEqual(halves.dtype, torch.float32)

    def test_act_mul_in_place(self):
        f, x, other = torch.nn.functional, torch.randn(9, 100), torch.randn(9, 100)
        dy, expected = torch.randn(9, 100), f.silu(x) * other
        dx, dother = kiln.act_mul_backward(x, dy, other, dother=True)
        one, two = x.clone(), other.clone()
        kiln.act_mul_backward(one, dy, two, dx=one, dother=two)
        self.assertTrue(torch.equal(one, dx) and torch.equal(two, dother))
        kiln.act_mul(x, other, out=x)
        torch.testing.assert_close(x, expected)

    def test_index_add_in_place(self):
        x, src = torch.randn(300, 24), torch.randn(40, 24)
        few = torch.arange(40) % 7 * 40
        for given in ({}, {"deterministic": False}):
            for idx in (few, few.clamp(max=40)):
                y = x.clone()
                self.assertIs(kiln.index_add(y, 0, idx, src, out=y, **given), y)
                torch.testing.assert_close(y, x.index_add(0, idx, src))
                self.assertTrue(torch.equal(y[1], x[1]))
                y, each = x.clone(), idx[:, None].expand(40, 24).contiguous()
                kiln.scatter_add(y, 0, each, src, out=y, **given)
                torch.testing.assert_close(y, x.scatter_add(0, each, src))
        with self.assertRaisesRegex(ValueError, "deterministic"):
            kiln.index_add(x, 0, few, src, deterministic=2)

    def test_outputs_of_another_shape(self):
        x = torch.randn(6, 5, 8)
        for _ in range(3):  # the first call makes what later ones make outputs like
            y = kiln.permute(x, (2, 0, 1))
            self.assertEqual((y.shape, y.stride()), ((8, 6, 5), (30, 5, 1)))
            torch.testing.assert_close(y, x.permute(2, 0, 1))
            z = kiln.permute(x.numpy(), (2, 0, 1))  # the same signature, of another library
            self.assertIsInstance(z, numpy.ndarray)
            numpy.testing.assert_array_equal(z, y.numpy())
            y, mean, rstd = kiln.layer_norm(x.half(), (8,), mean=True, rstd=True)
            self.assertEqual((mean.dtype, mean.shape, mean.stride()), (torch.float32, (6, 5), (5, 1)))
            self.assertEqual(rstd.untyped_storage().nbytes(), 120)
            with torch.inference_mode():
                self.assertTrue(kiln.permute(x, (2, 0, 1)).is_inference())
            self.assertFalse(kiln.permute(x, (2, 0, 1)).is_inference())
            for one in (kiln.sum(x, (0, 1, 2), True), kiln.topk(x[:1, 0, :1], 1)[1]):
                self.assertEqual(one.stride(), torch.empty(one.shape).stride())
                one.view(torch.uint8)  # which asks for a last stride of 1
        none = kiln.permute(torch.empty(3, 0, 4), (2, 1, 0))
        self.assertEqual((none.shape, none.stride()), ((4, 0, 3), torch.empty(4, 0, 3).stride()))

    def test_as_torch_has_them(self):
        x, weight, bias = torch.randn(7, 24), torch.randn(24), torch.randn(24)
        f = torch.nn.functional
        torch.testing.assert_close(kiln.layer_norm(x, (24,), weight, bias, 1e-3),
                                   f.layer_norm(x, (24,), weight, bias, 1e-3))
        torch.testing.assert_close(kiln.rms_norm(x, x.shape[-1:], weight),
                                   f.rms_norm(x, x.shape[-1:], weight))
        torch.testing.assert_close(kiln.cumsum(x, 0), torch.cumsum(x, 0))
        torch.testing.assert_close(kiln.log_softmax(x, 0), f.log_softmax(x, 0))

    def test_rope_of_parts(self):
        qkv = torch.randn(2, 7, (4 + 2 + 2) * 8)
        q, k, _ = (part.unflatten(-1, (-1, 8)) for part in qkv.split([32, 16, 16], -1))
        angle = torch.rand(7, 4).repeat(1, 2)
        cos, sin = angle.cos(), angle.sin()

        def theirs(x):
            turned = torch.cat([-x[..., 4:], x[..., :4]], -1)
            return x * cos[:, None] + turned * sin[:, None]

        for layout in ("bshd", "bhsd"):
            turn = (lambda x: x.transpose(1, 2)) if layout == "bhsd" else (lambda x: x)
            got = kiln.rope(turn(q), cos[:, :4], sin[:, :4], turn(k), layout=layout)
            for mine, x in zip(got, (q, k)):
                torch.testing.assert_close(turn(mine), theirs(x))
                self.assertTrue(mine.is_contiguous())

        whole = qkv.clone()
        q, k, v = (part.unflatten(-1, (-1, 8)) for part in whole.split([32, 16, 16], -1))
        expected, before = (theirs(q), theirs(k)), v.clone()
        got = kiln.rope(q, cos[:, :4], sin[:, :4], k, out=q, k_out=k)
        self.assertIs(got[0], q)
        torch.testing.assert_close((q, k, v), (*expected, before))
        with self.assertRaisesRegex(ValueError, "out must be contiguous"):
            kiln.rope(q, cos[:, :4], sin[:, :4], out=torch.zeros(2, 7, 4, 80)[..., ::10])

    def test_kv_store(self):
        k, v, slots = torch.randn(3, 2, 4), torch.randn(3, 2, 4), torch.tensor([5, -1, 2])
        pages = torch.zeros(2, 2, 2, 4, 4).half()  # block, k or v, head, place, dim
        expected = pages.clone()
        for token, slot in ((0, 5), (2, 2)):
            expected[slot // 4, :, :, slot % 4] = torch.stack([k[token], v[token]]).half()

        def store(k, v, pages):
            kiln.kv_store(k, v, pages[:, 0], pages[:, 1], slots, kv_layout="hnd")
            return pages * 1

        op = torch.ops.kiln.kv_store.default
        caches, half = (pages[:, 0], pages[:, 1]), (k.half(), v.half())
        torch.library.opcheck(op, (*half, *(cache.clone() for cache in caches), slots, None, None,
                                   "hnd"))
        angle = torch.rand(3, 2).half()
        torch.library.opcheck(torch.ops.kiln.rope_kv_store.default, (
            half[0], angle.cos(), angle.sin(), *half, *(cache.clone() for cache in caches), slots,
            None, None, None, None, None, None, "hnd"))
        version = pages._version
        for call in (store, torch.compile(store, backend="aot_eager", fullgraph=True)):
            torch.testing.assert_close(call(*half, pages.zero_()), expected)
            torch.testing.assert_close(pages, expected)
        self.assertGreater(pages._version, version)
        with self.assertRaisesRegex(kiln.NotSupported, "has no gradient"):
            store(half[0].requires_grad_(), half[1], pages)

    def test_grad_is_not_lost(self):
        x = torch.randn(3, 4, requires_grad=True)
        self.assertTrue(kiln.softmax(x).requires_grad)
        with torch.no_grad():
            self.assertFalse(kiln.softmax(x).requires_grad)
        parameter = torch.nn.Parameter(torch.ones(4))
        with torch.inference_mode():
            kiln.layer_norm(x.detach(), 4, parameter)

    def test_attributes(self):
        from kiln import _kinds

        def older(type):
            return dict(_kinds._torch(type) or {}, read="attributes") \
                if issubclass(type, torch.Tensor) else None

        _kinds.register("older", older)
        try:
            self.test_types()
            self.test_layouts_and_outputs()
        finally:
            _kinds._registered.pop("older")
            kiln._kiln.forget_kinds()

    def test_shared_memory(self):
        x = torch.from_numpy(kiln.empty((3, 5)))
        x[:] = torch.randn(3, 5)
        torch.testing.assert_close(kiln.softmax(x), torch.softmax(x, -1))

    def test_mixed(self):
        x = torch.randn(2, 4)
        y = kiln.map("y[i,j] = x[i,j] + b[j]", x=x, b=numpy.ones(4, "f4"))
        torch.testing.assert_close(y, x + 1)
