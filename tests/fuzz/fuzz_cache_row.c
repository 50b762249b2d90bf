/*
 * Bytes as a cached row.  Tried as they are and with a right checksum, which a fuzzer cannot guess.
 * A row that decodes must encode to the same bytes.
 */
#include "daemon/cache/internal.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 272

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t *data, size_t size)
{
	char error[KERNEL_ERROR_MAX];
	struct cache_row row;
	void *blob;
	size_t bytes;
	int status = cache_row_decode(data, size, &row, error);
	if (status != KILN_OK)
		return;
	if (cache_row_encode(&row, &blob, &bytes) != KILN_OK || bytes != size ||
		memcmp(blob, data, size) != 0)
		abort();
	free(blob);
	cache_row_free(&row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	decode(data, size);
	if (size >= HEADER_BYTES) {
		uint8_t *sealed = malloc(size);
		if (sealed) {
			memcpy(sealed, data, size);
			cache_row_seal(sealed, size);
			decode(sealed, size);
			free(sealed);
		}
	}
	return 0;
}
