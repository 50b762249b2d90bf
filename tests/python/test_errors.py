"""test_errors.py: what is refused, with which class and which words."""
import inspect
import pickle
import sys
import unittest

from support import kiln, numpy, rand


class Errors(unittest.TestCase):
    def test_no_tensor(self):
        for wrong in [3, "x", None, [1.0, 2.0], object()]:
            with self.assertRaises(TypeError) as caught:
                kiln.softmax(wrong)
            self.assertIsInstance(caught.exception, kiln.Error)

    def test_element_type(self):
        with self.assertRaises(ValueError) as caught:
            kiln.softmax(numpy.ones((2, 3), "i4"))
        self.assertEqual(caught.exception.status, "KILN_EINVAL")
        self.assertEqual(caught.exception.log, "")
        with self.assertRaisesRegex(TypeError, "input has element type"):
            kiln.softmax(numpy.array(["a"]))

    def test_a_refused_connect_changes_nothing(self):
        x = rand((2, 3))
        before = kiln.softmax(x)
        for wrong in [{"device": "foo"}, {"on_miss": "foo"}, {"timeout": 0}, {"timeout": "a"},
                      {"mode": "foo"}]:
            with self.assertRaises(kiln.Error):
                kiln.connect(**wrong)
            numpy.testing.assert_array_equal(kiln.softmax(x), before)

    def test_arguments(self):
        x = rand((2, 3))
        for call, words in [(lambda: kiln.softmax(), "softmax.. needs input"),
                            (lambda: kiln.softmax(x, -1, 1.0), "takes 2 positional"),
                            (lambda: kiln.softmax(x, axes=1), "no parameter axes"),
                            (lambda: kiln.softmax(x, -1, dim=1), "got dim twice"),
                            (lambda: kiln.permute(x, 3), r"permute\(\): dims is 3; .* list"),
                            (lambda: kiln.masked_softmax(x, kind=3), "kind is 3; .* a text"),
                            (lambda: kiln.softmax(x, "last"), r"softmax\(\): dim is 'last'; .*int"),
                            (lambda: kiln.softmax(x, 1.0), r"dim is 1\.0; .*integer"),
                            (lambda: kiln.softmax(x, scale="a"), "scale is 'a'; .* number"),
                            (lambda: kiln.softmax(3), r"softmax\(\): input is of type .*int, which"),
                            (lambda: kiln.softmax(x, dtype="none"), "dtype is 'none'"),
                            (lambda: kiln.permute(x, (0, 1.0)), r"dims\[1\] is 1\.0"),
                            (lambda: kiln.layer_norm(x, 3, "w"), r"layer_norm\(\): weight is of type"),
                            (lambda: kiln.map(3), r"map\(\): statement is 3"),
                            (lambda: kiln.map("y[i] = x[i]", x="a"), r"map\(\): x is 'a'"),
                            (lambda: kiln.map("y[i] = x[i]", x=[1]), r"map\(\): x is of type .*list"),
                            (lambda: kiln.patch(3), r"patch\(\): model is 3"),
                            (lambda: kiln.unpatch(None), r"unpatch\(\): model is None"),
                            (lambda: kiln.lend(3), r"lend\(\): tensor is of type"),
                            (lambda: kiln.Client(socket=5), r"Client\(\): socket is 5"),
                            (lambda: kiln.Client().request("info", section=[1]),
                             r"request\(\): section is \[1\]; .*integer"),
                            (lambda: kiln.empty(1.5), r"empty\(\): shape is 1\.5"),
                            (lambda: kiln.empty(3, "O"), r"empty\(\): dtype is 'O'"),
                            (lambda: kiln.connect(device=3), r"connect\(\): device is 3"),
                            (lambda: kiln.connect(3), r"connect\(\): socket is 3"),
                            (lambda: kiln.synchronize("a"), r"synchronize\(\): device is 'a'")]:
            with self.assertRaisesRegex(TypeError, words) as caught:
                call()
            self.assertIsInstance(caught.exception, kiln.Error)
        # libkiln's texts end at a zero byte: it would run another statement than was given.
        for call, words in [(lambda: kiln.map("y[i] = x[i]\0 * 2", x=x[0]),
                             r"statement is 'y\[i\] = x\[i\]\\x00 \* 2'; .*without a zero byte"),
                            (lambda: kiln.Client().request("info", section="a\0b"),
                             r"request\(\): section is 'a\\x00b'; .*without a zero byte"),
                            (lambda: kiln.Client().request("info", section=1 << 70),
                             r"section is 1180591620717411303424; .* 64 bits")]:
            with self.assertRaisesRegex(ValueError, words):
                call()
        with self.assertRaisesRegex(ValueError, "9 dimensions"):
            kiln.softmax(numpy.ones((1,) * 9, "f4"))
        with self.assertRaisesRegex(ValueError, "dim names dimension 2; it may name -2 to 1"):
            kiln.sum(x, 2)

    def test_integers_are_not_rounded(self):
        x, index = numpy.arange(3), numpy.array([1, 1])
        for alpha in (2 ** 53, -3):
            expected = [0, 1 + 3 * alpha, 2]
            self.assertEqual(kiln.index_add(x, 0, index, x[1:], alpha=alpha).tolist(), expected)
        with self.assertRaisesRegex(ValueError, "it must be an integer, -2.53 to 2.53"):
            kiln.index_add(x, 0, index, x[1:], alpha=2 ** 60)
        for alpha in (2 ** 53 + 1, 10 ** 400):
            with self.assertRaisesRegex(ValueError, "alpha is .*; it must be a number that a double"):
                kiln.index_add(x, 0, index, x[1:], alpha=alpha)

    def test_refused_tensors_are_given_back(self):
        class Pack:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        array = numpy.ones((1,) * 9, "f4")
        before = sys.getrefcount(array)
        for call in (kiln.softmax, kiln.lend):
            with self.assertRaisesRegex(ValueError, "9 dimensions"):
                call(Pack(array))
        self.assertEqual(sys.getrefcount(array), before)

    def test_shapes_of_shared_memory(self):
        for shape in (numpy.array([2, 3]), [2, numpy.int64(3)], (2, 3)):
            self.assertEqual(kiln.empty(shape).shape, (2, 3))
        self.assertEqual(kiln.empty(numpy.int32(4)).shape, (4,))

    def test_values_that_do_not_fit(self):
        x = rand((2, 3))
        for call, words in [(lambda: kiln.softmax(x, 2**70), r"dim is 1180591620717411303424; .* 64"),
                            (lambda: kiln.layer_norm(x, 2**70), "normalized_shape is 118.* 64 bits"),
                            (lambda: kiln.softmax(x, scale=10**400), "scale is 1000.*a double"),
                            (lambda: kiln.softmax(x, 10**9999), "dim is an integer of 332.* bits"),
                            (lambda: kiln.layer_norm(x, (5, 3)), r"is \(5, 3\); .* input's shape \(2, 3\)$"),
                            (lambda: kiln.layer_norm(x, ()), r"is \(\); .* shape \(2, 3\), and not empty$"),
                            (lambda: kiln.map("y[i] = x[i] * s", x=x[0], s=2**70), "s is 118.* 64 b"),
                            (lambda: kiln.map("3", x=x), "statement is '3'"),
                            (lambda: kiln.empty((-1,)), r"empty\(\): shape is \(-1,\)"),
                            (lambda: kiln.empty((2**40, 2**40)), r"empty\(\): shape is \(10.*2\*\*63"),
                            (lambda: kiln.empty(2**50), r"empty\(\): shape is 11.* the most is")]:
            with self.assertRaisesRegex(ValueError, words) as caught:
                call()
            self.assertEqual(caught.exception.status, "KILN_EINVAL")

    def test_sentences_have_the_names_of_the_parameters(self):
        x, shared = rand((2, 3)), kiln.empty((2, 3))
        for call, words in [
                (lambda: kiln.softmax(x, 5), "softmax(): dim is 5; it may be -2 to 1"),
                (lambda: kiln.permute(x, (0, 0)),
                 "permute(): dims names dimension 0 twice; each comes once"),
                (lambda: kiln.layer_norm(x, 3, x[0].astype("i4")),
                 "layer_norm(): weight is i32; it must be f16, bf16, f32 or f64"),
                (lambda: kiln.softmax(x, out=rand((1, 3))),
                 "softmax(): dimension 0 has size 2 in input and 1 in out; they must agree"),
                (lambda: kiln.softmax_backward(x, rand((2, 4))),
                 "softmax_backward(): dimension 1 has size 3 in y and 4 in dy; they must agree"),
                (lambda: kiln.softmax(shared, out=shared),
                 "softmax(): input and out overlap in buffer shared; an output may share no byte "
                 "with another operand"),
                (lambda: kiln.topk(x, -1), "topk(): k is -1; it may be 0 to 2048"),
                (lambda: kiln.quantize(x, rand((2,)).astype("f2"), "i8"),
                 "quantize(): scale is f16; it must be f32"),
                (lambda: kiln.cast_transpose(x, "i8", rand((2,))),
                 "cast_transpose(): scale has 2 elements; it must have one"),
                (lambda: kiln.take_along_axis(x, numpy.zeros((3, 1), "i8"), 1),
                 "take_along_axis(): dimension 0 of idx has size 3; it may be no larger than that "
                 "of src, 2"),
                (lambda: kiln.scatter_add(x, 0, numpy.zeros((2, 4), "i8"), rand((2, 4))),
                 "scatter_add(): dimension 1 of src has size 4; it must be that of dimension 1 of "
                 "input, 3"),
                # The value that a caller passed is no name.
                (lambda: kiln.masked_softmax(x, kind="x"),
                 'masked_softmax(): kind is "x"; it may be one of: bool, lengths, causal, additive')]:
            with self.assertRaises(ValueError) as caught:
                call()
            self.assertEqual(str(caught.exception), words)

    def test_classes(self):
        for error, base in [(kiln.InvalidArgument, ValueError), (kiln.WrongType, TypeError),
                            (kiln.OutOfMemory, MemoryError), (kiln.Timeout, TimeoutError),
                            (kiln.CompileError, RuntimeError), (kiln.DeviceError, RuntimeError),
                            (kiln.ConnectionLost, ConnectionError),
                            (kiln.IndexOutOfRange, IndexError)]:
            self.assertTrue(issubclass(error, kiln.Error) and issubclass(error, base))
            copy = pickle.loads(pickle.dumps(error("words", "KILN_EIO", "log")))
            self.assertEqual((str(copy), copy.status, copy.log), ("words", "KILN_EIO", "log"))

    def test_no_daemon(self):
        client = kiln.Client("/nonexistent/kiln.sock", autostart=False)
        with self.assertRaises(kiln.ConnectionLost) as caught:
            client.device
        self.assertIn("/nonexistent/kiln.sock", str(caught.exception))

    def test_signatures(self):
        self.assertEqual(str(inspect.signature(kiln.softmax)),
                         "(input, dim=-1, *, scale=1, dtype=None, out=None)")
        self.assertTrue(str(inspect.signature(kiln.layer_norm)).startswith(
            "(input, normalized_shape, weight=None, bias=None, eps=1e-05, *,"))
        for name in kiln.__all__:
            self.assertTrue(getattr(kiln, name).__doc__, name)


class Clients(unittest.TestCase):
    def test_explicit(self):
        x = rand((3, 4))
        with kiln.Client(device="cpu") as client:
            self.assertEqual(client.device, "cpu")
            kiln.softmax(x)
            with kiln.Client(device="cpu") as inner:
                kiln.softmax(x)
                self.assertEqual(inner._connection.prepared, 1)
            kiln.softmax(x[:2])
            self.assertEqual(client._connection.prepared, 2)
        client.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            client.device

    def test_requests(self):
        client = kiln.Client()
        self.assertIn("softmax", [row["name"] for row in client.request("ops")["rows"]])
        with self.assertRaises(kiln.Error):
            client.request("nonsense")

    def test_reuse(self):
        x = rand((3, 4))
        with kiln.Client(device="cpu") as client:
            for scale in range(1500):
                kiln.softmax(x, scale=float(scale + 1))
            self.assertEqual(client._connection.prepared, 1024)
