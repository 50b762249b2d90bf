/*
 * norm_backward_ring.cuh: dx, dgamma and dbeta of the backward of layer_norm and rms_norm, of long
 * rows that come into shared memory.
 *
 *   norm_backward_ring   a block, or a cluster of blocks that share each row, takes one row after
 *                        another; each thread keeps the sums of its columns, and in the end the
 *                        blocks add them up together
 *
 * One warp has rows come into a ring of STAGES places, and the others work on them.  A thread
 * measures a row before it makes dx of the one before: meanwhile what all warps of the cluster have
 * found of that one arrives.  No barrier stops a block: a warp waits for what it needs.  Sums of
 * columns leave when the last row is measured, and while dx of the last two rows is made the warp
 * that had rows come waits for other blocks.
 */
#pragma once
#include "common/bulk.cuh"
#include "common/cluster.cuh"
#include "common/norm_backward_columns.cuh"

/*
 * V elements move at once; a thread has NV such vectors of each row, and SIZE threads work.
 * PERIOD above 1: rows begin anywhere between two aligned vectors, and so many rows on one begins
 * as far behind one again.  A cluster takes such rows alone: a thread then has the same columns of
 * all of them, in aligned vectors, of which the first and the last stick out of the row.
 */
template <typename T, i64 COLUMNS, int V, int NV, int SIZE, int CLUSTER, int STAGES, int PERIOD>
struct BackwardRingShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	static constexpr int columns = static_cast<int>(COLUMNS), length = V, held = NV;
	static constexpr int each = static_cast<int>(sizeof(T)), bytes = V * each;
	static constexpr int words = vec_words<bytes>, unit = 16 / each;
	static constexpr int size = SIZE, warps = SIZE / 32, threads = SIZE + 32;
	static constexpr int cluster = CLUSTER, stages = STAGES;
	static constexpr bool skewed = PERIOD > 1;
	/* Columns of a block, but of the last of a cluster, which may have fewer. */
	static constexpr int slice =
		((columns + (skewed ? V - 1 : 0) + CLUSTER - 1) / CLUSTER + unit - 1) / unit * unit;
	/* Bytes of a block's part of a row, and of what of it may begin between two vectors. */
	static constexpr int place = slice * each + (bytes == 16 ? 0 : 16);
	/* Columns that each block has at least. */
	static constexpr int least = columns - (CLUSTER - 1) * slice;
	static_assert((skewed || COLUMNS % V == 0) && SIZE % 32 == 0, "whole vectors, whole warps");
	static_assert(!skewed || bytes == 16, "aligned vectors");
	static_assert((CLUSTER - 1) * slice < columns, "each block has some columns");
	static_assert(NV * SIZE * V >= slice, "threads have all columns");
};

template <class SHAPE, class WITH, class PLACE>
struct NormBackwardRing {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename PLACE::Offset Offset;
	typedef NormBackwardOperands<WITH, T> Operands;
	typedef NormBackwardRow<WITH, Compute> Found;
	typedef NormBackwardSums<WITH, Compute> Sums;
	static constexpr int V = SHAPE::length, NV = SHAPE::held, warps = SHAPE::warps;
	static constexpr int cluster = SHAPE::cluster, stages = SHAPE::stages, means = WITH::means;
	/* Sums of rows are under way for so many of them: one that waits for a row's has told its own
	 * of the next, and another may be two further. */
	static constexpr int turns = 4;
	static constexpr int entries = cluster * warps * means;
	/* Whole vectors go from registers to memory as they are, before the last rows are done. */
	static constexpr bool early = !SHAPE::skewed;
	static constexpr u32 asks = early ? SHAPE::size : 0; /* the thread that waits for blocks */

	struct Shared {
		u64 full[stages], empty[stages], met[turns], left;
		float sums[turns][entries];
	};

	/* A row's place in the ring, and how often it was there. */
	struct Stage {
		int number = 0;
		u32 parity = 0;

		DEVICE void next()
		{
			number = number + 1 < stages ? number + 1 : 0;
			parity ^= number == 0;
		}
	};

	const Operands &at;
	Shared &shared;
	u8 *const ring;
	const Offset first, step;       /* the number of the cluster's first row, and to the next */
	const int rank, begin, columns; /* of the block's part of a row, with what sticks out of it */
	NormBackwardColumns<WITH, Compute, NV, V> all = {};
	Compute gamma[NV][V];
	Found found; /* of the row to be measured next */

	DEVICE NormBackwardRing(const Operands &at, Shared &shared, void *ring)
		: at(at), shared(shared), ring(static_cast<u8 *>(ring)),
		  first(static_cast<Offset>(blockIdx.x / cluster)),
		  step(static_cast<Offset>(gridDim.x / cluster)),
		  rank(cluster == 1 ? 0 : static_cast<int>(blockIdx.x % cluster)),
		  begin(rank * SHAPE::slice - ahead_of(at.x + PLACE::template row<0>(first))),
		  columns(SHAPE::columns - begin < SHAPE::slice ? SHAPE::columns - begin : SHAPE::slice)
	{
	}

	/* By all threads. */
	DEVICE void open()
	{
		if (threadIdx.x == 0) {
			for (int s = 0; s < stages; s++) {
				bulk_barrier(&shared.full[s], 1);
				bulk_barrier(&shared.empty[s], warps);
			}
			for (int turn = 0; turn < turns; turn++)
				bulk_barrier(&shared.met[turn], cluster == 1 ? warps : 1);
			bulk_barrier(&shared.left, warps);
			bulk_barriers_made();
			for (int turn = 0; turn < turns && cluster > 1; turn++)
				bulk_expect(&shared.met[turn], entries * 4);
		}
		__syncthreads();
		meet();
	}
	static DEVICE void meet()
	{
		if constexpr (cluster > 1) {
			cluster_arrive();
			cluster_wait();
		}
	}

	/* Elements between an aligned vector and a row. */
	static DEVICE int ahead_of(const T *row)
	{
		return SHAPE::skewed ? vec_beyond<16>(row) / SHAPE::each : 0;
	}
	DEVICE const T *row_x(Offset number) const
	{
		return at.x + PLACE::template row<0>(number) + begin;
	}
	DEVICE const T *row_dy(Offset number) const
	{
		return at.dy + PLACE::template row<1>(number) + begin;
	}
	/* Returns what comes before a row's part in its place. */
	static DEVICE int beyond(const T *row)
	{
		return SHAPE::bytes == 16 ? 0 : vec_beyond<16>(row);
	}

	/* One thread has all rows come. */
	DEVICE void bring()
	{
		Stage stage;
		bool again = false;

#pragma unroll 1
		for (Offset number = first; number < static_cast<Offset>(at.rows); number += step) {
			const T *const rows[2] = {row_x(number), row_dy(number)};
			u32 bytes[2];
			if (again)
				bulk_wait(&shared.empty[stage.number], stage.parity ^ 1);
#pragma unroll
			for (int i = 0; i < 2; i++)
				bytes[i] = static_cast<u32>(beyond(rows[i]) + columns * SHAPE::each + 15) / 16 * 16;
			bulk_expect(&shared.full[stage.number], bytes[0] + bytes[1]);
#pragma unroll
			for (int i = 0; i < 2; i++)
				bulk_fetch(place(stage, i), reinterpret_cast<const u8 *>(rows[i]) - beyond(rows[i]),
						   bytes[i], &shared.full[stage.number]);
			stage.next();
			again = again || stage.number == 0;
		}
	}

	/* The others work on them, and leave their sums of columns behind if they do so early. */
	DEVICE void work(Compute *sums, u32 pitch)
	{
		Stage ahead, behind;
		u32 turn = 0;

#pragma unroll
		for (int n = 0; n < NV; n++) {
#pragma unroll
			for (int j = 0; j < V; j++)
				gamma[n][j] = Compute(1);
			if (has(n))
				bring_gamma(n);
		}
		if (first >= static_cast<Offset>(at.rows)) {
			if constexpr (early)
				leave_whole(sums, pitch);
			return;
		}
		look(first);
		Found next = found;
		look(first + step);
		measure(first, ahead, turn, next);
#pragma unroll 1
		for (Offset number = first; number < static_cast<Offset>(at.rows); number += step) {
			const Found mine = next;
			ahead.next();
			if (number + step < static_cast<Offset>(at.rows)) {
				next = found;
				look(number + 2 * step);
				measure(number + step, ahead, turn + 1, next);
			}
			if constexpr (early)
				if (is_last(number + step) || (number == first && is_last(number)))
					leave_whole(sums, pitch);
			finish(number, behind, turn, mine);
			behind.next();
			turn++;
		}
	}

	/* By the thread that had rows come: all sums of columns have left. */
	DEVICE void wait_for_sums()
	{
		bulk_wait(&shared.left, 0);
	}

	/* By all threads: sums of columns that they do not hold in whole vectors meet in shared memory,
	 * and go to where those of the cluster are. */
	DEVICE void leave_skewed(Compute *sums, u32 pitch)
	{
		Compute *const room = reinterpret_cast<Compute *>(ring);

#pragma unroll
		for (int s = 0; s < WITH::sums; s++) {
			__syncthreads(); /* what was there before was read */
#pragma unroll
			for (int n = 0; n < NV; n++) {
#pragma unroll
				for (int j = 0; j < V; j++)
					if (threadIdx.x < SHAPE::size && has(n))
						room[column(n) + j] = all.sum[s][n][j];
			}
			__syncthreads();
			for (int i = static_cast<int>(threadIdx.x); i < columns; i += SHAPE::threads)
				if (begin + i >= 0)
					sums[s * pitch + static_cast<u32>(begin + i)] = room[i];
		}
	}

  private:
	/* The row is there, and none follows it. */
	DEVICE bool is_last(Offset number) const
	{
		return number < static_cast<Offset>(at.rows) &&
			   number + step >= static_cast<Offset>(at.rows);
	}
	DEVICE void leave_whole(Compute *sums, u32 pitch)
	{
#pragma unroll
		for (int s = 0; s < WITH::sums; s++) {
#pragma unroll
			for (int n = 0; n < NV; n++) {
				u32 words[V];
				if (!has(n))
					continue;
				element_pack<Compute>(all.sum[s][n], words);
				vec_store_far<V * 4 < 16 ? V * 4 : 16>(sums + s * pitch + begin + column(n), words);
				if constexpr (V > 4)
					vec_store_far<16>(sums + s * pitch + begin + column(n) + 4, words + 4);
			}
		}
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			bulk_arrive(&shared.left);
	}
	/* Does nothing of vector n stick out of the row? */
	DEVICE bool whole(int n) const
	{
		const int here = begin + column(n);
		return !SHAPE::skewed ||
			   ((n > 0 || here >= 0) && (is_sure(n) || here + V <= SHAPE::columns));
	}
	DEVICE bool live(int n, int j) const
	{
		return static_cast<u32>(begin + column(n) + j) < static_cast<u32>(SHAPE::columns);
	}
	DEVICE void bring_gamma(int n)
	{
		if constexpr (!SHAPE::skewed) {
			norm_load<WITH::bytes>(at.gamma, begin + column(n), gamma[n], Compute(1));
		} else {
#pragma unroll
			for (int j = 0; j < V; j++)
				if (live(n, j))
					gamma[n][j] = norm_load_one(at.gamma, begin + column(n) + j, Compute(1));
		}
	}
	DEVICE u8 *place(const Stage &stage, int input) const
	{
		return ring + (stage.number * 2 + input) * SHAPE::place;
	}
	static DEVICE int column(int n)
	{
		return (static_cast<int>(threadIdx.x) + n * SHAPE::size) * V;
	}
	DEVICE bool has(int n) const
	{
		return is_sure(n) || column(n) < columns;
	}
	/* Do all threads of all blocks have vector n? */
	static DEVICE bool is_sure(int n)
	{
		return (n + 1) * SHAPE::size * V <= SHAPE::least;
	}
	DEVICE void look(Offset number)
	{
		if (number < static_cast<Offset>(at.rows))
			found = Found::load(at, number);
	}

	/* Vector n of a row. */
	static DEVICE void take(const u8 *x, const u8 *come, int n, Compute (&xs)[V], Compute (&dy)[V])
	{
		u32 words[2][SHAPE::words];

		vec_load<SHAPE::bytes>(x + column(n) * SHAPE::each, words[0]);
		vec_load<SHAPE::bytes>(come + column(n) * SHAPE::each, words[1]);
		element_unpack<T>(words[0], xs);
		element_unpack<T>(words[1], dy);
	}

	/* Columns that are not there add nothing to any sum. */
	DEVICE void blot(int n, Compute (&xs)[V], Compute (&dy)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			if (!live(n, j))
				xs[j] = dy[j] = 0;
	}

	/* Adds a row to the sums of columns, and tells all blocks this warp's sums over the row. */
	DEVICE void measure(Offset number, const Stage &stage, u32 turn, const Found &row)
	{
		const u8 *const x = place(stage, 0) + beyond(row_x(number));
		const u8 *const come = place(stage, 1) + beyond(row_dy(number));
		Sums mine = {};

		bulk_wait(&shared.full[stage.number], stage.parity);
#pragma unroll
		for (int n = 0; n < NV; n++) {
			Compute xhat[V], dy[V];
			if (!has(n))
				continue;
			take(x, come, n, xhat, dy);
			if (!whole(n))
				blot(n, xhat, dy);
#pragma unroll
			for (int j = 0; j < V; j++) {
				xhat[j] = row.normal(xhat[j]);
				all.add(n, j, xhat[j], dy[j]);
				mine.add(dy[j] * gamma[n][j], xhat[j]);
			}
		}
		tell(mine, turn % turns);
	}

	/* Half of the lanes add up one sum each, if there are two. */
	DEVICE void tell(const Sums &mine, u32 turn)
	{
		constexpr int lanes = 32 / means;
		const int lane = static_cast<int>(threadIdx.x) % 32, which = lane / lanes;
		const int warp = static_cast<int>(threadIdx.x) / 32;
		Compute sum = mine.sum[0];

		if constexpr (means == 2) {
			const Compute other = group_from(which ? mine.sum[0] : mine.sum[1], 16);
			sum = (which ? mine.sum[1] : mine.sum[0]) + other;
		}
#pragma unroll
		for (int apart = lanes / 2; apart > 0; apart /= 2)
			sum += group_from(sum, apart);
		float *const to = &shared.sums[turn][(rank * warps + warp) * means + which];
		if constexpr (cluster > 1) {
			if (lane % lanes < cluster)
				bulk_put(to, sum, &shared.met[turn], static_cast<u32>(lane % lanes));
		} else {
			if (lane % lanes == 0)
				*to = sum;
			__syncwarp();
			if (lane == 0)
				bulk_arrive(&shared.met[turn]);
		}
	}

	/* The means over a row, of which all warps have told their sums. */
	DEVICE Sums hear(u32 turn)
	{
		const int lane = static_cast<int>(threadIdx.x) % 32;
		const u32 slot = turn % turns;
		Compute sum = 0;
		Sums out;

		if (cluster > 1)
			bulk_wait_put(&shared.met[slot], turn / turns & 1);
		else
			bulk_wait(&shared.met[slot], turn / turns & 1);
#pragma unroll
		for (int i = 0; i < entries; i += 32)
			if (entries % 32 == 0 || i + lane < entries)
				sum += shared.sums[slot][i + lane];
		if (cluster > 1 && threadIdx.x == 0)
			bulk_expect(&shared.met[slot], entries * 4);
#pragma unroll
		for (int apart = 16; apart >= means; apart /= 2)
			sum += group_from(sum, apart);
		out.sum[0] = sum;
		if constexpr (means == 2) {
			const Compute other = group_from(sum, 1);
			out.sum[0] = lane % 2 ? other : sum;
			out.sum[1] = lane % 2 ? sum : other;
		}
		return out.template means<SHAPE::columns>();
	}

	DEVICE void store_some(int n, T *to, const u32 (&words)[SHAPE::words]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			const u32 one = static_cast<u32>(vec_element<SHAPE::each>(words, j));
			if (live(n, j))
				vec_store<SHAPE::each>(to + j, &one);
		}
	}

	/* dx of a row, whose place is free then. */
	DEVICE void finish(Offset number, const Stage &stage, u32 turn, const Found &row)
	{
		const u8 *const x = place(stage, 0) + beyond(row_x(number));
		const u8 *const come = place(stage, 1) + beyond(row_dy(number));
		T *const dx = at.dx + number * static_cast<Offset>(SHAPE::columns) + begin;
		const NormBackwardLine<WITH, Compute> line(row, hear(turn));

#pragma unroll
		for (int n = 0; n < NV; n++) {
			Compute xs[V], dy[V];
			u32 words[SHAPE::words];
			if (!has(n))
				continue;
			take(x, come, n, xs, dy);
#pragma unroll
			for (int j = 0; j < V; j++)
				dy[j] = line.dx(xs[j], dy[j], gamma[n][j]);
			element_pack<T>(dy, words);
			if (whole(n))
				vec_store_far<SHAPE::bytes>(dx + column(n), words);
			else
				store_some(n, dx + column(n), words);
		}
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			bulk_arrive(&shared.empty[stage.number]);
	}
};

/* Each cluster leaves one set of sums in scratch memory, behind the counters. */
template <class SHAPE, class WITH, class PLACE, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, 1) CLUSTER_OF(SHAPE::cluster) void norm_backward_ring(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx,
	typename WITH::Dgamma *__restrict__ dgamma, typename WITH::Dbeta *__restrict__ dbeta,
	u8 *scratch, i64 rows)
{
	typedef NormBackwardRing<SHAPE, WITH, PLACE> Ring;
	constexpr u32 columns = static_cast<u32>(SHAPE::columns), sums = WITH::sums;
	constexpr u32 width = columns_width(columns), pitch = columns_pitch(columns);
	__shared__ typename Ring::Shared shared;
	DYN_SHARED(b128, places);
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, dgamma, dbeta, rows};
	u32 *const counters = reinterpret_cast<u32 *>(scratch);
	Compute *const partial = reinterpret_cast<Compute *>(scratch + 256);
	Ring ring(at, shared, places);

	Compute *const mine = partial + blockIdx.x / SHAPE::cluster * (sums * pitch);

	columns_begin(counters + 2);
	ring.open();
	if (threadIdx.x < SHAPE::size)
		ring.work(mine, pitch);
	else if (threadIdx.x == SHAPE::size)
		ring.bring();
	const u32 begun = columns_begun<Ring::asks>(counters);
	if constexpr (!Ring::early) {
		ring.leave_skewed(mine, pitch);
		__syncthreads();
	} else if (threadIdx.x == Ring::asks) {
		ring.wait_for_sums();
	}
	columns_share_by<Ring::asks>(
		counters, begun, gridDim.x, (columns + width - 1) / width, [&](u32 strip) {
			const u32 begin = strip * width;
			columns_total<SHAPE::threads, width, sums>(
				partial + begin, pitch, columns - begin, gridDim.x / SHAPE::cluster,
				[&](u32 which, u32 i, Compute value) {
					norm_backward_store(at, which, begin + i, value);
				});
		});
	ring.meet(); /* what another block sends here has come */
}
