/*
 * scatter_group.cuh: rows that share a list of indices, as many as fill 16 bytes with an element of
 * each.  They are transposed on their way to shared memory, so that one access there finds the
 * elements of all of them.
 */
#pragma once
#include "common/types.cuh"
#include "common/vec.cuh"

/* Returns where shared memory has the elements at k: eight k that meet in a bank lie apart. */
DEVICE int scatter_group_at(int k)
{
	return (k ^ (k >> 3 & 7)) * 16;
}

/* Loads vector n of all rows.  GROUP: `rows` rows of `many` elements of `element` bytes, of which
 * `load` bytes are loaded at once; `skew`: they are not whole vectors. */
template <class GROUP>
DEVICE void scatter_group_load(const u8 *const (&row)[GROUP::rows], int n,
							   u32 (&in)[GROUP::rows][GROUP::load / 4])
{
	constexpr int bytes = GROUP::many * GROUP::element, w = GROUP::load;

#pragma unroll
	for (int g = 0; g < GROUP::rows; g++) {
		if constexpr (GROUP::skew) {
			const int beyond = vec_beyond<w>(row[g]), left = bytes - n * w;
			vec_load_skewed<GROUP::element, w>(row[g] - beyond, n * w + beyond, left < w ? left : w,
											   in[g]);
		} else {
			vec_load<w>(row[g] + n * w, in[g]);
		}
	}
}

template <class GROUP>
DEVICE void scatter_group_put(u8 *shared, int n, const u32 (&in)[GROUP::rows][GROUP::load / 4])
{
	u32 out[GROUP::each][4];

	vec_transpose<GROUP::element>(in, out);
#pragma unroll
	for (int j = 0; j < GROUP::each; j++)
		vec_store<16>(shared + scatter_group_at(n * GROUP::each + j), out[j]);
}
