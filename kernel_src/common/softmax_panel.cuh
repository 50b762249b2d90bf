/*
 * softmax_panel.cuh: softmax and its backward over a dimension that is not the last, of panels that
 * are held on the chip (panel.cuh).
 *
 * The largest of a row is known before the first power.  Where that costs no accuracy, powers take
 * the place of elements; halves are raised twice.
 */
#pragma once
#include "common/panel.cuh"
#include "common/softmax.cuh"

/* The V rows of a lane: x and y are their columns 0.  All threads of the block come. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_panel_rows(const T *x, i64 x_step, T *y, i64 y_step,
							   const SoftmaxScale<Compute> &scale, bool here, void *shared)
{
	constexpr int V = SHAPE::length, turn = SHAPE::turn;
	constexpr bool put_back = !LOG && sizeof(T) == sizeof(Compute);
	const T *const from[1] = {x};
	const i64 apart[1] = {x_step};
	PanelSlots<SHAPE, 1> slots(shared, here ? SHAPE::count() : 0);
	Compute value[V], largest[V], rest[V];

	slots.fetch(from, apart);
#pragma unroll
	for (int v = 0; v < V; v++) {
		largest[v] = SoftmaxNumber<Compute>::lowest();
		rest[v] = 0;
	}
	slots.arrive();
#pragma unroll(turn)
	for (int i = 0; i < slots.count; i++) {
		slots.take(i, 0, value);
#pragma unroll
		for (int v = 0; v < V; v++)
			largest[v] = fmax(largest[v], value[v] * scale.before);
	}
	panel_meet<SHAPE, 0>(largest, [](Compute a, Compute b) { return fmax(a, b); });
#pragma unroll(turn)
	for (int i = 0; i < slots.count; i++) {
		slots.take(i, 0, value);
#pragma unroll
		for (int v = 0; v < V; v++) {
			value[v] = softmax_exp2_flush((value[v] * scale.before - largest[v]) * scale.exponent);
			rest[v] += value[v];
		}
		if constexpr (put_back)
			slots.put(i, 0, value);
	}
	panel_meet<SHAPE, 1>(rest, [](Compute a, Compute b) { return a + b; });
#pragma unroll
	for (int v = 0; v < V; v++)
		rest[v] = LOG ? softmax_log(rest[v]) : softmax_inverse(rest[v]);
#pragma unroll(turn)
	for (int i = 0; i < slots.count; i++) {
		slots.take(i, 0, value);
#pragma unroll
		for (int v = 0; v < V; v++) {
			Compute &out = value[v];
			if constexpr (put_back)
				out *= rest[v];
			else if constexpr (LOG)
				out = fma(out * scale.before - largest[v], scale.after, -rest[v]);
			else
				out = softmax_exp2((out * scale.before - largest[v]) * scale.exponent) * rest[v];
		}
		strided_store<SHAPE>(y, y_step, slots.column(i), value);
	}
}

/* Does so for the backward: from[0] is y, from[1] is dy. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_backward_panel_rows(const T *const (&from)[2], const i64 (&apart)[2], T *dx,
										i64 dx_step, Compute scale, bool here, void *shared)
{
	constexpr int V = SHAPE::length, turn = SHAPE::turn;
	PanelSlots<SHAPE, 2> slots(shared, here ? SHAPE::count() : 0);
	Compute y[V], dy[V], sum[V] = {};

	slots.fetch(from, apart);
	slots.arrive();
#pragma unroll(turn)
	for (int i = 0; i < slots.count; i++) {
		slots.take(i, 1, dy);
		if constexpr (!LOG)
			slots.take(i, 0, y);
#pragma unroll
		for (int v = 0; v < V; v++)
			sum[v] += LOG ? dy[v] : dy[v] * y[v];
	}
	panel_meet<SHAPE, 0>(sum, [](Compute a, Compute b) { return a + b; });
#pragma unroll(turn)
	for (int i = 0; i < slots.count; i++) {
		slots.take(i, 0, y);
		slots.take(i, 1, dy);
#pragma unroll
		for (int v = 0; v < V; v++)
			dy[v] = softmax_derivative<LOG>(y[v], dy[v], sum[v], scale);
		strided_store<SHAPE>(dx, dx_step, slots.column(i), dy);
	}
}
