/*
 * links.cuh: a few numbers in order, each in a register.  Lists that are linked by atomic exchanges
 * come in any order; sums take them by rising numbers.
 */
#pragma once
#include "common/types.cuh"

DEVICE void links_order(u32 &a, u32 &b)
{
	const u32 less = a < b ? a : b;

	b = a < b ? b : a;
	a = less;
}

/* Four from `first` on. */
template <int N>
DEVICE void links_sort4(u32 (&link)[N], int first)
{
	links_order(link[first], link[first + 1]);
	links_order(link[first + 2], link[first + 3]);
	links_order(link[first], link[first + 2]);
	links_order(link[first + 1], link[first + 3]);
	links_order(link[first + 1], link[first + 2]);
}

DEVICE void links_sort(u32 (&link)[4])
{
	links_sort4(link, 0);
}

/* Two that are sorted fours are merged: the least four of both come first. */
DEVICE void links_sort(u32 (&link)[8])
{
	links_sort4(link, 0);
	links_sort4(link, 4);
#pragma unroll
	for (int i = 0; i < 4; i++)
		links_order(link[i], link[7 - i]);
#pragma unroll
	for (int half = 0; half < 8; half += 4) {
		links_order(link[half], link[half + 2]);
		links_order(link[half + 1], link[half + 3]);
		links_order(link[half], link[half + 1]);
		links_order(link[half + 2], link[half + 3]);
	}
}
