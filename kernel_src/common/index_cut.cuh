/*
 * index_cut.cuh: rows by indices that are no whole vectors of 16 bytes: a thread cuts each vector
 * of dst out of the two aligned ones of src around it, and where two rows meet out of two more.
 */
#pragma once
#include "common/types.cuh"
#include "common/vec.cuh"

/* The two aligned vectors of src around a part of a row, which goes to a vector of dst. */
struct IndexCut {
	u32 pair[8];
	int beyond; /* bytes of the first that come before the part */
	bool some;  /* the index names a row */
};

/*
 * Loads them.  at: the bytes behind `base`, which is aligned, of what would be byte 0 of the vector
 * of dst; of its bytes those from `from` to `to` are in the row, and no vector is read that holds
 * none of them.
 */
DEVICE void index_cut_load(const u8 *base, i64 at, int from, int to, IndexCut &cut)
{
	const i64 low = at & ~static_cast<i64>(15);

	cut.beyond = static_cast<int>(at & 15);
	vec_load<16>(base + low + (cut.beyond + from < 16 ? 0 : 16), cut.pair);
	vec_load<16>(base + low + (cut.beyond + to > 16 ? 16 : 0), cut.pair + 4);
}

/* Puts what a part of the next row makes behind the first `bytes` of a vector. */
template <int ES>
DEVICE void index_cut_merge(IndexCut &next, int bytes, u32 (&words)[4])
{
	u32 more[4] = {};

	if (next.some)
		vec_window<ES, 16>(next.pair, next.beyond, more);
#pragma unroll
	for (int w = 0; w < 4; w++) {
		const int left = bytes - 4 * w;
		const u32 mask = left <= 0 ? 0 : left >= 4 ? 0xffffffffu : (1u << left * 8) - 1;
		words[w] = (words[w] & mask) | (more[w] & ~mask);
	}
}

/* Stores the first `valid` bytes of a vector. */
template <int ES>
DEVICE void index_cut_store(const u32 (&words)[4], int valid, u8 *to)
{
	if (valid == 16) {
		vec_store<16>(to, words);
		return;
	}
#pragma unroll
	for (int i = 0; i < 16; i += ES) {
		u32 one[vec_words<ES>];
#pragma unroll
		for (int w = 0; w < vec_words<ES>; w++)
			one[w] = words[i / 4 + w] >> (ES < 4 ? i % 4 * 8 : 0);
		if (i < valid)
			vec_store<ES>(to + i, one);
	}
}

/* Makes U vectors of dst, `step` apart from number `first` on; dst has `count` elements.  Asks for
 * all indices first, and then for all vectors of src; where two rows meet, for the next one's when
 * those are there. */
template <int ES, int U, i64 ROW, class PLACES, typename Number, typename I, class Find>
DEVICE u32 index_cuts(const u8 *src, const I *idx, u8 *dst, Number first, Number step, Number count,
					  Find find)
{
	constexpr int each = 16 / ES;
	static_assert(ROW >= each, "a vector is in two rows at most");
	const int beyond = vec_beyond<16>(src);
	IndexCut cut[U];
	i64 read[U], from[U];
	int ends[U], valid[U]; /* bytes of the vector that are in its first row, and that there are */
	bool counts[U];
	u32 strays = 0;
	const auto ask = [&](i64 index, i64 at, int low, int high, bool counted, IndexCut &part) {
		i64 place;
		part.some = find(index, place);
		strays += !part.some && counted;
		if (part.some)
			index_cut_load(src - beyond, at + place * PLACES::axis * ES, low, high, part);
	};

#pragma unroll
	for (int u = 0; u < U; u++) {
		const Number at = (first + static_cast<Number>(u) * step) * each;
		const Number row = at / static_cast<Number>(ROW);
		const i64 column = static_cast<i64>(at - row * static_cast<Number>(ROW));
		i64 offset[3];
		cut[u].some = false;
		valid[u] = 0;
		if (at >= count)
			continue;
		valid[u] = count - at < static_cast<Number>(each) ? static_cast<int>(count - at) * ES : 16;
		ends[u] = ROW - column < each ? static_cast<int>(ROW - column) * ES : 16;
		PLACES::at(row, offset);
		read[u] = static_cast<i64>(idx[offset[1]]);
		from[u] = (offset[0] + column) * ES + beyond;
		counts[u] = column == 0 && offset[2] == 0;
	}
#pragma unroll
	for (int u = 0; u < U; u++)
		if (valid[u] > 0)
			ask(read[u], from[u], 0, ends[u] < valid[u] ? ends[u] : valid[u], counts[u], cut[u]);
#pragma unroll
	for (int u = 0; u < U; u++) {
		const Number n = first + static_cast<Number>(u) * step;
		u32 words[4] = {};
		if (valid[u] == 0)
			continue;
		if (cut[u].some)
			vec_window<ES, 16>(cut[u].pair, cut[u].beyond, words);
		if (ends[u] < valid[u]) {
			i64 offset[3];
			PLACES::at(n * each / static_cast<Number>(ROW) + 1, offset);
			ask(static_cast<i64>(idx[offset[1]]), offset[0] * ES - ends[u] + beyond, ends[u],
				valid[u], offset[2] == 0, cut[u]);
			index_cut_merge<ES>(cut[u], ends[u], words);
		}
		index_cut_store<ES>(words, valid[u], dst + static_cast<i64>(n) * 16);
	}
	return strays;
}
