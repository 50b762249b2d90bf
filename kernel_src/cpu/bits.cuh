/*
 * bits: CUDA's integer intrinsics: counting, reversing and picking bits, high halves of products.
 */
#pragma once
#include "cpu/keywords.cuh"

/* The built-in is a call of the compiler's run-time library, which is not linked. */
KILN_CPU_I __popc(unsigned int x)
{
	x -= x >> 1 & 0x55555555u;
	x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
	x = (x + (x >> 4)) & 0x0f0f0f0fu;
	return (int)(x * 0x01010101u >> 24);
}
KILN_CPU_I __popcll(unsigned long long x)
{
	return __popc((unsigned int)x) + __popc((unsigned int)(x >> 32));
}
KILN_CPU_I __clz(int x)
{
	return x == 0 ? 32 : __builtin_clz((unsigned int)x);
}
KILN_CPU_I __clzll(long long x)
{
	return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
KILN_CPU_I __ffs(int x)
{
	return __builtin_ffs(x);
}
KILN_CPU_I __ffsll(long long x)
{
	return __builtin_ffsll(x);
}
KILN_CPU_U __brev(unsigned int x)
{
	x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
	x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
	x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
	return __builtin_bswap32(x);
}
static __forceinline__ unsigned long long __brevll(unsigned long long x)
{
	return (unsigned long long)__brev((unsigned int)x) << 32 | __brev((unsigned int)(x >> 32));
}
/* Byte i of the result is byte (selector nibble i & 7) of y:x; bit 3 of the nibble spreads its sign
 * instead. */
KILN_CPU_U __byte_perm(unsigned int x, unsigned int y, unsigned int selector)
{
	unsigned long long both = (unsigned long long)y << 32 | x;
	unsigned int out = 0;
	for (int i = 0; i < 4; i++) {
		unsigned int nibble = selector >> (4 * i) & 15u;
		unsigned int byte = (unsigned int)(both >> (8 * (nibble & 7u))) & 0xffu;
		if (nibble & 8u)
			byte = byte & 0x80u ? 0xffu : 0u;
		out |= byte << (8 * i);
	}
	return out;
}
KILN_CPU_U __umulhi(unsigned int x, unsigned int y)
{
	return (unsigned int)((unsigned long long)x * y >> 32);
}
KILN_CPU_I __mulhi(int x, int y)
{
	return (int)((long long)x * y >> 32);
}
static __forceinline__ unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
	return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static __forceinline__ long long __mul64hi(long long x, long long y)
{
	return (long long)((__int128)x * y >> 64);
}
KILN_CPU_I __mul24(int x, int y)
{
	return (int)((unsigned int)(x << 8 >> 8) * (unsigned int)(y << 8 >> 8));
}
KILN_CPU_U __umul24(unsigned int x, unsigned int y)
{
	return (x & 0xffffffu) * (y & 0xffffffu);
}
KILN_CPU_U __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift)
{
	unsigned long long both = (unsigned long long)high << 32 | low;
	return (unsigned int)(both << (shift & 31u) >> 32);
}
KILN_CPU_U __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift)
{
	unsigned long long both = (unsigned long long)high << 32 | low;
	return (unsigned int)(both >> (shift & 31u));
}
