/*
 * softmax_panel.cuh: softmax and its backward over a dimension that is not the last, of panels that
 * are held on the chip (panel.cuh).
 *
 * Where elements are larger than halves, each thread takes its own largest first, and partial sums
 * are scaled to the largest of all when they meet.  Where that costs no accuracy, powers take the
 * place of elements.
 */
#pragma once
#include "common/panel_shift.cuh"
#include "common/softmax.cuh"

/* One of both factors is 1: the same from both sides. */
template <typename Compute>
DEVICE SoftmaxSum<Compute> softmax_merge(const SoftmaxSum<Compute> &a, const SoftmaxSum<Compute> &b,
										 Compute exponent)
{
	const bool rises = b.largest > a.largest;
	const Compute least = rises ? a.largest : b.largest, most = rises ? b.largest : a.largest;
	const Compute fading = softmax_exp2_flush((least - most) * exponent);

	return {most, rises ? fma(a.sum, fading, b.sum) : fma(b.sum, fading, a.sum)};
}

/* Returns the number of a row that its results are made with. */
template <typename T, bool LOG, typename Compute>
DEVICE Compute softmax_rest(Compute sum)
{
	if constexpr (LOG)
		return softmax_log(sum);
	else if constexpr (sizeof(T) < 4)
		return -softmax_log2_near(sum);
	else
		return inverse_near(sum);
}

/* Returns a result.  apart: of the element from the largest. */
template <typename T, bool LOG, typename Compute>
DEVICE Compute softmax_result(Compute apart, Compute rest, const SoftmaxScale<Compute> &scale)
{
	if constexpr (LOG)
		return fma(apart, scale.after, -rest);
	else if constexpr (sizeof(T) < 4)
		return softmax_exp2_flush(fma(apart, scale.exponent, rest));
	else
		return softmax_exp2(apart * scale.exponent) * rest;
}

/* Softmax of rows of halves whose powers were too large or too small: from memory once more, with
 * the largest taken off.  All threads of the panel come. */
template <class SHAPE, bool LOG, class HELD, class GOAL, typename T, typename Compute>
DEVICE void softmax_panel_far(const HELD &held, const GOAL &goal, T *y, i64 y_step,
							  const SoftmaxScale<Compute> &scale)
{
	constexpr int V = SHAPE::length;
	SoftmaxSum<Compute> all[V];
	Compute rest[V], term[V];

	const auto load = [&](int i) {
		u32 raw[SHAPE::words];
		vec_load<SHAPE::bytes>(held.at(i, 0), raw);
#pragma unroll
		for (int v = 0; v < V; v++)
			term[v] = element_at<T, Compute>(raw, v) * scale.before;
	};
	/* All have read what they met for: its memory is used again. */
	if constexpr (SHAPE::cluster > 1) {
		cluster_arrive();
		cluster_wait();
	} else {
		__syncthreads();
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v] = {SoftmaxNumber<Compute>::lowest(), 0};
#pragma unroll 1
	for (int i = 0; i < held.count; i++) {
		load(i);
#pragma unroll
		for (int v = 0; v < V; v++)
			all[v].largest = fmax(all[v].largest, term[v]);
	}
#pragma unroll 1
	for (int i = 0; i < held.count; i++) {
		load(i);
#pragma unroll
		for (int v = 0; v < V; v++)
			all[v].sum += softmax_exp2_flush((term[v] - all[v].largest) * scale.exponent);
	}
	panel_meet<SHAPE, 1, SoftmaxSum<Compute>>(
		all, held.first, goal.first,
		[&](const SoftmaxSum<Compute> &a, const SoftmaxSum<Compute> &b) {
			return softmax_merge(a, b, scale.exponent);
		});
#pragma unroll
	for (int v = 0; v < V; v++)
		rest[v] = softmax_rest<T, LOG>(all[v].sum);
	if constexpr (SHAPE::shifted) {
		goal.each_slot([&](int i, const u32(&raw)[1][SHAPE::words]) {
#pragma unroll
			for (int v = 0; v < V; v++)
				term[v] = softmax_result<T, LOG>(element_at<T, Compute>(raw[0], v) * scale.before -
													 all[v].largest,
												 rest[v], scale);
			goal.write(i, y, y_step, term);
		});
		return;
	}
#pragma unroll 1
	for (int i = 0; i < held.count; i++) {
		load(i);
#pragma unroll
		for (int v = 0; v < V; v++)
			term[v] = softmax_result<T, LOG>(term[v] - all[v].largest, rest[v], scale);
		held.write(i, y, y_step, term);
	}
}

/*
 * Does what softmax_panel_rows() does, for halves.  They are raised twice, which takes as long as
 * half of their way through memory, so that nothing is to be waited for before: powers of the
 * elements themselves are added up as they come.  In f32 these are as exact as powers of distances
 * from the largest, where no sum is out of range; where one is, the panel begins once more.
 */
template <class SHAPE, bool LOG, typename T>
DEVICE void softmax_panel_halves(const T *x, i64 x_step, T *y, i64 y_step,
								 const SoftmaxScale<float> &scale, bool here, i64 left,
								 void *shared)
{
	constexpr int V = SHAPE::length, words = SHAPE::words;
	constexpr float least = LOG ? 0x1p-32f : 0x1p-64f, most = LOG ? 0x1p32f : 0x1p120f;
	typedef PanelHeld<SHAPE, 1> Held;
	const T *const from[1] = {x};
	const i64 apart[1] = {x_step};
	const float factor = scale.before * scale.exponent, linear = scale.before * scale.after;
	Held held(shared, from, apart, here, left);
	const auto &goal = panel_goal<SHAPE>(held, y, y_step, here, left);
	typename Held::Batch next;
	float sum[V] = {};

	const auto add = [&](int, const u32(&raw)[1][words]) {
#pragma unroll
		for (int v = 0; v < V; v++)
			sum[v] += softmax_exp2_flush(element_at<T, float>(raw[0], v) * factor);
	};
	held.fetch();
	if constexpr (SHAPE::more) {
		held.read(held.held, next);
		held.template each_left<false>(next, add);
	}
	held.each_coming(add);
	if (held.count > 0)
		held.each_kept(add);
	if constexpr (SHAPE::more)
		if (held.held < held.count)
			held.read(held.last(), next);
	const i64 rows = left + SHAPE::lane() * V; /* from the panel's first on */
	const auto end = [&](int row, float &all) {
		const bool far = row < rows && !(all > least && all < most);
		all = LOG ? -softmax_log(all) : -softmax_log2_near(all);
		return far;
	};
	const bool out = panel_meet<SHAPE, 0, SoftmaxSum<float>>(
		sum, held.first, goal.first, [](float a, float b) { return a + b; },
		PanelVote<decltype(end)>{end});
	const float(&rest)[V] = sum;
	if (out) {
		softmax_panel_far<SHAPE, LOG>(held, goal, y, y_step, scale);
		return;
	}
	const auto finish = [&](int i, const u32(&raw)[1][words]) {
		float value[V];
		element_unpack<T>(raw[0], value);
#pragma unroll
		for (int v = 0; v < V; v++)
			value[v] = LOG ? fma(value[v], linear, rest[v])
						   : softmax_exp2_flush(fma(value[v], factor, rest[v]));
		goal.write(i, y, y_step, value);
	};
	if constexpr (SHAPE::shifted) {
		goal.each_slot(finish);
		return;
	}
	if constexpr (SHAPE::more)
		held.template each_left<true>(next, finish);
	if (held.count > 0)
		held.each_kept(finish);
	held.template each_slot<false>(finish);
}

/* The V rows of a lane: x and y are their columns 0.  left: rows from the first of
 * them on.  All threads of the block come. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_panel_rows(const T *x, i64 x_step, T *y, i64 y_step,
							   const SoftmaxScale<Compute> &scale, bool here, i64 left,
							   void *shared)
{
	constexpr int V = SHAPE::length, words = SHAPE::words;
	constexpr bool put_back = !LOG && sizeof(T) == sizeof(Compute) && !SHAPE::shifted;
	if constexpr (sizeof(T) == 2) {
		softmax_panel_halves<SHAPE, LOG>(x, x_step, y, y_step, scale, here, left, shared);
		return;
	}
	typedef PanelHeld<SHAPE, 1> Held;
	const T *const from[1] = {x};
	const i64 apart[1] = {x_step};
	Held held(shared, from, apart, here, left);
	const auto &goal = panel_goal<SHAPE>(held, y, y_step, here, left);
	typename Held::Batch next;
	SoftmaxSum<Compute> all[V];
	Compute mine[V], rest[V];

	held.fetch();
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v] = {SoftmaxNumber<Compute>::lowest(), 0};
	if constexpr (SHAPE::more) {
		held.read(held.held, next);
		held.template each_batch<false>(next, [&](int i, const typename Held::Batch &raw) {
#pragma unroll
			for (int v = 0; v < V; v++) {
				Compute term[Held::batch], largest = all[v].largest, sum = 0;
#pragma unroll
				for (int b = 0; b < Held::batch; b++) {
					term[b] = element_at<T, Compute>(raw[b][0], v) * scale.before;
					term[b] = i + b < held.count ? term[b] : SoftmaxNumber<Compute>::least();
					largest = fmax(largest, term[b]);
				}
#pragma unroll
				for (int b = 0; b < Held::batch; b++)
					sum += softmax_exp2_flush((term[b] - largest) * scale.exponent);
				all[v].sum =
					fma(all[v].sum, all[v].fading(largest, all[v].largest, scale.exponent), sum);
				all[v].largest = largest;
			}
		});
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		mine[v] = all[v].largest;
	const auto raise = [&](int, const u32(&raw)[1][words]) {
#pragma unroll
		for (int v = 0; v < V; v++)
			mine[v] = fmax(mine[v], element_at<T, Compute>(raw[0], v) * scale.before);
	};
	const auto add = [&](int, u32(&raw)[1][words]) {
		Compute value[V];
		element_unpack<T>(raw[0], value);
#pragma unroll
		for (int v = 0; v < V; v++) {
			value[v] = softmax_exp2_flush((value[v] * scale.before - mine[v]) * scale.exponent);
			all[v].sum += value[v];
		}
		if constexpr (put_back)
			element_pack<T>(value, raw[0]);
	};
	if (held.count > 0)
		held.each_kept(raise);
	held.arrive();
	held.template each_slot<false>(raise);
#pragma unroll
	for (int v = 0; v < V; v++) {
		if constexpr (SHAPE::more)
			all[v].sum *= all[v].fading(mine[v], all[v].largest, scale.exponent);
		all[v].largest = mine[v];
	}
	if (held.count > 0)
		held.each_kept(add);
	held.template each_slot<put_back>(add);
	if constexpr (SHAPE::more)
		if (held.held < held.count)
			held.read(held.last(), next);
	panel_meet<SHAPE, 0, SoftmaxSum<Compute>>(
		all, held.first, goal.first,
		[&](const SoftmaxSum<Compute> &a, const SoftmaxSum<Compute> &b) {
			return softmax_merge(a, b, scale.exponent);
		});
#pragma unroll
	for (int v = 0; v < V; v++)
		rest[v] = softmax_rest<T, LOG>(all[v].sum);
	const auto finish = [&](int i, u32(&raw)[1][words]) {
		Compute value[V];
		element_unpack<T>(raw[0], value);
#pragma unroll
		for (int v = 0; v < V; v++)
			value[v] =
				softmax_result<T, LOG>(value[v] * scale.before - all[v].largest, rest[v], scale);
		goal.write(i, y, y_step, value);
	};
	if constexpr (SHAPE::shifted) {
		goal.each_slot(finish);
		return;
	}
	if constexpr (SHAPE::more)
		held.template each_left<true>(next, finish);
	if constexpr (put_back) {
#pragma unroll
		for (int v = 0; v < V; v++)
			rest[v] *= all[v].fading(all[v].largest, mine[v], scale.exponent);
		const auto scaled = [&](int i, u32(&raw)[1][words]) {
			Compute value[V];
			element_unpack<T>(raw[0], value);
#pragma unroll
			for (int v = 0; v < V; v++)
				value[v] *= rest[v];
			goal.write(i, y, y_step, value);
		};
		if (held.count > 0)
			held.each_kept(scaled);
		held.template each_slot<false>(scaled);
	} else {
		if (held.count > 0)
			held.each_kept(finish);
		held.template each_slot<false>(finish);
	}
}

/* Does so for the backward: from[0] is y, from[1] is dy. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_backward_panel_rows(const T *const (&from)[2], const i64 (&apart)[2], T *dx,
										i64 dx_step, Compute scale, bool here, i64 left,
										void *shared)
{
	constexpr int V = SHAPE::length, words = SHAPE::words;
	typedef PanelHeld<SHAPE, 2> Held;
	Held held(shared, from, apart, here, left);
	typename Held::Batch next;
	Compute sum[V] = {};

	const auto add = [&](int, const u32(&raw)[2][words]) {
#pragma unroll
		for (int v = 0; v < V; v++) {
			const Compute dy = element_at<T, Compute>(raw[1], v);
			sum[v] = LOG ? sum[v] + dy : fma(dy, element_at<T, Compute>(raw[0], v), sum[v]);
		}
	};
	held.fetch();
	if constexpr (SHAPE::more) {
		held.read(held.held, next);
		held.template each_left<false>(next, add);
	}
	if (held.count > 0)
		held.each_kept(add);
	held.arrive();
	held.template each_slot<false>(add);
	if constexpr (SHAPE::more)
		if (held.held < held.count)
			held.read(held.last(), next);
	panel_meet<SHAPE, 0, Compute>(sum, held.first, held.first,
								  [](Compute a, Compute b) { return a + b; });
	const auto finish = [&](int i, u32(&raw)[2][words]) {
		Compute out[V];
#pragma unroll
		for (int v = 0; v < V; v++)
			out[v] = softmax_derivative<LOG>(element_at<T, Compute>(raw[0], v),
											 element_at<T, Compute>(raw[1], v), sum[v], scale);
		held.write(i, dx, dx_step, out);
	};
	if constexpr (SHAPE::more)
		held.template each_left<true>(next, finish);
	if (held.count > 0)
		held.each_kept(finish);
	held.template each_slot<false>(finish);
}
