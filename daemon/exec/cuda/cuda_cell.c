/*
 * cuda_cell: words of host memory that the GPU writes and this process reads, without a call of the
 * driver, a copy or a wait.  Pages are added as they are needed, and freed when the device closes.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_cell.h"

#define CELLS_OF_A_PAGE 256

/* The first cell of a page links the pages; the others become spare. */
static CUresult add_page(struct device *device)
{
	void *memory = NULL;
	CUresult result =
		device->cu.cuMemHostAlloc(&memory, CELLS_OF_A_PAGE * sizeof(struct cuda_cell),
								  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (result != CUDA_SUCCESS)
		return result;
	struct cuda_cell *page = memory;
	page[0].next = device->cell_pages;
	device->cell_pages = page;
	for (int i = 1; i < CELLS_OF_A_PAGE; i++)
		cuda_cell_keep(device, &page[i]);
	return CUDA_SUCCESS;
}

CUresult cuda_cell_take(struct device *device, struct cuda_cell **out)
{
	CUresult result = device->spare_cells ? CUDA_SUCCESS : add_page(device);
	if (result != CUDA_SUCCESS)
		return result;
	*out = device->spare_cells;
	device->spare_cells = (*out)->next;
	(*out)->value = 0;
	return CUDA_SUCCESS;
}

void cuda_cell_keep(struct device *device, struct cuda_cell *cell)
{
	cell->next = device->spare_cells;
	device->spare_cells = cell;
}

bool cuda_share_words(struct device *device, void *address, size_t bytes)
{
	return device->cu.write_value &&
		   device->cu.cuMemHostRegister(address, bytes,
										CU_MEMHOSTREGISTER_PORTABLE |
											CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS;
}

void cuda_unshare_words(struct device *device, void *address)
{
	device->cu.cuMemHostUnregister(address);
}

void cuda_cells_close(struct device *device)
{
	while (device->cell_pages) {
		struct cuda_cell *page = device->cell_pages;
		device->cell_pages = page[0].next;
		device->cu.cuMemFreeHost(page);
	}
	device->spare_cells = NULL;
}

#endif
