/*
 * cpu_kernels: CUDA C++ for the tests of the cpu device, and its way through the compiler.  Knows
 * nothing of devices.
 */
#ifndef KILN_TESTS_CPU_KERNELS_H
#define KILN_TESTS_CPU_KERNELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/compile/compile.h"
#include "daemon/base/util.h"

#include <stdlib.h>
#include <string.h>

static const char cpu_kernels[] =
	"template <class T> __global__ void scale(const T *x, T *y, unsigned n, T by)\n"
	"{\n"
	"	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
	"	if (i < n) y[i] = x[i] * by;\n"
	"}\n"
	"/* Reverses each block twice and adds one between: two barriers and a static array. */\n"
	"template <int N> __global__ void reverse(const int *x, int *y)\n"
	"{\n"
	"	__shared__ int tile[N];\n"
	"	unsigned i = threadIdx.x, base = blockIdx.x * N;\n"
	"	tile[i] = x[base + i];\n"
	"	__syncthreads();\n"
	"	int v = tile[N - 1 - i];\n"
	"	__syncthreads();\n"
	"	tile[i] = v + 1;\n"
	"	__syncthreads();\n"
	"	y[base + i] = tile[i] + 1000 * (int)blockIdx.x;\n"
	"}\n"
	"template <class T> __global__ void warp_sum(const T *x, T *y)\n"
	"{\n"
	"	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
	"	T v = x[i];\n"
	"	for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);\n"
	"	y[i] = v;\n"
	"}\n"
	"template <class T> __global__ void rotate(const T *x, T *y, int n)\n"
	"{\n"
	"	DYN_SHARED(T, tile);\n"
	"	tile[threadIdx.x] = x[threadIdx.x];\n"
	"	__syncthreads();\n"
	"	y[threadIdx.x] = tile[(threadIdx.x + 1) % n];\n"
	"}\n"
	"/* Half of the threads leave before the barrier, one lane of each warp before the ballot. */\n"
	"template <int K> __global__ void leave(int *y)\n"
	"{\n"
	"	if (threadIdx.x % 2) return;\n"
	"	int count = __syncthreads_count(threadIdx.x >= K);\n"
	"	if (threadIdx.x % 32 == 0) { y[threadIdx.x] = -1; return; }\n"
	"	unsigned votes = __ballot_sync(0xffffffffu, threadIdx.x % 4 == 0);\n"
	"	y[threadIdx.x] = count * 65536 + (int)(votes >> 16 ^ votes);\n"
	"}\n"
	"template <int K> __global__ void where(unsigned *y)\n"
	"{\n"
	"	unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
	"	unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;\n"
	"	y[b * blockDim.x * blockDim.y * blockDim.z + t] =\n"
	"		blockIdx.x + 8 * blockIdx.y + 64 * blockIdx.z + 512 * threadIdx.x +\n"
	"		4096 * threadIdx.y + 32768 * threadIdx.z;\n"
	"}\n";

static const char cpu_more_kernels[] =
	"template <int K> __global__ void collectives(unsigned *y)\n"
	"{\n"
	"	unsigned lane = threadIdx.x;\n"
	"	y += lane * 16;\n"
	"	y[0] = __shfl_sync(0xffffffffu, lane * 10, 5, 8);\n"
	"	y[1] = __shfl_up_sync(0xffffffffu, lane, 3, 16);\n"
	"	y[2] = __shfl_down_sync(0xffffffffu, lane, 3, 16);\n"
	"	y[3] = __any_sync(0xffffffffu, lane == 7);\n"
	"	y[4] = __all_sync(0xffffffffu, lane < 31);\n"
	"	y[5] = __match_any_sync(0xffffffffu, lane / 8);\n"
	"	y[6] = __reduce_add_sync(0xffffffffu, lane);\n"
	"	y[7] = (unsigned)__reduce_min_sync(0xffffffffu, (int)lane - 9);\n"
	"	y[8] = __reduce_max_sync(0xffffffffu, lane ^ 21u);\n"
	"	if (lane < 12) y[9] = __activemask();\n"
	"	else y[9] = __activemask();\n"
	"	if (lane < 12) y[10] = __ballot_sync(0xfffu, lane & 1);\n"
	"	else y[10] = __ballot_sync(0xfffff000u, lane & 1);\n"
	"	double d = __shfl_sync(0xffffffffu, lane * 0.5, 3);\n"
	"	y[11] = d == 1.5;\n"
	"	__syncwarp();\n"
	"	y[12] = (unsigned)__syncthreads_and(lane < 40) * 2 + (unsigned)__syncthreads_or(lane == "
	"1);\n"
	"}\n"
	"template <int K> __global__ void bits(unsigned *y)\n"
	"{\n"
	"	unsigned x = y[0];\n"
	"	y[1] = (unsigned)__popc(x); y[2] = (unsigned)__clz((int)x); y[3] = __brev(x);\n"
	"	y[4] = __byte_perm(x, 0x89abcdefu, 0x7610u); y[5] = __umulhi(x, x); y[6] = "
	"(unsigned)__ffs((int)x);\n"
	"	y[7] = min(x, 7u) + max(-3, -9) + (unsigned)fmaxf(2.5f, 1.0f) + (unsigned)expf(0.0f);\n"
	"	y[8] = __float_as_uint(sqrtf(2.25f)) ^ __float_as_uint(fmaf(2.0f, 3.0f, 1.0f));\n"
	"	y[9] = (unsigned)sizeof(float4) * 256 + (unsigned)alignof(uint4);\n"
	"	float nan = __uint_as_float(0x7fc00000u);\n"
	"	y[10] = (unsigned)(fminf(nan, 4.0f) + fmaxf(3.0f, nan) + (isnan(nan) ? 100 : 0));\n"
	"}\n"
	"template <int K> __global__ void count(unsigned *y, float *f)\n"
	"{\n"
	"	atomicAdd(&y[0], 1u); atomicMax(&y[1], blockIdx.x); atomicAdd(f, 0.5f);\n"
	"	atomicInc(&y[2], 99u); atomicCAS(&y[3], 0u, threadIdx.x + 1); atomicOr(&y[4], 1u << "
	"threadIdx.x % 32);\n"
	"}\n"
	"/* A lane waits for a later thread: only a yield lets that one start. */\n"
	"template <int K> __global__ void spin(volatile unsigned *y)\n"
	"{\n"
	"	if (threadIdx.x == 0) while (y[0] == 0) __nanosleep(10);\n"
	"	if (threadIdx.x == K) y[0] = 7;\n"
	"}\n"
	"template <int K> __global__ void shadow(int *y)\n"
	"{\n"
	"	__shared__ int same_name[K];\n"
	"	same_name[threadIdx.x] = K + (int)threadIdx.x;\n"
	"	__syncthreads();\n"
	"	y[threadIdx.x] = same_name[K - 1 - threadIdx.x];\n"
	"}\n"
	"template <class T, int N> __global__ void transpose(const T *x, T *y)\n"
	"{\n"
	"	__shared__ T tile[32][33];\n"
	"	unsigned bx = blockIdx.x * 32, by = blockIdx.y * 32;\n"
	"	for (int j = 0; j < 32; j += 8)\n"
	"		tile[threadIdx.y + j][threadIdx.x] = x[(by + threadIdx.y + j) * N + bx + "
	"threadIdx.x];\n"
	"	__syncthreads();\n"
	"	for (int j = 0; j < 32; j += 8)\n"
	"		y[(bx + threadIdx.y + j) * N + by + threadIdx.x] = tile[threadIdx.x][threadIdx.y + "
	"j];\n"
	"}\n";

/* K says in which way it is wrong. */
static const char cpu_wrong_kernels[] =
	"template <int K> __global__ void bad(int *x, int *y, int by)\n"
	"{\n"
	"	unsigned t = threadIdx.x;\n"
	"	if (K == 0 && blockIdx.x == 2 && t == 5) y[by] = 1;\n"
	"	if (K == 1 && blockIdx.x == 1 && t == 3) y[0] = x[by];\n"
	"	if (K == 2 && t == 4) y[0] = x[0] / by;\n"
	"	if (K == 3) { DYN_SHARED(int, s); s[by] = 1; }\n"
	"	if (K == 4 && t == 9) *(int *)(long)by = 1;\n"
	"	if (K == 5 && t == 6) __trap();\n"
	"	if (K == 6) { if (t == 3) __syncthreads(); else x[t] = __shfl_sync(0xffffffffu, 1, 0); }\n"
	"	if (K == 7 && t != 9) x[t] = (int)__ballot_sync(0xffffffffu, 1);\n"
	"	if (K == 7 && t == 9) __syncwarp(1u << 8 | 1u << 9);\n"
	"	if (K == 8) { if (t < 16) __syncthreads(); else __syncthreads_or(1); }\n"
	"	if (K == 9) x[t] = __shfl_sync(0xffffu, 1, 0);\n"
	"	if (K == 10) assert(t < 11);\n"
	"	if (K == 11) *(float4 *)(y + by) = *(const float4 *)x;\n"
	"}\n"
	"__device__ __noinline__ int deep(volatile int *y, int n)\n"
	"{\n"
	"	volatile int room[64];\n"
	"	room[n % 64] = y[0];\n"
	"	return n == 0 ? room[0] : deep(y, n - 1) + room[n % 64];\n"
	"}\n"
	"template <int K> __global__ void recurse(int *y) { y[1] = deep(y, K); }\n"
	"template <int K> __global__ void large(int *y)\n"
	"{\n"
	"	volatile int frame[K];\n"
	"	frame[y[0] & 7] = 1;\n"
	"	y[1] = frame[y[0] & 7];\n"
	"}\n";

/*
 * Adds up x in one launch: every block leaves its part, the last one to count adds the parts.
 * x may be left out: then it counts as ones.  y: the sum, where scratch was (two words), what the
 * first part was before.  K: 0 right, 1 leaves its counter, 2 ends before it could clear it, 3 goes
 * one word too far.
 */
static const char cpu_scratch_kernels[] =
	"template <int K> __global__ void sum(unsigned *scratch, const unsigned *x, unsigned *y,\n"
	"									 unsigned n)\n"
	"{\n"
	"	unsigned *parts = scratch + 1, b = blockIdx.x, part = 0;\n"
	"	if (b == 0) y[3] = parts[0];\n"
	"	for (unsigned i = b; i < n; i += gridDim.x) part += x ? x[i] : 1;\n"
	"	parts[K == 3 ? b + 64 : b] = part;\n"
	"	__threadfence();\n"
	"	if (atomicAdd(scratch, 1u) + 1 < gridDim.x) return;\n"
	"	if (K == 2) __trap();\n"
	"	y[0] = 0;\n"
	"	for (unsigned i = 0; i < gridDim.x; i++) y[0] += parts[i];\n"
	"	y[1] = (unsigned)(unsigned long long)scratch;\n"
	"	y[2] = (unsigned)((unsigned long long)scratch >> 32);\n"
	"	if (K != 1) scratch[0] = 0;\n"
	"}\n";

/* Counts what of x is not below end; y: what the count was before. */
static const char cpu_report_kernels[] =
	"template <int K> __global__ void stray(unsigned long long *report, const unsigned *x,\n"
	"									   unsigned *y, unsigned n, unsigned end)\n"
	"{\n"
	"	if (blockIdx.x == 0) y[0] = *report;\n"
	"	for (unsigned i = blockIdx.x; i < n; i += gridDim.x)\n"
	"		if (x[i] >= end) atomicAdd(report, 1ull);\n"
	"}\n";

/* Returns the text that has the kernel. */
static const char *cpu_kernel_text(const char *instantiation)
{
	const char *const texts[] = {cpu_kernels, cpu_more_kernels, cpu_wrong_kernels,
								 cpu_scratch_kernels, cpu_report_kernels};
	char name[64];
	snprintf(name, sizeof(name), "void %.*s(", (int)strcspn(instantiation, "<"), instantiation);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (strstr(texts[i], name))
			return texts[i];
	fail_msg("no kernel %s", instantiation);
	return NULL;
}

static void cpu_kernel_compile(const char *text, const char *instantiation,
							   struct compile_result *result)
{
	static struct compile_sources *sources;
	char error[KERNEL_ERROR_MAX] = "";
	const struct compile_file *shim[COMPILE_MAX_HEADERS];
	struct compile_file files[COMPILE_MAX_HEADERS];
	int count = 0;
	memset(result, 0, sizeof(*result));
	if (!sources && compile_sources_open(NULL, &sources, error) != KILN_OK)
		fail_msg("%s", error);
	if (compile_sources_closure(sources, "cpu/shim.cuh", "cpu", shim, &count, error) != KILN_OK)
		fail_msg("%s", error);
	for (int i = 0; i < count; i++)
		files[i] = *shim[i];
	files[count++] = (struct compile_file){"test.cuh", text, strlen(text)};
	struct compile_job job = {.target = "cpu",
							  .source = "test.cuh",
							  .instantiation = instantiation,
							  .files = files,
							  .file_count = count};
	hostcc_compile(&job, result);
}

#endif
