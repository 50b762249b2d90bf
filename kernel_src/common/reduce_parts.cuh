/*
 * reduce_parts.cuh: what reductions by rows and by columns share: where chunks leave their values,
 * and the number that elements are taken with.
 */
#pragma once
#include "common/types.cuh"

/* Counters of `count` rows or tiles come first in scratch memory. */
template <class Value>
DEVICE Value *reduce_parts(u8 *scratch, i64 count)
{
	return reinterpret_cast<Value *>(scratch + (count * 4 + 255) / 256 * 256);
}

/* The number that elements are taken with: the launch's, or the first element of row v of a vector
 * of rows. */
template <class R, class IN>
DEVICE typename R::Real reduce_with(const IN &in, const u8 *start, bool there,
									typename R::Real real, int v)
{
	if constexpr (R::pivoted)
		return there ? static_cast<typename R::Real>(in.at(start + v * in.bytes())) : 0;
	else
		return real;
}
