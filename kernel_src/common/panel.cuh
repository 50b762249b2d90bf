/*
 * panel.cuh: rows whose columns lie apart, beside other rows (strided.cuh), where a block or a
 * cluster of blocks holds the columns of some rows on the chip, so that memory is read once.
 *
 * A panel is LANES * V rows that lie side by side, V in each lane.  SPLIT threads of a block share
 * each lane's rows, and CLUSTER blocks share the panel.  A thread holds its first KEPT columns in
 * registers, and the next in SLOTS slots of dynamic shared memory that no other thread looks into,
 * so that they need no barrier.  What is left it reads twice, the second time from the end: the L2
 * cache has much of that still.
 *
 * Skewed panels have rows that begin anywhere, column by column: vectors are put together out of
 * the two around them as they come, and results go by way of the slots, which hold all columns.
 *
 * Parts of a row meet in pairs of neighbours, then pairs of such pairs: the same bits however many
 * lanes there are.
 */
#pragma once
#include "common/async.cuh"
#include "common/cluster.cuh"
#include "common/group.cuh"
#include "common/strided.cuh"

/* BLOCKS: of a multiprocessor, wanted. */
template <typename T, i64 COLUMNS, int V, int LANES, int SPLIT, int CLUSTER, int KEPT, int SLOTS,
		  int BLOCKS, bool SKEWED, i64 INNER>
struct PanelShape : StridedShape<T, COLUMNS, V, 1, LANES, SPLIT, 1, INNER, SKEWED> {
	typedef StridedShape<T, COLUMNS, V, 1, LANES, SPLIT, 1, INNER, SKEWED> strided;
	static constexpr int cluster = CLUSTER, blocks = BLOCKS;
	static constexpr bool skewed = SKEWED;
	static constexpr int parts = SPLIT * CLUSTER;
	static constexpr int rows = LANES * V;
	static constexpr int warps = strided::threads / 32;
	static constexpr int kept = KEPT, room = KEPT + SLOTS;
	/* Is there more than a thread can hold? */
	static constexpr bool more = static_cast<i64>(room) * parts < COLUMNS;
	/* Vectors that a thread works on at a time. */
	static constexpr int turn = V == 1 ? 8 : 16 / V;
	static_assert(strided::threads % 32 == 0, "a block is whole warps: shuffles name all lanes");
	static_assert(static_cast<i64>(KEPT) * parts <= COLUMNS, "all threads have what they keep");
	static_assert(!SKEWED || (KEPT == 0 && !more), "results go by way of slots");

	static DEVICE u32 block()
	{
		return blockIdx.x / CLUSTER;
	}
	static DEVICE int rank()
	{
		return CLUSTER == 1 ? 0 : static_cast<int>(blockIdx.x % CLUSTER);
	}
	/* Column i of this thread is column first() + i * parts of the row. */
	static DEVICE int first()
	{
		return rank() * SPLIT + strided::part();
	}
	static DEVICE int count()
	{
		return (static_cast<int>(COLUMNS) - first() + parts - 1) / parts;
	}
};

/* A thread's columns of STREAMS tensors: `count` of each, of which it holds `held`. */
template <class SHAPE, int STREAMS>
struct PanelHeld {
	typedef typename SHAPE::Element Element;
	typedef typename SHAPE::Compute Compute;
	static constexpr int bytes = SHAPE::bytes, length = SHAPE::length, kept = SHAPE::kept;
	/* Columns that are read at a time. */
	static constexpr int batch = 4 / STREAMS;
	typedef u32 Batch[batch][STREAMS][SHAPE::words];

	u8 *const own;
	const Element *const *const start;
	const i64 *const apart;
	const int count, held, left; /* rows from this thread's first on, two vectors at most */
	u32 word[kept ? kept : 1][STREAMS][SHAPE::words];

	/* Columns begin at start[s], and `apart` elements further on, column by column. */
	DEVICE PanelHeld(void *shared, const Element *const (&start)[STREAMS],
					 const i64 (&apart)[STREAMS], int count, i64 left)
		: own(static_cast<u8 *>(shared) + threadIdx.x * bytes), start(start), apart(apart),
		  count(count), held(SHAPE::more && count > SHAPE::room ? SHAPE::room : count),
		  left(left < 2 * length ? static_cast<int>(left) : 2 * length)
	{
	}

	/* Starts to bring in what is held. */
	DEVICE void fetch()
	{
		if constexpr (bytes == 16 && !SHAPE::skewed) {
#pragma unroll 4
			for (int i = kept; i < held; i++) {
#pragma unroll
				for (int s = 0; s < STREAMS; s++)
					async_copy16(slot(i, s), at(i, s));
			}
		} else {
			constexpr int once = (SHAPE::skewed ? 4 : 8) / STREAMS;
#pragma unroll 1
			for (int i = kept; i < held; i += once) {
				u32 raw[once][STREAMS][SHAPE::words];
#pragma unroll
				for (int b = 0; b < once; b++) {
#pragma unroll
					for (int s = 0; s < STREAMS; s++)
						if (i + b < held)
							load(at(i + b, s), raw[b][s]);
				}
#pragma unroll
				for (int b = 0; b < once; b++) {
#pragma unroll
					for (int s = 0; s < STREAMS; s++)
						if (i + b < held)
							vec_store<bytes>(slot(i + b, s), raw[b][s]);
				}
			}
		}
#pragma unroll
		for (int i = 0; i < kept; i++) {
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				if (count > 0)
					vec_load<bytes>(at(i, s), word[i][s]);
		}
	}
	/* Waits for what comes to slots. */
	DEVICE void arrive() const
	{
		if constexpr (bytes == 16 && !SHAPE::skewed)
			async_wait_all();
	}
	/* Calls body(i, raw) for each column that is held; put(i, raw) changes it. */
	template <typename Body>
	DEVICE void each_kept(Body body)
	{
#pragma unroll
		for (int i = 0; i < kept; i++)
			body(i, word[i]);
	}
	template <bool PUT, typename Body>
	DEVICE void each_slot(Body body)
	{
#pragma unroll(SHAPE::turn)
		for (int i = kept; i < held; i++) {
			u32 raw[STREAMS][SHAPE::words];
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				vec_load<bytes>(slot(i, s), raw[s]);
			body(i, raw);
			if constexpr (PUT) {
#pragma unroll
				for (int s = 0; s < STREAMS; s++)
					vec_store<bytes>(slot(i, s), raw[s]);
			}
		}
	}

	/* Begins to read the batch of column i, of those that are not held. */
	DEVICE void read(int i, Batch &raw) const
	{
#pragma unroll
		for (int b = 0; b < batch; b++) {
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				if (i + b < count)
					vec_load<bytes>(at(i + b, s), raw[b][s]);
		}
	}
	/* The last batch. */
	DEVICE int last() const
	{
		return held + (count - held - 1) / batch * batch;
	}
	/* Calls body(i, batch) for them, with one more on its way; next: the first, that was read. */
	template <bool DOWN, typename Body>
	DEVICE void each_batch(Batch &next, Body body) const
	{
		constexpr int step = DOWN ? -batch : batch;
#pragma unroll 1
		for (int i = DOWN ? last() : held; DOWN ? i >= held : i < count; i += step) {
			Batch raw;
#pragma unroll
			for (int b = 0; b < batch; b++) {
#pragma unroll
				for (int s = 0; s < STREAMS; s++) {
#pragma unroll
					for (int w = 0; w < SHAPE::words; w++)
						raw[b][s][w] = next[b][s][w];
				}
			}
			if (DOWN ? i + step >= held : i + step < count)
				read(i + step, next);
			body(i, raw);
		}
	}

	/* Writes results that were put into slots of stream 0.  All threads of the block come. */
	DEVICE void store_skewed(Element *to, i64 step) const
	{
		constexpr int each = static_cast<int>(sizeof(Element)), words = SHAPE::words;
		const int lane = SHAPE::lane();

		__syncthreads(); /* the neighbour's results are there */
#pragma unroll 2
		for (int i = 0; i < held; i++) {
			Element *const here = to + column(i) * step;
			const int beyond = vec_beyond<bytes>(here), head = length - beyond / each;
			/* A vector that has all of its elements goes out whole, and others by elements. */
			const bool whole = lane > 0 ? left >= head : beyond == 0 && left >= length;
			const bool next = lane + 1 < SHAPE::lanes && left - length >= head;
			u32 pair[2 * words], mine[words], out[words];
			vec_load<bytes>(slot(i, 0), mine);
			vec_load<bytes>(slot(i, 0) - (beyond && lane > 0 ? bytes : 0), pair);
#pragma unroll
			for (int w = 0; w < words; w++)
				pair[words + w] = mine[w];
			vec_window<each, bytes>(pair, (bytes - beyond) % bytes, out);
			if (whole)
				vec_store<bytes>(reinterpret_cast<u8 *>(here) - beyond, out);
			if (whole && (next || beyond == 0))
				continue;
#pragma unroll
			for (int j = 0; j < length; j++) {
				u32 one[vec_words<each>];
				if (each == 8) {
					one[0] = mine[j * each / 4];
					one[vec_words<each> - 1] = mine[j * each / 4 + (each == 8)];
				} else {
					one[0] = mine[j * each / 4] >> j * each % 4 * 8;
				}
				if (j < left && (j < head ? !whole : !next))
					vec_store<each>(here + j, one);
			}
		}
	}

	static DEVICE int column(int i)
	{
		return SHAPE::first() + i * SHAPE::parts;
	}

  private:
	DEVICE void load(const Element *from, u32 (&words)[SHAPE::words]) const
	{
		if constexpr (SHAPE::skewed) {
			constexpr int each = static_cast<int>(sizeof(Element));
			const int beyond = vec_beyond<bytes>(from);
			vec_load_skewed<each, bytes>(reinterpret_cast<const u8 *>(from) - beyond, beyond,
										 left * each, words);
		} else {
			vec_load<bytes>(from, words);
		}
	}
	DEVICE const Element *at(int i, int stream) const
	{
		return start[stream] + column(i) * apart[stream];
	}
	DEVICE u8 *slot(int i, int stream) const
	{
		return own + ((i - kept) * STREAMS + stream) * (SHAPE::threads * bytes);
	}
};

/* Column i of the results, of which raw goes back into its slot. */
template <class SHAPE, int STREAMS>
DEVICE void panel_result(const PanelHeld<SHAPE, STREAMS> &, int i, u32 (&raw)[SHAPE::words],
						 typename SHAPE::Element *to, i64 step,
						 const typename SHAPE::Compute (&values)[SHAPE::length])
{
	if constexpr (SHAPE::skewed)
		element_pack<typename SHAPE::Element>(values, raw);
	else
		strided_store<SHAPE>(to, step, PanelHeld<SHAPE, STREAMS>::column(i), values);
}

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
template <class SHAPE, int TURN, class Value, typename Merge>
DEVICE void panel_meet(Value (&mine)[SHAPE::length], Merge merge)
{
	constexpr int V = SHAPE::length, rows = SHAPE::rows, warps = SHAPE::warps;
	constexpr int cluster = SHAPE::cluster, threads = SHAPE::threads;
	__shared__ Value partial[warps][rows + 1]; /* warps beside one another in other banks */
	__shared__ Value total[cluster][rows];
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
		Value all = partial[warp][here ? row : 0];
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
