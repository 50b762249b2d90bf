"""test_cuda.py: tensors of torch and CuPy on a GPU, launched on the stream that they work on."""
import threading
import unittest

from support import kill_daemon, kiln

try:
    import torch

    HERE = torch.cuda.is_available()
except ImportError:
    HERE = False
try:
    import cupy
except ImportError:
    cupy = None


SUMS = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_reduce.cuh>

extern "C" __global__ void sums(const int *x, int *y, int *z, long long columns)
{
	using Reduce = cub::BlockReduce<int, 128>;
	namespace groups = cooperative_groups;
	__shared__ typename Reduce::TempStorage room;
	__shared__ int most[4];
	int sum = 0, top = -2147483647;
	for (int j = threadIdx.x; j < columns; j += 128) {
		int value = x[blockIdx.x * columns + j];
		sum += value;
		top = value > top ? value : top;
	}
	sum = Reduce(room).Sum(sum);
	auto warp = groups::tiled_partition<32>(groups::this_thread_block());
	top = groups::reduce(warp, top, groups::greater<int>());
	if (warp.thread_rank() == 0)
		most[warp.meta_group_rank()] = top;
	__syncthreads();
	if (threadIdx.x == 0) {
		y[blockIdx.x] = sum;
		for (int i = 1; i < 4; i++)
			top = most[i] > top ? most[i] : top;
		z[blockIdx.x] = top;
	}
}
"""


@unittest.skipUnless(HERE, "torch has no GPU here")
class Cuda(unittest.TestCase):
    def test_operators(self):
        f = torch.nn.functional
        for dtype in [torch.float16, torch.bfloat16, torch.float32]:
            x = torch.randn(64, 1000, device="cuda", dtype=dtype)
            weight, bias = (torch.randn(1000, device="cuda", dtype=dtype) for _ in range(2))
            torch.testing.assert_close(kiln.softmax(x), torch.softmax(x, -1))
            torch.testing.assert_close(kiln.softmax(x[:, 1:], 0), torch.softmax(x[:, 1:], 0))
            torch.testing.assert_close(kiln.layer_norm(x, (1000,), weight, bias),
                                       f.layer_norm(x, (1000,), weight, bias), rtol=2e-2, atol=2e-2)
            torch.testing.assert_close(kiln.rms_norm(x, (1000,), weight),
                                       f.rms_norm(x, (1000,), weight), rtol=2e-2, atol=2e-2)
            torch.testing.assert_close(kiln.permute(x, (1, 0)), x.t().contiguous())
        x = torch.randn(40, 30, device="cuda")
        torch.testing.assert_close(kiln.map("y[i,j] = x[i,j] * s", x=x, s=3.0), x * 3)

    def test_streams(self):
        x = torch.randn(4096, 4096, device="cuda")
        kiln.softmax(x)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(20):
                y = x * 2
                y = kiln.softmax(y)
                z = y * 3
        stream.synchronize()
        torch.testing.assert_close(z, torch.softmax(x * 2, -1) * 3)

    def test_graph(self):
        x, out = torch.randn(64, 512, device="cuda"), torch.empty(64, 512, device="cuda")
        kiln.softmax(x, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kiln.softmax(x, out=out)
        x.normal_()
        graph.replay()
        torch.testing.assert_close(out, torch.softmax(x, -1))

    def test_errors(self):
        x = torch.randn(4, 4, device="cuda")
        with self.assertRaises(ValueError):
            kiln.softmax(x, out=x)
        with self.assertRaisesRegex(ValueError, "another device"):
            kiln.softmax(x, out=torch.empty(4, 4))
        with self.assertRaisesRegex(kiln.NotSupported, "bounds"):
            kiln.gather(x.reshape(1, 4, 4), torch.zeros(4, 2, device="cuda", dtype=torch.int32))

    def test_threads(self):
        x = torch.randn(128, 256, device="cuda")
        expected, wrong = torch.softmax(x, -1), []

        def work():
            for _ in range(50):
                if not torch.allclose(kiln.softmax(x), expected):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_launches_go_on_without_the_daemon(self):
        x = torch.randn(8, 8, device="cuda")
        expected = kiln.softmax(x)
        kill_daemon()
        torch.testing.assert_close(kiln.softmax(x), expected)
        torch.testing.assert_close(kiln.log_softmax(x), torch.log_softmax(x, -1))

    def test_fallback_to_attributes(self):
        from kiln import _kinds

        def older(type):
            return dict(_kinds._torch(type), read="attributes") \
                if issubclass(type, torch.Tensor) else None

        _kinds.register("older", older)
        try:
            self.test_operators()
            self.test_streams()
        finally:
            _kinds._registered.pop("older")
            kiln._kiln.forget_kinds()

    def test_headers_of_the_toolkit(self):
        add = kiln.RawKernel(SUMS, "sums", options=("-std=c++17",))
        x = torch.randint(-9, 9, (96, 512), device="cuda", dtype=torch.int32)
        y, z = (torch.full((96,), -1, device="cuda", dtype=torch.int32) for _ in range(2))
        try:
            add((96,), (128,), (x, y, z, 512))
        except ValueError as error:
            if "cub/block/block_reduce.cuh" in str(error):
                self.skipTest(str(error))
            raise
        torch.testing.assert_close(y, x.sum(1, dtype=torch.int32))
        torch.testing.assert_close(z, x.amax(1))

    def test_every_gpu(self):
        for number in range(torch.cuda.device_count()):
            x = torch.randn(33, 65, device=f"cuda:{number}")
            y = kiln.softmax(x)
            self.assertEqual(y.device, x.device)
            torch.testing.assert_close(y, torch.softmax(x, -1))


@unittest.skipUnless(HERE and cupy, "there is no CuPy here")
class CuPy(unittest.TestCase):
    def test_arrays(self):
        x = cupy.random.rand(16, 100).astype("f4")
        with cupy.cuda.Stream():
            y = kiln.softmax(x)
            self.assertIsInstance(y, cupy.ndarray)
            e = cupy.exp(x - x.max(-1, keepdims=True))
            cupy.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)
