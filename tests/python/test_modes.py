"""test_modes.py: calls on CUDA tensors, launched here or by the daemon on lent memory.

The driver is the tests' stand-in, in this process and the daemon: it keeps memory, streams and
graphs, copies, and runs no kernel.  The daemon has two GPUs, this process only the second of them.
"""
import ctypes
import gc
import os
import unittest

FAKE = os.path.join(os.environ.get("BUILD_DIR", ""), "fake", "libcuda.so.1")
HERE = os.path.exists(FAKE)
if HERE:
    os.environ.update(KILN_LIBCUDA=FAKE, KILN_FAKE_CUDA_IMAGES="1", KILN_FAKE_CUDA="gpus=2")

from support import Case, kill_daemon, kiln  # noqa: E402
from kiln import _kinds  # noqa: E402

LIVE_MODULES = 3


class Driver:
    """The stand-in of the driver in this process."""

    def __init__(self):
        kiln.Client().request("info")  # the daemon is started with its own GPUs
        os.environ.update(KILN_FAKE_CUDA="uuid=1", KILN_FAKE_CUDA_STREAMS="1")
        self.library = ctypes.CDLL(FAKE)
        control = (ctypes.c_void_p * 5).in_dll(self.library, "fake_cuda_control")
        self.calls = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(control[3])
        self.live = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(control[4])
        context = ctypes.c_void_p()
        self.do("cuInit", 0)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.do("cuCtxSetCurrent", context)
        self.running = self.stream()
        del os.environ["KILN_FAKE_CUDA_STREAMS"]
        self.recording = self.stream()
        self.current = self.running

    def do(self, name, *args):
        result = getattr(self.library, name)(*args)
        if result != 0:
            raise AssertionError(f"{name} says {result}")

    def stream(self):
        made = ctypes.c_void_p()
        self.do("cuStreamCreate", ctypes.byref(made), 0)
        return made

    def wait(self):
        self.do("cuStreamSynchronize", self.running)

    def allocate(self, count, function="cuMemAlloc_v2", *more):
        address = ctypes.c_uint64()
        self.do(function, ctypes.byref(address), ctypes.c_size_t(count), *more)
        return address.value


class Device:
    type = "cuda"
    index = 0


class Tensor:
    """A contiguous tensor of f32 that says of itself what a tensor of torch does."""

    dtype = "float32"
    device = Device()
    made = 0

    def __init__(self, *shape, address=None):
        self.shape = shape
        self.count = 1
        for extent in shape:
            self.count *= extent
        self.address = driver.allocate(max(self.count, 1) * 4) if address is None else address

    def data_ptr(self):
        return self.address

    def stride(self):
        strides, run = [], 1
        for extent in reversed(self.shape):
            strides.insert(0, run)
            run *= extent
        return tuple(strides)

    def fill(self, *values):
        ctypes.memmove(self.address, (ctypes.c_float * self.count)(*values), self.count * 4)
        return self

    def values(self):
        return list((ctypes.c_float * self.count).from_address(self.address))


def describe(type):
    if type is not Tensor:
        return None
    return {"read": "attributes", "stream": lambda device: driver.current.value,
            "empty": lambda like, shape, dtype: Tensor(*shape)}


def setUpModule():
    global driver
    if not HERE:
        raise unittest.SkipTest(f"there is no stand-in of the driver, {FAKE}: built without cuda.h")
    driver = Driver()
    _kinds.register("modes", describe)


def copy(x, out):
    """The one call that runs on the stand-in: a permutation that changes nothing is a copy."""
    return kiln.permute(x, tuple(range(len(x.shape))), out=out)


class Daemon(Case):
    def setUp(self):
        driver.current = driver.running
        kiln.connect(mode="daemon")

    def tearDown(self):
        kiln.connect()

    def test_lent_memory(self):
        x, y = Tensor(3, 4).fill(*range(12)), Tensor(3, 4).fill(*[0] * 12)
        with kiln.lend(x), kiln.lend(y):
            self.assertIs(copy(x, y), y)
            kiln.synchronize()
            self.assertEqual(y.values(), x.values())
            # A part of what is lent, which begins at no multiple of 16 bytes.
            copy(Tensor(5, address=x.address + 4), Tensor(5, address=y.address + 24))
            kiln.synchronize()
            self.assertEqual(y.values(), [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 11])
            self.assertEqual(driver.calls(b"cuLaunchKernel"), driver.calls(b"cuModuleLoadData"))
            with self.assertRaisesRegex(ValueError, "input is not lent.*kiln.lend\\(input\\)"):
                copy(Tensor(5, address=x.address + 32), Tensor(5, address=y.address))
        with self.assertRaisesRegex(ValueError, "input is not lent"):
            copy(x, y)

    def test_order(self):
        x, y, z = (Tensor(64).fill(*[0] * 64) for _ in range(3))
        lent = [kiln.lend(x), kiln.lend(y)]
        for i in range(100):  # more than may be under way at once
            driver.do("cuMemsetD8Async", ctypes.c_uint64(x.address), i, ctypes.c_size_t(256),
                      driver.running)
            copy(x, y)
            driver.do("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(z.address),
                      ctypes.c_uint64(y.address), ctypes.c_size_t(256), driver.running)
            if i % 10 == 9:
                driver.wait()
                self.assertEqual(ctypes.string_at(z.address, 256), bytes([i]) * 256)
        del lent

    def test_nothing_to_do(self):
        copy(Tensor(0, 3), Tensor(0, 3))
        kiln.synchronize()

    def test_refusals(self):
        x = Tensor(4, 6)
        with kiln.lend(x):
            with self.assertRaisesRegex(ValueError, "pass out=.*mode=\"local\""):
                kiln.permute(x, (1, 0))
        with self.assertRaisesRegex(ValueError, "kiln.empty"):
            kiln.lend(memoryview_of_host())
        with self.assertRaisesRegex(ValueError, "without elements"):
            kiln.lend(Tensor(0, 4))
        with self.assertRaisesRegex(ValueError, 'mode is "local" or "daemon", not \'remote\''):
            kiln.connect(mode="remote")
        with self.assertRaisesRegex(ValueError, "no address that CUDA.*; use mode=\"local\""):
            kiln.lend(Tensor(4, address=4096))
        pool = ctypes.c_void_p()
        properties = (ctypes.c_int * 32)(1, 0, 1, 0)  # pinned, not to be exported, on GPU 0
        driver.do("cuMemPoolCreate", ctypes.byref(pool), properties)
        pooled = driver.allocate(64, "cuMemAllocFromPoolAsync", pool, driver.recording)
        with self.assertRaisesRegex(kiln.NotSupported, "pool that was not.*use mode=\"local\""):
            kiln.lend(Tensor(16, address=pooled))

    def test_the_tensor_is_kept(self):
        x = Tensor(8)
        before = gc.get_referrers(x)
        lent = kiln.lend(x)
        self.assertEqual(len(gc.get_referrers(x)), len(before))  # by what Python does not see
        lent.close()
        lent.close()

    def test_a_daemon_that_goes_away(self):
        x, y = Tensor(8).fill(*range(8)), Tensor(8).fill(*[0] * 8)
        lent = [kiln.lend(x), kiln.lend(y)]
        copy(x, y)
        kiln.synchronize()
        kill_daemon()
        os.environ["KILN_FAKE_CUDA"] = "gpus=2"
        with self.assertRaises(kiln.ConnectionLost):  # of a call that nobody took
            copy(x, y)
            kiln.synchronize()
        y.fill(*[0] * 8)
        copy(x, y)
        kiln.synchronize()
        self.assertEqual(y.values(), x.values())
        self.assertEqual(len(lent), 2)

    def test_a_client_of_ones_own(self):
        kiln.connect()
        x, y = Tensor(8).fill(*range(8)), Tensor(8)
        with kiln.Client(device="cuda:1", mode="daemon") as client:
            with kiln.lend(x), kiln.lend(y):
                copy(x, y)
                client.synchronize()
        self.assertEqual(y.values(), x.values())
        with kiln.Client(device="cuda:0", mode="daemon"):
            with self.assertRaisesRegex(ValueError, "GPU"):
                kiln.lend(x)


def memoryview_of_host():
    import numpy

    return numpy.zeros(4, "f4")


class Gpus(Case):
    def test_the_uuid_chooses(self):
        """GPU 0 of this process is the daemon's second one."""
        self.assertEqual(kiln._kiln.current(0).device, "cuda:1")


class Local(Case):
    def setUp(self):
        driver.current = driver.recording

    def test_a_graph_outlives_its_call(self):
        x, y = Tensor(9, 40), Tensor(9, 40)
        graph, runs = ctypes.c_void_p(), ctypes.c_void_p()
        before = driver.live(LIVE_MODULES)
        kiln.softmax(x, out=y)
        driver.do("cuStreamBeginCapture_v2", driver.recording, 1)
        kiln.softmax(x, out=y)
        driver.do("cuStreamEndCapture", driver.recording, ctypes.byref(graph))
        driver.do("cuGraphInstantiateWithFlags", ctypes.byref(runs), graph, ctypes.c_uint64(0))
        kiln.log_softmax(x, out=y)
        self.assertEqual(driver.live(LIVE_MODULES), before + 2)
        big, large = Tensor(1024), Tensor(1024)
        for i in range(1024):  # other calls take the places of all that were prepared
            copy(Tensor(i + 1, address=big.address), Tensor(i + 1, address=large.address))
        self.assertEqual(kiln._kiln.current(0).prepared, 1024)
        self.assertEqual(driver.live(LIVE_MODULES), before + 1)
        driver.do("cuGraphLaunch", runs, driver.recording)
        driver.do("cuStreamSynchronize", driver.recording)


if __name__ == "__main__":
    unittest.main()
