/*
 * gather_ways: one gather, dst[i,j,k] = src[i,j,idx[j,k]], written in four ways: as Kiln's
 * operator; as that very statement; as a kernel of one's own, with a grid of one's own choice; and
 * by turning src so that an index names a whole row, copying rows, and turning back.
 *
 *   cc gather_ways.c common.c $(pkg-config --cflags --libs kiln) -lm -o gather_ways
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

struct sizes {
	int64_t n, m, p, c;
};

static const struct sizes full = {512, 64, 256, 512}, less = {16, 8, 32, 48};

/* A first draft of the kernel.  The launch chooses grid and block. */
static const char source[] =
	"__global__ void gather(const float *src, const unsigned char *idx, float *dst, int n, int m,\n"
	"                       int p, int c)\n"
	"{\n"
	"	for (int i = blockIdx.x; i < n; i += gridDim.x)\n"
	"		for (int j = blockIdx.y; j < m; j += gridDim.y)\n"
	"			for (int k = threadIdx.x; k < c; k += blockDim.x)\n"
	"				dst[(i * m + j) * c + k] = src[(i * m + j) * p + idx[j * c + k]];\n"
	"}\n";

struct problem {
	kiln_client *client;
	const struct sizes *sizes;
	const float *src;
	const unsigned char *idx;
	kiln_buffer *dst;
	struct took copy;
};

/* Runs one way, compares all of dst with plain loops, and prints its time. */
static void judge(const struct problem *problem, const char *name, const struct step *steps,
				  int count)
{
	const struct sizes *s = problem->sizes;
	float *dst;

	spoil(problem->dst);
	run(problem->client, steps, count);
	dst = fetch(problem->dst);
	for (int64_t row = 0, at = 0; row < s->n * s->m; row++)
		for (int64_t k = 0; k < s->c; k++, at++)
			expect(dst[at], problem->src[row * s->p + problem->idx[row % s->m * s->c + k]], 0, name,
				   at);
	free(dst);
	print_row(name, measure(problem->client, steps, count), problem->copy);
	for (int i = 0; i < count; i++)
		kiln_call_free(steps[i].call);
}

static void as_operator(const struct problem *problem, const kiln_tensor tensors[3],
						const char *bounds)
{
	kiln_attr attr = kiln_attr_text("bounds", bounds);
	struct step step = prepare(problem->client, "gather", tensors, 3, &attr, 1);
	char name[40];

	snprintf(name, sizeof(name), "gather, bounds \"%s\"", bounds);
	judge(problem, name, &step, 1);
}

static struct step permute(kiln_client *client, kiln_tensor x, kiln_tensor y, const int64_t *perm)
{
	const kiln_tensor tensors[2] = {x, y};
	kiln_attr attr = kiln_attr_ints("perm", perm, 3);

	return prepare(client, "permute", tensors, 2, &attr, 1);
}

static struct step statement(kiln_client *client, const kiln_tensor tensors[3], const char *text)
{
	const kiln_attr attrs[2] = {kiln_attr_text("statement", text),
								kiln_attr_text("names", "src,idx,dst")};

	return prepare(client, "map", tensors, 3, attrs, 2);
}

static void as_statement(const struct problem *problem, const kiln_tensor tensors[3])
{
	struct step step = statement(problem->client, tensors, "dst[i,j,k] = src[i,j,idx[j,k]]");

	judge(problem, "map", &step, 1);
}

static void as_kernel(const struct problem *problem, const kiln_tensor tensors[3])
{
	const struct sizes *s = problem->sizes;
	const int32_t sizes[4] = {(int32_t)s->n, (int32_t)s->m, (int32_t)s->p, (int32_t)s->c};
	kiln_raw_arg args[7];
	kiln_launch launch = {.size = sizeof(launch), .grid = {64, 32}, .block = {256}, .args = args};
	struct step step;

	for (int i = 0; i < 3; i++)
		args[i] = kiln_raw_memory(tensors[i].buffer, 0, i < 2 ? KILN_READ : KILN_WRITE);
	for (int i = 0; i < 4; i++)
		args[3 + i] = kiln_raw_value(&sizes[i], sizeof(sizes[i]));
	launch.arg_count = 7;
	step = prepare_raw(problem->client, source, "gather", &launch);
	judge(problem, "a kernel of one's own", &step, 1);
}

/* Three passes over memory instead of one, and room for two more arrays. */
static void as_rows(const struct problem *problem, const kiln_tensor tensors[3])
{
	const struct sizes *s = problem->sizes;
	const int64_t turned[3] = {s->m, s->p, s->n}, picked[3] = {s->m, s->c, s->n};
	const int64_t there[3] = {1, 2, 0}, back[3] = {2, 0, 1};
	kiln_client *client = problem->client;
	kiln_tensor rows[3];
	struct step steps[3];

	rows[0] = kiln_tensor_make(device(client, "turned", NULL, kiln_buffer_bytes(tensors[0].buffer)),
							   0, KILN_F32, 3, turned);
	rows[1] = tensors[1];
	rows[2] = kiln_tensor_make(device(client, "picked", NULL, kiln_buffer_bytes(tensors[2].buffer)),
							   0, KILN_F32, 3, picked);
	steps[0] = permute(client, tensors[0], rows[0], there);
	steps[1] = statement(client, rows, "dst[j,k,i] = src[j,idx[j,k],i]");
	steps[2] = permute(client, rows[2], tensors[2], back);
	judge(problem, "permute, rows by index, permute", steps, 3);
	kiln_free(rows[2].buffer);
	kiln_free(rows[0].buffer);
}

int main(int argc, char **argv)
{
	int small;
	kiln_client *client = begin(argc, argv, &small);
	const struct sizes *s = small ? &less : &full;
	const size_t in = (size_t)(s->n * s->m * s->p), out = (size_t)(s->n * s->m * s->c);
	const size_t indices = (size_t)(s->m * s->c);
	float *src = host(in * sizeof(*src));
	unsigned char *idx = host(indices);
	struct problem problem = {.client = client, .sizes = s, .src = src, .idx = idx};
	const int64_t shapes[3][3] = {{s->n, s->m, s->p}, {s->m, s->c}, {s->n, s->m, s->c}};
	kiln_tensor tensors[3];

	for (size_t i = 0; i < in; i++)
		src[i] = (float)random_at(i);
	for (size_t i = 0; i < indices; i++)
		idx[i] = (unsigned char)((random_at(in + i) + 1) / 2 * (double)s->p);
	tensors[0] =
		kiln_tensor_make(device(client, "src", src, in * sizeof(*src)), 0, KILN_F32, 3, shapes[0]);
	tensors[1] = kiln_tensor_make(device(client, "idx", idx, indices), 0, KILN_U8, 2, shapes[1]);
	problem.dst = device(client, "dst", NULL, out * sizeof(*src));
	tensors[2] = kiln_tensor_make(problem.dst, 0, KILN_F32, 3, shapes[2]);

	print_head(client, "gather");
	problem.copy = measure_copy(client, (in + out) * sizeof(*src) + indices);
	as_operator(&problem, tensors, "check");
	as_operator(&problem, tensors, "trust");
	as_statement(&problem, tensors);
	as_kernel(&problem, tensors);
	as_rows(&problem, tensors);
	printf("every one of the %zu numbers is right, in every way\n", out);

	for (int i = 0; i < 3; i++)
		kiln_free(tensors[i].buffer);
	kiln_close(client);
	free(idx);
	free(src);
	return 0;
}
