"""raw_kernel.py: a kernel of one's own, by source.

With torch and a GPU it is launched on torch's current stream; otherwise it runs on NumPy arrays.
"""
import kiln
import numpy

SOURCE = """
#include "clamp.h"

template <typename T, int THREADS>
__global__ void clamp_sum(const T *x, T *sums, T low, T high, long long n)
{
    __shared__ T part[THREADS];
    T sum = 0;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (long long)THREADS)
        sum += clamp(x[i], low, high);
    part[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}
"""
CLAMP = """template <typename T>
__device__ T clamp(T x, T a, T b) { return x < a ? a : x > b ? b : x; }"""
BLOCKS, THREADS, N = 32, 128, 100_000


def arrays():
    """The input, and room for one sum a block."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        return torch.randn(N, device="cuda"), torch.zeros(BLOCKS, device="cuda")
    x = numpy.random.default_rng(1).standard_normal(N).astype("f4")
    return x, numpy.zeros(BLOCKS, "f4")


def main():
    kernel = kiln.RawKernel(SOURCE, f"clamp_sum<float, {THREADS}>", headers={"clamp.h": CLAMP})
    x, sums = arrays()
    low, high = numpy.float32(-0.5), numpy.float32(1)  # a Python float is a double
    kernel(BLOCKS, THREADS, (x, sums, low, high, N))
    expected = float(x.clip(-0.5, 1).sum())
    print(f"sum {float(sums.sum()):.2f}, expected {expected:.2f}")
    return 0 if abs(float(sums.sum()) - expected) < 1e-3 * abs(expected) + 0.1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
