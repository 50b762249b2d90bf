/*
 * panel.cuh: rows whose columns lie apart, beside other rows (strided.cuh), where a block or a
 * cluster of blocks holds all columns of some rows on the chip, so that memory is read once.
 *
 * A panel is LANES * V rows that lie side by side, V in each lane.  SPLIT threads of a block share
 * each lane's rows, and CLUSTER blocks share the panel.  A thread holds its columns in slots of
 * dynamic shared memory that no other thread looks into, so they need no barrier.
 *
 * Parts of a row meet in pairs of neighbours, then pairs of such pairs: the same bits however many
 * lanes there are.
 */
#pragma once
#include "common/async.cuh"
#include "common/cluster.cuh"
#include "common/group.cuh"
#include "common/strided.cuh"

template <typename T, i64 COLUMNS, int V, int LANES, int SPLIT, int CLUSTER, i64 INNER>
struct PanelShape : StridedShape<T, COLUMNS, V, 1, LANES, SPLIT, 1, INNER> {
	typedef StridedShape<T, COLUMNS, V, 1, LANES, SPLIT, 1, INNER> strided;
	static constexpr int cluster = CLUSTER;
	static constexpr int parts = SPLIT * CLUSTER;
	static constexpr int rows = LANES * V;
	static constexpr int warps = strided::threads / 32;
	/* Vectors that a thread works on at a time. */
	static constexpr int turn = V == 1 ? 8 : 16 / V;
	static_assert(strided::threads % 32 == 0, "a block is whole warps: shuffles name all lanes");

	static DEVICE u32 block()
	{
		return blockIdx.x / CLUSTER;
	}
	static DEVICE int rank()
	{
		return CLUSTER == 1 ? 0 : static_cast<int>(blockIdx.x % CLUSTER);
	}
	/* Slot i of this thread has column first() + i * parts. */
	static DEVICE int first()
	{
		return rank() * SPLIT + strided::part();
	}
	static DEVICE int count()
	{
		return (static_cast<int>(COLUMNS) - first() + parts - 1) / parts;
	}
};

/* The slots of a thread, for STREAMS tensors: `count` columns of each. */
template <class SHAPE, int STREAMS>
struct PanelSlots {
	typedef typename SHAPE::Element Element;
	typedef typename SHAPE::Compute Compute;
	static constexpr int bytes = SHAPE::bytes, length = SHAPE::length;

	u8 *const own;
	const int count;

	DEVICE PanelSlots(void *shared, int count)
		: own(static_cast<u8 *>(shared) + threadIdx.x * bytes), count(count)
	{
	}

	/* Starts to bring in what is at start[s] and `apart` elements further on, column by column. */
	DEVICE void fetch(const Element *const (&start)[STREAMS], const i64 (&apart)[STREAMS])
	{
		if constexpr (bytes == 16) {
#pragma unroll 4
			for (int i = 0; i < count; i++) {
#pragma unroll
				for (int s = 0; s < STREAMS; s++)
					async_copy16(slot(i, s), start[s] + column(i) * apart[s]);
			}
		} else {
			constexpr int batch = 8 / STREAMS;
#pragma unroll 1
			for (int i = 0; i < count; i += batch) {
				u32 raw[batch][STREAMS][SHAPE::words];
#pragma unroll
				for (int b = 0; b < batch; b++) {
#pragma unroll
					for (int s = 0; s < STREAMS; s++)
						if (i + b < count)
							vec_load<bytes>(start[s] + column(i + b) * apart[s], raw[b][s]);
				}
#pragma unroll
				for (int b = 0; b < batch; b++) {
#pragma unroll
					for (int s = 0; s < STREAMS; s++)
						if (i + b < count)
							vec_store<bytes>(slot(i + b, s), raw[b][s]);
				}
			}
		}
	}
	/* Waits for all of it. */
	DEVICE void arrive() const
	{
		if constexpr (bytes == 16)
			async_wait_all();
	}
	DEVICE void take(int i, int stream, Compute (&values)[length]) const
	{
		u32 raw[SHAPE::words];

		vec_load<bytes>(slot(i, stream), raw);
		element_unpack<Element>(raw, values);
	}
	/* Other values in their place: exact where an element's type computes in itself. */
	DEVICE void put(int i, int stream, const Compute (&values)[length])
	{
		u32 raw[SHAPE::words];

		element_pack<Element>(values, raw);
		vec_store<bytes>(slot(i, stream), raw);
	}
	static DEVICE int column(int i)
	{
		return SHAPE::first() + i * SHAPE::parts;
	}

  private:
	DEVICE u8 *slot(int i, int stream) const
	{
		return own + (i * STREAMS + stream) * (SHAPE::threads * bytes);
	}
};

/* Blocks of a cluster begin: later, their neighbours will write to them. */
template <class SHAPE>
DEVICE void panel_begin()
{
	if constexpr (SHAPE::cluster > 1)
		cluster_arrive();
}

/*
 * All threads that share rows get merge(a, b) of all their values.  TURN: 0, 1, ... in the order of
 * the calls, which all threads make.
 */
template <class SHAPE, int TURN, typename Compute, typename Merge>
DEVICE void panel_meet(Compute (&mine)[SHAPE::length], Merge merge)
{
	constexpr int V = SHAPE::length, rows = SHAPE::rows, warps = SHAPE::warps;
	constexpr int cluster = SHAPE::cluster, threads = SHAPE::threads;
	__shared__ Compute partial[warps][rows];
	__shared__ Compute total[cluster][rows];
	const int thread = static_cast<int>(threadIdx.x), first = SHAPE::lane() * V;

#pragma unroll
	for (int v = 0; v < V; v++) {
#pragma unroll
		for (int lanes = SHAPE::lanes; lanes < 32; lanes *= 2)
			mine[v] = merge(mine[v], group_from(mine[v], lanes));
		if (thread % 32 < SHAPE::lanes)
			partial[thread / 32][first + v] = mine[v];
	}
	__syncthreads();
	if constexpr (cluster > 1 && TURN == 0)
		cluster_wait(); /* for panel_begin(): the neighbours are there */
#pragma unroll
	for (int base = 0; base < rows * warps; base += threads) {
		const int at = base + thread, warp = at % warps, row = at / warps;
		const bool here = row < rows;
		Compute all = partial[warp][here ? row : 0];
#pragma unroll
		for (int lanes = 1; lanes < warps; lanes *= 2)
			all = merge(all, group_from(all, lanes));
		if (here && warp == 0) {
			if constexpr (cluster == 1) {
				total[0][row] = all;
			} else {
#pragma unroll
				for (int rank = 0; rank < cluster; rank++)
					cluster_put(&total[SHAPE::rank()][row], all, static_cast<u32>(rank));
			}
		}
	}
	if constexpr (cluster > 1) {
		cluster_arrive();
		cluster_wait();
	} else {
		__syncthreads();
	}
#pragma unroll
	for (int v = 0; v < V; v++) {
		mine[v] = total[0][first + v];
#pragma unroll
		for (int rank = 1; rank < cluster; rank++)
			mine[v] = merge(mine[v], total[rank][first + v]);
	}
}
