/*
 * norm_backward.cuh: dx alone of the backward of layer_norm and rms_norm.
 *
 *   norm_backward_rows      a group of threads holds each row
 *   norm_backward_cluster   a cluster of blocks holds each row
 *   norm_backward_stream    a block reads each row twice
 */
#pragma once
#include "common/norm_backward_rows.cuh"

template <class SHAPE, class WITH, class PLACE, bool LOOP, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads) void norm_backward_rows(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx, i64 rows)
{
	DYN_SHARED(b128, slots);
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, nullptr, nullptr, rows};
	row_each<SHAPE, LOOP, i64>(rows, [&](i64 number, bool here) {
		NormBackwardHeld<SHAPE, WITH, PLACE>::take(at, number, here, slots);
	});
}

template <class SHAPE, class WITH, class PLACE, bool LOOP, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads) CLUSTER_OF(SHAPE::cluster) void norm_backward_cluster(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx, i64 rows)
{
	DYN_SHARED(b128, slots);
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, nullptr, nullptr, rows};
	row_each<SHAPE, LOOP, i64>(rows, [&](i64 number, bool here) {
		NormBackwardHeld<SHAPE, WITH, PLACE>::take(at, number, here, slots);
	});
}

template <class ROW, class WITH, class PLACE, bool LOOP, typename T = typename ROW::Element,
		  typename Compute = typename ROW::Compute>
__global__ __launch_bounds__(ROW::threads) void norm_backward_stream(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx, i64 rows)
{
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, nullptr, nullptr, rows};
	row_each<ROW, LOOP, i64>(rows, [&](i64 number, bool here) {
		NormBackwardStream<ROW, WITH, PLACE>::take(at, number, here, nullptr);
	});
}
