/*
 * grow.h: arrays that grow.
 */
#ifndef KILN_CLI_GROW_H
#define KILN_CLI_GROW_H

#include <stdlib.h>
#include <string.h>

/* Returns the place behind the last item of a malloc'd array, and makes the array larger if it is
 * full.  array: the address of the pointer to the items.  NULL without memory; then the array stays
 * as it was. */
static inline void *grow(void *array, size_t count, size_t *capacity, size_t item_bytes)
{
	char *items;

	memcpy(&items, array, sizeof(items));
	if (count == *capacity) {
		size_t more = *capacity ? 2 * *capacity : 64;
		items = realloc(items, more * item_bytes);
		if (!items)
			return NULL;
		memcpy(array, &items, sizeof(items));
		*capacity = more;
	}
	return items + count * item_bytes;
}

#endif
