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

#if !KILN_CPU
/* Shared memory whose size the launch gives.  On the cpu device its shim defines this. */
#define DYN_SHARED(T, name) extern __shared__ T name[]
#endif
