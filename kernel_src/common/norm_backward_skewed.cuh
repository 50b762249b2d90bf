/*
 * norm_backward_skewed.cuh: rows that begin anywhere between two aligned vectors
 * (norm_backward.cuh).  All rows that a thread comes to begin equally far behind one.
 *
 * So a thread has the same columns of all its rows: it adds up each column in a register, and finds
 * their gamma in shared memory, where vectors of it are aligned.
 */
#pragma once
#include "common/norm_backward.cuh"
#include "common/row.cuh"

template <class SHAPE, class WITH>
struct NormBackwardSkewed : SHAPE::row {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Base;
	static constexpr int V = Base::length, NV = Base::held, words = Base::words;
	/* gamma of a vector is parts of 16 bytes, each beside those of the other threads. */
	static constexpr int part = 16 / static_cast<int>(sizeof(Compute)), parts = V / part;
	static constexpr int pitch = SHAPE::threads * 16;

	u32 keep[NV][words]; /* the bits of vectors that are the row's */
	u8 *gamma;           /* of this thread's columns */

	/* gamma comes from `from` to shared memory, in which a block has NV * parts * pitch bytes. */
	DEVICE NormBackwardSkewed(const T *start, int thread, const typename WITH::Gamma *from,
							  u8 *shared)
		: Base(start, thread, 0), gamma(shared + threadIdx.x * 16)
	{
		constexpr int size = static_cast<int>(sizeof(T));
#pragma unroll
		for (int n = 0; n < NV; n++) {
#pragma unroll
			for (int w = 0; w < words; w++) {
				const int j = w * 4 / size;
				keep[n][w] = this->live(n, j) ? size < 4 ? 0xffffu : ~0u : 0u;
				if (size < 4)
					keep[n][w] |= this->live(n, j + 1) ? 0xffff0000u : 0u;
			}
			if constexpr (norm_given<typename WITH::Gamma>)
				bring_gamma(from, n);
		}
	}
	/* Puts zeros in the words of vector n for what sticks out of the row.  Where most warps have
	 * none of it, they go by. */
	DEVICE void mask(int n, u32 (&x)[words], u32 (&dy)[words]) const
	{
		if (Base::sure(n) || (SHAPE::group::threads / SHAPE::rows > 32 && this->inside(n)))
			return;
#pragma unroll
		for (int w = 0; w < words; w++) {
			x[w] &= keep[n][w];
			dy[w] &= keep[n][w];
		}
	}
	DEVICE void load_gamma(int n, Compute (&out)[V]) const
	{
#pragma unroll
		for (int p = 0; p < parts; p++) {
			Compute some[part];
			if constexpr (norm_given<typename WITH::Gamma>) {
				u32 raw[4];
				vec_load<16>(gamma + (n * parts + p) * pitch, raw);
				element_unpack<Compute>(raw, some);
			} else {
#pragma unroll
				for (int j = 0; j < part; j++)
					some[j] = 1;
			}
#pragma unroll
			for (int j = 0; j < part; j++)
				out[p * part + j] = some[j];
		}
	}

	/*
	 * Merges what threads have of SUMS sums, as ColumnsBlock does; shared has room for a number of
	 * each column of each row of the block.
	 */
	template <int SUMS, typename Body>
	DEVICE void merge(const Compute (&mine)[SUMS][NV][V], Compute *shared, Body body) const
	{
		constexpr u32 columns = static_cast<u32>(Base::columns), rows = SHAPE::rows;
		Compute *const here = shared + static_cast<u32>(SHAPE::group::row()) * columns;

#pragma unroll 1
		for (int s = 0; s < SUMS; s++) {
			__syncthreads(); /* what was there before was read */
#pragma unroll
			for (int n = 0; n < NV; n++) {
#pragma unroll
				for (int j = 0; j < V; j++)
					if (this->live(n, j))
						here[this->column(n) + j] = s == 0 ? mine[0][n][j] : mine[SUMS - 1][n][j];
			}
			__syncthreads();
#pragma unroll 1
			for (u32 i = threadIdx.x; i < columns; i += SHAPE::threads) {
				Compute sum = 0;
#pragma unroll(rows % 4 == 0 ? 4 : 1)
				for (u32 row = 0; row < rows; row++)
					sum += shared[row * columns + i];
				body(s, i, sum);
			}
		}
	}

  private:
	DEVICE void bring_gamma(const typename WITH::Gamma *from, int n)
	{
#pragma unroll
		for (int p = 0; p < parts; p++) {
			Compute some[part];
			u32 raw[4];
#pragma unroll
			for (int j = 0; j < part; j++)
				some[j] = this->live(n, p * part + j)
							  ? norm_load_one(from, this->column(n) + p * part + j, Compute(1))
							  : Compute(1);
			element_pack<Compute>(some, raw);
			vec_store<16>(gamma + (n * parts + p) * pitch, raw);
		}
	}
};
