/*
 * vec.cuh: moving 1, 2, 4, 8 or 16 bytes at once between memory and 32-bit registers, or 32 as two
 * of 16.  A value of less than 4 bytes lies in the low end of one word, zeros above.  Addresses are
 * aligned to the width: the planner has seen to it.
 */
#pragma once
#include "common/types.cuh"

struct alignas(8) vec_words2 {
	u32 a, b;
};
struct alignas(16) vec_words4 {
	u32 a, b, c, d;
};

/* Words that a value of so many bytes takes. */
template <int BYTES>
constexpr int vec_words = BYTES < 4 ? 1 : BYTES / 4;

/* The bits of element i, of ES bytes, out of words. */
template <int ES>
DEVICE u64 vec_element(const u32 *words, int i)
{
	static_assert(ES == 1 || ES == 2 || ES == 4 || ES == 8, "size");
	if constexpr (ES == 8)
		return static_cast<u64>(words[2 * i + 1]) << 32 | words[2 * i];
	else if constexpr (ES == 4)
		return words[i];
	else if constexpr (ES == 1)
		return words[i / 4] >> i % 4 * 8 & 0xff;
	else
		return words[i / 2] >> i % 2 * 16 & 0xffff;
}

template <int BYTES>
DEVICE void vec_load(const void *from, u32 *words)
{
	static_assert(BYTES == 1 || BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES % 16 == 0, "width");
	if constexpr (BYTES > 16) {
		vec_load<16>(from, words);
		vec_load<BYTES - 16>(static_cast<const u8 *>(from) + 16, words + 4);
	} else if constexpr (BYTES == 1) {
		words[0] = *static_cast<const u8 *>(from);
	} else if constexpr (BYTES == 2) {
		words[0] = *static_cast<const u16 *>(from);
	} else if constexpr (BYTES == 4) {
		words[0] = *static_cast<const u32 *>(from);
	} else if constexpr (BYTES == 8) {
		const vec_words2 v = *static_cast<const vec_words2 *>(from);
		words[0] = v.a;
		words[1] = v.b;
	} else {
		const vec_words4 v = *static_cast<const vec_words4 *>(from);
		words[0] = v.a;
		words[1] = v.b;
		words[2] = v.c;
		words[3] = v.d;
	}
}

template <int BYTES>
DEVICE void vec_store(void *to, const u32 *words)
{
	static_assert(BYTES == 1 || BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES % 16 == 0, "width");
	if constexpr (BYTES > 16) {
		vec_store<16>(to, words);
		vec_store<BYTES - 16>(static_cast<u8 *>(to) + 16, words + 4);
	} else if constexpr (BYTES == 1)
		*static_cast<u8 *>(to) = static_cast<u8>(words[0]);
	else if constexpr (BYTES == 2)
		*static_cast<u16 *>(to) = static_cast<u16>(words[0]);
	else if constexpr (BYTES == 4)
		*static_cast<u32 *>(to) = words[0];
	else if constexpr (BYTES == 8)
		*static_cast<vec_words2 *>(to) = vec_words2{words[0], words[1]};
	else
		*static_cast<vec_words4 *>(to) = vec_words4{words[0], words[1], words[2], words[3]};
}

/*
 * As vec_store, to global memory, at once.  Beside a branch that stores elements one by one, and
 * where it loses sight of alignment, the compiler would take it apart, into stores between which
 * other lanes' lie.
 */
template <int BYTES>
DEVICE void vec_store_far(void *to, const u32 *words)
{
#if !KILN_CPU
	if constexpr (BYTES == 16) {
		asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]),
					 "r"(words[1]), "r"(words[2]), "r"(words[3]));
		return;
	}
#endif
	vec_store<BYTES>(to, words);
}

/*
 * Transposes a block of registers: ROWS rows of WORDS words that hold elements of ES bytes come in,
 * column j goes out in out[j].  Four- to sixteen-byte elements only change names; smaller ones meet
 * in byte permutations.
 */
template <int ES, int ROWS, int WORDS, int COLUMNS, int OUT_WORDS>
DEVICE void vec_transpose(const u32 (&in)[ROWS][WORDS], u32 (&out)[COLUMNS][OUT_WORDS])
{
	static_assert(OUT_WORDS * 4 == ROWS * ES, "a column is whole words");
	if constexpr (ES >= 4) {
		constexpr int PER = ES / 4;
#pragma unroll
		for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
			for (int k = 0; k < ROWS; k++) {
#pragma unroll
				for (int w = 0; w < PER; w++)
					out[j][k * PER + w] = in[k][j * PER + w];
			}
		}
	} else if constexpr (ES == 2) {
#pragma unroll
		for (int k = 0; k < ROWS; k += 2) {
#pragma unroll
			for (int j = 0; j < COLUMNS; j++)
				out[j][k / 2] =
					__byte_perm(in[k][j / 2], in[k + 1][j / 2], j % 2 ? 0x7632 : 0x5410);
		}
	} else {
#pragma unroll
		for (int k = 0; k < ROWS; k += 4) {
#pragma unroll
			for (int w = 0; w < WORDS; w++) {
				const u32 low01 = __byte_perm(in[k][w], in[k + 1][w], 0x5140);
				const u32 low23 = __byte_perm(in[k + 2][w], in[k + 3][w], 0x5140);
				out[w * 4][k / 4] = __byte_perm(low01, low23, 0x5410);
				if constexpr (COLUMNS > 1)
					out[w * 4 + 1][k / 4] = __byte_perm(low01, low23, 0x7632);
				if constexpr (COLUMNS > 2) {
					const u32 high01 = __byte_perm(in[k][w], in[k + 1][w], 0x7362);
					const u32 high23 = __byte_perm(in[k + 2][w], in[k + 3][w], 0x7362);
					out[w * 4 + 2][k / 4] = __byte_perm(high01, high23, 0x5410);
					out[w * 4 + 3][k / 4] = __byte_perm(high01, high23, 0x7632);
				}
			}
		}
	}
}

/* Returns how far an address is beyond a multiple of a power of two. */
template <int MULTIPLE>
DEVICE int vec_beyond(const void *address)
{
	return static_cast<int>(static_cast<u32>(reinterpret_cast<u64>(address)) % MULTIPLE);
}

template <int BYTES>
DEVICE void vec_copy(const void *from, void *to)
{
	u32 words[vec_words<BYTES>];
	vec_load<BYTES>(from, words);
	vec_store<BYTES>(to, words);
}

/*
 * BYTES bytes out of two vectors of BYTES that lie next to each other, from byte `beyond` of the
 * first on, which is a multiple of ES.  Leaves nothing else of `pair`.
 */
template <int ES, int BYTES>
DEVICE void vec_window(u32 (&pair)[BYTES / 2], int beyond, u32 (&out)[BYTES / 4])
{
	constexpr int words = BYTES / 4;
	static_assert(BYTES >= 4, "whole words");
	if constexpr (words == 4) {
#pragma unroll
		for (int w = 0; w < 6; w++)
			pair[w] = beyond & 8 ? pair[w + 2] : pair[w];
	}
	if constexpr (words >= 2) {
#pragma unroll
		for (int w = 0; w < words + (ES < 4); w++)
			pair[w] = beyond & 4 ? pair[w + 1] : pair[w];
	}
	/* A funnel shift takes its distance modulo 32. */
#pragma unroll
	for (int w = 0; w < words; w++)
		out[w] = ES >= 4 ? pair[w] : __funnelshift_r(pair[w], pair[w + 1], beyond * 8);
}

/*
 * BYTES bytes that are aligned to elements of ES bytes only, cut out of the two aligned vectors
 * around them.  They begin `at` bytes behind `base`, which is aligned; the `left` bytes from there
 * on, one at least, may be read, and with them the vectors that hold them.  Elements that would
 * come from behind say nothing.
 */
template <int ES, int BYTES, typename Offset>
DEVICE void vec_load_skewed(const u8 *base, Offset at, int left, u32 (&words)[BYTES / 4])
{
	u32 pair[BYTES / 2];
	const int beyond = ES < BYTES ? static_cast<int>(at & (BYTES - 1)) : 0;
	const u8 *const low = base + (at & ~static_cast<Offset>(BYTES - 1));
	vec_load<BYTES>(low, pair);
	if constexpr (ES < BYTES)
		vec_load<BYTES>(low + (beyond + left > BYTES ? BYTES : 0), pair + BYTES / 4);
	vec_window<ES, BYTES>(pair, beyond, words);
}

/* Stores elements begin .. end - 1 of a vector of N elements of ES bytes, as vec_store_far. */
template <int ES, int N>
DEVICE void vec_store_some(void *to, const u32 (&words)[vec_words<ES * N>], int begin, int end)
{
	if (end - begin == N) {
		vec_store_far<ES * N>(to, words);
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++) {
		const u64 bits = vec_element<ES>(words, i);
		const u32 one[2] = {static_cast<u32>(bits), static_cast<u32>(bits >> 32)};
		if (i >= begin && i < end)
			vec_store<ES>(static_cast<u8 *>(to) + i * ES, one);
	}
}

/*
 * Fetches the two aligned vectors around BYTES bytes of a row, from `ahead` columns behind `column`
 * on: vec_window() cuts them out.  The row has COLUMNS elements of ES bytes.  A vector that holds
 * nothing of the row is not read.  `column` is greater than -BYTES / ES, `ahead` is a multiple of
 * that; sure: all of the columns are in the row.
 */
template <int ES, int BYTES, i64 COLUMNS, typename Column>
DEVICE void vec_load_around(const void *row, Column column, int ahead, bool sure,
							u32 (&pair)[BYTES / 2])
{
	const u8 *const from = static_cast<const u8 *>(row) + static_cast<i64>(column) * ES;
	const int beyond = vec_beyond<BYTES>(from), far = ahead * ES;
	const u8 *const low = from - beyond, *const high = low + (beyond ? BYTES : 0);
	/* 31 bits may count the columns of a row, and not its bytes. */
	const auto bytes = [](Column count) {
		if constexpr (COLUMNS * ES > 0x7fff0000)
			return static_cast<i64>(count) * ES;
		else
			return count * ES;
	};
	const auto place = bytes(column) - beyond;

#pragma unroll
	for (int w = 0; w < BYTES / 2; w++)
		pair[w] = 0;
	if (sure || far > 0 || place > -BYTES)
		vec_load<BYTES>(low + far, pair);
	if (sure || (beyond != 0 && place + far < bytes(static_cast<Column>(COLUMNS)) - BYTES))
		vec_load<BYTES>(high + far, pair + BYTES / 4);
}

/* Does so and cuts them out. */
template <int ES, int BYTES, i64 COLUMNS, typename Column>
DEVICE void vec_load_between(const void *row, Column column, int ahead, bool sure,
							 u32 (&words)[BYTES / 4])
{
	const u8 *const from = static_cast<const u8 *>(row) + static_cast<i64>(column) * ES;
	u32 pair[BYTES / 2];

	vec_load_around<ES, BYTES, COLUMNS>(row, column, ahead, sure, pair);
	vec_window<ES, BYTES>(pair, vec_beyond<BYTES>(from), words);
}

/*
 * One word put together of FILL elements of ES bytes: place i takes element from(i) of the words
 * `in`, which hold SOURCE elements each.  Elements above the first FILL say nothing.
 */
template <int ES, int FILL, int SOURCE, typename From>
DEVICE u32 vec_collect(const u32 *in, From from)
{
	if constexpr (FILL == 1) {
		static_assert(SOURCE == 1, "a lone element comes alone");
		return in[from(0)];
	} else if constexpr (ES == 2) {
		const int a = from(0), b = from(1);
		return __byte_perm(in[a / SOURCE], in[b / SOURCE],
						   0x5410 + a % SOURCE * 0x22 + b % SOURCE * 0x2200);
	} else {
		const int a = from(0), b = from(1);
		const u32 low =
			__byte_perm(in[a / SOURCE], in[b / SOURCE], 0x40 + a % SOURCE + b % SOURCE * 0x10);
		if constexpr (FILL == 2)
			return low;
		const int c = from(2), d = from(3);
		const u32 high =
			__byte_perm(in[c / SOURCE], in[d / SOURCE], 0x40 + c % SOURCE + d % SOURCE * 0x10);
		return __byte_perm(low, high, 0x5410);
	}
}
