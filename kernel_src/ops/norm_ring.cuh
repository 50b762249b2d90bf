/*
 * norm_ring.cuh: layer_norm and rms_norm (norm.cuh) of long rows by blocks that stay.
 *
 *   norm_ring   a block, or a cluster of blocks that share each row, takes one row after another
 *
 * A thread has the same columns of every row, so it keeps their gamma and beta in registers.  Rows
 * come into a ring of STAGES places in shared memory, of which each thread fills and reads its own.
 * While a row is normalized and stored, the next one is measured already, what its blocks have to
 * tell each other is on the way, and further rows come in.
 */
#pragma once
#include "common/async.cuh"
#include "common/norm_rows.cuh"

template <class SHAPE, class WITH, class PLACE, int STAGES>
struct NormRing {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef NormParts<Compute, 1> Parts;
	static constexpr int V = Row::length, NV = Row::held, words = Row::words;
	static constexpr int size = SHAPE::threads, warps = size / 32, cluster = SHAPE::cluster;
	static_assert(!WITH::residual && SHAPE::rows == 1 && Row::bytes == 16 && warps > 1, "");

	/* The findings of the block's warps, and of the cluster's blocks, for two rows in turn. */
	struct Found {
		Parts warp[2][warps], block[2][cluster];
	};

	const NormOperands<WITH, T> &at;
	Found &found;
	u8 *const mine; /* this thread's place for vector 0 of stage 0 */
	const Row row;
	const Compute count; /* elements of a row that the warp has */
	NormAlong<typename WITH::Gamma, V, NV, WITH::bytes> gamma;
	NormAlong<typename WITH::Beta, V, NV, WITH::bytes> beta;

	DEVICE NormRing(const NormOperands<WITH, T> &at, Found &found, void *stages)
		: at(at), found(found), mine(static_cast<u8 *>(stages) + threadIdx.x * 16),
		  row(at.x, Group::place(), Group::slice()), count(norm_count<warps * cluster>(row))
	{
		gamma.fetch(row, at.gamma);
		beta.fetch(row, at.beta);
	}

	/* Starts to bring in a row, if it is there: in any case a batch. */
	DEVICE void fetch(int stage, i64 number)
	{
		const T *const from =
			at.x + PLACE::template row<0>(static_cast<Offset>(number)) + row.first;
#pragma unroll
		for (int n = 0; n < NV; n++)
			if (number < at.rows && row.has(n))
				async_copy16(place(stage, n), from + norm_ahead(row, n));
		async_batch();
	}

	/* Measures a row and tells the others; the pivot is this warp's. */
	DEVICE Compute measure(int stage, int turn)
	{
		Parts parts = {count, {}, {}};
		if constexpr (!WITH::rms) {
			each(stage, [&](Compute value) { parts.pivot[0] += value; });
			norm_sum<32>(parts.pivot);
			parts.pivot[0] =
				norm_product(parts.pivot[0], count > 0 ? norm_inverse(count) : Compute(0));
		}
		each(stage, [&](Compute value) {
			const Compute off = WITH::rms ? value : value - parts.pivot[0];
			if constexpr (!WITH::rms)
				parts.sums[0] += off;
			parts.sums[1] = fma(off, off, parts.sums[1]);
		});
		norm_sum<32>(parts.sums);
		const Compute pivot = parts.pivot[0];
		if (threadIdx.x % 32 == 0)
			found.warp[turn][threadIdx.x / 32] = parts;
		__syncthreads();
		if constexpr (cluster > 1) {
			if (threadIdx.x < 32) {
				norm_collect<warps, Row::full>(found.warp[turn], parts);
				if (threadIdx.x < cluster)
					cluster_put(&found.block[turn][Group::slice()], parts,
								static_cast<u32>(threadIdx.x));
			}
			cluster_arrive();
		}
		return pivot;
	}

	/* The answer for the row that was measured last. */
	DEVICE NormRow<Compute> answer(Compute pivot, int turn)
	{
		Parts all = {count, {}, {}};
		if constexpr (cluster > 1) {
			cluster_wait();
			all.count = 0;
			norm_collect<cluster, false>(found.block[turn], all);
		} else {
			norm_collect<warps, Row::full>(found.warp[turn], all);
		}
		if constexpr (WITH::rms)
			return norm_row_rms<Row::columns>(all.sums[1], at.eps);
		else
			return norm_row<Row::columns>(all.pivot[0], all.sums[0], all.sums[1], pivot, at.eps);
	}

	DEVICE void store(int stage, i64 number, Compute pivot, const NormRow<Compute> &answer)
	{
		T *const to =
			at.y + static_cast<Offset>(number) * static_cast<Offset>(Row::columns) + row.first;
#pragma unroll
		for (int n = 0; n < NV; n++) {
			Compute g[V], b[V], out[V];
			u32 x[words];
			if (!row.has(n))
				continue;
			vec_load<16>(place(stage, n), x);
			element_unpack<T>(x, out);
			gamma.get(n, g);
			beta.get(n, b);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = norm_apply<WITH>(answer, WITH::rms ? out[j] : out[j] - pivot, g[j], b[j]);
			norm_store(row, n, to, out);
		}
		if (threadIdx.x == 0 && Group::slice() == 0)
			norm_store_statistics(at, number, answer);
	}

  private:
	DEVICE u8 *place(int stage, int n) const
	{
		return mine + (stage * NV + n) * (size * 16);
	}

	/* Calls body(x) for each element that this thread has of a row.  Rolled: unrolled, they would
	 * all stay in registers for the next time. */
	template <typename Body>
	DEVICE void each(int stage, Body body) const
	{
#pragma unroll(NV > 4 && NV % 2 == 0 ? 2 : 1)
		for (int n = 0; n < NV; n++) {
			u32 x[words];
			if (!row.has(n))
				continue;
			vec_load<16>(place(stage, n), x);
#pragma unroll
			for (int j = 0; j < V; j++)
				body(element_at<T, Compute>(x, j));
		}
	}
};

template <class SHAPE, class WITH, class PLACE, int STAGES>
DEVICE void norm_ring_rows(const NormOperands<WITH, typename SHAPE::Element> &at)
{
	typedef NormRing<SHAPE, WITH, PLACE, STAGES> Ring;
	typedef typename SHAPE::Compute Compute;
	const i64 step = static_cast<i64>(gridDim.x / SHAPE::cluster);
	__shared__ typename Ring::Found found;
	DYN_SHARED(b128, stages);
	Ring ring(at, found, stages);
	i64 number = SHAPE::group::block();
	NormRow<Compute> answer;
	Compute pivot;
	int stage = 0, turn = 0;

	if constexpr (SHAPE::cluster > 1) {
		/* Before one writes to another, all are there. */
		cluster_arrive();
		cluster_wait();
	}
#pragma unroll 1
	for (int k = 0; k < STAGES; k++)
		ring.fetch(k, number + k * step);
	async_wait_but<STAGES - 1>();
	pivot = ring.measure(stage, turn);
	answer = ring.answer(pivot, turn);
#pragma unroll 1
	for (; number < at.rows; number += step) {
		const int next = stage + 1 < STAGES ? stage + 1 : 0;
		const bool more = number + step < at.rows;
		const Compute old = pivot;
		turn ^= 1;
		if (more) {
			async_wait_but<STAGES - 2>();
			pivot = ring.measure(next, turn);
		}
		ring.store(stage, number, old, answer);
		ring.fetch(stage, number + STAGES * step);
		if (more)
			answer = ring.answer(pivot, turn);
		stage = next;
	}
}

template <class SHAPE, class WITH, class PLACE, int STAGES, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void norm_ring(const T *__restrict__ x,
											  const typename WITH::Gamma *__restrict__ gamma,
											  const typename WITH::Beta *__restrict__ beta,
											  const T *__restrict__ residual, T *__restrict__ y,
											  Compute *__restrict__ mean,
											  Compute *__restrict__ rstd, T *__restrict__ sum,
											  Compute eps, i64 rows)
{
	norm_ring_rows<SHAPE, WITH, PLACE, STAGES>(
		{x, gamma, beta, residual, y, mean, rstd, sum, eps, rows});
}
