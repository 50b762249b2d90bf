/*
 * cuda_cell: words of host memory that the GPU writes and this process reads.  The device owns
 * them, in pages; the taker of a cell gives it back with cuda_cell_keep().
 */
#ifndef KILN_DAEMON_CUDA_CELL_H
#define KILN_DAEMON_CUDA_CELL_H

#include "cuda_device.h"

/* One word, in a cache line of its own. */
struct cuda_cell {
	_Alignas(64) uint64_t value;
	struct cuda_cell *next; /* of the spare cells; in the first cell of a page, the next page */
};

/* Takes a cell and sets its value to 0. */
CUresult cuda_cell_take(struct device *device, struct cuda_cell **out);
void cuda_cell_keep(struct device *device, struct cuda_cell *cell);
/* Frees all pages; nobody uses a cell any more. */
void cuda_cells_close(struct device *device);

#endif
