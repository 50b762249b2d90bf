/*
 * row.cuh: one row of a matrix, held by a group of threads: where its elements are, how they come
 * in, and how they go out.  This file does not know what is computed of them.
 *
 * A row is cut into vectors of V elements.  Vector number n * SIZE + t of a block's slice belongs
 * to thread t of the group, as its own number n.  A thread holds NV of them, as raw words: the last
 * SLOTS of them in shared memory of its own, the others in registers.
 *
 * SKEWED rows begin anywhere between two aligned vectors, such as the rows of a matrix with 1023
 * columns.  Then the vectors are the aligned ones that cover the row, the first and the last stick
 * out, and what sticks out is neither used nor written.  It is read: at most 15 bytes, which lie in
 * the same 16 bytes as an element of the row.
 */
#pragma once
#include "common/async.cuh"
#include "common/element.cuh"
#include "common/group.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

template <typename T, i64 COLUMNS, int V, int NV, int SIZE, bool SKEWED, int SLICES>
struct Row {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	static constexpr int length = V;                              /* of a vector */
	static constexpr int bytes = V * static_cast<int>(sizeof(T)); /* of a vector */
	static constexpr int words = vec_words<bytes>;                /* of a vector */
	static constexpr int held = NV;                               /* vectors of a thread */
	static constexpr int apart = SIZE * V;                        /* columns from one to the next */
	static constexpr i64 columns = COLUMNS;
	static constexpr bool skewed = SKEWED;
	/* Vectors that a row may touch, and whether the threads hold exactly so many. */
	static constexpr i64 vectors = (COLUMNS + (SKEWED ? 2 * V - 2 : V - 1)) / V;
	static constexpr bool full = !SKEWED && vectors == static_cast<i64>(NV) * SIZE * SLICES;
	static_assert(SKEWED || COLUMNS % V == 0, "rows are whole vectors");
	static_assert(vectors <= static_cast<i64>(NV) * SIZE * SLICES, "the threads hold the row");

	int first; /* the column that this thread's vector 0 begins with; below 0: it sticks out */

	/* The row begins at `start`; thread and slice as the group says. */
	DEVICE Row(const void *start, int thread, int slice) : first((slice * NV * SIZE + thread) * V)
	{
		if constexpr (SKEWED) {
			const u32 past = static_cast<u32>(reinterpret_cast<u64>(start)) % bytes;
			first -= static_cast<int>(past / sizeof(T));
		}
	}

	/* The column of element 0 of vector n. */
	DEVICE int column(int n) const
	{
		return first + n * (SIZE * V);
	}
	/* Are vectors number n of all threads whole parts of the row, whatever the skew? */
	static DEVICE bool sure(int n)
	{
		return SLICES == 1 && (!SKEWED || n > 0) && static_cast<i64>(n + 1) * (SIZE * V) <= COLUMNS;
	}
	/* Is anything of vector n in the row? */
	DEVICE bool has(int n) const
	{
		if constexpr (full)
			return true;
		else
			return sure(n) || column(n) < static_cast<int>(COLUMNS);
	}
	/* May any thread's vector n have something of the row? */
	static DEVICE bool any_has(int)
	{
		return true;
	}
	/* Is element j of vector n, of which something is in the row? */
	DEVICE bool live(int n, int j) const
	{
		if constexpr (!SKEWED)
			return true;
		else
			return sure(n) || static_cast<u32>(column(n) + j) < static_cast<u32>(COLUMNS);
	}
	/* Is all of vector n, of which something is in the row? */
	DEVICE bool inside(int n) const
	{
		if constexpr (!SKEWED)
			return true;
		else
			return sure(n) || (column(n) >= 0 && column(n) + V <= static_cast<int>(COLUMNS));
	}
};

/* Returns where a vector of V elements begins that starts with a column; step is 1 if V is not. */
template <int V, typename T>
DEVICE T *row_place(T *start, i64 column, i64 step)
{
	return start + (V > 1 ? column : column * step);
}

/* A part of a row, or the row, as seen from its thread's first vector: distances are constant. */
template <class ROW, class PART>
struct RowNear {
	static constexpr int length = ROW::length;
	static constexpr bool skewed = ROW::skewed;
	const PART &part;
	const ROW &row;

	DEVICE bool has(int n) const
	{
		return part.has(n);
	}
	DEVICE i64 column(int n) const
	{
		return static_cast<i64>(n) * ROW::apart;
	}
	DEVICE bool live(int n, int j) const
	{
		return row.live(n, j);
	}
	DEVICE bool inside(int n) const
	{
		return row.inside(n);
	}
};

/*
 * The words of a row of each of STREAMS tensors, whose rows are cut alike.  THREADS: of the block.
 * Slots take SLOTS * STREAMS * 16 bytes of dynamic shared memory for each thread.
 */
template <class ROW, int STREAMS, int SLOTS, int THREADS>
struct RowWords {
	typedef typename ROW::Element Element;
	typedef typename ROW::Compute Compute;
	static constexpr int kept = ROW::held - SLOTS;
	static_assert(SLOTS == 0 || ROW::bytes == 16, "a slot is 16 bytes");
	static_assert(kept >= 0, "slots are a part of the vectors");

	u32 word[kept ? kept : 1][STREAMS][ROW::words];
	u8 *slots; /* of this thread */

	/* shared: dynamic shared memory, not looked at without slots. */
	DEVICE explicit RowWords(void *shared) : slots(static_cast<u8 *>(shared) + threadIdx.x * 16)
	{
	}

	/*
	 * Starts to bring in the rows: start[s] is column 0 of tensor s, whose columns are step[s]
	 * elements apart.  PART: the row, or a part of it that answers the same questions.
	 */
	template <class PART>
	DEVICE void fetch(const PART &row, const Element *const (&start)[STREAMS],
					  const i64 (&step)[STREAMS])
	{
		/* The load that takes the longer way goes first. */
		if constexpr (SLOTS > 0) {
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				fetch_slots(row, s, start[s]);
		}
#pragma unroll
		for (int n = 0; n < kept; n++) {
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				if (row.has(n))
					vec_load<ROW::bytes>(row_place<ROW::length>(start[s], row.column(n), step[s]),
										 word[n][s]);
		}
	}
	/* Those of one tensor alone, whose columns are 1 apart where there are slots. */
	template <class PART>
	DEVICE void fetch_slots(const PART &row, int stream, const Element *start)
	{
		if constexpr (SLOTS > 0) {
#pragma unroll
			for (int n = kept; n < ROW::held; n++)
				fetch_slot(row, n, stream, start);
		}
	}
	template <class PART>
	DEVICE void fetch_slot(const PART &row, int n, int stream, const Element *start)
	{
		if (row.has(n))
			async_copy16(slot(n, stream), start + row.column(n));
	}
	template <class PART>
	DEVICE void fetch_kept(const PART &row, int stream, const Element *start, i64 step)
	{
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				vec_load<ROW::bytes>(row_place<ROW::length>(start, row.column(n), step),
									 word[n][stream]);
	}

	template <class PART>
	DEVICE void fetch(const PART &row, const Element *const (&start)[STREAMS])
	{
		i64 step[STREAMS];
#pragma unroll
		for (int s = 0; s < STREAMS; s++)
			step[s] = 1;
		fetch(row, start, step);
	}

	/* Waits for what fetch began.  A thread sees only what it fetched itself. */
	DEVICE void arrive() const
	{
		if constexpr (SLOTS > 0)
			async_wait_all();
	}

	/*
	 * Calls body(n, values) for every vector n that the row has something of: first those in
	 * registers, n a constant in each turn, then those in slots.  values[s] are those of tensor s;
	 * what sticks out of the row is anything at all.
	 */
	template <class PART, typename Body>
	DEVICE void each(const PART &row, Body body) const
	{
#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!row.has(n))
				continue;
			Compute values[STREAMS][ROW::length];
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				element_unpack<Element>(word[n][s], values[s]);
			body(n, values);
		}
		if constexpr (SLOTS > 0)
			each_slot(row, body);
	}
	/* Rolled, or the compiler would bring all slots into registers. */
	template <class PART, typename Body>
	DEVICE void each_slot(const PART &row, Body body) const
	{
		if constexpr (SLOTS > 0) {
#pragma unroll 1
			for (int n = kept; n < ROW::held; n++) {
				if (!row.has(n))
					continue;
				Compute values[STREAMS][ROW::length];
#pragma unroll
				for (int s = 0; s < STREAMS; s++) {
					u32 raw[ROW::words];
					take_slot(n, s, raw);
					element_unpack<Element>(raw, values[s]);
				}
				body(n, values);
			}
		}
	}

	/* Returns the contents of a slot; n is kept or more. */
	DEVICE void take_slot(int n, int stream, u32 (&raw)[ROW::words]) const
	{
		vec_load<ROW::bytes>(slot(n, stream), raw);
	}
	/* Other values in its place: exact where an element's type computes in itself. */
	DEVICE void put_slot(int n, int stream, const Compute (&values)[ROW::length])
	{
		u32 raw[ROW::words];

		element_pack<Element>(values, raw);
		vec_store<ROW::bytes>(slot(n, stream), raw);
	}

  private:
	DEVICE u8 *slot(int n, int stream) const
	{
		return slots + ((n - kept) * STREAMS + stream) * (THREADS * 16);
	}
};

/* Stores vector n of a row of T to its place. */
template <typename T, class ROW, typename Number, typename Compute>
DEVICE void row_store_at(const ROW &row, Number n, T *to, const Compute (&values)[ROW::length])
{
	constexpr int size = static_cast<int>(sizeof(T));
	u32 words[vec_words<ROW::length * size>];

	element_pack<T>(values, words);
	if (row.inside(n)) {
		if constexpr (ROW::skewed)
			vec_store_far<ROW::length * size>(to, words);
		else
			vec_store<ROW::length * size>(to, words);
	} else if constexpr (ROW::skewed) {
#pragma unroll
		for (int j = 0; j < ROW::length; j++) {
			const u32 half = words[j * size / 4] >> j * size % 4 * 8;
			if (row.live(n, j))
				vec_store<size>(to + j, size < 4 ? &half : words + j * size / 4);
		}
	}
}

/* Does so; start: its column 0, as far past an aligned address as x's. */
template <typename T, class ROW, typename Number, typename Compute>
DEVICE void row_store(const ROW &row, Number n, T *start, const Compute (&values)[ROW::length],
					  i64 step = 1)
{
	row_store_at(row, n, row_place<ROW::length>(start, row.column(n), step), values);
}

/* The planner's choice for a row, in one type. */
template <typename T, i64 COLUMNS, int V, int NV, int SLOTS, int SIZE, int ROWS, int CLUSTER,
		  bool SKEWED>
struct RowShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef Group<SIZE, ROWS, CLUSTER> group;
	typedef Row<T, COLUMNS, V, NV, SIZE, SKEWED, CLUSTER> row;
	template <int STREAMS>
	using words = RowWords<row, STREAMS, SLOTS, group::threads>;
	static constexpr int threads = group::threads;
	static constexpr int rows = ROWS; /* of a block */
	static constexpr int cluster = CLUSTER;
	static constexpr int slots = SLOTS; /* of a thread */
};

/*
 * Calls body(number, here) for the row that this thread has a part in: its number, or 0 for a row
 * beyond the end, which is to be gone through all the same, but not written.  All threads of a
 * block come together.  LOOP: the grid is smaller than the rows, and each block takes further ones.
 */
template <class SHAPE, bool LOOP, typename Index, typename Body>
DEVICE void row_each(i64 rows, Body body)
{
	typedef typename SHAPE::group group;
	static_assert(!LOOP || SHAPE::cluster == 1, "clusters do not loop");

	group::begin();
	if constexpr (!LOOP) {
		const Index number = static_cast<Index>(group::block()) * static_cast<Index>(SHAPE::rows) +
							 static_cast<Index>(group::row());
		if constexpr (SHAPE::rows == 1) {
			body(number, true);
		} else {
			const bool here = number < static_cast<Index>(rows);
			body(here ? number : Index(0), here);
		}
	} else {
		for (i64 first = static_cast<i64>(group::block()) * SHAPE::rows; first < rows;
			 first += static_cast<i64>(gridDim.x) * SHAPE::rows) {
			const i64 number = first + group::row();
			body(static_cast<Index>(number < rows ? number : 0), number < rows);
			__syncthreads(); /* reductions use their memory again */
		}
	}
}
