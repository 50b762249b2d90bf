/*
 * fuzz_npy: any bytes as a .npy file.  An array that is accepted must fit into the bytes there are,
 * and read the same after it was written again.
 */
#include "client/cli/npy.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "fuzz_npy: %s\n", what);
		abort();
	}
}

static void write_again(const struct npy *npy)
{
	uint8_t header[NPY_WRITTEN_MAX];
	size_t length = npy_header(npy, header);
	char why[NPY_WHY_MAX];
	struct npy again;
	uint64_t data_at;
	bool fortran;

	require(length % 64 == 0 && length <= sizeof(header), "a header of a wrong length");
	require(npy_parse(header, length, length + npy->bytes, &again, &data_at, &fortran, why),
			"what is written is refused");
	require(data_at == length && !fortran && again.bytes == npy->bytes, "another place");
	require(again.dtype == npy->dtype && again.rank == npy->rank &&
				!memcmp(again.shape, npy->shape, sizeof(npy->shape)),
			"another array");
}

/* Turning moves every element to some place: the sum of all bytes stays. */
static void turn(const struct npy *npy, const uint8_t *from)
{
	uint8_t *to = malloc(npy->bytes ? npy->bytes : 1);
	uint64_t before = 0, after = 0;

	if (!to)
		return;
	npy_turn(npy, from, to);
	for (uint64_t i = 0; i < npy->bytes; i++) {
		before += from[i];
		after += to[i];
	}
	require(before == after, "an element is lost");
	free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char why[NPY_WHY_MAX] = "";
	struct npy npy;
	uint64_t data_at;
	bool fortran;

	if (!npy_parse(data, size, size, &npy, &data_at, &fortran, why)) {
		require(why[0] != 0, "a refusal without a reason");
		return 0;
	}
	require(data_at + npy.bytes == size, "elements beyond the file");
	write_again(&npy);
	turn(&npy, data + data_at);
	return 0;
}
