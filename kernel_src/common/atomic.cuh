/*
 * atomic.cuh: adds to elements of memory while other threads add to them.  Additions come in any
 * order, and each is rounded to the type of the elements.
 */
#pragma once
#include "common/element.cuh"
#include "common/types.cuh"

DEVICE void atomic_add_word(f32 *to, const u32 *word)
{
	atomicAdd(to, __uint_as_float(word[0]));
}

DEVICE void atomic_add_word(u32 *to, const u32 *word)
{
	atomicAdd(to, word[0]);
}

DEVICE void atomic_add_word(u64 *to, const u32 *word)
{
	atomicAdd(to, static_cast<u64>(word[1]) << 32 | word[0]);
}

DEVICE void atomic_add_word(f64 *to, const u32 *word)
{
	atomicAdd(to,
			  __longlong_as_double(static_cast<i64>(static_cast<u64>(word[1]) << 32 | word[0])));
}

/* The low half of a word, where the device has no such addition: a sum in f32 of two of 16 bits
 * rounds as one of 16 bits does. */
template <typename T>
DEVICE void atomic_add_swapped(T *to, u32 word)
{
	const T one = {static_cast<u16>(word)};
	u16 seen = *static_cast<volatile u16 *>(&to->bits);

#pragma unroll 1
	for (;;) {
		const T old = {seen};
		T sum;
		element_narrow(element_widen(old) + element_widen(one), sum);
		const u16 found = atomicCAS(&to->bits, seen, sum.bits);
		if (found == seen)
			return;
		seen = found;
	}
}

DEVICE void atomic_add_word(f16 *to, const u32 *word)
{
#if KILN_CPU
	atomic_add_swapped(to, word[0]);
#else
	asm volatile("red.relaxed.gpu.global.add.noftz.f16 [%0], %1;"
				 :
				 : "l"(to), "h"(static_cast<u16>(word[0]))
				 : "memory");
#endif
}

DEVICE void atomic_add_word(bf16 *to, const u32 *word)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("red.relaxed.gpu.global.add.noftz.bf16 [%0], %1;"
				 :
				 : "l"(to), "h"(static_cast<u16>(word[0]))
				 : "memory");
#else
	atomic_add_swapped(to, word[0]);
#endif
}

/* Two elements of 16 bits. */
DEVICE void atomic_add_pair(f16 *to, u32 word)
{
#if KILN_CPU
	atomic_add_swapped(to, word);
	atomic_add_swapped(to + 1, word >> 16);
#else
	asm volatile("red.relaxed.gpu.global.add.noftz.f16x2 [%0], %1;"
				 :
				 : "l"(to), "r"(word)
				 : "memory");
#endif
}

DEVICE void atomic_add_pair(bf16 *to, u32 word)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("red.relaxed.gpu.global.add.noftz.bf16x2 [%0], %1;"
				 :
				 : "l"(to), "r"(word)
				 : "memory");
#else
	atomic_add_swapped(to, word);
	atomic_add_swapped(to + 1, word >> 16);
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

#define ATOMIC_ADD_VECTOR(T, type, letter, rounds)                                                 \
	DEVICE void atomic_add_vector2(T *to, const u32 *word)                                         \
	{                                                                                              \
		asm volatile("red.relaxed.gpu.global.add" rounds ".v2." type " [%0], {%1, %2};"            \
					 :                                                                             \
					 : "l"(to), letter(word[0]), letter(word[1])                                   \
					 : "memory");                                                                  \
	}                                                                                              \
	DEVICE void atomic_add_vector4(T *to, const u32 *word)                                         \
	{                                                                                              \
		asm volatile("red.relaxed.gpu.global.add" rounds ".v4." type " [%0], {%1, %2, %3, %4};"    \
					 :                                                                             \
					 : "l"(to), letter(word[0]), letter(word[1]), letter(word[2]), letter(word[3]) \
					 : "memory");                                                                  \
	}
#define ATOMIC_F32(word) "f"(__uint_as_float(word))
#define ATOMIC_PAIR(word) "r"(word)
ATOMIC_ADD_VECTOR(f32, "f32", ATOMIC_F32, "")
ATOMIC_ADD_VECTOR(f16, "f16x2", ATOMIC_PAIR, ".noftz")
ATOMIC_ADD_VECTOR(bf16, "bf16x2", ATOMIC_PAIR, ".noftz")
#undef ATOMIC_ADD_VECTOR
#undef ATOMIC_F32
#undef ATOMIC_PAIR

#endif

/* Vectors of elements are one addition. */
template <typename T>
constexpr bool atomic_vectors = false;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <>
constexpr bool atomic_vectors<f32> = true;
template <>
constexpr bool atomic_vectors<f16> = true;
template <>
constexpr bool atomic_vectors<bf16> = true;
#else
template <typename T>
DEVICE void atomic_add_vector2(T *, const u32 *)
{
}
template <typename T>
DEVICE void atomic_add_vector4(T *, const u32 *)
{
}
#endif

/* Adds V elements, which lie in words, to those at an address that is aligned to all of them. */
template <typename T, int V>
DEVICE void atomic_add(T *to, const u32 *words)
{
	constexpr int bytes = static_cast<int>(sizeof(T)) * V;

	if constexpr (atomic_vectors<T> && bytes == 16) {
		atomic_add_vector4(to, words);
	} else if constexpr (atomic_vectors<T> && bytes == 8) {
		atomic_add_vector2(to, words);
	} else if constexpr (sizeof(T) >= 4) {
#pragma unroll
		for (int i = 0; i < V; i++)
			atomic_add_word(to + i, words + i * static_cast<int>(sizeof(T)) / 4);
	} else if constexpr (V == 1) {
		atomic_add_word(to, words);
	} else {
#pragma unroll
		for (int i = 0; i < V; i += 2)
			atomic_add_pair(to + i, words[i / 2]);
	}
}
