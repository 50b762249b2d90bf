/*
 * bench_compile.c: what a cold specialization costs on a warm compiler: every distinct kernel of
 * the list of cases, beside NVRTC's own time for a trivial kernel, in one process and one run.
 *
 *   bench_compile [--target sm_90] [--limit RATIO]
 *
 * With --limit it fails when the median is more than RATIO times the trivial kernel's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "cases_problem.h"
#include "daemon/compile/compile.h"
#include "daemon/plan/plan.h"

#define TRIVIAL_RUNS 15
#define SLOWEST 8
#define KERNELS_MOST 4096

struct timed {
	char variant[32];
	char instantiation[KERNEL_INSTANTIATION_MAX];
	int64_t micros;
};

static int by_time(const void *a, const void *b)
{
	int64_t x = ((const struct timed *)a)->micros, y = ((const struct timed *)b)->micros;
	return (x > y) - (x < y);
}

static int64_t compile(const struct compile_job *job)
{
	struct compile_result result;
	memset(&result, 0, sizeof result);
	nvrtc_compile(job, &result);
	if (result.status != KILN_OK) {
		fprintf(stderr, "bench_compile: %s: %s\n", job->instantiation, result.error);
		exit(1);
	}
	int64_t micros = result.micros;
	compile_result_free(&result);
	return micros;
}

static int64_t trivial(const char *target)
{
	static const char text[] = "template <int N> __global__ void trivial(int *x) { x[0] = N; }\n";
	static const struct compile_file file = {"trivial.cuh", text, sizeof text - 1};
	struct timed runs[TRIVIAL_RUNS];
	struct compile_job job = {
		.source = "trivial.cuh", .instantiation = "trivial<1>", .files = &file, .file_count = 1};
	snprintf(job.target, sizeof job.target, "%s", target);
	for (int i = 0; i < TRIVIAL_RUNS; i++)
		runs[i].micros = compile(&job);
	qsort(runs, TRIVIAL_RUNS, sizeof *runs, by_time);
	return runs[TRIVIAL_RUNS / 2].micros;
}

/* One more kernel, unless it is there already. */
static int add(struct timed *kernels, int count, const struct kernel_plan *plan)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(kernels[i].instantiation, plan->instantiation))
			return count;
	if (count == KERNELS_MOST)
		return count;
	memcpy(kernels[count].variant, plan->variant, sizeof kernels[count].variant);
	memcpy(kernels[count].instantiation, plan->instantiation, sizeof kernels[count].instantiation);
	return count + 1;
}

static int collect(struct timed *kernels, const char *target)
{
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];
	int cases = 0, count = 0;
	const struct cases_case *list = cases_all(&cases);
	if (plan_limits_for(target, &limits, error) != KILN_OK) {
		fprintf(stderr, "bench_compile: %s\n", error);
		exit(2);
	}
	for (int i = 0; i < cases; i++) {
		struct kernel_problem problem;
		struct kernel_plan plan;
		cases_problem(&list[i], &problem);
		if (plan_problem(&problem, &limits, &plan, error) == KILN_OK && plan.kind == KERNEL_LAUNCH)
			count = add(kernels, count, &plan);
	}
	return count;
}

static void time_all(struct timed *kernels, int count, const char *target)
{
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	struct compile_file files[COMPILE_MAX_HEADERS];
	struct compile_sources *sources;
	char error[KERNEL_ERROR_MAX];
	int file_count = 0;
	if (compile_sources_open(NULL, &sources, error) != KILN_OK ||
		compile_sources_closure(sources, "ops/permute.cuh", target, found, &file_count, error) !=
			KILN_OK) {
		fprintf(stderr, "bench_compile: %s\n", error);
		exit(1);
	}
	for (int i = 0; i < file_count; i++)
		files[i] = *found[i];
	for (int i = 0; i < count; i++) {
		struct compile_job job = {.source = "ops/permute.cuh",
								  .instantiation = kernels[i].instantiation,
								  .files = files,
								  .file_count = file_count};
		snprintf(job.target, sizeof job.target, "%s", target);
		kernels[i].micros = compile(&job);
		if (i % 20 == 19)
			fprintf(stderr, "\r%d of %d kernels", i + 1, count);
	}
	fprintf(stderr, "\n");
	compile_sources_close(sources);
}

int main(int argc, char **argv)
{
	static struct timed kernels[KERNELS_MOST];
	struct compile_toolchain toolchain = {0};
	const char *target = "sm_90";
	double limit = 0;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--target"))
			target = argv[i + 1];
		else if (!strcmp(argv[i], "--limit"))
			limit = strtod(argv[i + 1], NULL);
	}
	if (nvrtc_open(&toolchain) != KILN_OK) {
		printf("no NVRTC: %s\n", toolchain.reason);
		return 77;
	}
	nvrtc_warm();
	int64_t base = trivial(target);
	int count = collect(kernels, target);
	time_all(kernels, count, target);
	qsort(kernels, (size_t)count, sizeof *kernels, by_time);
	int64_t median = kernels[count / 2].micros;
	double ratio = (double)median / (double)base;
	printf("%s, %s\n", toolchain.id, target);
	printf("trivial kernel, median of %d   %8.1f ms\n", TRIVIAL_RUNS, (double)base / 1e3);
	printf("%4d kernels, median           %8.1f ms   %.2f of trivial\n", count,
		   (double)median / 1e3, ratio);
	printf("slowest:\n");
	for (int i = count - 1; i >= 0 && i >= count - SLOWEST; i--)
		printf("  %8.1f ms  %s\n", (double)kernels[i].micros / 1e3, kernels[i].instantiation);
	return limit > 0 && ratio > limit;
}
