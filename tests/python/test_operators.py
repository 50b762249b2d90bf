"""test_operators.py: each operator on NumPy arrays, against its definition in f64."""
from support import FLOATS, Case, kiln, numpy, rand


def softmax(x, axis=-1, scale=1.0):
    x = x.astype("f8") * scale
    e = numpy.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normed(x, eps):
    x = x.astype("f8")
    mean = x.mean(-1, keepdims=True)
    rstd = 1 / numpy.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
    return (x - mean) * rstd, mean[..., 0], rstd[..., 0]


class Softmax(Case):
    def test_types_and_axes(self):
        for dtype in FLOATS:
            for shape, axis in [((5,), 0), ((3, 257), -1), ((4, 6, 10), 1), ((2, 3, 4, 5), -4)]:
                x = rand(shape, dtype)
                self.close(kiln.softmax(x, axis), softmax(x, axis), dtype)
                self.close(kiln.log_softmax(x, dim=axis), numpy.log(softmax(x, axis)), dtype, 4)

    def test_scale(self):
        x = rand((7, 33))
        self.close(kiln.softmax(x, scale=0.125), softmax(x, scale=0.125), "f4")

    def test_dtype(self):
        x = rand((5, 7), "f4", 3)
        self.close(kiln.softmax(x, 0, dtype="f8"), softmax(x.astype("f8"), 0), "f8")
        whole = numpy.arange(6).reshape(2, 3)
        self.close(kiln.cumsum(whole, dtype=numpy.float32), whole.cumsum(-1), "f4")

    def test_rank_0(self):
        x = numpy.array(3, "f4")
        for result, expected in [(kiln.softmax(x), 1), (kiln.log_softmax(x, 0), 0),
                                 (kiln.cumsum(x, -1), 3), (kiln.softmax_backward(x, x), -18)]:
            self.assertEqual((result.shape, result.dtype, float(result)), ((), x.dtype, expected))
        # A row of one element is another call.
        self.assertEqual(kiln.softmax(x.reshape(1)).shape, (1,))
        with self.assertRaisesRegex(ValueError, "dim is 1; it may be -1 to 0"):
            kiln.softmax(x, 1)

    def test_rank_0_has_one_element(self):
        x, three = numpy.array(3, "f4"), numpy.zeros(3, "i8")
        self.assertEqual(kiln.index_select(x, 0, three[:1]), 3)
        for call in [lambda: kiln.index_select(x, 0, three), lambda: kiln.topk(x, 0),
                     lambda: kiln.take_along_axis(x, numpy.zeros(100000, "i8")),
                     lambda: kiln.index_select(x, 0, three[:0])]:
            with self.assertRaisesRegex(ValueError, "has rank 0, and .* elements; it must have rank"):
                call()

    def test_out_of_rank_0(self):
        x, point = rand((5, 7)), numpy.array(3, "f4")
        for call, result in [(lambda **to: kiln.sum(x, **to), x.sum()),
                             (lambda **to: kiln.any(x, (0, 1), **to), True),
                             (lambda **to: kiln.sum(point, **to), 3),
                             (lambda **to: kiln.sum(point, 0, True, **to), 3),
                             (lambda **to: kiln.cumsum(point, **to), 3)]:
            out = numpy.zeros((), call().dtype)
            self.assertIs(call(out=out), out)
            numpy.testing.assert_allclose(out, result, rtol=1e-6)
        values, indices = numpy.zeros((), "f4"), numpy.ones((), "i8")
        kiln.topk(point, 1, out=values, indices=indices)
        self.assertEqual((values, indices), (3, 0))
        with self.assertRaisesRegex(ValueError, "out has rank 0; it must have rank 1"):
            kiln.sum(x, 0, out=values)

    def test_layouts(self):
        x = rand((8, 12, 6), "f8")
        for view in [x.transpose(2, 0, 1), x[::2, ::3], x[::-1], x[:, ::-1, ::-2], x[3],
                     numpy.broadcast_to(x[:1], x.shape), x[:, :0], x[2:3, 4:5, 1:2]]:
            self.close(kiln.softmax(view), softmax(view) if view.size else view, "f8")

    def test_outputs_are_contiguous(self):
        x, out = rand((4, 10)), numpy.zeros((4, 100), "f4")
        with self.assertRaisesRegex(ValueError, "out must be contiguous"):
            kiln.softmax(x, out=out[:, ::10])
        self.assertFalse(out.any())

    def test_read_only(self):
        x = rand((3, 5))
        x.flags.writeable = False
        self.close(kiln.softmax(x), softmax(x), "f4")

    def test_backward(self):
        x, dy = rand((6, 40)), rand((6, 40), seed=8)
        y = kiln.softmax(x)
        y8 = y.astype("f8")
        expected = (dy - (dy * y8).sum(-1, keepdims=True)) * y8
        self.close(kiln.softmax_backward(y, dy), expected, "f4", 2)


class MaskedSoftmax(Case):
    def test_bool(self):
        x, mask = rand((4, 3, 9)), rand((3, 9), seed=3) > 0
        expected = softmax(numpy.where(mask, -numpy.inf, x.astype("f8")))
        self.close(kiln.masked_softmax(x, mask), expected, "f4")
        self.close(kiln.masked_softmax(x, ~mask, keep=True), expected, "f4")

    def test_causal(self):
        x = rand((2, 5, 5))
        keep = numpy.tril(numpy.ones((5, 5), bool))
        expected = softmax(numpy.where(keep, x.astype("f8"), -numpy.inf))
        self.close(kiln.masked_softmax(x, kind="causal"), expected, "f4")

    def test_lengths(self):
        x, lengths = rand((3, 8)), numpy.array([8, 3, 1], "i4")
        keep = numpy.arange(8) < lengths[:, None]
        expected = softmax(numpy.where(keep, x.astype("f8"), -numpy.inf))
        self.close(kiln.masked_softmax(x, lengths, kind="lengths"), expected, "f4")


class Norms(Case):
    def test_layer_norm(self):
        for dtype in FLOATS:
            x, weight, bias = rand((5, 48), dtype), rand(48, dtype, 1), rand(48, dtype, 2)
            n = normed(x, 1e-5)[0]
            self.close(kiln.layer_norm(x, (48,)), n, dtype, 4)
            self.close(kiln.layer_norm(x, 48, weight, bias),
                       n * weight.astype("f8") + bias.astype("f8"), dtype, 8)

    def test_statistics_and_gradients(self):
        x, weight, dy = rand((6, 32)), rand(32, seed=1), rand((6, 32), seed=2)
        y, mean, rstd = kiln.layer_norm(x, (32,), weight, mean=True, rstd=True)
        n, mean8, rstd8 = normed(x, 1e-5)
        self.close(mean, mean8, "f4", 2)
        self.close(rstd, rstd8, "f4", 2)
        dx, dweight, dbias = kiln.layer_norm_backward(x, dy, mean, rstd, (32,), weight,
                                                      dweight=True, dbias=True)
        g = dy.astype("f8") * weight
        expected = rstd8[:, None] * (g - g.mean(-1, keepdims=True)
                                     - n * (g * n).mean(-1, keepdims=True))
        self.close(dx, expected, "f4", 8)
        self.close(dweight, (dy * n).sum(0), "f4", 8)
        self.close(dbias, dy.astype("f8").sum(0), "f4", 8)
        self.assertEqual(kiln.layer_norm_backward(x, dy, mean, rstd, 32, weight).shape, x.shape)

    def test_trailing_dimensions(self):
        x = rand((3, 4, 5))
        expected = normed(x.reshape(3, 20), 1e-5)[0].reshape(x.shape)
        self.close(kiln.layer_norm(x, (4, 5)), expected, "f4", 4)
        with self.assertRaisesRegex(ValueError, r"normalized_shape is \(3, 5\); .* \(3, 4, 5\)$"):
            kiln.layer_norm(x, (3, 5))

    def test_rms_norm(self):
        for dtype in FLOATS:
            x, weight = rand((5, 64), dtype), rand(64, dtype, 1)
            x[0] *= 2.0 ** -10  # eps decides
            x8 = x.astype("f8")
            for eps in [None, 1e-3]:
                added = eps
                if eps is None:  # of the type that is computed in, as torch's
                    added = numpy.finfo("f8" if dtype == "f8" else "f4").eps
                expected = x8 / numpy.sqrt((x8 ** 2).mean(-1, keepdims=True) + added)
                self.close(kiln.rms_norm(x, (64,), weight, eps), expected * weight, dtype, 8)

    def test_residual(self):
        x, residual = rand((4, 16)), rand((4, 16), seed=5)
        y, total = kiln.layer_norm(x, 16, residual=residual, sum=True)
        self.close(total, x.astype("f8") + residual, "f4")
        self.close(y, normed(total, 1e-5)[0], "f4", 4)


class Others(Case):
    def test_permute(self):
        for dtype in ["f4", "i1", "u2", "i8", "c16", "?"]:
            x = (rand((3, 4, 5)) * 9).astype(dtype)
            got = kiln.permute(x, (2, 0, 1))
            numpy.testing.assert_array_equal(got, x.transpose(2, 0, 1))
            self.assertEqual(got.dtype, x.dtype)
        numpy.testing.assert_array_equal(kiln.permute(x, (-1, 0, -2)), x.transpose(-1, 0, -2))
        with self.assertRaisesRegex(ValueError, "perm"):
            kiln.permute(x, (0, 1, -4))

    def test_cumsum(self):
        x = rand((3, 50), "f8")
        self.close(kiln.cumsum(x, 1), x.cumsum(1), "f8", 100)
        back = x[:, ::-1].cumsum(1)[:, ::-1]
        self.close(kiln.cumsum(x, 1, reverse=True, exclusive=True), back - x, "f8", 1000)

    def test_act_mul(self):
        x = rand((3, 50), "f8")
        gate = x[:, :25] / (1 + numpy.exp(-x[:, :25]))
        self.close(kiln.act_mul(x), gate * x[:, 25:], "f8")
        self.close(kiln.act_mul(x[:, :25], x[:, 25:]), gate * x[:, 25:], "f8")
        self.close(kiln.act_mul(x, act="relu"), x[:, :25].clip(0) * x[:, 25:], "f8")

    def test_quantize(self):
        x = rand((3, 50))
        y, scale = kiln.dynamic_quantize(x, "i8", group=10)
        most = abs(x.reshape(3, 5, 10)).max(-1)
        self.assertEqual((y.dtype, y.shape, scale.shape), ("i1", x.shape, most.shape))
        self.close(scale, most / 127, "f4")
        whole = numpy.rint((x.reshape(3, 5, 10) / scale[:, :, None]).reshape(x.shape))
        numpy.testing.assert_array_equal(y, whole)
        numpy.testing.assert_array_equal(kiln.quantize(x, scale, "i8"), y)
        self.close(kiln.dequantize(y, scale, "f16"), whole * scale.repeat(10, 1), "f2")
        y, scale = kiln.dynamic_quantize(x, "i8", scale=False), numpy.array(0.25, "f4")
        self.assertEqual((y.shape, abs(y).max(-1).tolist()), (x.shape, [127] * 3))
        numpy.testing.assert_array_equal(kiln.quantize(x, scale, "i8"), numpy.rint(x * 4))
        with self.assertRaisesRegex(ValueError, "group 7"):
            kiln.dynamic_quantize(x, "i8", group=7)

    def test_scales_of_other_shapes(self):
        x, one = rand((3, 50)), numpy.array(0.25, "f4")
        y = kiln.quantize(x, one, numpy.int8)
        for scale in [numpy.full(3, 0.25, "f4"), numpy.broadcast_to(one, 3),
                      numpy.broadcast_to(one, (3, 5)), numpy.full((1, 1), 0.25, "f4"),
                      numpy.full((5, 3), 0.25, "f4").T]:
            numpy.testing.assert_array_equal(kiln.quantize(x, scale, "int8"), y)
            numpy.testing.assert_array_equal(kiln.dequantize(y, scale, "f32"), y * one)

    def test_rows_of_nothing_are_quantized(self):
        for shape in [(0, 4), (3, 0), (2, 0, 0), (0,)]:
            x = numpy.zeros(shape, "f4")
            _, least = kiln.dynamic_quantize(x, "i8")
            for function in [kiln.rms_norm_quantize, kiln.layer_norm_quantize,
                             kiln.act_mul_quantize]:
                other = {"other": x} if function is kiln.act_mul_quantize else {}
                y, scales = function(x, "i8", **other)
                self.assertEqual((y.shape, scales.shape), (shape, shape[:-1]))
                numpy.testing.assert_array_equal(scales, least)
                _, scales = function(x, "i8", scale=numpy.array(2, "f4"), **other)
                self.assertTrue((scales == 2).all())

    def test_cast_transpose(self):
        x, scale = rand((2, 3, 50)) * 9, numpy.array(0.25, "f4")
        y, transposed = kiln.cast_transpose(x, "i8", scale)
        numpy.testing.assert_array_equal(y, kiln.quantize(x, scale, "i8"))
        numpy.testing.assert_array_equal(transposed, y.swapaxes(1, 2))
        y = kiln.cast_transpose(x[0].T, "i8", transposed=False)
        numpy.testing.assert_array_equal(y, numpy.rint(x[0].T))
        with self.assertRaisesRegex(ValueError, "two dimensions"):
            kiln.cast_transpose(x[0, 0], "i8")

    def test_norm_quantize(self):
        x, other, weight = rand((3, 50)), rand((3, 50)), rand((50,))
        y, scales, total = kiln.rms_norm_quantize(x, "i8", weight, residual=other, sum=True)
        both = (x + other).astype("f8")
        v = both / numpy.sqrt((both ** 2).mean(-1, keepdims=True) + 1e-5) * weight
        self.close(total, both, "f4")
        self.close(scales, abs(v).max(-1) / 127, "f4")
        self.assertEqual((y.dtype, abs(y).max(-1).tolist()), ("i1", [127] * 3))
        self.assertLess(abs(y - v / scales[:, None]).max(), 0.501)
        scale = numpy.array(0.05, "f4")
        y = kiln.layer_norm_quantize(x, "i8", scale=scale, scales=False)
        self.assertLess(abs(y - normed(x, 1e-5)[0] / scale).max(), 0.501)

    def test_norm_quantize_groups(self):
        x, scales = rand((3, 50)), numpy.zeros((5, 3), "f4").T
        y, found = kiln.rms_norm_quantize(x, "i8", group=10)
        again, given = kiln.rms_norm_quantize(x, "i8", group=10, scales=scales)
        v = x / numpy.sqrt((x.astype("f8") ** 2).mean(-1, keepdims=True) + 1e-5)
        self.close(found, abs(v.reshape(3, 5, 10)).max(-1) / 127, "f4")
        self.assertLess(abs(y - v / found.repeat(10, 1)).max(), 0.501)
        self.assertIs(given, scales)  # in column-major order
        numpy.testing.assert_array_equal(again, y)
        numpy.testing.assert_array_equal(scales, found)
        with self.assertRaisesRegex(ValueError, "group is 10"):
            kiln.rms_norm_quantize(x, "i8", group=10, scale=numpy.array(1, "f4"))

    def test_act_mul_quantize(self):
        x = rand((3, 100))
        v = x[:, :50] / (1 + numpy.exp(-x[:, :50].astype("f8"))) * x[:, 50:]
        for other in [None, x[:, 50:]]:
            y, scales = kiln.act_mul_quantize(x if other is None else x[:, :50], "i8", other)
            self.close(scales, abs(v).max(-1) / 127, "f4")
            self.assertLess(abs(y - v / scales[:, None]).max(), 0.501)
        y, scales = kiln.act_mul_quantize(x, "i8", group=10)
        self.close(scales, abs(v.reshape(3, 5, 10)).max(-1) / 127, "f4")
        self.assertLess(abs(y - v / scales.repeat(10, 1)).max(), 0.501)

    def test_gather(self):
        source, index = rand((2, 3, 10)), numpy.array([[1, 2], [0, 9], [5, 5]], "i4")
        expected = numpy.take_along_axis(source, numpy.broadcast_to(index, (2, 3, 2)), 2)
        numpy.testing.assert_array_equal(kiln.gather(source, index), expected)
        with self.assertRaises(IndexError):
            kiln.gather(source, index + 9)

    def test_rope(self):
        q, k, angle = rand((2, 5, 3, 10)), rand((2, 5, 1, 10), seed=1), rand((9, 4), seed=2)
        cos, sin = numpy.cos(angle), numpy.sin(angle)
        positions = numpy.array([8, 0, 3, 3, 1], "i8")
        turn = (cos + 1j * sin.astype("f8"))[positions][:, None]

        def rotated(x, pairs):
            x = x.astype("f8").copy()
            a, b = (slice(0, 8, 2), slice(1, 8, 2)) if pairs else (slice(0, 4), slice(4, 8))
            z = (x[..., a] + 1j * x[..., b]) * turn
            x[..., a], x[..., b] = z.real, z.imag
            return x

        for pairs in (False, True):
            results = kiln.rope(q, cos, sin, k, positions, interleaved=pairs)
            for got, x in zip(results, (q, k)):
                self.close(got, rotated(x, pairs), "f4", 4)
            back = kiln.rope(results[0], cos, sin, None, positions, interleaved=pairs, inverse=True)
            self.close(back, q, "f4", 8)
        with self.assertRaises(IndexError):
            kiln.rope(q, cos, sin, positions=positions + 1)
        with self.assertRaisesRegex(ValueError, "k_out and no k"):
            kiln.rope(q, cos, sin, k_out=numpy.empty_like(k))

    def test_kv_store(self):
        k, v = rand((5, 2, 8)), rand((5, 2, 8), seed=1)
        slots, pages = numpy.array([7, -1, 0, 11, 3], "i8"), rand((3, 2, 4, 2, 8), seed=2)
        expected, caches = pages.copy(), (pages[:, 0], pages[:, 1])
        for token, slot in enumerate(slots):
            if slot >= 0:
                expected[slot // 4, :, slot % 4] = k[token], v[token]
        self.assertIsNone(kiln.kv_store(k, v, *caches, slots))
        numpy.testing.assert_array_equal(pages, expected)
        narrow = numpy.full((2, 3, 2, 4, 8), 5, "i1")
        scales = numpy.array([0.01, 0.02], "f4"), numpy.array(0.05, "f4")
        kiln.kv_store(k, v, *narrow, slots, *scales, kv_layout="hnd")
        for x, scale, cache in zip((k, v), scales, narrow):
            expected_head = numpy.rint(x[0] / scale.reshape(-1, 1)).clip(-128, 127)
            numpy.testing.assert_allclose(cache[1, :, 3], expected_head, atol=1)
        self.assertEqual(set(narrow[:, 0, :, 1].flat) | set(narrow[:, 2, :, :3].flat), {5})
        for stray in (-2, 12):
            with self.assertRaises(IndexError):
                kiln.kv_store(k, v, *caches, slots * 0 + stray)
        numpy.testing.assert_array_equal(pages, expected)
        pages.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "k_cache cannot be written"):
            kiln.kv_store(k, v, pages[:, 0], pages[:, 1], slots)

    def test_rope_kv_store(self):
        q, k, v, angle = rand((5, 3, 8)), rand((5, 1, 8), seed=1), rand((5, 1, 8), seed=2), rand((9, 4))
        tables = numpy.cos(angle), numpy.sin(angle)
        positions, slots = numpy.array([8, 0, 3, 3, 1]), numpy.array([7, -1, 0, 11, 3])
        caches, expected = numpy.ones((2, 3, 4, 1, 8), "f4"), numpy.ones((2, 3, 4, 1, 8), "f4")
        turned, k_turned = kiln.rope(q, *tables, k, positions)
        kiln.kv_store(k_turned, v, *expected, slots)
        got = kiln.rope_kv_store(q, *tables, k, v, *caches, slots, positions)
        numpy.testing.assert_allclose(got, turned, atol=1e-6)
        numpy.testing.assert_allclose(caches, expected, atol=1e-6)
        for strays, sentence in [(1, "1 position or slot is"), (2, "2 positions or slots are")]:
            with self.assertRaises(IndexError) as caught:
                kiln.rope_kv_store(q, *tables, k, v, *caches, slots,
                                   positions + [1, 0, 9 * (strays - 1), 0, 0])
            self.assertEqual(str(caught.exception), f"rope_kv_store(): {sentence} out of range")

    def test_indices(self):
        x, index = rand((4, 6)), numpy.array([2, 0, 2], "i8")
        numpy.testing.assert_array_equal(kiln.index_select(x, 1, index), x[:, index])
        numpy.testing.assert_array_equal(kiln.embedding(index.reshape(1, 3), x), x[index][None])
        each = numpy.argsort(x, 0)[:3]
        numpy.testing.assert_array_equal(kiln.take_along_axis(x, each, 0),
                                         numpy.take_along_axis(x, each, 0))
        sums, added = numpy.zeros((4, 6), "f4"), rand((4, 3), seed=1)
        numpy.add.at(sums, (slice(None), index), added)
        self.close(kiln.index_add(x, 1, index, added, alpha=2.0), x + 2 * sums, "f4")
        for dtype in ("i1", "i2", "i4", "i8"):
            less = kiln.index_add(numpy.zeros(3, dtype), 0, index, numpy.arange(3, dtype=dtype),
                                  alpha=-2)
            self.assertEqual(less.tolist(), [-2, 0, -4])
        lists = numpy.arange(24, dtype="i4").reshape(4, 6) % 4
        for part in (lists[:, 1:4], lists.T, numpy.broadcast_to(lists[:, :1], (4, 3))):
            numpy.testing.assert_array_equal(kiln.embedding(part, x), x[part])
        each = each[:2, :3]  # of a part of x
        numpy.testing.assert_array_equal(kiln.take_along_axis(x, each, 0),
                                         numpy.take_along_axis(x[:, :3], each, 0))
        with self.assertRaises(IndexError):
            kiln.index_select(x, 0, index + 2)
        with self.assertRaises(IndexError):
            kiln.embedding(index - 1, x)

    def test_giou_loss(self):
        boxes = numpy.array([[[0, 0, 2, 2], [1, 1, 3, 4]]], "f4")
        loss, count = kiln.giou_loss(boxes, boxes, count=True)
        self.assertEqual((float(loss), int(count), loss.shape), (1.0, 2, ()))

    def test_map(self):
        x, b = rand((4, 6)), rand(6, seed=1)
        self.close(kiln.map("y[i,j] = x[i,j] * s + b[j]", x=x, b=b, s=2.5),
                   x.astype("f8") * 2.5 + b, "f4")
        out = numpy.zeros((4, 6), "f4")
        self.assertIs(kiln.map("y[i,j] = x[i,j] * 2", x=x, y=out), out)
        numpy.testing.assert_array_equal(out, x * 2)
        self.assertEqual(kiln.map("z = x[1,2] * 2", x=x), x[1, 2] * 2)
        self.assertEqual(kiln.map("z[] = x[1,2] * 2", x=x).shape, ())
        self.assertEqual(kiln.map("z max= x[i,j]", x=x), x.max())
        numpy.testing.assert_array_equal(kiln.map("\n\tz[i] min= x[i,j]", x=x), x.min(1))
        with self.assertRaisesRegex(kiln.InvalidArgument, "map: column"):
            kiln.map("nothing", x=x)

    def test_narrow_floats(self):
        x = rand((4, 6)) * 300
        try:
            import ml_dtypes
        except ImportError:
            with self.assertRaisesRegex(kiln.NotSupported, "f8e4m3, which NumPy does not have"):
                kiln.map("y[i,j] = f8e4m3(x[i,j])", x=x)
            return
        for name, most in [("bfloat16", 3e38), ("float8_e4m3fn", 448), ("float8_e5m2", 57344)]:
            dtype = getattr(ml_dtypes, name)
            short = {"bfloat16": "bf16", "float8_e4m3fn": "sat_f8e4m3"}.get(name, "sat_f8e5m2")
            y = kiln.map(f"y[i,j] = {short}(x[i,j])", x=x)
            self.assertEqual(y.dtype, dtype)
            expected = x.clip(-most, most).astype(dtype)
            numpy.testing.assert_array_equal(y.view("u1"), expected.view("u1"))
            numpy.testing.assert_array_equal(kiln.permute(y, (1, 0)).view("u1"),
                                             expected.T.copy().view("u1"))


class Outputs(Case):
    def test_out(self):
        x = rand((5, 70))
        out = numpy.full((5, 70), 9, "f4")
        self.assertIs(kiln.softmax(x, out=out), out)
        self.close(out, softmax(x), "f4")
        self.assertIs(kiln.softmax(x, out=x), x)
        numpy.testing.assert_array_equal(x, out)

    def test_out_of_several(self):
        x = rand((5, 7))
        values, indices = numpy.zeros((5, 7), "f4"), numpy.zeros((5, 7), "i8")
        results = kiln.sort(x, out=(values, indices))
        self.assertTrue(results[0] is values and results[1] is indices)
        numpy.testing.assert_array_equal(indices, x.argsort(-1, kind="stable"))
        self.assertIs(kiln.softmax(x, out=(values,)), values)
        for wrong in [lambda: kiln.sort(x, out=()), lambda: kiln.softmax(x, out=(values, indices)),
                      lambda: kiln.sort(x, out=(values, indices), indices=indices)]:
            with self.assertRaisesRegex(TypeError, r"out is a tuple of \d; it must be one tensor"):
                wrong()

    def test_wrong_out(self):
        x = rand((5, 7))
        for out in [numpy.zeros((5, 6), "f4"), numpy.zeros((5, 7), "f8"),
                    numpy.zeros((7, 5), "f4").T]:
            with self.assertRaises(ValueError):
                kiln.softmax(x, out=out)
        y = numpy.zeros((5, 7), "f4")
        for call in [lambda: kiln.layer_norm(x, 7, residual=x, out=y, sum=y),
                     lambda: kiln.layer_norm(x, 7, out=y, rstd=y[2, :5]),
                     lambda: kiln.kv_store(x[:, None], x[:, None], y[None, :, None], y[None, :, None],
                                           numpy.arange(5))]:
            with self.assertRaisesRegex(ValueError, "overlap; an output may share no byte"):
                call()
        frozen = numpy.zeros((5, 7), "f4")
        frozen.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out cannot be written"):
            kiln.softmax(x, out=frozen)

    def test_shared_memory(self):
        x, y = kiln.empty((8, 100)), kiln.empty((8, 100))
        x[:] = rand((8, 100))
        for view, out in [(x, y), (x[:, 1:], None), (x.T, None)]:
            self.close(kiln.softmax(view, out=out), softmax(view), "f4")
        del x, view
        self.close(kiln.softmax(y), softmax(y), "f4")

    def test_large(self):
        x = numpy.arange(40 << 20, dtype="u1").reshape(40, 1 << 20)
        numpy.testing.assert_array_equal(kiln.permute(x, (0, 1)), x)
        self.close(kiln.softmax(rand((2, 3))).sum(-1), numpy.ones(2), "f4")
