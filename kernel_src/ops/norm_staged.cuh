/*
 * norm_staged.cuh: layer_norm and rms_norm (norm.cuh) of rows that lie one behind the other, or
 * nearly so.
 *
 *   norm_staged   a block takes some rows as one piece
 *
 * Bulk copies, or whole vectors where there are none, bring a piece into shared memory and take its
 * results from there.  Groups of threads have some of its rows each, one after another.  A thread
 * has the same columns of all of them: their gamma and beta come while it waits for the piece, and
 * stay in its registers.  Rows of whole vectors are worked on by vectors of 16 bytes, others by
 * elements or pairs.
 */
#pragma once
#include "common/async.cuh"
#include "common/bulk.cuh"
#include "common/norm_rows.cuh"

/* SHAPE: groups, and how many of them a block is.  A piece is ROWS rows, PITCH elements
 * from one of x to the next; those of all other operands lie one behind the other. */
template <class SHAPE, class WITH, class PLACE, int PITCH, int ROWS>
struct NormStaged {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef NormOperands<WITH, T> Operands;
	static constexpr int V = Row::length, NV = Row::held, columns = static_cast<int>(Row::columns);
	static constexpr int each = static_cast<int>(sizeof(T)), unit = 16 / each;
	static constexpr int lined(int elements)
	{
		return (elements * each + 127) / 128 * (128 / each);
	}
	static constexpr bool whole = Row::bytes == 16; /* vectors: gamma and beta stay as they are */
	static constexpr int warps = Group::threads / SHAPE::rows / 32;
	static constexpr bool apart = PITCH != columns; /* y does not fit into the place of x */
	static constexpr int after_x = ROWS * PITCH;    /* elements before residual, and before y */
	static constexpr int after_residual = after_x + (WITH::residual ? ROWS * columns : 0);
	static_assert(ROWS % SHAPE::rows == 0, "each group has as many rows");
	static_assert(ROWS * columns % unit == 0 && ROWS * PITCH % unit == 0, "whole vectors");
	static_assert(!Row::skewed, "a thread has the same columns of all rows");

	const Operands &at;
	T *const piece, *const x, *const residual, *const y; /* this thread's first row in a piece */
	const Row row;
	Compute count; /* elements of a row that the warp has */
	Compute gamma[whole ? 1 : NV][V], beta[whole ? 1 : NV][V];
	NormAlong<typename WITH::Gamma, V, whole ? NV : 1, WITH::bytes> gammas;
	NormAlong<typename WITH::Beta, V, whole ? NV : 1, WITH::bytes> betas;

	DEVICE NormStaged(const Operands &at, T *piece)
		: at(at), piece(piece), x(piece + Group::row() * PITCH),
		  residual(piece + after_x + Group::row() * columns),
		  y(apart ? piece + after_residual + Group::row() * columns : x), row(x, Group::thread(), 0)
	{
	}

	DEVICE int rows_of(i64 first) const
	{
		return at.rows - first < ROWS ? static_cast<int>(at.rows - first) : ROWS;
	}

	/* Has the rows from `first` on come. */
	DEVICE void fetch(i64 first, u64 *arrived) const
	{
		const int there = rows_of(first), count = (there - 1) * PITCH + columns;

		if constexpr (bulk_here)
			bulk_expect(arrived,
						vectors(count) * 16 + (WITH::residual ? vectors(there * columns) * 16 : 0));
		bring(piece, at.x + first * PITCH, count, arrived);
		if constexpr (WITH::residual)
			bring(piece + after_x, at.residual + first * columns, there * columns, arrived);
	}

	DEVICE void fetch_along()
	{
		fetch_numbers();
		if constexpr (whole && warps > 1) {
			Compute mine[1] = {0};
#pragma unroll
			for (int n = 0; n < NV; n++)
				mine[0] += row.has(n) ? Compute(V) : Compute(0);
			norm_sum<32>(mine);
			count = mine[0];
		} else {
			count = norm_count<(warps > 1 ? warps : 1)>(row);
		}
	}

	/* Makes the row `ahead` rows behind the thread's first; number: its own in y, at.rows or more
	 * if there is none. */
	DEVICE void work(int ahead, i64 number)
	{
		NormHeld<SHAPE, WITH, PLACE, 1> held[1];
		T *const to = y + ahead * columns + row.first;

		held[0].template fetch<0>(row, x + ahead * PITCH);
		if constexpr (WITH::residual)
			held[0].template fetch<1>(row, residual + ahead * columns);
		held[0].widen();
		if constexpr (WITH::sum) {
#pragma unroll
			for (int n = 0; n < NV; n++) {
				Compute out[V];
				held[0].get(n, out);
				if (row.has(n))
					put(n, residual + ahead * columns + row.first, out);
			}
		}
		norm_measure_counted<SHAPE, WITH>(held, row, count, at.eps);
#pragma unroll
		for (int n = 0; n < NV; n++) {
			Compute out[V], g[V], b[V];
			held[0].get(n, out);
			along(n, g, b);
#pragma unroll
			for (int j = 0; j < V; j++) {
				if (!WITH::rms && !held[0].wide)
					out[j] -= held[0].pivot;
				out[j] = norm_apply<WITH>(held[0].answer, out[j], g[j], b[j]);
			}
			if (row.has(n))
				put(n, to, out);
		}
		if ((WITH::mean || WITH::rstd) && Group::thread() == 0 && number < at.rows)
			norm_store_statistics(at, number, held[0].answer);
	}

	/* All threads come: the results go out. */
	DEVICE void send(i64 first) const
	{
		const int count = rows_of(first) * columns;

		send(at.y + first * columns, apart ? piece + after_residual : piece, count);
		if constexpr (WITH::sum)
			send(at.sum + first * columns, piece + after_x, count);
	}

  private:
	DEVICE void fetch_numbers()
	{
		if constexpr (whole) {
			gammas.fetch(row, at.gamma);
			betas.fetch(row, at.beta);
		} else {
#pragma unroll
			for (int n = 0; n < NV; n++) {
#pragma unroll
				for (int j = 0; j < V; j++)
					gamma[n][j] = beta[n][j] = Compute(0);
				if (row.has(n))
					norm_affine(at, row, n, gamma[n], beta[n]);
			}
		}
	}

	DEVICE void along(int n, Compute (&g)[V], Compute (&b)[V])
	{
		if constexpr (whole) {
			gammas.get(n, g);
			betas.get(n, b);
		} else {
#pragma unroll
			for (int j = 0; j < V; j++) {
				g[j] = gamma[n][j];
				b[j] = beta[n][j];
			}
		}
	}
	/* Vector n of a row in shared memory; to: where the thread's vector 0 goes. */
	DEVICE void put(int n, T *to, const Compute (&values)[V]) const
	{
		u32 words[Row::words];

		element_pack<T>(values, words);
		vec_store<Row::bytes>(to + norm_ahead(row, n), words);
	}

	static DEVICE u32 vectors(int count)
	{
		return static_cast<u32>(count + unit - 1) / unit;
	}
	/* Begins to copy so many elements, and what their last vector has behind them. */
	static DEVICE void bring(T *to, const T *from, int count, u64 *arrived)
	{
		if constexpr (bulk_here) {
			bulk_fetch(to, from, vectors(count) * 16, arrived);
		} else {
#pragma unroll 1
			for (u32 i = threadIdx.x; i < vectors(count); i += SHAPE::threads)
				async_copy16(to + i * unit, from + i * unit);
		}
	}
	/* Sends whole vectors, and what is behind them element by element. */
	static DEVICE void send(T *to, const T *from, int count)
	{
		const int thread = static_cast<int>(threadIdx.x), whole = count / unit * unit;

		if constexpr (bulk_here) {
			if (thread == 0 && whole > 0)
				bulk_store(to, from, static_cast<u32>(whole * each));
		} else {
#pragma unroll 1
			for (int i = thread * unit; i < whole; i += SHAPE::threads * unit)
				vec_copy<16>(from + i, to + i);
		}
		if (thread < count - whole)
			vec_copy<each>(from + whole + thread, to + whole + thread);
	}
};

/* BLOCKS: a multiprocessor has registers for so many.  LOOP: the grid is too small for the rows. */
template <class SHAPE, class WITH, class PLACE, int PITCH, int ROWS, int BLOCKS, bool LOOP = true,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, BLOCKS) void norm_staged(
	const T *__restrict__ x, const typename WITH::Gamma *__restrict__ gamma,
	const typename WITH::Beta *__restrict__ beta, const T *__restrict__ residual, T *__restrict__ y,
	Compute *__restrict__ mean, Compute *__restrict__ rstd, T *__restrict__ sum, Compute eps,
	i64 rows)
{
	const NormOperands<WITH, T> at = {x, gamma, beta, residual, y, mean, rstd, sum, eps, rows};
	/* Thread 0 has bulk copies made. */
	const bool asks = threadIdx.x == 0 || !bulk_here;
	const i64 step = static_cast<i64>(gridDim.x) * ROWS;
	/* It takes a whole line, so that the piece begins with one. */
	alignas(128) __shared__ u64 arrived[16];
	DYN_SHARED(b128, memory);
	u8 *line = reinterpret_cast<u8 *>(memory);
	/* Where warps of a row meet in shared memory, the piece begins behind that. */
	if constexpr (bulk_here && SHAPE::group::warps > 1)
		line += (0u - bulk_address(memory)) % 128;
	T *const piece = reinterpret_cast<T *>(line);
	i64 first = static_cast<i64>(blockIdx.x) * ROWS;
	NormStaged<SHAPE, WITH, PLACE, PITCH, ROWS> staged(at, piece);

	if (threadIdx.x == 0) {
		bulk_barrier(arrived, 1);
		bulk_barriers_made();
	}
	if (asks)
		staged.fetch(first, arrived);
	staged.fetch_along();
#pragma unroll 1
	for (u32 parity = 0;; parity ^= 1) {
		async_wait_all();
		__syncthreads();
		bulk_wait(arrived, parity);
#pragma unroll 1
		for (int ahead = 0; ahead < ROWS; ahead += SHAPE::rows) {
			if (SHAPE::group::warps > 1 && ahead > 0)
				__syncthreads(); /* what the warps of a row told each other was read */
			staged.work(ahead, first + ahead + SHAPE::group::row());
		}
		bulk_written();
		__syncthreads();
		staged.send(first);
		if (asks)
			bulk_left();
		first += step;
		if (!LOOP || first >= rows)
			break;
		__syncthreads();
		if (asks)
			staged.fetch(first, arrived);
	}
}
