/*
 * vectors: CUDA's built-in vector types (float4, uint2, ...) and their make_ functions, with CUDA's
 * sizes and alignments; dim3.
 */
#pragma once
#include "cpu/keywords.cuh"

#define KILN_CPU_VECTOR(T, name, align2, align4) \
	struct name##1                               \
	{                                            \
		T x;                                     \
	};                                           \
	struct __align__(align2) name##2             \
	{                                            \
		T x, y;                                  \
	};                                           \
	struct name##3                               \
	{                                            \
		T x, y, z;                               \
	};                                           \
	struct __align__(align4) name##4             \
	{                                            \
		T x, y, z, w;                            \
	};                                           \
	KILN_CPU_VECTOR_MAKE(T, name)
#define KILN_CPU_VECTOR_MAKE(T, name)                        \
	static inline name##1 make_##name##1(T x)                \
	{                                                        \
		return {x};                                          \
	}                                                        \
	static inline name##2 make_##name##2(T x, T y)           \
	{                                                        \
		return {x, y};                                       \
	}                                                        \
	static inline name##3 make_##name##3(T x, T y, T z)      \
	{                                                        \
		return {x, y, z};                                    \
	}                                                        \
	static inline name##4 make_##name##4(T x, T y, T z, T w) \
	{                                                        \
		return {x, y, z, w};                                 \
	}

KILN_CPU_VECTOR(signed char, char, 2, 4)
KILN_CPU_VECTOR(unsigned char, uchar, 2, 4)
KILN_CPU_VECTOR(short, short, 4, 8)
KILN_CPU_VECTOR(unsigned short, ushort, 4, 8)
KILN_CPU_VECTOR(int, int, 8, 16)
KILN_CPU_VECTOR(long, long, 16, 16)
KILN_CPU_VECTOR(unsigned long, ulong, 16, 16)
KILN_CPU_VECTOR(long long, longlong, 16, 16)
KILN_CPU_VECTOR(unsigned long long, ulonglong, 16, 16)
KILN_CPU_VECTOR(float, float, 8, 16)
KILN_CPU_VECTOR(double, double, 16, 16)

/* unsigned int: threadIdx is a uint3. */
typedef kiln_cpu_dim uint3;
struct uint1 {
	unsigned int x;
};
struct __align__(8) uint2
{
	unsigned int x, y;
};
struct __align__(16) uint4
{
	unsigned int x, y, z, w;
};
KILN_CPU_VECTOR_MAKE(unsigned int, uint)
#undef KILN_CPU_VECTOR
#undef KILN_CPU_VECTOR_MAKE

struct dim3 {
	unsigned int x, y, z;
	constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
		: x(vx), y(vy), z(vz)
	{
	}
	constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
	{
	}
	constexpr operator uint3() const
	{
		return {x, y, z};
	}
};
