"""test_errors.py: what is refused, with which class and which words."""
import inspect
import pickle
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
                            (lambda: kiln.softmax(x, axis=1), "no parameter axis"),
                            (lambda: kiln.softmax(x, -1, dim=1), "got dim twice"),
                            (lambda: kiln.permute(x, 3), "dims is a list"),
                            (lambda: kiln.masked_softmax(x, kind=3), "kind is a text")]:
            with self.assertRaisesRegex(TypeError, words):
                call()
        with self.assertRaises(TypeError):
            kiln.softmax(x, "last")
        with self.assertRaisesRegex(ValueError, "axis"):
            kiln.softmax(x, 5)
        with self.assertRaisesRegex(ValueError, "9 dimensions"):
            kiln.softmax(numpy.ones((1,) * 9, "f4"))

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
                         "(input, dim=-1, *, scale=1, out=None)")
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
