/*
 * scatter_group.cuh: rows that share a list of indices, as many as fill 16 bytes with an element of
 * each.  They are transposed on their way to shared memory, so that one access there finds the
 * elements of all of them.
 */
#pragma once
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* FEW elements a row of dsrc, MANY of ddst.  SKEW: rows of ddst are not whole vectors.  V: elements
 * of dsrc that a thread stores at once. */
template <typename T, typename I, int BOUNDS, int FEW, int MANY, int THREADS, bool SKEW, int V>
struct ScatterGroup {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int bounds = BOUNDS, few = FEW, many = MANY, threads = THREADS, vector = V;
	static constexpr bool skew = SKEW;
	static constexpr int element = static_cast<int>(sizeof(T));
	static constexpr int rows = 16 / element;
	/* Bytes and elements of a row that are loaded at once: what a thread holds of all rows leaves
	 * registers for many threads. */
	static constexpr int load = element == 2 ? 8 : 16, each = load / element;
	static constexpr int loads = (MANY + each - 1) / each;
	static constexpr int knots = (MANY + 31) / 32;
	/* Shared memory: the elements of all rows at each k; for each k the next of its chain, and the
	 * place that it names; for each p the first k of its chain. */
	static constexpr int next_at = (loads * each + 7) / 8 * 128;
	static constexpr int places_at = next_at + knots * 64;
	static constexpr int heads_at = places_at + knots * 64;
	static constexpr u16 end = 0xffff;                    /* of a chain */
	static constexpr u16 opens = 0x8000, closes = 0x4000; /* the first, the last of a knot */
	static constexpr u32 place = 0x3fff;                  /* what is left of a place for itself */
	static_assert(FEW < 0x3fff && MANY < 0xffff && THREADS % 32 == 0, "sizes");
};

/* Returns where shared memory has the elements at k: eight k that meet in a bank lie apart. */
DEVICE int scatter_group_at(int k)
{
	return (k ^ (k >> 3 & 7)) * 16;
}

/* Loads vector n of all rows. */
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
