/*
 * quantize_row.cuh: a row of numbers that were computed, divided by a scale and stored in 8 bits.
 * The scale is given, or the row's own, or each group of elements that lie side by side has one.
 *
 * source.each(body) calls body(n, v) for every vector of the row that the thread has, n a Number.
 * All threads of a block come.
 */
#pragma once
#include "common/quantize.cuh"
#include "common/quantize_most.cuh"
#include "common/row.cuh"
#include "common/row_any.cuh"
#include "common/row_stream.cuh"

template <typename OUT>
struct QuantizeRow {
	const float *given; /* the scale, or null */
	OUT *y;
	float *scales; /* of the row, or null */
	i64 apart;     /* from the scale of a group to that of the next */
	QuantizeLimits limits;
	bool lead; /* this thread writes the row's scale */
	bool here; /* the row is to be written */
};

/* Vector n of y, counted from vector 0: one address serves all. */
template <typename OUT, class ROW, typename Number>
DEVICE void quantize_store(const ROW &row, Number n, OUT *y, const float (&values)[ROW::length])
{
	if constexpr (ROW::length == 1) {
		row_store(row, n, y, values);
	} else if (row.inside(n)) {
		u32 words[vec_words<ROW::length>];
		element_pack<OUT>(values, words);
		vec_store<ROW::length>(y + row.first + (row.column(n) - row.first), words);
	} else if constexpr (ROW::skewed) {
		row_store(row, n, y, values);
	}
}

/* One scale for all of the row; reduce(most) merges those of its threads. */
template <typename Number, class ROW, typename OUT, class SOURCE, class REDUCE>
DEVICE void quantize_row(const ROW &row, const QuantizeRow<OUT> &to, const SOURCE &source,
						 const REDUCE &reduce)
{
	float found;

	if (to.given) {
		found = *to.given;
	} else {
		QuantizeMost most = QuantizeMost::none();
		source.each([&](Number n, float(&v)[ROW::length]) { quantize_take(row, n, v, most); });
		found = to.limits.scale(reduce(most));
	}
	if (!to.here)
		return;
	const QuantizeNear scale(found);
	if (to.scales && to.lead)
		*to.scales = found;
	source.each([&](Number n, float(&v)[ROW::length]) {
		scale.divide(v);
		quantize_store(row, n, to.y, v);
	});
}

/* A scale for each GROUP elements, which neighbouring lanes have in one vector each.
 * source.get(n, v) gets vector n, or anything where the row has none. */
template <i64 GROUP, class ROW, typename OUT, class SOURCE>
DEVICE void quantize_row_groups(const ROW &row, const QuantizeRow<OUT> &to, const SOURCE &source)
{
	constexpr int V = ROW::length, lanes = static_cast<int>(GROUP / V);
	static_assert(!ROW::skewed && GROUP % V == 0 && (lanes & (lanes - 1)) == 0 && lanes <= 32,
				  "lanes share a group");

	float found[ROW::held];
#pragma unroll
	for (int n = 0; n < ROW::held; n++) {
		QuantizeMost most = QuantizeMost::none();
		float v[V];
		source.get(n, v);
		if (row.has(n))
			quantize_take(row, n, v, most);
		found[n] = to.limits.scale(group_butterfly<lanes>(most));
	}
	if (!to.here)
		return;
	source.each([&](int n, float(&v)[V]) {
		if (to.scales && threadIdx.x % lanes == 0)
			to.scales[static_cast<i64>(row.column(n)) / GROUP * to.apart] = found[n];
		QuantizeNear(found[n]).divide(v);
		quantize_store(row, n, to.y, v);
	});
}

/* A scale for each `group` elements, of any number: up to a warp of the row's threads goes over
 * each group twice, or holds one of up to four elements a lane.  get(column) is a number of the
 * row. */
template <typename OUT, class GET>
DEVICE void quantize_row_groups_any(const GroupAny &threads, i64 columns, i64 group,
									const QuantizeRow<OUT> &to, const GET &get)
{
	constexpr int most_held = 4;
	const GroupAny team = {threads.shift < 5 ? threads.shift : 5};
	const u32 size = team.size(), lane = threads.thread() % size;
	const i64 teams = threads.size() / size;
	const bool holds = group <= size * most_held;

	/* All of a warp come to each reduction. */
#pragma unroll 1
	for (i64 first = 0; first * group < columns; first += teams) {
		const i64 number = first + threads.thread() / size, start = number * group;
		const i64 end = start < columns ? start + group : start;
		QuantizeMost most = QuantizeMost::none();
		float held[most_held] = {};
		if (holds) {
#pragma unroll
			for (int i = 0; i < most_held; i++)
				if (start + lane + i * size < end)
					held[i] = get(start + lane + i * size);
#pragma unroll
			for (int i = 0; i < most_held; i++)
				most.take(held[i]);
		} else {
#pragma unroll 1
			for (i64 column = start + lane; column < end; column += size)
				most.take(get(column));
		}
		const float found = to.limits.scale(team.reduce(most));
		if (!to.here || start >= columns)
			continue;
		const QuantizeNear scale(found);
		if (to.scales && lane == 0)
			to.scales[number * to.apart] = found;
		if (holds) {
			scale.divide(held);
#pragma unroll
			for (int i = 0; i < most_held; i++)
				if (start + lane + i * size < end)
					element_store(to.y + start + lane + i * size, held[i]);
			continue;
		}
#pragma unroll 1
		for (i64 column = start + lane; column < end; column += size) {
			float v[1] = {get(column)};
			scale.divide(v);
			element_store(to.y + column, v[0]);
		}
	}
}

/* Does so for rows and groups of whole vectors of V: 2^shift lanes that follow one another share a
 * group.  make(column, v) makes a vector. */
template <int V, typename OUT, class MAKE>
DEVICE void quantize_row_groups_vectors(const GroupAny &threads, i64 columns, u32 shift,
										const QuantizeRow<OUT> &to, const MAKE &make)
{
	const GroupAny team = {shift};

	/* All of a warp come to each reduction. */
#pragma unroll 1
	for (i64 first = 0; first < columns; first += static_cast<i64>(threads.size()) * V) {
		const i64 number = first / V + threads.thread(), column = number * V;
		const bool inside = column < columns;
		QuantizeMost most = QuantizeMost::none();
		float v[V] = {};
		if (inside)
			make(column, v);
#pragma unroll
		for (int j = 0; j < V; j++)
			most.take(v[j]);
		const float found = to.limits.scale(team.reduce(most));
		if (!to.here || !inside)
			continue;
		if (to.scales && number % (1 << shift) == 0)
			to.scales[(number >> shift) * to.apart] = found;
		QuantizeNear(found).divide(v);
		u32 words[vec_words<V>];
		element_pack<OUT>(v, words);
		vec_store<V>(to.y + column, words);
	}
}

/* Goes over a row that is read again each time: make(values, v) makes its vectors of those of
 * STREAMS tensors. */
template <class ROW, int STREAMS, class MAKE, typename Body>
DEVICE void quantize_read(const ROW &row, typename ROW::Column steps,
						  const typename ROW::Element *const (&from)[STREAMS],
						  const i64 (&step)[STREAMS], const MAKE &make, const Body &body)
{
	typedef typename ROW::Column Column;
	RowStep<ROW, STREAMS> held;

#pragma unroll 1
	for (Column at = 0; at < steps; at++) {
		held.fetch(row, at, from, step);
		held.each(row, at, [&](Column n, int, const float(&values)[STREAMS][ROW::length]) {
			float v[ROW::length];
			make(values, v);
			body(n, v);
		});
	}
}
