/*
 * bench_permute: times the kernels of every case that is to be timed, beside a copy of the same
 * bytes in the same run, through a running daemon.
 *
 *   bench_permute --socket PATH [--device cuda:0] [--json FILE] [--torch FILE] [--quick]
 *   bench_permute --list         the cases, for torch_permute.py: name, dtype, shape, perm, strides
 *
 * Times are the device's own (an event before and one behind each launch).  Every batch stands
 * behind a few large copies, so that its launches are queued when the device gets to them; buffers
 * take turns, so that nothing is found in the second-level cache that a program would not find
 * there.  A time is the median over groups of ten launches of the group's mean.
 *
 * "copy" is the better of the driver's copy and of a kernel that moves 16 bytes a thread.
 */
#include "cases.h"
#include "raw.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL (1536ull << 20) /* of sources, and of results */
#define MOST_SETS 32
#define BLOCKERS 4
#define GROUP 10
#define GROUPS 8

struct bench {
	struct raw raw;
	const char *socket, *device, *json, *torch;
	bool list, quick;
	uint64_t x, y;
	uint64_t blocker; /* a call that copies the whole pool */
	int failures;
};

/* ---- Timing ---- */

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

/* Sets of buffers that lie side by side in the pools. */
static int count_sets(uint64_t x_bytes, uint64_t y_bytes, bool one)
{
	uint64_t bytes = x_bytes > y_bytes ? x_bytes : y_bytes;
	uint64_t sets = POOL / (bytes + 256);
	return one || sets < 1 ? 1 : sets > MOST_SETS ? MOST_SETS : (int)sets;
}

/* The time of one launch in microseconds; negative: raw.why says what failed. */
static double time_call(struct bench *bench, uint64_t call, uint64_t x_bytes, uint64_t y_bytes,
						bool one_set)
{
	double micros[GROUP * GROUPS], means[GROUPS];
	const struct raw_operand whole[2] = {{bench->x, 0}, {bench->y, 0}};
	int sets = count_sets(x_bytes, y_bytes, one_set), count = GROUP * GROUPS;
	uint64_t first = 0, ticket = 0;
	/* The first batch warms up: the module, the clocks, the pages. */
	for (int round = 0; round < 2; round++) {
		uint64_t blocker_first = 0;
		for (int i = 0; i < BLOCKERS; i++) {
			if (!raw_submit(&bench->raw, bench->blocker, whole, &ticket))
				return -1;
			blocker_first = i == 0 ? ticket : blocker_first;
		}
		for (int i = 0; i < count; i++) {
			uint64_t set = (uint64_t)(i % sets);
			const struct raw_operand operands[2] = {
				{bench->x, set * ((x_bytes + 255) / 256 * 256)},
				{bench->y, set * ((y_bytes + 255) / 256 * 256)}};
			if (!raw_submit(&bench->raw, call, operands, &ticket))
				return -1;
			first = i == 0 ? ticket : first;
		}
		double all[BLOCKERS + GROUP * GROUPS];
		if (!raw_collect(&bench->raw, blocker_first, BLOCKERS + count, all))
			return -1;
		memcpy(micros, all + BLOCKERS, sizeof micros);
	}
	for (int g = 0; g < GROUPS; g++) {
		means[g] = 0;
		for (int i = 0; i < GROUP; i++)
			means[g] += micros[g * GROUP + i] / GROUP;
	}
	qsort(means, GROUPS, sizeof *means, by_value);
	return (means[GROUPS / 2 - 1] + means[GROUPS / 2]) / 2;
}

static double time_case(struct bench *bench, const struct cases_case *c, bool one_set,
						char *variant, size_t size)
{
	uint64_t call;
	if (!raw_prepare(&bench->raw, c, &call, variant, size))
		return -1;
	double micros = time_call(bench, call, cases_x_bytes(c), cases_y_bytes(c), one_set);
	return raw_release(&bench->raw, call) ? micros : -1;
}

/* Identity over bytes: what the driver's copy does. */
static struct cases_case plain_copy(uint64_t bytes)
{
	struct cases_case c = {.op = "permute", .dtype = KILN_U8, .rank = 1, .contiguous = true};
	c.shape[0] = (int64_t)bytes;
	c.stride[0] = 1;
	return c;
}

/* Two halves that lie a little apart: too much for the driver's copy, and the plainest kernel. */
static struct cases_case vector_copy(uint64_t bytes)
{
	struct cases_case c = {.op = "permute", .dtype = KILN_C128, .rank = 2};
	c.shape[0] = 2;
	c.shape[1] = (int64_t)(bytes / 32 ? bytes / 32 : 1);
	c.stride[0] = c.shape[1] + 16;
	c.stride[1] = 1;
	c.perm[1] = 1;
	return c;
}

/* ---- What PyTorch took: lines "name TAB eager TAB compiled", 0 for a time that is not there ----
 */

static bool torch_times(const struct bench *bench, const char *name, double *eager,
						double *compiled)
{
	char line[400];
	bool found = false;
	FILE *file = bench->torch ? fopen(bench->torch, "r") : NULL;
	*eager = *compiled = 0;
	while (file && !found && fgets(line, sizeof line, file)) {
		char *tab = strchr(line, '\t');
		if (!tab)
			continue;
		*tab = 0;
		found = strcmp(line, name) == 0 && sscanf(tab + 1, "%lf\t%lf", eager, compiled) == 2;
	}
	if (file)
		fclose(file);
	return found;
}

/* ---- The table ---- */

struct total {
	double log_ratio;
	int count, below_torch;
};

static void print_time(double micros)
{
	if (micros > 0)
		printf(" %8.1f", micros);
	else
		printf(" %8s", "-");
}

static void write_json(const struct bench *bench, const struct cases_case *c, const char *variant,
					   double micros, double memcpy_us, double vector_us)
{
	double eager, compiled;
	FILE *json = bench->json ? fopen(bench->json, "a") : NULL;
	if (!json)
		return;
	torch_times(bench, c->name, &eager, &compiled);
	fprintf(json,
			"{\"program\": \"bench_permute\", \"case\": \"%s\", \"variant\": \"%s\", "
			"\"us\": %.2f, \"memcpy_us\": %.2f, \"vector_us\": %.2f, \"torch_us\": %.2f, "
			"\"torch_compile_us\": %.2f}\n",
			c->name, variant, micros, memcpy_us, vector_us, eager, compiled);
	fclose(json);
}

static void bench_case(struct bench *bench, const struct cases_case *c, struct total *total)
{
	char variant[32], other[32];
	double eager, compiled;
	uint64_t bytes = cases_y_bytes(c);
	bool one_set = !(c->flags & CASES_BIG);
	struct cases_case plain = plain_copy(bytes), vectors = vector_copy(bytes);
	double micros = time_case(bench, c, one_set, variant, sizeof variant);
	double memcpy_us = micros < 0 ? -1 : time_case(bench, &plain, one_set, other, sizeof other);
	double vector_us =
		memcpy_us < 0 ? -1 : time_case(bench, &vectors, one_set, other, sizeof other);
	if (vector_us <= 0 || memcpy_us <= 0 || micros <= 0) {
		printf("FAIL %s: %s\n", c->name,
			   bench->raw.why[0] ? bench->raw.why : "the device reported no time");
		bench->raw.why[0] = 0;
		bench->failures++;
		return;
	}
	double copy = memcpy_us < vector_us ? memcpy_us : vector_us, ratio = copy / micros;
	bool torch = torch_times(bench, c->name, &eager, &compiled);
	printf("%-42s %-10s %8.1f %8.1f %8.1f %6.3f %6.2f", c->name, variant, micros, memcpy_us,
		   vector_us, ratio, 2.0 * (double)bytes / micros / 1e6);
	print_time(eager);
	print_time(compiled);
	printf("\n");
	fflush(stdout);
	write_json(bench, c, variant, micros, memcpy_us, vector_us);
	if (c->flags & CASES_BIG) {
		total->log_ratio += log(ratio);
		total->count++;
	}
	total->below_torch +=
		torch && ((eager > 0 && eager < micros) || (compiled > 0 && compiled < micros));
}

static int run(struct bench *bench)
{
	int count;
	char variant[32];
	struct total total = {0};
	struct cases_case whole = plain_copy(POOL);
	const struct cases_case *cases = cases_all(&count);
	if (!raw_open(&bench->raw, bench->socket, bench->device) ||
		!raw_alloc(&bench->raw, POOL + 4096, "sources", &bench->x) ||
		!raw_alloc(&bench->raw, POOL + 4096, "results", &bench->y) ||
		!raw_fill(&bench->raw, bench->x, POOL + 4096, 7) ||
		!raw_prepare(&bench->raw, &whole, &bench->blocker, variant, sizeof variant)) {
		printf("FAIL bench_permute: %s\n", bench->raw.why);
		return 1;
	}
	printf("%-42s %-10s %8s %8s %8s %6s %6s %8s %8s\n", "microseconds", "variant", "kiln", "memcpy",
		   "vector", "ratio", "TB/s", "torch", "compile");
	for (int i = 0; i < count; i++)
		if ((cases[i].flags & CASES_BENCH) && !(bench->quick && (cases[i].flags & CASES_BIG)))
			bench_case(bench, &cases[i], &total);
	if (total.count)
		printf("geometric mean of copy / kiln over the %d large cases: %.3f\n", total.count,
			   exp(total.log_ratio / total.count));
	if (bench->torch)
		printf("cases in which PyTorch was faster: %d\n", total.below_torch);
	return bench->failures > 0;
}

static void print_numbers(const int64_t *numbers, int count)
{
	for (int k = 0; k < count; k++)
		printf("%s%" PRId64, k ? "," : "", numbers[k]);
}

static void list_cases(void)
{
	int count;
	const struct cases_case *cases = cases_all(&count);
	for (int i = 0; i < count; i++) {
		const struct cases_case *c = &cases[i];
		if (!(c->flags & CASES_BENCH))
			continue;
		printf("%s\t%s\t", c->name, kiln_dtype_name(c->dtype));
		print_numbers(c->shape, c->rank);
		printf("\t");
		print_numbers(c->perm, c->rank);
		printf("\t");
		print_numbers(c->stride, c->rank);
		printf("\t%d\n", (c->flags & CASES_BIG) != 0);
	}
}

int main(int argc, char **argv)
{
	struct bench bench = {.device = "cuda:0"};
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;
		const char **text = strcmp(argv[i], "--socket") == 0   ? &bench.socket
							: strcmp(argv[i], "--device") == 0 ? &bench.device
							: strcmp(argv[i], "--json") == 0   ? &bench.json
							: strcmp(argv[i], "--torch") == 0  ? &bench.torch
															   : NULL;
		if (text && value) {
			*text = value;
			i++;
		} else if (strcmp(argv[i], "--list") == 0) {
			bench.list = true;
		} else if (strcmp(argv[i], "--quick") == 0) {
			bench.quick = true;
		} else {
			fprintf(stderr, "bench_permute: option \"%s\" is unknown or has no value\n", argv[i]);
			return 2;
		}
	}
	if (bench.list) {
		list_cases();
		return 0;
	}
	if (!bench.socket) {
		fprintf(stderr, "bench_permute: --socket PATH of a running kilnd is missing\n");
		return 2;
	}
	int status = run(&bench);
	raw_close(&bench.raw);
	return status;
}
