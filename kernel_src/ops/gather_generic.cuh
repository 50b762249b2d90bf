/*
 * gather_generic.cuh: dst[i, j, k] = src[i, j, idx[j, k]], bit for bit, for sizes and strides that
 * are known when the kernel is launched.  Elements are bytes, and a row one (i, j), as in
 * gather.cuh.
 *
 * A thread makes one vector of dst, which lies without gaps: V elements, of one row or of several.
 * Where an index names what has been read already the caches have it.
 */
#pragma once
#include "common/indices.cuh"
#include "common/space.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define GATHER_THREADS 256 /* at most */

enum {
	GATHER_ROWS = 1,   /* a vector lies in one row */
	GATHER_LOADS = 2,  /* ... and its indices in one or more vectors */
	GATHER_STORES = 4, /* dst is aligned to vectors */
};

/* Vectors of 16 bytes, unless that takes more than 64 bytes of indices. */
template <int ES, typename I, typename Number>
struct GatherAny {
	typedef Number Place;
	static constexpr int most = 64 / static_cast<int>(sizeof(I));
	static constexpr int vector = 16 / ES < most ? 16 / ES : most;
	static constexpr int index_bytes = vector * static_cast<int>(sizeof(I));
	static constexpr int load = index_bytes < 16 ? index_bytes : 16;
	static constexpr int words = vec_words<ES>;

	const u8 *src;
	const I *idx;
	i64 src_step, idx_step;
	Number all, many, few, counted;
	u32 bounds, flags;
	Space<2, Number> rows;
	u32 strays;

	/* The element of a row that an index names. */
	DEVICE void take(I index, Number row, i64 from, u32 *element)
	{
		const Place place = indices_place_of<Place>(index, few, bounds);
		const bool none = place == indices_none<Place>;

#pragma unroll
		for (int w = 0; w < words; w++)
			element[w] = 0;
		if (!none)
			vec_load<ES>(src + (from + static_cast<i64>(place) * src_step) * ES, element);
		strays += none && row < counted;
	}

	DEVICE void vector_of_row(Number row, Number k, u32 *elements)
	{
		i64 from[2];
		I index[vector];

		rows.at(row, from);
		const I *const at = idx + from[1] + static_cast<i64>(k) * idx_step;
		if (flags & GATHER_LOADS) {
			indices_load<load>(at, index);
		} else {
#pragma unroll
			for (int i = 0; i < vector; i++)
				index[i] = at[i * idx_step];
		}
#pragma unroll
		for (int i = 0; i < vector; i++)
			take(index[i], row, from[0], elements + i * words);
	}

	/* Takes elements of a row, and behind its end those of the next. */
	DEVICE void vector_of_rows(Number row, Number k, int valid, u32 *elements)
	{
		const bool two = k + vector > many && row + 1 < all;
		i64 from[2], then[2];

		rows.at(row, from);
		rows.at(two ? row + 1 : row, then);
#pragma unroll
		for (int i = 0; i < vector; i++) {
			const bool next = k + i >= many;
			const Number at = next ? k + i - many : k + i;
			if (i < valid)
				take(idx[(next ? then[1] : from[1]) + static_cast<i64>(at) * idx_step],
					 next ? row + 1 : row, next ? then[0] : from[0], elements + i * words);
		}
	}

	/* Takes rows that are shorter than a vector, one after the other. */
	DEVICE void elements_of_rows(Number row, Number k, int valid, u8 *to)
	{
#pragma unroll 1
		for (int i = 0; i < valid; i++) {
			u32 element[words];
			i64 from[2];
			rows.at(row, from);
			take(idx[from[1] + static_cast<i64>(k) * idx_step], row, from[0], element);
			vec_store<ES>(to + i * ES, element);
			if (++k == many) {
				k = 0;
				row++;
			}
		}
	}

	DEVICE void store(const u32 *elements, int valid, u8 *to) const
	{
		constexpr int bytes = ES * vector, fill = bytes < 4 ? vector : ES < 4 ? 4 / ES : 1;

		if (!(flags & GATHER_STORES) || valid < vector) {
#pragma unroll
			for (int i = 0; i < vector; i++)
				if (i < valid)
					vec_store<ES>(to + i * ES, elements + i * words);
		} else if constexpr (ES >= 4 || vector == 1) {
			vec_store<bytes>(to, elements);
		} else {
			u32 out[vec_words<bytes>];
#pragma unroll
			for (int w = 0; w < vec_words<bytes>; w++)
				out[w] = vec_collect<ES, fill, 1>(elements, [=](int i) { return w * fill + i; });
			vec_store<bytes>(to, out);
		}
	}
};

/* count: elements of dst.  counted: rows whose indices have not been seen in a row before; theirs
 * are reported.  Number holds count and few, and leaves its highest bit free. */
template <int ES, typename I, typename Number>
__global__ __launch_bounds__(GATHER_THREADS) void gather_generic(
	const void *src, const I *idx, void *dst, u64 *report, Number count, Number rows,
	DIVIDE_PARAMS(Number, many), Number few, Number counted, i64 src_step, i64 idx_step, u32 bounds,
	u32 flags, SPACE_SIZES(Number), SPACE_STRIDES(of_src), SPACE_STRIDES(of_idx))
{
	typedef GatherAny<ES, I, Number> Any;
	const Divisor<Number> row_of = DIVIDE_MADE(Number, many);
	Any any{static_cast<const u8 *>(src),
			idx,
			src_step,
			idx_step,
			rows,
			many_size,
			few,
			counted,
			bounds,
			flags,
			{SPACE_SIZES_MADE(Number), {SPACE_STRIDES_MADE(of_src), SPACE_STRIDES_MADE(of_idx)}},
			0};
	const Number step = static_cast<Number>(gridDim.x) * (blockDim.x * Any::vector);
	Number at = (static_cast<Number>(blockIdx.x) * blockDim.x + threadIdx.x) * Any::vector;

	for (; at < count; at += step) {
		const Number row = row_of.quotient(at), k = at - row * many_size, left = count - at;
		const int valid = left < Any::vector ? static_cast<int>(left) : Any::vector;
		u8 *const to = static_cast<u8 *>(dst) + static_cast<u64>(at) * ES;
		u32 elements[Any::vector * Any::words];

		if (many_size < Any::vector) {
			any.elements_of_rows(row, k, valid, to);
			continue;
		}
		if (flags & GATHER_ROWS)
			any.vector_of_row(row, k, elements);
		else
			any.vector_of_rows(row, k, valid, elements);
		any.store(elements, valid, to);
	}
	if (bounds == INDICES_CHECK && report)
		indices_report(report, any.strays);
}
