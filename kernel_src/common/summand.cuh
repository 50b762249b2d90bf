/*
 * summand.cuh: elements that are added up one after another: floats in their type to compute in,
 * integers in words that wrap.
 */
#pragma once
#include "common/element.cuh"
#include "common/types.cuh"

template <typename T>
struct summand {
	typedef typename element<T>::compute Compute;
	static DEVICE Compute get(const void *at)
	{
		return element_load<Compute>(static_cast<const T *>(at));
	}
	/* N elements out of words that vec_load filled. */
	template <int N>
	static DEVICE void unpack(const u32 *words, Compute (&out)[N])
	{
		element_unpack<T>(words, out);
	}
	template <int N>
	static DEVICE void pack(const Compute (&in)[N], u32 *words)
	{
		element_pack<T>(in, words);
	}
};

template <typename T, typename Word>
struct summand_integer {
	typedef Word Compute;
	static DEVICE Compute get(const void *at)
	{
		return *static_cast<const T *>(at);
	}
	template <int N>
	static DEVICE void unpack(const u32 *words, Compute (&out)[N])
	{
		constexpr int bytes = static_cast<int>(sizeof(T));
#pragma unroll
		for (int i = 0; i < N; i++)
			if constexpr (bytes == 8)
				out[i] = static_cast<Word>(static_cast<u64>(words[2 * i + 1]) << 32 | words[2 * i]);
			else
				out[i] = static_cast<T>(words[i * bytes / 4] >> i * bytes % 4 * 8);
	}
	template <int N>
	static DEVICE void pack(const Compute (&in)[N], u32 *words)
	{
		constexpr int bytes = static_cast<int>(sizeof(T));
		if constexpr (bytes == 8) {
#pragma unroll
			for (int i = 0; i < N; i++) {
				words[2 * i] = static_cast<u32>(in[i]);
				words[2 * i + 1] = static_cast<u32>(static_cast<u64>(in[i]) >> 32);
			}
		} else {
#pragma unroll
			for (int i = 0; i < N; i++) {
				const u32 bits = static_cast<u32>(static_cast<T>(in[i]));
				const int at = i * bytes;
				words[at / 4] = at % 4 ? words[at / 4] | bits << at % 4 * 8 : bits;
			}
		}
	}
};
template <>
struct summand<u8> : summand_integer<u8, u32> {
};
template <>
struct summand<u16> : summand_integer<u16, u32> {
};
template <>
struct summand<u32> : summand_integer<u32, u32> {
};
template <>
struct summand<u64> : summand_integer<u64, u64> {
};

/* Adds N elements out of words to N sums. */
template <typename T, int N>
DEVICE void summand_add(const u32 *words, typename summand<T>::Compute (&sum)[N])
{
	typename summand<T>::Compute one[N];

	summand<T>::unpack(words, one);
#pragma unroll
	for (int i = 0; i < N; i++)
		sum[i] += one[i];
}

/* Adds alpha times each. */
template <typename T, int N>
DEVICE void summand_add(const u32 *words, typename summand<T>::Compute alpha,
						typename summand<T>::Compute (&sum)[N])
{
	typename summand<T>::Compute one[N];

	summand<T>::unpack(words, one);
#pragma unroll
	for (int i = 0; i < N; i++)
		sum[i] += alpha * one[i];
}
