/*
 * bands.cuh: the order in which blocks walk through the tiles of matrices.  A band is some rows of
 * tiles, and blocks take it column by column.  Where one band has all rows, blocks that follow each
 * other have neighbouring rows; where bands have one row each, neighbouring columns.  With a few
 * rows a band both are near, and the cache still has what tiles share at their edges.
 */
#pragma once
#include "common/types.cuh"

template <typename Number>
struct BandPlace {
	Number item;     /* which matrix */
	u32 row, column; /* numbers of tiles */
};

/* Where block n is.  The last band may be a narrower one. */
template <u32 ROWS, u32 COLUMNS, u32 BAND, typename Number>
DEVICE BandPlace<Number> band_place(Number n)
{
	constexpr Number tiles = static_cast<Number>(ROWS) * COLUMNS;
	constexpr Number each = static_cast<Number>(BAND) * COLUMNS;
	constexpr u32 last = ROWS % BAND == 0 ? BAND : ROWS % BAND;
	const Number item = n / tiles, rest = n - item * tiles;
	const u32 band = static_cast<u32>(rest / each);
	const Number in = rest - band * each;
	const bool whole = last == BAND || band < ROWS / BAND;
	const u32 column = static_cast<u32>(whole ? in / BAND : in / last);

	return {item, band * BAND + static_cast<u32>(in) - column * (whole ? BAND : last), column};
}
