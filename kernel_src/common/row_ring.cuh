/*
 * row_ring.cuh: vectors of rows of any length (row_any.cuh) by way of a thread's places in shared
 * memory, each for a step: some steps are on their way while one is used.  On the way back those
 * that were read last are still there.
 */
#pragma once
#include "common/async.cuh"
#include "common/row_any.cuh"

#define ROW_RING_AHEAD 4 /* vectors of a stream that are on their way */

/* STREAMS tensors, of which a row begins at from[s]; its columns are 1 apart. */
template <class ROW, int STREAMS>
struct RowRing {
	typedef typename ROW::Element T;
	static constexpr int count = ROW::count;
	static constexpr int ahead = ROW_RING_AHEAD / count; /* steps, fewer than places */
	static_assert(ROW::bytes == 16, "a vector");

	b128 *const shared;
	const u32 places;
	u32 place; /* of the step that is used */

	DEVICE RowRing(b128 *memory, u32 places)
		: shared(memory + threadIdx.x), places(places), place(places - 1)
	{
	}

	/* Begins to go over a row. */
	DEVICE void begin(const ROW &row, const T *const (&from)[STREAMS])
	{
		place = places - 1;
#pragma unroll 1
		for (int step = 0; step < ahead; step++)
			ask(row, from, step, static_cast<u32>(step));
	}
	/* To the next step. */
	DEVICE void next(const ROW &row, const T *const (&from)[STREAMS], i64 step)
	{
		place = place + 1 == places ? 0 : place + 1;
		const u32 to = place + ahead;
		ask(row, from, step + ahead, to < places ? to : to - places);
		async_wait_but<ahead>();
	}
	/* To the step before the one that was used, which is not needed any more. */
	DEVICE void back(const ROW &row, const T *const (&from)[STREAMS], i64 step)
	{
		ask(row, from, step + 1 - places, place);
		place = place == 0 ? places - 1 : place - 1;
		async_wait_but<ahead>();
	}
	/* Vector u of the step. */
	DEVICE void take(int u, int stream, u32 (&words)[ROW::words]) const
	{
		vec_load<16>(at(place, u, stream), words);
	}

  private:
	DEVICE b128 *at(u32 number, int u, int stream) const
	{
		return shared + ((number * count + u) * STREAMS + stream) * blockDim.x;
	}
	/* A batch of what there is of a step. */
	DEVICE void ask(const ROW &row, const T *const (&from)[STREAMS], i64 step, u32 to) const
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			if (step < 0 || !row.has(n))
				continue;
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				async_copy16(at(to, u, s), from[s] + row.column(n));
		}
		async_batch();
	}
};

/* How the steps of rows come: vectors by way of shared memory, and single elements, whose columns
 * are apart[s] from each other, directly. */
template <class ROW, int STREAMS, int V = ROW::length>
struct RowSteps {
	typedef typename ROW::Element T;
	RowRing<ROW, STREAMS> ring;

	DEVICE RowSteps(b128 *shared, u32 places) : ring(shared, places)
	{
	}
	DEVICE void begin(const ROW &row, const T *const (&from)[STREAMS])
	{
		ring.begin(row, from);
	}
	DEVICE void next(const ROW &row, const T *const (&from)[STREAMS], const i64 (&)[STREAMS],
					 i64 step)
	{
		ring.next(row, from, step);
	}
	DEVICE void back(const ROW &row, const T *const (&from)[STREAMS], const i64 (&)[STREAMS],
					 i64 step)
	{
		ring.back(row, from, step);
	}
	/* Vector u of the step. */
	DEVICE void take(int u, int stream, u32 (&words)[ROW::words]) const
	{
		ring.take(u, stream, words);
	}
};
template <class ROW, int STREAMS>
struct RowSteps<ROW, STREAMS, 1> {
	typedef typename ROW::Element T;
	u32 word[ROW::count][STREAMS][ROW::words];

	DEVICE RowSteps(b128 *, u32)
	{
	}
	DEVICE void begin(const ROW &, const T *const (&)[STREAMS])
	{
	}
	DEVICE void next(const ROW &row, const T *const (&from)[STREAMS], const i64 (&apart)[STREAMS],
					 i64 step)
	{
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const i64 n = step * ROW::count + u;
			if (!row.has(n))
				continue;
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				vec_load<ROW::bytes>(from[s] + row.column(n) * apart[s], word[u][s]);
		}
	}
	DEVICE void back(const ROW &row, const T *const (&from)[STREAMS], const i64 (&apart)[STREAMS],
					 i64 step)
	{
		next(row, from, apart, step);
	}
	DEVICE void take(int u, int stream, u32 (&words)[ROW::words]) const
	{
#pragma unroll
		for (int w = 0; w < ROW::words; w++)
			words[w] = word[u][stream][w];
	}
};
