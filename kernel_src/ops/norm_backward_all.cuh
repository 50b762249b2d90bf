/*
 * norm_backward_all.cuh: dx, dgamma and dbeta of the backward of layer_norm and rms_norm, of rows
 * that threads hold.
 *
 *   norm_backward_all   a block goes over many rows, several at a time; each thread keeps the sums of
 *                       its columns, and in the end the blocks add them up together
 */
#pragma once
#include "common/norm_backward_columns.cuh"
#include "common/row.cuh"

/* The threads of one row of a block meet. */
template <int SIZE, int ROWS>
DEVICE void norm_backward_barrier()
{
#if KILN_CPU
	__syncthreads();
#else
	static_assert(ROWS < 16, "there are 16 barriers, one of them for all");
	if constexpr (ROWS == 1)
		__syncthreads();
	else
		asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.x) / SIZE), "n"(SIZE)
					 : "memory");
#endif
}

/* Sums over a row, for which its threads meet; nobody else waits.  turn: 0 and 1 by turns. */
template <int SIZE, int ROWS, class Sums>
DEVICE Sums norm_backward_reduce(Sums mine, int turn)
{
	mine = group_butterfly<(SIZE < 32 ? SIZE : 32)>(mine);
	if constexpr (SIZE > 32) {
		constexpr int warps = SIZE / 32, width = group_width<warps>;
		__shared__ Sums partial[2][ROWS * warps];
		const int thread = static_cast<int>(threadIdx.x), lane = thread % width;
		Sums *const row = partial[turn] + thread / SIZE * warps;
		if (thread % 32 == 0)
			row[thread % SIZE / 32] = mine;
		norm_backward_barrier<SIZE, ROWS>();
		mine = group_butterfly<width>(lane < warps ? row[lane] : Sums::none());
	}
	return mine;
}

template <class SHAPE, class WITH, class PLACE>
struct NormBackwardAll {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef NormBackwardOperands<WITH, T> Operands;
	typedef NormBackwardSums<WITH, Compute> Sums;
	static constexpr i64 columns = Row::columns;
	static constexpr int V = Row::length, NV = Row::held, bytes = Row::bytes;
	static constexpr int size = SHAPE::threads / SHAPE::rows;
	typedef ColumnsBlock<Compute, size, SHAPE::rows, V, NV> Block;

	/* One row as it comes; zeros where there is none, which add nothing to the sums. */
	struct Words {
		u32 x[NV][Row::words], dy[NV][Row::words];
		NormBackwardRow<WITH, Compute> found;

		DEVICE void fetch(const Operands &at, const Row &row, Offset number)
		{
			*this = {};
			if (number >= static_cast<Offset>(at.rows))
				return;
			const T *const start_x = at.x + PLACE::template row<0>(number);
			const T *const start_dy = at.dy + PLACE::template row<1>(number);
#pragma unroll
			for (int n = 0; n < NV; n++) {
				if (!row.has(n))
					continue;
				vec_load<bytes>(start_x + offset<0>(row.column(n)), x[n]);
				vec_load<bytes>(start_dy + offset<1>(row.column(n)), dy[n]);
			}
			found = NormBackwardRow<WITH, Compute>::load(at, number);
		}
		template <int INPUT>
		static DEVICE Offset offset(int column)
		{
			if constexpr (V > 1)
				return static_cast<Offset>(column);
			else
				return PLACE::template column<INPUT>(static_cast<Offset>(column));
		}
	};

	/* dx of a row, and its part of the sums of columns. */
	static DEVICE void take(const Operands &at, const Row &row, const Words &words, Offset number,
							int turn, NormBackwardColumns<WITH, Compute, NV, V> &columns_sums)
	{
		Compute xhat[NV][V], g[NV][V];
		Sums all = {};

#pragma unroll
		for (int n = 0; n < NV; n++) {
			if (!row.has(n))
				continue;
			Compute gamma[V];
			norm_backward_gamma<WITH>(at.gamma, row, n, gamma);
			element_unpack<T>(words.x[n], xhat[n]);
			element_unpack<T>(words.dy[n], g[n]);
#pragma unroll
			for (int j = 0; j < V; j++) {
				xhat[n][j] = words.found.normal(xhat[n][j]);
				columns_sums.add(n, j, xhat[n][j], g[n][j]);
				g[n][j] *= gamma[j];
				all.add(g[n][j], xhat[n][j]);
			}
		}
		all = norm_backward_reduce<size, SHAPE::rows>(all, turn).template means<columns>();
		if (number >= static_cast<Offset>(at.rows))
			return;
		T *const dx = at.dx + number * static_cast<Offset>(columns);
#pragma unroll
		for (int n = 0; n < NV; n++) {
			if (!row.has(n))
				continue;
			Compute out[V];
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = all.dx(g[n][j], xhat[n][j], words.found.rstd);
			row_store(row, n, dx, out);
		}
	}
};

/* Of each block's sums there is one set in scratch memory, behind the counters. */
constexpr i64 norm_backward_all_counters = 256;

/* BLOCKS: that a multiprocessor is to have room for.  AHEAD: the next row comes in meanwhile. */
template <class SHAPE, class WITH, class PLACE, int BLOCKS, bool AHEAD,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, BLOCKS) void norm_backward_all(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx,
	typename WITH::Dgamma *__restrict__ dgamma, typename WITH::Dbeta *__restrict__ dbeta,
	u8 *scratch, i64 rows)
{
	typedef NormBackwardAll<SHAPE, WITH, PLACE> All;
	typedef typename SHAPE::row Row;
	typedef typename PLACE::Offset Offset;
	constexpr u32 columns = static_cast<u32>(Row::columns), sums = WITH::sums;
	constexpr u32 width = columns <= 4096 ? 32 : 64;
	DYN_SHARED(b128, shared);
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, dgamma, dbeta, rows};
	const Row row(nullptr, SHAPE::group::thread(), 0);
	const Offset step = gridDim.x * static_cast<Offset>(SHAPE::rows);
	const Offset mine = SHAPE::group::row();
	Offset first = blockIdx.x * static_cast<Offset>(SHAPE::rows);
	NormBackwardColumns<WITH, Compute, All::NV, All::V> all = {};
	typename All::Words words, next;
	u32 *const counters = reinterpret_cast<u32 *>(scratch);
	Compute *const partial = reinterpret_cast<Compute *>(scratch + norm_backward_all_counters);

	columns_begin(counters);
	if constexpr (AHEAD)
		next.fetch(at, row, first + mine);
#pragma unroll 1
	for (int turn = 0; first < static_cast<Offset>(rows); first += step, turn ^= 1) {
		if constexpr (AHEAD) {
			words = next;
			next.fetch(at, row, first + step + mine);
		} else {
			words.fetch(at, row, first + mine);
		}
		All::take(at, row, words, first + mine, turn, all);
	}
	All::Block::merge(all.sum, static_cast<Compute *>(static_cast<void *>(shared)),
					  [&](u32 which, u32 i, Compute sum) {
						  if (i < columns)
							  partial[(blockIdx.x * sums + which) * columns + i] = sum;
					  });
	columns_meet(counters, gridDim.x, (columns + width - 1) / width, [&](u32 strip) {
		const u32 begin = strip * width;
		columns_finish<SHAPE::threads, width, sums>(
			partial + begin, sums * columns, columns, columns - begin, gridDim.x,
			static_cast<Compute *>(static_cast<void *>(shared)),
			[&](u32 which, u32 i, Compute value) {
				norm_backward_store(at, which, begin + i, value);
			});
	});
}
