/*
 * keywords: CUDA C++'s qualifiers as host C++, and the state of the running thread, which its
 * built-in variables read.
 */
#pragma once
#include "cpu/abi.cuh"

#ifdef KILN_CPU_KERNEL
/* Any function of a user's source may be named as the entry, and this attribute makes the compiler
 * say of those that are kernels that they are (daemon/compile/unit.c). */
#define __global__ __attribute__((deprecated(KILN_CPU_KERNEL)))
#else
#define __global__
#endif
#define __device__
#define __host__
#define __grid_constant__
#define __constant__ static
#ifdef KILN_CPU_CHECK
/* One block runs at a time, and compilers put no zones around thread-local variables. */
#define __shared__ static
#else
#define __shared__ static __thread
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#ifndef __restrict__
#define __restrict__ __restrict
#endif

typedef decltype(sizeof(0)) size_t;
typedef decltype((char *)0 - (char *)0) ptrdiff_t;

static __thread kiln_cpu_state *kiln_cpu_self;

#define threadIdx (kiln_cpu_self->thread)
#define blockIdx (kiln_cpu_self->block)
#define blockDim (kiln_cpu_self->block_size)
#define gridDim (kiln_cpu_self->grid)
static constexpr int warpSize = 32;

/* Most functions of the shim begin with this. */
#define KILN_CPU_F static __forceinline__ float
#define KILN_CPU_D static __forceinline__ double
#define KILN_CPU_I static __forceinline__ int
#define KILN_CPU_U static __forceinline__ unsigned int
#define KILN_CPU_T     \
	template <class T> \
	static __forceinline__
