/*
 * attention_mask: softmax(q k^T / sqrt(depth)) v, as a Transformer does it, where not every key may
 * be looked at: sequences are padded to one length, or only what came before counts.  The products
 * are kernels of one's own; the masked softmax between them is Kiln's, with each kind of mask.
 *
 *   cc attention_mask.c common.c $(pkg-config --cflags --libs kiln) -lm -o attention_mask
 */
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct sizes {
	int64_t batch, heads, length, depth; /* the last two: multiples of 16 */
} usual = {64, 8, 512, 64}, less = {3, 2, 48, 16};

/* c[z] = a[z] b[z], or a[z] times b[z] transposed, for each of gridDim.z matrices. */
static const char source[] =
	"template <bool TRANSPOSED, int inner>\n"
	"__global__ void product(const float *a, const float *b, float *c)\n"
	"{\n"
	"	__shared__ float s[16][17], t[16][17];\n"
	"	const int rows = 16 * gridDim.y, columns = 16 * gridDim.x;\n"
	"	const int x = threadIdx.x, y = threadIdx.y;\n"
	"	const int i = 16 * blockIdx.y + y, j = 16 * blockIdx.x + x;\n"
	"	const long long z = blockIdx.z;\n"
	"	float sum = 0;\n"
	"	a += z * rows * inner + i * inner + x;\n"
	"	b += z * columns * inner + (TRANSPOSED ? (j - x + y) * inner + x : y * columns + j);\n"
	"	for (int k = 0; k < inner; k += 16) {\n"
	"		s[y][x] = a[k];\n"
	"		(TRANSPOSED ? t[x][y] : t[y][x]) = b[TRANSPOSED ? k : k * columns];\n"
	"		__syncthreads();\n"
	"		for (int l = 0; l < 16; l++)\n"
	"			sum += s[y][l] * t[l][x];\n"
	"		__syncthreads();\n"
	"	}\n"
	"	c[z * rows * columns + i * columns + j] = sum;\n"
	"}\n";

/* An attention block: q, k, v and result are [batch, heads, length, depth], scores and weights
 * [batch, heads, length, length]. */
enum { Q, K, V, LENGTHS, PADDING, SCORES, WEIGHTS, RESULT, BUFFERS };

struct block {
	kiln_client *client;
	const struct sizes *sizes;
	float *qkv[3];            /* on the host, for the check */
	int32_t *lengths;         /* of each sequence of the batch */
	kiln_buffer *at[BUFFERS]; /* on the device; LENGTHS and PADDING say the same, as masks */
};

struct product {
	kiln_raw_arg args[3];
	kiln_launch launch;
};

/* c = a b, or a times b transposed; which buffers, by number. */
static struct step product(struct product *p, const struct block *block, const int abc[3])
{
	const struct sizes *s = block->sizes;
	const int64_t transposed = abc[1] == K, inner = transposed ? s->depth : s->length;
	char entry[40];

	for (int i = 0; i < 3; i++)
		p->args[i] = kiln_raw_memory(block->at[abc[i]], 0, i < 2 ? KILN_READ : KILN_WRITE);
	p->launch = (kiln_launch){.size = sizeof(p->launch), .block = {16, 16}, .args = p->args};
	p->launch.arg_count = 3;
	p->launch.grid[0] = (uint32_t)((transposed ? s->length : s->depth) / 16);
	p->launch.grid[1] = (uint32_t)(s->length / 16);
	p->launch.grid[2] = (uint32_t)(s->batch * s->heads);
	snprintf(entry, sizeof(entry), "product<%d, %d>", (int)transposed, (int)inner);
	return prepare_raw(block->client, source, entry, &p->launch);
}

/* Kinds of mask: lengths [batch, 1, 1], no tensor at all, and a tensor [batch, 1, 1, length]. */
static const char *const kinds[] = {"lengths", "causal", "bool"};

static struct step softmax(const struct block *block, int kind)
{
	const struct sizes *s = block->sizes;
	const int64_t shape[4] = {s->batch, s->heads, s->length, s->length};
	const int64_t mask[4] = {s->batch, 1, 1, s->length};
	kiln_tensor tensors[3] = {kiln_tensor_make(block->at[SCORES], 0, KILN_F32, 4, shape)};
	kiln_attr attrs[2] = {kiln_attr_text("kind", kinds[kind]),
						  kiln_attr_real("scale", 1 / sqrt((double)s->depth))};

	tensors[1] = kind == 0   ? kiln_tensor_make(block->at[LENGTHS], 0, KILN_I32, 3, mask)
				 : kind == 1 ? kiln_tensor_none()
							 : kiln_tensor_make(block->at[PADDING], 0, KILN_BOOL, 4, mask);
	tensors[2] = kiln_tensor_make(block->at[WEIGHTS], 0, KILN_F32, 4, shape);
	return prepare(block->client, "masked_softmax", tensors, 3, attrs, 2);
}

/* One row of the result by plain loops: a query, which sees the first so many keys. */
static void check_row(const struct block *block, const float *result, int64_t row, int kind)
{
	const int64_t d = block->sizes->depth, length = block->sizes->length;
	const int64_t at = row * d, first = row / length * length * d, heads = block->sizes->heads;
	const int64_t kept = kind == 1 ? row % length + 1 : block->lengths[row / length / heads];
	double *weights = host((size_t)kept * sizeof(*weights)), most = -INFINITY, sum = 0;

	for (int64_t j = 0; j < kept; j++) {
		for (int64_t k = 0; k < d; k++)
			weights[j] +=
				block->qkv[Q][at + k] / sqrt((double)d) * block->qkv[K][first + j * d + k];
		most = fmax(most, weights[j]);
	}
	for (int64_t j = 0; j < kept; j++)
		sum += weights[j] = exp(weights[j] - most);
	for (int64_t k = 0; k < d; k++) {
		double want = 0;
		for (int64_t j = 0; j < kept; j++)
			want += weights[j] / sum * block->qkv[V][first + j * d + k];
		expect(result[at + k], want, 1e-4, "attention", at + k);
	}
	free(weights);
}

/* All rows of a small problem, some of a large one. */
static void check(const struct block *b, int kind)
{
	const int64_t rows = b->sizes->batch * b->sizes->heads * b->sizes->length;
	float *result = fetch(b->at[RESULT]);

	for (int64_t row = 0; row<rows; row += rows> 100000 ? 61 : 1)
		check_row(b, result, row, kind);
	free(result);
}

static void fill(struct block *b)
{
	const size_t batch = (size_t)b->sizes->batch, length = (size_t)b->sizes->length;
	const size_t rows = batch * (size_t)b->sizes->heads * length;
	const size_t values = rows * (size_t)b->sizes->depth;
	unsigned char *padding = host(batch * length);

	for (size_t i = Q; i <= V; i++) {
		b->qkv[i] = host(values * sizeof(float));
		for (size_t k = 0; k < values; k++)
			b->qkv[i][k] = (float)(3 * random_at(i * values + k));
		b->at[i] = device(b->client, "q, k or v", b->qkv[i], values * sizeof(float));
	}
	b->lengths = host(batch * sizeof(*b->lengths));
	for (size_t i = 0; i < batch; i++) {
		b->lengths[i] = 1 + (int32_t)((random_at(i) + 1) / 2 * (double)length);
		for (size_t k = (size_t)b->lengths[i]; k < length; k++)
			padding[i * length + k] = 1;
	}
	b->at[LENGTHS] = device(b->client, "lengths", b->lengths, batch * sizeof(*b->lengths));
	b->at[PADDING] = device(b->client, "padding", padding, batch * length);
	b->at[SCORES] = device(b->client, "scores", NULL, rows * length * sizeof(float));
	b->at[WEIGHTS] = device(b->client, "weights", NULL, rows * length * sizeof(float));
	b->at[RESULT] = device(b->client, "result", NULL, values * sizeof(float));
	free(padding);
}

int main(int argc, char **argv)
{
	int small;
	struct block b = {.client = begin(argc, argv, &small)};
	struct product products[2];
	struct step steps[3]; /* the block: a product, a softmax, a product */
	struct took copy, ends[2];

	b.sizes = small ? &less : &usual;
	fill(&b);
	print_head(b.client, "attention");
	copy = measure_copy(b.client, 2 * (size_t)kiln_buffer_bytes(b.at[SCORES]));
	steps[0] = product(&products[0], &b, (int[]){Q, K, SCORES});
	steps[2] = product(&products[1], &b, (int[]){WEIGHTS, V, RESULT});
	print_row("q times k, transposed", ends[0] = measure(b.client, &steps[0], 1), copy);
	print_row("weights times v", ends[1] = measure(b.client, &steps[2], 1), copy);
	for (int kind = 0; kind < 3; kind++) {
		struct took took;
		char name[64];
		steps[1] = softmax(&b, kind);
		spoil(b.at[RESULT]);
		run(b.client, steps, 3);
		check(&b, kind);
		took = measure(b.client, &steps[1], 1);
		snprintf(name, sizeof(name), "softmax, %s, %.0f %% of the block", kinds[kind],
				 100 * took.device / (took.device + ends[0].device + ends[1].device));
		print_row(name, took, copy);
		kiln_call_free(steps[1].call);
	}
	printf("the block's results are right with every mask\n");

	kiln_call_free(steps[0].call);
	kiln_call_free(steps[2].call);
	for (int i = 0; i < BUFFERS; i++)
		kiln_free(b.at[i]);
	for (int i = 0; i < 3; i++)
		free(b.qkv[i]);
	free(b.lengths);
	kiln_close(b.client);
	return 0;
}
