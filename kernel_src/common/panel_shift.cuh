/*
 * panel_shift.cuh: where the results of a panel's threads go (panel.cuh).
 *
 * Results of shifted panels begin elsewhere between two vectors than the elements they are made of,
 * for columns of x and of y lie differently far apart.  The distance between both is the same for
 * all columns of a thread, for these are whole vectors apart.  So a thread takes each result's
 * elements out of two vectors: its own and a neighbour's, which has the same columns.  Both lie in
 * slots, which all threads may look into once the block has met.
 */
#pragma once
#include "common/panel.cuh"

/* The vectors that a thread of a shifted panel writes, as PanelHeld's. */
template <class SHAPE, class HELD>
struct PanelShift {
	typedef typename SHAPE::Element Element;
	static constexpr int V = SHAPE::length, bytes = SHAPE::bytes;
	static constexpr int each = static_cast<int>(sizeof(Element));
	const HELD &held;
	int first, begin, end, count;
	/* How many lanes further on the two vectors are; where a result begins in them, in bytes.  A
	 * lane that is not in the panel has no element of what is written. */
	int low, high, beyond;

	DEVICE PanelShift(const HELD &held, const Element *y, i64 step, bool here, i64 left)
		: held(held),
		  first(SHAPE::lane() * V - vec_beyond<bytes>(y + SHAPE::first() * step) / each),
		  begin(first < 0 ? -first : 0)
	{
		const i64 rows = left + SHAPE::lane() * V; /* from the panel's first on */
		const bool begins = rows == SHAPE::inner, back = held.first > first;
		end = rows - first < V ? static_cast<int>(rows - first) : V;
		if (!SHAPE::alone && ((first < 0 && !begins) || first >= SHAPE::width))
			end = begin;
		count = here && end > begin ? SHAPE::count() : 0;
		low = back && SHAPE::lane() > 0 ? -1 : 0;
		high = !back && SHAPE::lane() + 1 < SHAPE::lanes ? 1 : 0;
		beyond = (first - held.first + (back ? V : 0)) * each;
	}
	/* Calls body(i, raw) for each column. */
	template <typename Body>
	DEVICE void each_slot(Body body) const
	{
#pragma unroll(SHAPE::turn)
		for (int i = 0; i < count; i++) {
			u32 pair[2 * SHAPE::words], raw[1][SHAPE::words];
			vec_load<bytes>(held.slot(i, 0) + low * bytes, pair);
			vec_load<bytes>(held.slot(i, 0) + high * bytes, pair + SHAPE::words);
			vec_window<each, bytes>(pair, beyond, raw[0]);
			body(i, raw);
		}
	}
	DEVICE void write(int i, Element *to, i64 step,
					  const typename SHAPE::Compute (&values)[V]) const
	{
		u32 words[SHAPE::words];

		element_pack<Element>(values, words);
		vec_store_some<each, V>(to + HELD::column(i) * step - (SHAPE::lane() * V - first), words,
								begin, end);
	}
};

/* Returns the vectors that a thread writes: as a rule those of the rows that it holds. */
template <class SHAPE, class HELD>
DEVICE decltype(auto) panel_goal(const HELD &held, const typename SHAPE::Element *y, i64 step,
								 bool here, i64 left)
{
	if constexpr (SHAPE::shifted)
		return PanelShift<SHAPE, HELD>(held, y, step, here, left);
	else
		return (held);
}
