/*
 * quantize_row.cuh: a row of numbers that are divided by a scale and stored in 8 bits.  The scale
 * is given, or the row's own, or each group of elements that lie side by side has its own.
 *
 * source.each(body) calls body(n, v) for every vector of the row that the thread has, n a Number.
 * All threads of a block come.
 */
#pragma once
#include "common/quantize.cuh"
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

/* One scale for all of the row; reduce(most) merges those of its threads. */
template <typename Number, class ROW, typename OUT, class SOURCE, class REDUCE>
DEVICE void quantize_row(const ROW &row, const QuantizeRow<OUT> &to, const SOURCE &source,
						 const REDUCE &reduce)
{
	constexpr int V = ROW::length;
	float found;

	if (to.given) {
		found = *to.given;
	} else {
		QuantizeMost most = QuantizeMost::none();
		source.each([&](Number n, float(&v)[V]) { quantize_take(row, n, v, most); });
		found = to.limits.scale(reduce(most));
	}
	if (!to.here)
		return;
	const QuantizeScale<typename ROW::Element> scale(found);
	if (to.scales && to.lead)
		*to.scales = found;
	source.each([&](Number n, float(&v)[V]) {
		scale.divide(v);
		row_store(row, n, to.y, v);
	});
}

/* The largest of lanes that share their upper bits; all of a warp come. */
template <int LANES>
DEVICE QuantizeMost quantize_lanes(QuantizeMost mine)
{
#pragma unroll
	for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
		mine.merge({group_from(mine.most, lanes)});
	return mine;
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
		found[n] = to.limits.scale(quantize_lanes<lanes>(most));
	}
	if (!to.here)
		return;
	source.each([&](int n, float(&v)[V]) {
		if (to.scales && threadIdx.x % lanes == 0)
			to.scales[static_cast<i64>(row.column(n)) / GROUP * to.apart] = found[n];
		QuantizeScale<typename ROW::Element>(found[n]).divide(v);
		row_store(row, n, to.y, v);
	});
}

/* A scale for each `group` elements, of any number: up to a warp of the row's threads goes over
 * each group twice.  get(column) is a number of the row. */
template <typename OUT, class GET>
DEVICE void quantize_row_groups_any(const GroupAny &threads, i64 columns, i64 group,
									const QuantizeRow<OUT> &to, const GET &get)
{
	const GroupAny team = {threads.shift < 5 ? threads.shift : 5};
	const u32 size = team.size(), lane = threads.thread() % size;
	const i64 teams = threads.size() / size;

	/* All of a warp come to each reduction. */
#pragma unroll 1
	for (i64 first = 0; first * group < columns; first += teams) {
		const i64 number = first + threads.thread() / size, start = number * group;
		const i64 end = start < columns ? start + group : start;
		QuantizeMost most = QuantizeMost::none();
#pragma unroll 1
		for (i64 column = start + lane; column < end; column += size)
			most.take(get(column));
		const float found = to.limits.scale(team.reduce(most));
		if (!to.here || start >= columns)
			continue;
		const QuantizeScale<f32> scale(found);
		if (to.scales && lane == 0)
			to.scales[number * to.apart] = found;
#pragma unroll 1
		for (i64 column = start + lane; column < end; column += size) {
			float v[1] = {get(column)};
			scale.divide(v);
			element_store(to.y + column, v[0]);
		}
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
