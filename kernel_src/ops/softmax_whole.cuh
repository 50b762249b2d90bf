/*
 * softmax_whole.cuh: softmax and its logarithm over a dimension that is not the last, of matrices
 * that lie in memory as one piece each: COLUMNS x INNER, softmax over the columns.  A block, or a
 * cluster of blocks, takes a matrix into shared memory, by whole vectors wherever it begins, works
 * on it there, and brings it out again by whole vectors.
 *
 *   softmax_whole           a block holds a matrix
 *   softmax_whole_cluster   each block of a cluster holds some columns of it
 *
 * V elements that lie side by side belong to a thread, in every PARTS-th column of its block: what
 * the threads look at together lies together.
 */
#pragma once
#include "common/softmax_panel.cuh"

template <typename T, int COLUMNS, int INNER, int V, int PARTS, int CLUSTER>
struct WholeShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	static constexpr int cluster = CLUSTER, inner = INNER, length = V, parts = PARTS;
	static constexpr int lanes = INNER / V;
	static constexpr int threads = (lanes * PARTS + 31) / 32 * 32;
	static constexpr int most = (COLUMNS + CLUSTER - 1) / CLUSTER; /* columns of a block */
	static constexpr int unit = 16 / static_cast<int>(sizeof(T));
	static constexpr int step = PARTS * INNER; /* from column to column of a thread */
	/* Elements with room for a beginning between two vectors. */
	static constexpr int room = (most * INNER + 2 * unit - 2) / unit * unit;
	static constexpr i64 all = static_cast<i64>(COLUMNS) * INNER;
	static_assert(INNER % V == 0, "whole vectors lie side by side");
	static_assert((CLUSTER - 1) * most < COLUMNS, "each block has a column");

	static DEVICE int rank()
	{
		return CLUSTER == 1 ? 0 : static_cast<int>(blockIdx.x % CLUSTER);
	}
	static DEVICE int columns()
	{
		const int left = COLUMNS - rank() * most;
		return left < most ? left : most;
	}
	static DEVICE int lane()
	{
		return static_cast<int>(threadIdx.x) % lanes;
	}
	static DEVICE int part()
	{
		return static_cast<int>(threadIdx.x) / lanes;
	}
};

/* All threads get what merge(a, b) makes of the values of all parts of all blocks.  memory: for
 * PARTS * INNER values, and CLUSTER * INNER in a cluster. */
template <class SHAPE, class Value, typename Merge>
DEVICE void whole_meet(Value (&mine)[SHAPE::length], void *memory, Merge merge)
{
	constexpr int V = SHAPE::length;
	Value *const own = static_cast<Value *>(memory);
	Value *const total = own + SHAPE::parts * SHAPE::inner;
	const int part = SHAPE::part(), first = SHAPE::lane() * V;

	if (part < SHAPE::parts) {
#pragma unroll
		for (int v = 0; v < V; v++)
			own[part * SHAPE::inner + first + v] = mine[v];
	}
	__syncthreads();
#pragma unroll
	for (int left = SHAPE::parts; left > 1; left = (left + 1) / 2) {
		const int half = (left + 1) / 2;
		if (part + half < left) {
#pragma unroll
			for (int v = 0; v < V; v++) {
				mine[v] = merge(mine[v], own[(part + half) * SHAPE::inner + first + v]);
				own[part * SHAPE::inner + first + v] = mine[v];
			}
		}
		__syncthreads();
	}
	if constexpr (SHAPE::cluster > 1) {
		cluster_wait(); /* the neighbours are there */
		if (part == 0) {
#pragma unroll
			for (int rank = 0; rank < SHAPE::cluster; rank++) {
#pragma unroll
				for (int v = 0; v < V; v++)
					cluster_put(&total[SHAPE::rank() * SHAPE::inner + first + v], mine[v],
								static_cast<u32>(rank));
			}
		}
		cluster_arrive();
		cluster_wait();
	}
#pragma unroll
	for (int v = 0; v < V; v++) {
		mine[v] = (SHAPE::cluster > 1 ? total : own)[first + v];
#pragma unroll
		for (int rank = 1; rank < SHAPE::cluster; rank++)
			mine[v] = merge(mine[v], total[rank * SHAPE::inner + first + v]);
	}
}

template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_wholes(const T *x, T *y, const SoftmaxScale<Compute> &scale)
{
	constexpr int V = SHAPE::length, bytes = V * static_cast<int>(sizeof(T)), together = 4;
	constexpr int unit = SHAPE::unit;
	DYN_SHARED(b128, memory);
	T *const piece = reinterpret_cast<T *>(memory);
	const i64 begin = static_cast<i64>(blockIdx.x / SHAPE::cluster) * SHAPE::all +
					  static_cast<i64>(SHAPE::rank()) * (SHAPE::most * SHAPE::inner);
	const int beyond = vec_beyond<16>(x + begin) / static_cast<int>(sizeof(T));
	const int columns = SHAPE::columns(), end = beyond + columns * SHAPE::inner;
	T *const own = piece + beyond + SHAPE::part() * SHAPE::inner + SHAPE::lane() * V;
	/* Columns of this thread. */
	const int count = SHAPE::part() < SHAPE::parts
						  ? (columns - SHAPE::part() + SHAPE::parts - 1) / SHAPE::parts
						  : 0;
	SoftmaxSum<Compute> all[V];
	Compute rest[V];

	if constexpr (SHAPE::cluster > 1)
		cluster_arrive();
#pragma unroll 4
	for (int at = static_cast<int>(threadIdx.x) * unit; at < end; at += SHAPE::threads * unit)
		async_copy16(piece + at, x + begin - beyond + at);
	async_wait_all();
	__syncthreads();
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v] = {SoftmaxNumber<Compute>::lowest(), 0};
#pragma unroll 1
	for (int i = 0; i < count; i += together) {
		u32 raw[together][vec_words<bytes>];
#pragma unroll
		for (int c = 0; c < together; c++)
			if (i + c < count)
				vec_load<bytes>(own + (i + c) * SHAPE::step, raw[c]);
#pragma unroll
		for (int v = 0; v < V; v++) {
			Compute term[together], largest = all[v].largest, sum = 0;
#pragma unroll
			for (int c = 0; c < together; c++) {
				term[c] = i + c < count ? element_at<T, Compute>(raw[c], v) * scale.before
										: SoftmaxNumber<Compute>::least();
				largest = fmax(largest, term[c]);
			}
#pragma unroll
			for (int c = 0; c < together; c++)
				sum += softmax_exp2_flush((term[c] - largest) * scale.exponent);
			all[v].sum =
				fma(all[v].sum, all[v].fading(largest, all[v].largest, scale.exponent), sum);
			all[v].largest = largest;
		}
	}
	whole_meet<SHAPE>(all, piece + SHAPE::room,
					  [&](const SoftmaxSum<Compute> &a, const SoftmaxSum<Compute> &b) {
						  return softmax_merge(a, b, scale.exponent);
					  });
#pragma unroll
	for (int v = 0; v < V; v++)
		rest[v] = softmax_rest<T, LOG>(all[v].sum);
#pragma unroll(together)
	for (int i = 0; i < count; i++) {
		u32 raw[vec_words<bytes>];
		Compute value[V];
		vec_load<bytes>(own + i * SHAPE::step, raw);
#pragma unroll
		for (int v = 0; v < V; v++)
			value[v] = softmax_result<T, LOG>(
				element_at<T, Compute>(raw, v) * scale.before - all[v].largest, rest[v], scale);
		element_pack<T>(value, raw);
		vec_store<bytes>(own + i * SHAPE::step, raw);
	}
	__syncthreads();
#pragma unroll 4
	for (int at = static_cast<int>(threadIdx.x) * unit; at < end; at += SHAPE::threads * unit) {
		T *const to = y + begin - beyond + at;
		if (at >= beyond && at + unit <= end) {
			u32 words[4];
			vec_load<16>(piece + at, words);
			vec_store_far<16>(to, words);
			continue;
		}
		for (int j = 0; j < unit; j++)
			if (at + j >= beyond && at + j < end)
				to[j] = piece[at + j];
	}
}

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void softmax_whole(const T *x, T *y, Compute before,
															Compute exponent, Compute after, i64)
{
	softmax_wholes<SHAPE, LOG>(x, y, SoftmaxScale<Compute>{before, exponent, after});
}

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void softmax_whole_cluster(const T *x, T *y, Compute before,
														  Compute exponent, Compute after, i64)
{
	softmax_wholes<SHAPE, LOG>(x, y, SoftmaxScale<Compute>{before, exponent, after});
}
