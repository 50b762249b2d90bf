/*
 * online_norms: softmax and layer norm read a row once: the first keeps the largest number so far
 * and corrects its sum when that changes, the second combines means and squared distances of pieces
 * of the row.  Both hold where shorter formulas do not: softmax of numbers that exp cannot take,
 * and the variance of numbers around 1e9, where E[x*x] - E[x]*E[x] is whatever rounding left of it.
 *
 *   cc online_norms.c common.c $(pkg-config --cflags --libs kiln) -lm -o online_norms
 */
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 1024 };

/* f32 or f64, as a row's numbers. */
static double number(const void *values, kiln_dtype dtype, int64_t i)
{
	return dtype == KILN_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

static void *values(kiln_dtype dtype, int64_t count, double centre, double spread)
{
	void *made = host((size_t)count * kiln_dtype_size(dtype));

	for (int64_t i = 0; i < count; i++) {
		double x = centre + spread * random_at((uint64_t)i);
		if (dtype == KILN_F32)
			((float *)made)[i] = (float)x;
		else
			((double *)made)[i] = x;
	}
	return made;
}

/* ---- Softmax ------------------------------------------------------------------------------- */

static void check_softmax(const float *x, const float *y, int64_t rows)
{
	for (int64_t row = 0; row < rows; row++, x += COLUMNS, y += COLUMNS) {
		double most = x[0], sum = 0;
		for (int k = 1; k < COLUMNS; k++)
			most = fmax(most, x[k]);
		for (int k = 0; k < COLUMNS; k++)
			sum += exp(x[k] - most);
		for (int k = 0; k < COLUMNS; k++) {
			double want = exp(x[k] - most) / sum;
			expect(y[k], want, 1e-5 * want + 1e-30, "softmax", row * COLUMNS + k);
		}
	}
}

/* Divides each exp(x) by their sum, as the formula is written. */
static float naive_softmax(const float *x)
{
	float sum = 0;

	for (int k = 0; k < COLUMNS; k++)
		sum += expf(x[k]);
	return fabsf(expf(x[0]) / sum); /* a NaN may have a sign */
}

static void softmax(kiln_client *client, int64_t rows)
{
	const int64_t shape[2] = {rows, COLUMNS};
	const size_t bytes = (size_t)(rows * COLUMNS) * sizeof(float);
	float *x = values(KILN_F32, rows * COLUMNS, 1000, 10), *y;
	kiln_buffer *in = device(client, "x", x, bytes), *out = device(client, "y", NULL, bytes);
	kiln_tensor tensors[2];
	struct step step;

	tensors[0] = kiln_tensor_make(in, 0, KILN_F32, 2, shape);
	tensors[1] = kiln_tensor_make(out, 0, KILN_F32, 2, shape);
	step = prepare(client, "softmax", tensors, 2, NULL, 0);
	run(client, &step, 1);
	y = fetch(out);
	check_softmax(x, y, rows);
	print_row("softmax, f32", measure(client, &step, 1), measure_copy(client, 2 * bytes));
	printf("    of numbers around 1000: first is %.6g; exp(x) / sum in f32 gives %g\n", y[0],
		   naive_softmax(x));
	kiln_call_free(step.call);
	kiln_free(out);
	kiln_free(in);
	free(y);
	free(x);
}

/* ---- Layer norm ---------------------------------------------------------------------------- */

struct moments {
	double mean, variance;
};

/* Takes the mean in one loop and the distances from it in a second, in f64. */
static struct moments plain(const void *x, kiln_dtype dtype, int64_t at)
{
	struct moments m = {0, 0};

	for (int64_t k = at; k < at + COLUMNS; k++)
		m.mean += number(x, dtype, k) / COLUMNS;
	for (int64_t k = at; k < at + COLUMNS; k++)
		m.variance += (number(x, dtype, k) - m.mean) * (number(x, dtype, k) - m.mean) / COLUMNS;
	return m;
}

/* Takes both sums in one loop, as the formula has it, in the type of the numbers. */
static double naive(const void *x, kiln_dtype dtype)
{
	double mean = 0, squares = 0;
	float mean32 = 0, squares32 = 0;

	for (int64_t k = 0; k < COLUMNS; k++) {
		double value = number(x, dtype, k);
		mean += value / COLUMNS;
		squares += value * value / COLUMNS;
		mean32 += (float)value / COLUMNS;
		squares32 += (float)value * (float)value / COLUMNS;
	}
	return dtype == KILN_F32 ? (double)(squares32 - mean32 * mean32) : squares - mean * mean;
}

struct norm_case {
	const char *name;
	kiln_dtype dtype;
	double centre, spread, tolerance; /* the last: of the variance, relative */
};

/* f32 has only every 64th number around 1e9, so rows there are spread wider. */
static const struct norm_case cases[] = {
	{"layer norm, f32, around 0", KILN_F32, 0, 1.5, 1e-5},
	{"layer norm, f32, around 1e9", KILN_F32, 1e9, 1e5, 1e-5},
	{"layer norm, f64, around 1e9", KILN_F64, 1e9, 1.5, 1e-7},
};

static void check_norm(const struct norm_case *c, const void *x, const void *y, const void *rstd,
					   int64_t rows)
{
	for (int64_t row = 0; row < rows; row++) {
		struct moments m = plain(x, c->dtype, row * COLUMNS);
		double ours = 1 / pow(number(rstd, c->dtype, row), 2);
		expect(ours, m.variance, c->tolerance * m.variance, "variance", row);
		for (int64_t k = row * COLUMNS; k < (row + 1) * COLUMNS; k++)
			expect(number(y, c->dtype, k), (number(x, c->dtype, k) - m.mean) / sqrt(m.variance),
				   1e-3, c->name, k);
	}
}

static void layer_norm(kiln_client *client, const struct norm_case *c, int64_t rows)
{
	const int64_t shape[2] = {rows, COLUMNS};
	const size_t size = kiln_dtype_size(c->dtype), bytes = (size_t)(rows * COLUMNS) * size;
	void *x = values(c->dtype, rows * COLUMNS, c->centre, c->spread), *y, *rstd;
	kiln_buffer *in = device(client, "x", x, bytes), *out = device(client, "y", NULL, bytes);
	kiln_buffer *scale = device(client, "rstd", NULL, (size_t)rows * size);
	kiln_attr eps =
		kiln_attr_real("eps", 0); /* so that rstd is the variance's and nothing else's */
	kiln_tensor tensors[8];       /* x, gamma, beta, residual, y, mean, rstd, sum */
	struct step step;

	for (int i = 0; i < 8; i++)
		tensors[i] = kiln_tensor_none();
	tensors[0] = kiln_tensor_make(in, 0, c->dtype, 2, shape);
	tensors[4] = kiln_tensor_make(out, 0, c->dtype, 2, shape);
	tensors[6] = kiln_tensor_make(scale, 0, c->dtype, 1, shape);
	step = prepare(client, "layer_norm", tensors, 8, &eps, 1);
	run(client, &step, 1);
	y = fetch(out);
	rstd = fetch(scale);
	check_norm(c, x, y, rstd, rows);
	print_row(c->name, measure(client, &step, 1), measure_copy(client, 2 * bytes));
	printf("    variance %.9g (plain loops %.9g); E[x*x] - E[x]*E[x] gives %.9g\n",
		   1 / pow(number(rstd, c->dtype, 0), 2), plain(x, c->dtype, 0).variance,
		   naive(x, c->dtype));
	kiln_call_free(step.call);
	kiln_free(scale);
	kiln_free(out);
	kiln_free(in);
	free(rstd);
	free(y);
	free(x);
}

int main(int argc, char **argv)
{
	int small;
	kiln_client *client = begin(argc, argv, &small);
	const int64_t rows = small ? 64 : 65536;

	print_head(client, "online norms");
	softmax(client, rows);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		layer_norm(client, &cases[i], rows);
	printf("all %lld rows are right, every time\n", (long long)rows);
	kiln_close(client);
	return 0;
}
