/*
 * gather_ways: one gather, dst[i,j,k] = src[i,j,idx[j,k]], written in several ways: as Kiln's
 * operator, as a kernel of one's own with a grid of one's own choice, and as what is left without a
 * gather: turning src so that an index names a whole row, copying rows, and turning back.
 *
 *   cc gather_ways.c common.c $(pkg-config --cflags --libs kiln) -lm -o gather_ways
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

struct sizes {
	int64_t n, m, p, c;
};

static const struct sizes article = {512, 64, 256, 512}, less = {16, 8, 32, 48};

/* Two kernels as one would write them in an afternoon.  Grid and block are the launch's. */
static const char source[] =
	"__global__ void gather(const float *src, const unsigned char *idx, float *dst, int n, int m,\n"
	"                       int p, int c)\n"
	"{\n"
	"	for (int i = blockIdx.x; i < n; i += gridDim.x)\n"
	"		for (int j = blockIdx.y; j < m; j += gridDim.y)\n"
	"			for (int k = threadIdx.x; k < c; k += blockDim.x)\n"
	"				dst[(i * m + j) * c + k] = src[(i * m + j) * p + idx[j * c + k]];\n"
	"}\n"
	"__global__ void rows(const float *src, const unsigned char *idx, float *dst, int n, int m,\n"
	"                     int p, int c)\n"
	"{\n"
	"	for (int j = blockIdx.y; j < m; j += gridDim.y)\n"
	"		for (int k = blockIdx.x; k < c; k += gridDim.x)\n"
	"			for (int i = threadIdx.x; i < n; i += blockDim.x)\n"
	"				dst[(j * c + k) * n + i] = src[(j * p + idx[j * c + k]) * n + i];\n"
	"}\n";

/* Both kernels take the same arguments and get the same grid. */
struct launch {
	int32_t sizes[4];
	kiln_raw_arg args[7];
	kiln_launch launch;
};

static void launch_of(struct launch *l, const struct sizes *s, kiln_buffer *src, kiln_buffer *idx,
					  kiln_buffer *dst)
{
	const int64_t sizes[4] = {s->n, s->m, s->p, s->c};

	l->args[0] = kiln_raw_memory(src, 0, KILN_READ);
	l->args[1] = kiln_raw_memory(idx, 0, KILN_READ);
	l->args[2] = kiln_raw_memory(dst, 0, KILN_WRITE);
	for (int i = 0; i < 4; i++) {
		l->sizes[i] = (int32_t)sizes[i];
		l->args[3 + i] = kiln_raw_value(&l->sizes[i], sizeof l->sizes[i]);
	}
	l->launch = (kiln_launch){.size = sizeof l->launch,
							  .grid = {64, 32},
							  .block = {256},
							  .args = l->args,
							  .arg_count = 7};
}

/* y is x with its three axes in another order. */
static struct step turn(kiln_client *client, kiln_buffer *x, kiln_buffer *y, const int64_t *shape,
						const int64_t *perm)
{
	const int64_t turned[3] = {shape[perm[0]], shape[perm[1]], shape[perm[2]]};
	kiln_attr attr = kiln_attr_ints("perm", perm, 3);
	kiln_tensor tensors[2];

	tensors[0] = kiln_tensor_make(x, 0, KILN_F32, 3, shape);
	tensors[1] = kiln_tensor_make(y, 0, KILN_F32, 3, turned);
	return prepare(client, "permute", tensors, 2, &attr, 1);
}

struct problem {
	kiln_client *client;
	const struct sizes *sizes;
	const float *src;
	const unsigned char *idx;
	kiln_buffer *dst;
	struct took copy;
};

/* Runs one way compares all of dst with plain loops, and prints its time. */
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

static void as_operator(const struct problem *problem, kiln_buffer *src, kiln_buffer *idx,
						const char *bounds)
{
	const struct sizes *s = problem->sizes;
	const int64_t in[3] = {s->n, s->m, s->p}, out[3] = {s->n, s->m, s->c}, index[2] = {s->m, s->c};
	kiln_attr attr = kiln_attr_text("bounds", bounds);
	char name[40];
	kiln_tensor tensors[3];
	struct step step;

	tensors[0] = kiln_tensor_make(src, 0, KILN_F32, 3, in);
	tensors[1] = kiln_tensor_make(idx, 0, KILN_U8, 2, index);
	tensors[2] = kiln_tensor_make(problem->dst, 0, KILN_F32, 3, out);
	step = prepare(problem->client, "gather", tensors, 3, &attr, 1);
	snprintf(name, sizeof name, "gather, bounds \"%s\"", bounds);
	judge(problem, name, &step, 1);
}

static void as_kernel(const struct problem *problem, kiln_buffer *src, kiln_buffer *idx)
{
	struct launch l;
	struct step step;

	launch_of(&l, problem->sizes, src, idx, problem->dst);
	step = prepare_raw(problem->client, source, "gather", &l.launch);
	judge(problem, "a kernel of one's own", &step, 1);
}

/* Three passes over memory instead of one, and room for two more arrays. */
static void as_rows(const struct problem *problem, kiln_buffer *src, kiln_buffer *idx)
{
	const struct sizes *s = problem->sizes;
	const int64_t in[3] = {s->n, s->m, s->p}, there[3] = {1, 2, 0};
	const int64_t rows[3] = {s->m, s->c, s->n}, back[3] = {2, 0, 1};
	kiln_buffer *turned = device(problem->client, "turned", NULL, kiln_buffer_bytes(src));
	kiln_buffer *picked = device(problem->client, "picked", NULL, kiln_buffer_bytes(problem->dst));
	struct launch l;
	struct step steps[3];

	launch_of(&l, s, turned, idx, picked);
	steps[0] = turn(problem->client, src, turned, in, there);
	steps[1] = prepare_raw(problem->client, source, "rows", &l.launch);
	steps[2] = turn(problem->client, picked, problem->dst, rows, back);
	judge(problem, "permute, rows by index, permute", steps, 3);
	kiln_free(picked);
	kiln_free(turned);
}

int main(int argc, char **argv)
{
	int small;
	kiln_client *client = begin(argc, argv, &small);
	const struct sizes *s = small ? &less : &article;
	const size_t in = (size_t)(s->n * s->m * s->p), out = (size_t)(s->n * s->m * s->c);
	const size_t indices = (size_t)(s->m * s->c);
	float *src = host(in * sizeof *src);
	unsigned char *idx = host(indices);
	struct problem problem = {.client = client, .sizes = s, .src = src, .idx = idx};
	kiln_buffer *src_buffer, *idx_buffer;

	for (size_t i = 0; i < in; i++)
		src[i] = (float)random_at(i);
	for (size_t i = 0; i < indices; i++)
		idx[i] = (unsigned char)((random_at(in + i) + 1) / 2 * (double)s->p);
	src_buffer = device(client, "src", src, in * sizeof *src);
	idx_buffer = device(client, "idx", idx, indices);
	problem.dst = device(client, "dst", NULL, out * sizeof *src);

	print_head(client, "gather");
	problem.copy = measure_copy(client, (in + out) * sizeof *src + indices);
	as_operator(&problem, src_buffer, idx_buffer, "check");
	as_operator(&problem, src_buffer, idx_buffer, "trust");
	as_kernel(&problem, src_buffer, idx_buffer);
	as_rows(&problem, src_buffer, idx_buffer);
	printf("every one of the %zu numbers is right, in every way\n", out);

	kiln_free(problem.dst);
	kiln_free(idx_buffer);
	kiln_free(src_buffer);
	kiln_close(client);
	free(idx);
	free(src);
	return 0;
}
