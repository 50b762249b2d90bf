/*
 * bench_compile.c: what a cold specialization costs on a warm compiler: every distinct kernel of
 * the list of cases, beside NVRTC's own time for a trivial kernel in the same process and run.
 *
 *   bench_compile [--target sm_90] [--limit RATIO] [--ops LIST] [--every N] [--jobs N]
 *
 * Times are of the processor, which is what NVRTC needs and other programs do not disturb much.
 *
 * --every takes one kernel in N.  --jobs: so many processes share them (half the processors), as
 * NVRTC compiles one thing at a time.  With --limit it fails when the median of any operator's
 * kernels is more than RATIO times the trivial kernel's; how many single kernels are beyond it is
 * printed, after another two compiles of those that are not far beyond.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/ops/common/cases.h"
#include "tests/ops/common/problem.h"
#include "daemon/compile/compile.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"
#include "listed.h"

#define TRIVIAL_RUNS 9    /* before the others, and one more for each SHARE of them */
#define TRIVIAL_MOST 1000 /* in all, of one process */
#define SHARE 16
#define SLOWEST 10
#define KERNELS_MOST 16384
#define JOBS_MOST 16
#define SKIPPED 77

struct kernel {
	char op[24], source[64];
	char instantiation[KERNEL_INSTANTIATION_MAX];
	char *generated; /* as plans have it; never NULL */
	int64_t micros;
	double ratio; /* to the trivial kernel; 0: not compiled */
};

struct all {
	char toolchain[96];
	int64_t trivial[JOBS_MOST];
	int count;
	struct kernel kernels[KERNELS_MOST];
};

struct options {
	const char *target, *ops;
	double limit;
	int jobs, every;
};

static int by_number(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int by_ratio(const void *a, const void *b)
{
	double x = ((const struct kernel *)a)->ratio, y = ((const struct kernel *)b)->ratio;
	return (x < y) - (x > y);
}

static int by_instantiation(const void *a, const void *b)
{
	const struct kernel *x = a, *y = b;
	return strcmp(x->instantiation, y->instantiation);
}

/* ---- Which kernels ---- */

static int collect(struct all *all, const struct options *options)
{
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];
	int cases = 0, kept = 0;
	const struct cases_case *list = cases_all(&cases);

	if (plan_limits_for(options->target, &limits, error) != KILN_OK) {
		fprintf(stderr, "bench_compile: %s\n", error);
		return 2;
	}
	for (int i = 0; i < cases && all->count < KERNELS_MOST; i++) {
		struct kernel *kernel = &all->kernels[all->count];
		struct kernel_problem problem;
		struct kernel_plan plan;
		if (!is_listed(options->ops, list[i].op->name))
			continue;
		cases_problem(&list[i], &problem);
		if (plan_problem(&problem, &limits, &plan, error) != KILN_OK || plan.kind != KERNEL_LAUNCH)
			continue;
		memcpy(kernel->op, plan.op, sizeof(kernel->op));
		memcpy(kernel->source, plan.source, sizeof(kernel->source));
		memcpy(kernel->instantiation, plan.instantiation, sizeof(kernel->instantiation));
		kernel->generated = strdup(plan.generated);
		if (!kernel->generated)
			return 2;
		all->count++;
	}
	qsort(all->kernels, (size_t)all->count, sizeof(*all->kernels), by_instantiation);
	for (int i = 0; i < all->count; i++)
		if (i == 0 || by_instantiation(&all->kernels[i], &all->kernels[kept - 1]) != 0)
			all->kernels[kept++] = all->kernels[i];
	for (all->count = 0; all->count * options->every < kept; all->count++)
		all->kernels[all->count] = all->kernels[all->count * options->every];
	return 0;
}

/* ---- One process ---- */

static int64_t processor_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t compile(const struct compile_job *job)
{
	struct compile_result result;
	int64_t began = processor_us();

	memset(&result, 0, sizeof(result));
	nvrtc_compile(job, &result);
	int64_t micros = processor_us() - began;
	if (result.status != KILN_OK) {
		fprintf(stderr, "bench_compile: %s: %s\n", job->instantiation, result.error);
		_exit(1);
	}
	compile_result_free(&result);
	return micros;
}

static int64_t compile_trivial(const char *target)
{
	static const char text[] = "template <int N> __global__ void trivial(int *x) { x[0] = N; }\n";
	static const struct compile_file file = {"trivial.cuh", text, sizeof(text) - 1};
	struct compile_job job = {
		.source = "trivial.cuh", .instantiation = "trivial<1>", .files = &file, .file_count = 1};

	snprintf(job.target, sizeof(job.target), "%s", target);
	return compile(&job);
}

static int64_t compile_kernel(struct compile_sources *sources, const struct kernel *kernel,
							  const char *target)
{
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	struct compile_file files[COMPILE_MAX_HEADERS];
	struct compile_job job = {
		.source = kernel->source, .instantiation = kernel->instantiation, .files = files};
	char error[KERNEL_ERROR_MAX];

	snprintf(job.target, sizeof(job.target), "%s", target);
	if (compile_sources_closure(sources, kernel->source, target, found, &job.file_count, error) !=
		KILN_OK) {
		fprintf(stderr, "bench_compile: %s\n", error);
		_exit(1);
	}
	for (int i = 0; i < job.file_count; i++)
		files[i] = *found[i];
	if (kernel->generated[0])
		files[job.file_count++] =
			(struct compile_file){COMPILE_GENERATED, kernel->generated, strlen(kernel->generated)};
	return compile(&job);
}

/* A kernel that may be beyond the limit by chance gets another two tries. */
#define BY_CHANCE 1.5
static void compile_again(struct compile_sources *sources, struct kernel *kernel,
						  const char *target)
{
	int64_t runs[3] = {kernel->micros};

	runs[1] = compile_kernel(sources, kernel, target);
	runs[2] = compile_kernel(sources, kernel, target);
	qsort(runs, 3, sizeof(*runs), by_number);
	kernel->micros = runs[1];
}

static int child(struct all *all, const struct options *options, int share)
{
	struct compile_toolchain toolchain = {0};
	struct compile_sources *sources;
	char error[KERNEL_ERROR_MAX];
	int64_t trivial[TRIVIAL_MOST];
	int runs = 0, compiled = 0;

	if (nvrtc_open(&toolchain) != KILN_OK) {
		if (share == 0)
			printf("no NVRTC: %s\n", toolchain.reason);
		fflush(stdout);
		return SKIPPED;
	}
	if (compile_sources_open(NULL, &sources, error) != KILN_OK) {
		fprintf(stderr, "bench_compile: %s\n", error);
		return 1;
	}
	memcpy(all->toolchain, toolchain.id, sizeof(all->toolchain));
	nvrtc_warm();
	while (runs < TRIVIAL_RUNS)
		trivial[runs++] = compile_trivial(options->target);
	for (int i = share; i < all->count; i += options->jobs) {
		all->kernels[i].micros = compile_kernel(sources, &all->kernels[i], options->target);
		if (++compiled % SHARE == 0 && runs < TRIVIAL_MOST)
			trivial[runs++] = compile_trivial(options->target);
	}
	qsort(trivial, (size_t)runs, sizeof(*trivial), by_number);
	all->trivial[share] = trivial[runs / 2];
	for (int i = share; i < all->count; i += options->jobs) {
		struct kernel *kernel = &all->kernels[i];
		double beyond = (double)kernel->micros / (double)all->trivial[share] / options->limit;
		if (options->limit > 0 && beyond > 1 && beyond < BY_CHANCE)
			compile_again(sources, kernel, options->target);
		kernel->ratio = (double)kernel->micros / (double)all->trivial[share];
	}
	compile_sources_close(sources);
	return 0;
}

static int run_children(struct all *all, const struct options *options)
{
	pid_t children[JOBS_MOST];
	int result = 0;

	fflush(stdout);
	for (int i = 0; i < options->jobs; i++) {
		children[i] = fork();
		if (children[i] == 0)
			_exit(child(all, options, i));
	}
	for (int i = 0; i < options->jobs; i++) {
		int status = 1;
		if (children[i] > 0)
			waitpid(children[i], &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			result = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED ? SKIPPED : 1;
	}
	return result;
}

/* ---- The table ---- */

/* The kernels are sorted by ratio; false: their median is beyond the limit. */
static bool print_operator(const struct kernel *kernels, int count, double limit)
{
	const struct kernel *median = &kernels[count / 2];
	int beyond = 0;

	while (limit > 0 && beyond < count && kernels[beyond].ratio > limit)
		beyond++;
	printf("%-26s %7d %10.1f ms %6.2f %8.2f %8d\n", kernels[0].op, count,
		   (double)median->micros / 1e3, median->ratio, kernels[0].ratio, beyond);
	return limit <= 0 || median->ratio <= limit;
}

static bool print_all(struct all *all, const struct options *options)
{
	static struct kernel some[KERNELS_MOST];
	bool good = true;

	qsort(all->trivial, (size_t)options->jobs, sizeof(*all->trivial), by_number);
	qsort(all->kernels, (size_t)all->count, sizeof(*all->kernels), by_ratio);
	printf("%s, %s, %d processes\n", all->toolchain, options->target, options->jobs);
	printf("%-26s %7s %10.1f ms\n", "trivial kernel", "",
		   (double)all->trivial[options->jobs / 2] / 1e3);
	printf("%-26s %7s %10s    %6s %8s %8s\n", "operator", "kernels", "median", "ratio", "slowest",
		   "beyond");
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		int count = 0;
		for (int i = 0; i < all->count; i++)
			if (strcmp(all->kernels[i].op, op->name) == 0)
				some[count++] = all->kernels[i];
		if (count)
			good = print_operator(some, count, options->limit) && good;
	}
	printf("slowest:\n");
	for (int i = 0; i < all->count && i < SLOWEST; i++)
		printf("  %8.1f ms %6.2f  %s\n", (double)all->kernels[i].micros / 1e3,
			   all->kernels[i].ratio, all->kernels[i].instantiation);
	return good;
}

int main(int argc, char **argv)
{
	struct options options = {.target = "sm_90", .jobs = util_cpu_count() / 2, .every = 1};
	struct all *all =
		mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (int i = 1; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (value && !strcmp(argv[i], "--target")) {
			options.target = value;
		} else if (value && !strcmp(argv[i], "--ops")) {
			options.ops = value;
		} else if (value && !strcmp(argv[i], "--limit")) {
			options.limit = strtod(value, NULL);
		} else if (value && !strcmp(argv[i], "--jobs")) {
			options.jobs = (int)strtol(value, NULL, 10);
		} else if (value && !strcmp(argv[i], "--every")) {
			options.every = (int)strtol(value, NULL, 10);
		} else {
			fprintf(stderr, "bench_compile: option \"%s\" is unknown or has no value\n", argv[i]);
			return 2;
		}
	}
	options.jobs = options.jobs < 1 ? 1 : options.jobs > JOBS_MOST ? JOBS_MOST : options.jobs;
	options.every = options.every < 1 ? 1 : options.every;
	if (all == MAP_FAILED)
		return 1;
	int status = collect(all, &options);
	if (status == 0 && all->count == 0) {
		fprintf(stderr, "bench_compile: there are no kernels to compile\n");
		return 2;
	}
	if (status == 0)
		status = run_children(all, &options);
	if (status == 0)
		status = !print_all(all, &options);
	return status;
}
