/*
 * norm_backward_all.cuh: dx, dgamma and dbeta of the backward of layer_norm and rms_norm, of rows
 * that threads hold.
 *
 *   norm_backward_all   a block goes over many rows, several at a time; each thread keeps the sums
 *                       of its columns, and in the end the blocks add them up together
 */
#pragma once
#include "common/async.cuh"
#include "common/norm_backward_columns.cuh"
#include "common/norm_backward_skewed.cuh"
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
	static constexpr bool skewed = SHAPE::row::skewed;
	typedef
		typename index_choose<skewed, NormBackwardSkewed<SHAPE, WITH>, typename SHAPE::row>::type
			Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef NormBackwardOperands<WITH, T> Operands;
	typedef NormBackwardSums<WITH, Compute> Sums;
	static constexpr i64 columns = Row::columns;
	static constexpr int V = Row::length, NV = Row::held, bytes = Row::bytes;
	static constexpr int size = SHAPE::threads / SHAPE::rows;
	typedef ColumnsBlock<Compute, size, SHAPE::rows, V, NV> Block;
	typedef NormBackwardColumns<WITH, Compute, NV, V> Columns;

	/* This thread's part of row `number`, if the row is there, and of all rows that follow. */
	static DEVICE Row row(const Operands &at, Offset number, u8 *shared)
	{
		if constexpr (skewed)
			return Row(
				at.x + PLACE::template row<0>(number < static_cast<Offset>(at.rows) ? number : 0),
				Group::place(), at.gamma, shared);
		else
			return Row(nullptr, Group::place(), 0);
	}

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
		static DEVICE auto offset(int column)
		{
			if constexpr (skewed)
				return column;
			else if constexpr (V > 1)
				return static_cast<Offset>(column);
			else
				return PLACE::template column<INPUT>(static_cast<Offset>(column));
		}
		/* The words of a row that lies in a slot. */
		DEVICE void take(const Row &row, const u8 *slot, bool here)
		{
#pragma unroll
			for (int n = 0; n < NV; n++) {
#pragma unroll
				for (int w = 0; w < Row::words; w++)
					x[n][w] = dy[n][w] = 0;
				if (!here || !row.has(n))
					continue;
				vec_load<bytes>(slot + n * slot_bytes, x[n]);
				vec_load<bytes>(slot + (NV + n) * slot_bytes, dy[n]);
			}
		}
	};

	/* Rows under way: each has slots of 16 bytes of each thread, one after the other in turn. */
	static constexpr int slot_bytes = SHAPE::threads * 16, slots = 2 * NV * slot_bytes;

	/* Starts to bring a row, if it is there, to this thread's slots. */
	static DEVICE void start(const Operands &at, const Row &row, Offset number, u8 *slot)
	{
		if (number < static_cast<Offset>(at.rows)) {
			const T *const start_x = at.x + PLACE::template row<0>(number);
			const T *const start_dy = at.dy + PLACE::template row<1>(number);
#pragma unroll
			for (int n = 0; n < NV; n++) {
				if (!row.has(n))
					continue;
				async_copy16(slot + n * slot_bytes, start_x + row.column(n));
				async_copy16(slot + (NV + n) * slot_bytes, start_dy + row.column(n));
			}
		}
		async_batch();
	}

	/* Vector n of a row: xhat, dy and g. */
	static DEVICE void open(const Operands &at, const Row &row, const Words &words, int n,
							Compute (&xhat)[V], Compute (&dy)[V], Compute (&g)[V])
	{
		Compute gamma[V];

		if constexpr (skewed) {
			u32 x[Row::words], come[Row::words];
#pragma unroll
			for (int w = 0; w < Row::words; w++) {
				x[w] = words.x[n][w];
				come[w] = words.dy[n][w];
			}
			row.load_gamma(n, gamma);
			row.mask(n, x, come);
			element_unpack<T>(x, xhat);
			element_unpack<T>(come, dy);
		} else {
			norm_backward_gamma<WITH>(at.gamma, row, n, gamma);
			element_unpack<T>(words.x[n], xhat);
			element_unpack<T>(words.dy[n], dy);
		}
#pragma unroll
		for (int j = 0; j < V; j++) {
			xhat[j] = words.found.normal(xhat[j]);
			g[j] = dy[j] * gamma[j];
		}
	}

	/* This thread's part of the sums over a row, and of the sums of columns. */
	static DEVICE Sums measure(const Operands &at, const Row &row, const Words &words,
							   Columns &columns_sums, Compute (&xhat)[NV][V], Compute (&g)[NV][V])
	{
		Sums all = {};

#pragma unroll
		for (int n = 0; n < NV; n++) {
			if (!row.has(n))
				continue;
			Compute dy[V];
			open(at, row, words, n, xhat[n], dy, g[n]);
#pragma unroll
			for (int j = 0; j < V; j++) {
				columns_sums.add(n, j, xhat[n][j], dy[j]);
				all.add(g[n][j], xhat[n][j]);
			}
		}
		return all;
	}

	/* dx of a row, and its part of the sums of columns. */
	static DEVICE void take(const Operands &at, const Row &row, const Words &words, Offset number,
							int turn, Columns &columns_sums)
	{
		Compute xhat[NV][V], g[NV][V];
		Sums all = measure(at, row, words, columns_sums, xhat, g);

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

	/*
	 * Measures the row `next` while dx of the one before, `words`, which is row `number`, is made:
	 * neither waits for the other.  Its threads meet once a turn.  there: it is a row to write.
	 */
	static DEVICE void take_two(const Operands &at, const Row &row, Words &words, const Words &next,
								Offset number, bool there, int turn, Columns &columns_sums)
	{
		constexpr int warps = size / 32, width = group_width<warps>;
		__shared__ Sums partial[2][SHAPE::rows * warps];
		const int thread = static_cast<int>(threadIdx.x), lane = thread % width;
		const int begin = thread / size * warps;
		const Sums found = lane < warps ? partial[!turn][begin + lane] : Sums::none();
		const Sums all = group_butterfly<width>(found).template means<columns>();
		Compute xhat[NV][V], g[NV][V];
		const Sums mine = group_butterfly<32>(measure(at, row, next, columns_sums, xhat, g));

		if (thread % 32 == 0)
			partial[turn][begin + thread % size / 32] = mine;
#pragma unroll
		for (int n = 0; n < NV; n++) {
			Compute dy[V], out[V];
			if (!row.has(n))
				continue;
			open(at, row, words, n, xhat[n], dy, g[n]);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = all.dx(g[n][j], xhat[n][j], words.found.rstd);
			if (there)
				row_store(row, n, at.dx + number * static_cast<Offset>(columns), out);
		}
		words = next;
		norm_hide(words.x, words.dy);
		norm_backward_barrier<size, SHAPE::rows>();
	}
};

/* Each block leaves one set of sums in scratch memory, behind the counters. */
constexpr i64 norm_backward_all_counters = 256;

/* The numbers that the forward found for a row, or zeros if there is no row. */
template <class WITH, typename T, typename Offset>
DEVICE NormBackwardRow<WITH, typename element<T>::compute>
norm_backward_found(const NormBackwardOperands<WITH, T> &at, Offset number)
{
	if (number >= static_cast<Offset>(at.rows))
		return {};
	return NormBackwardRow<WITH, typename element<T>::compute>::load(at, number);
}

/*
 * The rows of a block, with AHEAD further ones of each thread under way in shared memory.  Each
 * turn starts a row; the first AHEAD turns have none to take yet.
 */
template <class All, int AHEAD, class Operands, class Row, class Sums, typename Offset>
DEVICE void norm_backward_ring(const Operands &at, const Row &row, Offset first, Offset step,
							   Offset mine, Sums &all, void *shared)
{
	u8 *const slots = static_cast<u8 *>(shared) + threadIdx.x * 16;
	typename All::Words words;
	auto next = norm_backward_found(at, first + mine);
	u32 place = 0;
	int turn = -AHEAD;

	do {
		const Offset number = first - AHEAD * step + mine;
		if (turn >= 0) {
			words.found = next;
			next = norm_backward_found(at, number + step);
			async_wait_but<AHEAD - 1>();
			words.take(row, slots + place, number < static_cast<Offset>(at.rows));
		}
		All::start(at, row, first + mine, slots + place);
		place = place == (AHEAD - 1) * All::slots ? 0 : place + All::slots;
		if (turn >= 0)
			All::take(at, row, words, number, turn & 1, all);
		first += step;
		turn++;
	} while (turn < 0 || first - AHEAD * step < static_cast<Offset>(at.rows));
	async_wait_all();
}

/* Does so, with a row's dx made in the turn after the one that measures it. */
template <class All, int AHEAD, class Operands, class Row, class Sums, typename Offset>
DEVICE void norm_backward_pairs(const Operands &at, const Row &row, Offset first, Offset step,
								Offset mine, Sums &all, void *shared)
{
	u8 *const slots = static_cast<u8 *>(shared) + threadIdx.x * 16;
	typename All::Words words = {}, next;
	auto found = norm_backward_found(at, first + mine);
	u32 place = 0;
	int turn = -AHEAD;

	do {
		const Offset number = first - AHEAD * step + mine;
		if (turn >= 0) {
			next.found = found;
			found = norm_backward_found(at, number + step);
			async_wait_but<AHEAD - 1>();
			next.take(row, slots + place, number < static_cast<Offset>(at.rows));
		}
		All::start(at, row, first + mine, slots + place);
		place = place == (AHEAD - 1) * All::slots ? 0 : place + All::slots;
		if (turn >= 0)
			All::take_two(at, row, words, next, number - step,
						  turn > 0 && number - step < static_cast<Offset>(at.rows), turn & 1, all);
		first += step;
		turn++;
	} while (turn <= 0 || first - (AHEAD + 1) * step < static_cast<Offset>(at.rows));
	async_wait_all();
}

/* Does so with the next row under way to registers. */
template <class All, class Operands, class Row, class Sums, typename Offset>
DEVICE void norm_backward_turns(const Operands &at, const Row &row, Offset first, Offset step,
								Offset mine, Sums &all)
{
	typename All::Words words, next = {};
	int turn = -1;

	do {
		words = next;
		next.fetch(at, row, first + mine);
		if (turn >= 0)
			All::take(at, row, words, first - step + mine, turn & 1, all);
		first += step;
		turn++;
	} while (first - step < static_cast<Offset>(at.rows));
}

/* BLOCKS: that a multiprocessor is to have room for.  AHEAD: rows of each thread that are under way
 * in shared memory; 0: one, to registers.  PAIRS: two rows are worked on at a time.  PERIOD: so
 * many rows on, one begins as far behind an aligned vector again. */
template <class SHAPE, class WITH, class PLACE, int BLOCKS, int AHEAD, bool PAIRS = false,
		  int PERIOD = 1, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, BLOCKS) void norm_backward_all(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx,
	typename WITH::Dgamma *__restrict__ dgamma, typename WITH::Dbeta *__restrict__ dbeta,
	u8 *scratch, i64 rows)
{
	typedef NormBackwardAll<SHAPE, WITH, PLACE> All;
	typedef typename All::Row Row;
	typedef typename PLACE::Offset Offset;
	constexpr u32 columns = static_cast<u32>(Row::columns), sums = WITH::sums;
	constexpr u32 width = columns_width(columns), pitch = columns_pitch(columns);
	DYN_SHARED(b128, shared);
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, dgamma, dbeta, rows};
	const Offset step = gridDim.x * static_cast<Offset>(SHAPE::rows) / PERIOD * PERIOD;
	const Offset first = blockIdx.x * static_cast<Offset>(SHAPE::rows);
	Offset mine = SHAPE::group::row();
	/* The rest of the last period takes no rows. */
	if (PERIOD > 1 && first + mine >= step)
		mine = static_cast<Offset>(rows);
	const Row row = All::row(at, first + mine, reinterpret_cast<u8 *>(shared) + AHEAD * All::slots);
	NormBackwardColumns<WITH, Compute, All::NV, All::V> all = {};
	u32 *const counters = reinterpret_cast<u32 *>(scratch);
	Compute *const partial = reinterpret_cast<Compute *>(scratch + norm_backward_all_counters);
	Compute *const parts = static_cast<Compute *>(static_cast<void *>(shared));

	columns_begin(counters + 2);
	if constexpr (PAIRS)
		norm_backward_pairs<All, AHEAD>(at, row, first, step, mine, all, shared);
	else if constexpr (AHEAD > 0)
		norm_backward_ring<All, AHEAD>(at, row, first, step, mine, all, shared);
	else
		norm_backward_turns<All>(at, row, first, step, mine, all);
	const u32 begun = columns_begun(counters);
	const auto leave = [&](u32 which, u32 i, Compute sum) {
		if (i < columns)
			partial[(blockIdx.x * sums + which) * pitch + i] = sum;
	};
	if constexpr (All::skewed)
		row.merge(all.sum, parts, leave);
	else
		All::Block::template merge<WITH::sums>(all.sum, parts, leave);
	columns_share(counters, begun, gridDim.x, (columns + width - 1) / width, [&](u32 strip) {
		const u32 begin = strip * width;
		columns_total<SHAPE::threads, width, sums>(partial + begin, pitch, columns - begin,
												   gridDim.x, [&](u32 which, u32 i, Compute value) {
													   norm_backward_store(at, which, begin + i,
																		   value);
												   });
	});
}
