/*
 * permutations: tensors with their axes in another order, of three sizes of element: a plain
 * transposition, the heads of an attention block, channels first to channels last and back, all
 * axes turned around, and one where no dimension is even.  Each is compared bit by bit.
 *
 *   cc permutations.c common.c $(pkg-config --cflags --libs kiln) -lm -o permutations
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK = 4 };

struct permutation {
	int rank;
	int64_t shape[RANK], perm[RANK];
};

static const struct permutation cases[] = {
	{2, {8192, 8192}, {1, 0}},
	{4, {32, 1024, 16, 64}, {0, 2, 1, 3}},
	{3, {64, 512, 1024}, {0, 2, 1}},
	{4, {128, 128, 128, 64}, {3, 2, 1, 0}},
	{4, {64, 256, 56, 56}, {0, 2, 3, 1}},
	{4, {64, 3, 512, 512}, {0, 2, 3, 1}},
	{4, {64, 512, 512, 3}, {0, 3, 1, 2}},
	{4, {31, 129, 65, 127}, {2, 0, 3, 1}},
};

static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_I8};

/* The same permutation of a tensor whose larger dimensions are an eighth or less, odd ones odd. */
static struct permutation reduced(struct permutation p)
{
	for (int k = 0; k < p.rank; k++)
		if (p.shape[k] > 16)
			p.shape[k] = (p.shape[k] >= 512 ? 64 : p.shape[k] / 8) | (p.shape[k] & 1);
	return p;
}

/* Element by element, in the order in which y lies. */
static void check(const struct permutation *p, const char *x, const char *y, size_t size)
{
	int64_t stride[RANK], step[RANK] = {0}, extent[RANK] = {1, 1, 1, 1}, next = 1;
	int64_t i[RANK];
	const char *at = y;

	for (int k = p->rank - 1; k >= 0; next *= p->shape[k--])
		stride[k] = next;
	for (int k = 0, to = RANK - p->rank; k < p->rank; k++, to++) {
		extent[to] = p->shape[p->perm[k]];
		step[to] = stride[p->perm[k]];
	}
	for (i[0] = 0; i[0] < extent[0]; i[0]++)
		for (i[1] = 0; i[1] < extent[1]; i[1]++)
			for (i[2] = 0; i[2] < extent[2]; i[2]++) {
				int64_t from = i[0] * step[0] + i[1] * step[1] + i[2] * step[2];
				for (i[3] = 0; i[3] < extent[3]; i[3]++, from += step[3], at += size) {
					if (memcmp(x + from * (int64_t)size, at, size) == 0)
						continue;
					fprintf(stderr, "permutation: element %lld is not the one it should be\n",
							(long long)((at - y) / (int64_t)size));
					exit(1);
				}
			}
}

static void print_title(const struct permutation *p, kiln_dtype dtype, char *title, size_t room)
{
	int length = 0;

	for (int k = 0; k < p->rank; k++)
		length += snprintf(title + length, room - (size_t)length, "%s%lld", k ? "x" : "",
						   (long long)p->shape[k]);
	for (int k = 0; k < p->rank; k++)
		length += snprintf(title + length, room - (size_t)length, "%s%lld", k ? "," : " (",
						   (long long)p->perm[k]);
	snprintf(title + length, room - (size_t)length, ") %s", kiln_dtype_name(dtype));
}

/* x is large enough for every dtype and holds the same bytes for all of them. */
static void permute(kiln_client *client, const struct permutation *p, kiln_dtype dtype,
					const char *x, kiln_buffer *from, kiln_buffer *to)
{
	kiln_attr perm = kiln_attr_ints("perm", p->perm, p->rank);
	size_t bytes = kiln_dtype_size(dtype);
	int64_t turned[RANK];
	kiln_tensor tensors[2];
	struct step step;
	char title[64], *y;

	for (int k = 0; k < p->rank; k++) {
		turned[k] = p->shape[p->perm[k]];
		bytes *= (size_t)p->shape[k];
	}
	tensors[0] = kiln_tensor_make(from, 0, dtype, p->rank, p->shape);
	tensors[1] = kiln_tensor_make(to, 0, dtype, p->rank, turned);
	step = prepare(client, "permute", tensors, 2, &perm, 1);
	spoil(to);
	run(client, &step, 1);
	y = host(bytes);
	must(kiln_read(to, 0, y, bytes));
	check(p, x, y, kiln_dtype_size(dtype));
	free(y);
	print_title(p, dtype, title, sizeof(title));
	print_row(title, measure(client, &step, 1), measure_copy(client, 2 * bytes));
	kiln_call_free(step.call);
}

int main(int argc, char **argv)
{
	int small;
	kiln_client *client = begin(argc, argv, &small);

	print_head(client, "permute");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct permutation p = small ? reduced(cases[i]) : cases[i];
		size_t count = 1;
		for (int k = 0; k < p.rank; k++)
			count *= (size_t)p.shape[k];
		uint32_t *x = host(count * sizeof(*x));
		for (size_t k = 0; k < count; k++)
			x[k] = (uint32_t)(k * 2654435761u >> 7);
		kiln_buffer *from = device(client, "x", x, count * sizeof(*x));
		kiln_buffer *to = device(client, "y", NULL, count * sizeof(*x));
		for (size_t k = 0; k < sizeof(dtypes) / sizeof(*dtypes); k++)
			permute(client, &p, dtypes[k], (const char *)x, from, to);
		kiln_free(to);
		kiln_free(from);
		free(x);
	}
	printf("every element of every permutation is right\n");
	kiln_close(client);
	return 0;
}
