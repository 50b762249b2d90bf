/*
 * types.cuh: the fixed-width integers, the 16-byte element and the spelling of what CUDA and the
 * cpu device do differently.  The lowest layer: includes nothing and knows no kernel.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

/* Sixteen bytes that travel together. */
struct alignas(16) b128 {
	u32 word[4];
};

#define DEVICE __device__ __forceinline__

/*
 * Left to itself, ptxas spills a few words of some kernels for targets other than sm_90, to make
 * room for a second block.  On sm_90 its own choice of registers is the one that was timed.
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#define LAUNCH_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#define LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
#endif

#if !KILN_CPU
/* Shared memory whose size the launch gives.  On the cpu device its shim defines this. */
#define DYN_SHARED(T, name) extern __shared__ T name[]
#endif
