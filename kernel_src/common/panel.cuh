/*
 * panel.cuh: rows whose columns lie apart, beside other rows (strided.cuh), where a block or a
 * cluster of blocks holds the columns of some rows on the chip, so that memory is read once.
 *
 * A panel is LANES * V rows that lie side by side, V in each lane.  SPLIT threads of a block share
 * each lane's rows, and CLUSTER blocks share the panel.  A thread holds its first KEPT columns in
 * registers, and the next in SLOTS slots of dynamic shared memory that no other thread looks into,
 * so that they need no barrier.  It reads the rest twice, the second time from the end: the L2
 * cache has much of that still.
 *
 * Skewed panels have rows that begin anywhere, column by column.  All columns of a thread begin
 * equally far beyond an aligned address, for they are whole vectors apart.  So each thread has
 * whole vectors of memory, which begin up to V - 1 rows before its lane's, and knows which rows
 * they are.
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
		  int BLOCKS, bool SKEWED, i64 INNER, bool SHIFTED = false>
struct PanelShape : StridedShape<T, COLUMNS, V, 1, LANES, SPLIT, 1, INNER, SKEWED> {
	typedef StridedShape<T, COLUMNS, V, 1, LANES, SPLIT, 1, INNER, SKEWED> strided;
	static constexpr int cluster = CLUSTER, blocks = BLOCKS;
	static constexpr int parts = SPLIT * CLUSTER;
	static constexpr int rows = LANES * V;
	/* Rows of which a panel has all elements. */
	static constexpr int known = strided::width + (SKEWED && !strided::alone ? V - 1 : 0);
	static constexpr int warps = strided::threads / 32;
	/* Threads that merge what the parts of a skewed row have. */
	static constexpr int team = SPLIT >= 32 * V ? 32 : SPLIT >= V ? SPLIT / V : 1;
	static constexpr int kept = KEPT, room = KEPT + SLOTS;
	static constexpr bool shifted = SHIFTED; /* panel_shift.cuh */
	/* Is there more than a thread can hold? */
	static constexpr bool more = static_cast<i64>(room) * parts < COLUMNS;
	/* Vectors that a thread works on at a time. */
	static constexpr int turn = V == 1 ? 8 : 16 / V;
	static_assert(strided::threads % 32 == 0, "a block is whole warps: shuffles name all lanes");
	static_assert(static_cast<i64>(KEPT) * parts <= COLUMNS, "all threads have what they keep");
	static_assert(!SKEWED || SPLIT % V == 0, "columns of a thread are whole vectors apart");
	static_assert(CLUSTER == 1 || parts <= COLUMNS, "all blocks look at all rows");
	static_assert(!SHIFTED || (SKEWED && KEPT == 0 && !more), "neighbours find all in slots");

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
	/* Slots that come together: at most nine times. */
	static constexpr int crowd = SHAPE::room - kept <= 32 ? 4 : (SHAPE::room - kept + 7) / 8;
	typedef u32 Batch[batch][STREAMS][SHAPE::words];

	u8 *const own;
	const i64 *const apart;
	const Element *start[STREAMS];
	/* The row of the panel that the thread's vectors begin with, and their elements begin ..
	 * end - 1 that it writes. */
	int first, begin, end;
	int count, held;
	u32 word[kept ? kept : 1][STREAMS][SHAPE::words];

	/* Columns begin at from[s], and `apart` elements further on, column by column.  left: rows from
	 * the lane's first on. */
	DEVICE PanelHeld(void *shared, const Element *const (&from)[STREAMS],
					 const i64 (&apart)[STREAMS], bool here, i64 left)
		: own(static_cast<u8 *>(shared) + threadIdx.x * bytes), apart(apart),
		  first(SHAPE::lane() * length), begin(0), end(length), count(here ? SHAPE::count() : 0)
	{
		const int past = SHAPE::skewed ? vec_beyond<bytes>(from[0] + SHAPE::first() * apart[0]) /
											 static_cast<int>(sizeof(Element))
									   : 0;
#pragma unroll
		for (int s = 0; s < STREAMS; s++)
			start[s] = from[s] - past;
		if constexpr (SHAPE::skewed) {
			const i64 rows = left + first; /* from the panel's first on */
			const bool begins = rows == SHAPE::inner;
			first -= past;
			begin = first < 0 ? -first : 0;
			end = rows - first < length ? static_cast<int>(rows - first) : length;
			count = end > 0 ? count : 0;
			if (!SHAPE::alone && ((first < 0 && !begins) || first >= SHAPE::width))
				end = begin;
		}
		held = SHAPE::more && count > SHAPE::room ? SHAPE::room : count;
	}

	/* Starts to bring in what is held. */
	DEVICE void fetch()
	{
		if constexpr (bytes == 16) {
#pragma unroll 1
			for (int i = kept; i < held; i += crowd) {
#pragma unroll
				for (int b = 0; b < crowd; b++) {
#pragma unroll
					for (int s = 0; s < STREAMS; s++)
						if (i + b < held)
							async_copy16(slot(i + b, s), at(i + b, s));
				}
				async_batch();
			}
		} else {
			constexpr int once = 8 / STREAMS;
#pragma unroll 1
			for (int i = kept; i < held; i += once) {
				u32 raw[once][STREAMS][SHAPE::words];
#pragma unroll
				for (int b = 0; b < once; b++) {
#pragma unroll
					for (int s = 0; s < STREAMS; s++)
						if (i + b < held)
							vec_load<bytes>(at(i + b, s), raw[b][s]);
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
		if constexpr (bytes == 16)
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

	/* Calls body(i, raw) for each column in a slot, as they come. */
	template <typename Body>
	DEVICE void each_coming(Body body)
	{
		int left = (held - kept + crowd - 1) / crowd;
#pragma unroll 1
		for (int from = kept; from < held; from += crowd) {
			if constexpr (bytes == 16)
				async_wait_left(--left);
			const int to = from + crowd < held ? from + crowd : held;
#pragma unroll(SHAPE::turn)
			for (int i = from; i < to; i++) {
				u32 raw[STREAMS][SHAPE::words];
#pragma unroll
				for (int s = 0; s < STREAMS; s++)
					vec_load<bytes>(slot(i, s), raw[s]);
				body(i, raw);
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

	/* Calls body(i, raw) for each column that is not held. */
	template <bool DOWN, typename Body>
	DEVICE void each_left(Batch &next, Body body) const
	{
		each_batch<DOWN>(next, [&](int i, Batch &raw) {
#pragma unroll
			for (int n = 0; n < batch; n++) {
				const int b = DOWN ? batch - 1 - n : n;
				if (i + b < count)
					body(i + b, raw[b]);
			}
		});
	}

	/* Writes results of column i of the thread; columns begin at `to`. */
	DEVICE void write(int i, Element *to, i64 step,
					  const typename SHAPE::Compute (&values)[length]) const
	{
		constexpr int each = static_cast<int>(sizeof(Element));
		u32 words[SHAPE::words];
		Element *const here = to + column(i) * step - (SHAPE::lane() * length - first);

		element_pack<Element>(values, words);
		if (SHAPE::skewed && begin == end)
			return;
		if constexpr (SHAPE::skewed)
			vec_store_some<each, length>(here, words, begin, end);
		else
			vec_store_far<bytes>(here, words);
	}

	static DEVICE int column(int i)
	{
		return SHAPE::first() + i * SHAPE::parts;
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

/* Blocks of a cluster begin: later, their neighbours will write to them. */
template <class SHAPE>
DEVICE void panel_begin()
{
	if constexpr (SHAPE::cluster > 1)
		cluster_arrive();
}

/* merge(a, b) of COUNT values, `apart` from one another, as a binary tree. */
template <int COUNT, class Value, typename Merge>
DEVICE Value panel_tree(const Value *values, int apart, Merge merge)
{
	if constexpr (COUNT == 1)
		return values[0];
	else
		return merge(panel_tree<COUNT / 2>(values, apart, merge),
					 panel_tree<COUNT / 2>(values + COUNT / 2 * apart, apart, merge));
}

/* Where a row's values are kept while its threads meet.  In skewed panels, rows whose r % V is the
 * same lie together, row r as number r / V of them: so neighbouring lanes use different banks. */
template <class SHAPE>
DEVICE int panel_place(int row)
{
	constexpr int V = SHAPE::length;
	return SHAPE::skewed ? (row + V) % V * SHAPE::lanes + (row + V) / V - 1 : row;
}

template <class SHAPE>
DEVICE int panel_row(int place)
{
	return SHAPE::skewed ? place % SHAPE::lanes * SHAPE::length + place / SHAPE::lanes : place;
}

/* Where the threads of a panel meet. */
template <class SHAPE, class Value>
struct PanelMeeting {
	/* The sums of each warp, or of each part of skewed rows; neighbours lie in other banks. */
	Value partial[SHAPE::skewed ? SHAPE::split : SHAPE::warps][SHAPE::rows + 1];
	Value total[SHAPE::cluster][SHAPE::rows];          /* what each block has */
	Value whole[SHAPE::cluster > 1 ? SHAPE::rows : 1]; /* of a cluster */
};

/* Its memory, which values of all types take one after another.  WIDEST: the largest of them. */
template <class SHAPE, class WIDEST>
DEVICE void *panel_memory()
{
	__shared__ PanelMeeting<SHAPE, WIDEST> memory;
	return &memory;
}

/* Gives every block of the cluster what this one has of a row. */
template <class SHAPE, class Value>
DEVICE void panel_put(Value (&total)[SHAPE::cluster][SHAPE::rows], int place, const Value &all)
{
	if constexpr (SHAPE::cluster == 1) {
		total[0][place] = all;
	} else {
#pragma unroll
		for (int rank = 0; rank < SHAPE::cluster; rank++)
			cluster_put(&total[SHAPE::rank()][place], all, static_cast<u32>(rank));
	}
}

/* Threads that merge what the blocks of a cluster have of a row. */
template <class SHAPE>
constexpr int panel_crew()
{
	int crew = 1;
	while (crew < SHAPE::cluster && crew * 2 * SHAPE::rows <= SHAPE::threads)
		crew *= 2;
	return crew;
}

/* Ends a row's value where all of it has met, once for all threads: leaves it as it is, or calls
 * end(row, value), which may change it and says whether the threads shall know of it. */
struct PanelEnd {
	static constexpr bool votes = false;
	template <class Value>
	DEVICE bool operator()(int, Value &) const
	{
		return false;
	}
};
template <typename End>
struct PanelVote {
	static constexpr bool votes = true;
	const End &end;
	template <class Value>
	DEVICE bool operator()(int row, Value &value) const
	{
		return end(row, value);
	}
};

/* Merges the values of all blocks of a cluster, each row once; returns what any end() said. */
template <class SHAPE, class Value, typename Merge, class End>
DEVICE bool panel_gather(PanelMeeting<SHAPE, Value> &at, Merge merge, const End &end)
{
	constexpr int crew = panel_crew<SHAPE>(), each = SHAPE::cluster / crew;
	bool vote = false;

#pragma unroll
	for (int base = 0; base < SHAPE::rows * crew; base += SHAPE::threads) {
		const int member = base + static_cast<int>(threadIdx.x), first = member % crew * each;
		const bool here = member / crew < SHAPE::rows;
		const int place = here ? member / crew : 0;
		Value all = at.total[first][place];
#pragma unroll
		for (int rank = 1; rank < each; rank++)
			all = merge(all, at.total[first + rank][place]);
#pragma unroll
		for (int far = 1; far < crew; far *= 2)
			all = merge(all, group_from(all, far));
		if (here && first == 0) {
			if constexpr (End::votes) {
				/* All blocks say the same of a row of which all is known. */
				const int row = panel_row<SHAPE>(place);
				vote = (row < SHAPE::known && end(row, all)) || vote;
			}
			at.whole[place] = all;
		}
	}
	return vote;
}

/* Waits for the values of all blocks; a thread takes those of its rows, from `first` on.  Returns
 * whether any end() said so: to all blocks of a cluster the same, for they may have to meet again.
 */
template <class SHAPE, class Value, typename Merge, class End>
DEVICE bool panel_get(Value (&mine)[SHAPE::length], PanelMeeting<SHAPE, Value> &at, int first,
					  Merge merge, const End &end, bool vote)
{
	if constexpr (SHAPE::cluster > 1) {
		cluster_arrive();
		cluster_wait();
		vote = panel_gather(at, merge, end);
	}
	if constexpr (End::votes)
		vote = __syncthreads_or(vote);
	else
		__syncthreads();
#pragma unroll
	for (int v = 0; v < SHAPE::length; v++) {
		if (SHAPE::skewed && first + v < 0)
			continue;
		const int place = panel_place<SHAPE>(first + v);
		mine[v] = SHAPE::cluster > 1 ? at.whole[place] : at.total[0][place];
	}
	return vote;
}

/* Does what panel_meet() does, for threads whose first rows are any. */
template <class SHAPE, int TURN, class Value, typename Merge, class End>
DEVICE bool panel_meet_skewed(Value (&mine)[SHAPE::length], PanelMeeting<SHAPE, Value> &meeting,
							  int first, int wanted, Merge merge, const End &end)
{
	constexpr int V = SHAPE::length, lanes = SHAPE::lanes, rows = SHAPE::rows;
	constexpr int cluster = SHAPE::cluster, threads = SHAPE::threads, team = SHAPE::team;
	constexpr int parts = SHAPE::split / team; /* that each thread of a team merges */
	bool vote = false;

#pragma unroll
	for (int v = 0; v < V; v++)
		if (first + v >= 0)
			meeting.partial[SHAPE::part()][panel_place<SHAPE>(first + v)] = mine[v];
	__syncthreads();
	if constexpr (cluster > 1 && TURN == 0)
		cluster_wait(); /* for panel_begin(): the neighbours are there */
#pragma unroll
	for (int base = 0; base < rows * team; base += threads) {
		const int at = base + static_cast<int>(threadIdx.x), member = at % team, to = at / team;
		const bool here = to < rows && panel_row<SHAPE>(to) < SHAPE::known;
		Value all =
			panel_tree<parts>(&meeting.partial[member * parts][here ? to : 0], rows + 1, merge);
#pragma unroll
		for (int far = 1; far < team; far *= 2)
			all = merge(all, group_from(all, far));
		if (here && member == 0) {
			if constexpr (End::votes && cluster == 1)
				vote = end(panel_row<SHAPE>(to), all) || vote;
			panel_put<SHAPE>(meeting.total, to, all);
		}
	}
	return panel_get(mine, meeting, wanted, merge, end, vote);
}

/* Does what panel_meet() does, for threads whose first rows are their lanes'. */
template <class SHAPE, int TURN, class Value, typename Merge, class End>
DEVICE bool panel_meet_aligned(Value (&mine)[SHAPE::length], PanelMeeting<SHAPE, Value> &meeting,
							   int first, Merge merge, const End &end)
{
	constexpr int V = SHAPE::length, rows = SHAPE::rows, warps = SHAPE::warps;
	constexpr int cluster = SHAPE::cluster, threads = SHAPE::threads;
	const int thread = static_cast<int>(threadIdx.x);
	bool vote = false;

#pragma unroll
	for (int v = 0; v < V; v++) {
#pragma unroll
		for (int lanes = SHAPE::lanes; lanes < 32; lanes *= 2)
			mine[v] = merge(mine[v], group_from(mine[v], lanes));
		if (thread % 32 < SHAPE::lanes)
			meeting.partial[thread / 32][first + v] = mine[v];
	}
	__syncthreads();
	if constexpr (cluster > 1 && TURN == 0)
		cluster_wait(); /* for panel_begin(): the neighbours are there */
#pragma unroll
	for (int base = 0; base < rows * warps; base += threads) {
		const int at = base + thread, warp = at % warps, row = at / warps;
		const bool here = row < rows;
		Value all = meeting.partial[warp][here ? row : 0];
#pragma unroll
		for (int lanes = 1; lanes < warps; lanes *= 2)
			all = merge(all, group_from(all, lanes));
		if (here && warp == 0) {
			if constexpr (End::votes && cluster == 1)
				vote = end(row, all) || vote;
			panel_put<SHAPE>(meeting.total, row, all);
		}
	}
	return panel_get(mine, meeting, first, merge, end, vote);
}

/*
 * All threads that share rows get merge(a, b) of all their values.  first: the thread's first row,
 * before row 0 if below 0; wanted: the first of those whose results it gets, another one in shifted
 * panels alone.  TURN: 0, 1, ... in the order of the calls, which all threads make.
 * WIDEST: the largest type of value of all calls.  Between two calls all threads of the block meet,
 * and the blocks of a cluster.  end: PanelEnd, or PanelVote; returns what panel_get() does.
 */
template <class SHAPE, int TURN, class WIDEST, class Value, typename Merge, class End = PanelEnd>
DEVICE bool panel_meet(Value (&mine)[SHAPE::length], int first, int wanted, Merge merge,
					   const End &end = End())
{
	static_assert(sizeof(Value) <= sizeof(WIDEST), "there is room");
	PanelMeeting<SHAPE, Value> &meeting =
		*static_cast<PanelMeeting<SHAPE, Value> *>(panel_memory<SHAPE, WIDEST>());

	if constexpr (SHAPE::skewed)
		return panel_meet_skewed<SHAPE, TURN>(mine, meeting, first, wanted, merge, end);
	else
		return panel_meet_aligned<SHAPE, TURN>(mine, meeting, first, merge, end);
}
