/*
 * test_ops_compilers: the objects that compilers make of the operators for device cpu.  Every
 * compiler of this machine compiles each kernel, as it is used and to be checked; the reference
 * judges the results of the first object, and all others must have the same bits, those of floats
 * too: nothing on the cpu device lets a compiler choose another order or precision.
 *
 * The cases are the sums of cases_sums() and random ones of small, mostly odd sizes, by exact and
 * by generic kernels.  One kernel in SHARE is taken; which ones, the seed says, a number that
 * changes from day to day.  KILN_TEST_SEED=N repeats a run, KILN_TEST_ALL takes all of them.
 *
 * Compiling takes the time, and a good half of it is what comes before the first kernel of a unit.
 * So a unit here has many of them, with the options of the daemon's own.
 */
#include "ops_batch.h"
#include "ops_case.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANDOM_SEED 20261122
#define RANDOM_CASES 800
#define PROCESSES 2
#define SHARE 200
#define NARROW_SHARE 8
#define SKIPPED 77

/* One process of the test. */
struct work {
	struct compile_sources *sources;
	struct ops_device plain, checked;
	int share, kernels;
};

/* ---- Results ---- */

static uint64_t bytes_of_outputs(const struct cases_case *c)
{
	uint64_t bytes = 0;

	for (int i = 0; i < c->operand_count; i++)
		bytes += c->operand[i].output ? cases_bytes(&c->operand[i]) : 0;
	return bytes;
}

static bool is_nan(kiln_dtype dtype, const void *memory, int64_t i)
{
	bool real = dtype == KILN_F16 || dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;

	return real && isnan(cases_get(dtype, memory, i));
}

/* The sign and the payload of a NaN are nobody's promise; all other bits are the same. */
static int compare(const struct item *item, int which, const unsigned char *kept,
				   const unsigned char *seen)
{
	const struct cases_operand *o = &item->c.operand[which];
	uint32_t bytes = cases_element(o);
	char text[160];

	for (int64_t i = 0; i < (int64_t)(cases_bytes(o) / bytes); i++) {
		if (memcmp(kept + i * bytes, seen + i * bytes, bytes) == 0 ||
			(is_nan(o->dtype, kept, i) && is_nan(o->dtype, seen, i)))
			continue;
		snprintf(text, sizeof(text), "element %lld of operand %d is %.17g, and of the first %.17g",
				 (long long)i, which, cases_get(o->dtype, seen, i), cases_get(o->dtype, kept, i));
		return fail(item, "not what another object gives", text);
	}
	return 0;
}

static int judge(struct item *item, const struct place *places)
{
	const struct cases_case *c = &item->c;
	bool first = !item->kept;
	unsigned char *at;
	int bad = 0;

	if (first) {
		bad = check_right(item, places);
		item->kept = malloc(bytes_of_outputs(c) + 1);
		if (!item->kept)
			return fail(item, "memory", "there is none");
	}
	at = item->kept;
	for (int i = 0; i < c->operand_count; i++) {
		const unsigned char *seen = places[i].after + places[i].begin;
		if (!c->operand[i].output)
			continue;
		if (first)
			memcpy(at, seen, cases_bytes(&c->operand[i]));
		else
			bad = compare(item, i, at, seen) || bad;
		at += cases_bytes(&c->operand[i]);
	}
	return bad;
}

/* ---- A unit ---- */

/* How many cases from here on are of one kernel. */
static int kernel_length(const struct item *items, int count)
{
	int i = 1;

	while (i < count && by_instantiation(items, &items[i]) == 0)
		i++;
	return i;
}

/* How many make one unit: as many kernels of a family as fit. */
static int unit_length(const struct item *items, int count)
{
	int length = 0;

	for (int kernels = 0; kernels < BATCH_MOST && length < count; kernels++) {
		if (strcmp(items->c.family, items[length].c.family) != 0)
			break;
		length += kernel_length(&items[length], count - length);
	}
	return length;
}

static int run_kernel(struct ops_device *on, struct batch *batch, int kernel, struct item *items,
					  int count)
{
	char error[KERNEL_ERROR_MAX] = "", entry[BATCH_ENTRY];
	struct device_module *module = NULL;
	uint32_t shared = 0;
	int bad = 0;

	for (int i = 0; i < count; i++)
		if (items[i].plan.shared_bytes > shared)
			shared = items[i].plan.shared_bytes;
	if (!batch_choose(batch, kernel, entry) ||
		device_cpu.load(on->device, batch->result.object, batch->result.object_bytes, entry, shared,
						&module, error))
		return fail(items, "load", error);
	for (int i = 0; i < count; i++)
		bad += run_case(on, &items[i], module, judge);
	device_cpu.unload(on->device, module);
	return bad;
}

static int run_unit(struct work *work, const struct batch_compiler *compiler, bool check,
					struct item *items, int count)
{
	struct batch batch = {0};
	char error[KERNEL_ERROR_MAX] = "";
	int bad = 0, length = 0;

	for (int first = 0; first < count; first += length) {
		length = kernel_length(&items[first], count - first);
		if (!batch_add(&batch, work->sources, &items[first].plan, error))
			break;
	}
	if (error[0] || !batch_compile(&batch, check, error)) {
		bad = fail(items, "compile", error);
		printf("%s\n", batch.result.log ? batch.result.log : "");
	}
	for (int first = 0, kernel = 0; first < count && !error[0]; first += length, kernel++) {
		length = kernel_length(&items[first], count - first);
		bad += run_kernel(check ? &work->checked : &work->plain, &batch, kernel, &items[first],
						  length);
	}
	if (bad)
		printf("FAILED %d times by %s %s%s\n", bad, compiler->name, compiler->version,
			   check ? ", to be checked" : "");
	work->kernels += batch.count;
	batch_free(&batch);
	return bad;
}

static int run_units(struct work *work, const struct batch_compiler *compiler, struct item *items,
					 int count)
{
	struct compile_toolchain toolchain = {0};
	int bad = 0;

	setenv("KILN_CXX", compiler->name, 1);
	if (hostcc_open(&toolchain) || !toolchain.id[0]) {
		printf("FAILED: %s: %s\n", compiler->name, toolchain.reason);
		return 1;
	}
	for (int first = 0, unit = 0, length; first < count; first += length, unit++) {
		length = unit_length(&items[first], count - first);
		for (int check = 0; check < 2 && unit % PROCESSES == work->share; check++)
			bad += run_unit(work, compiler, check, &items[first], length);
	}
	hostcc_close();
	return bad;
}

/* One process: every PROCESSES-th unit, by each of the compilers in turn. */
static int run_share(struct item *items, int count, const struct batch_compiler *compilers,
					 int compiler_count, int share)
{
	struct work work = {.share = share, .checked.checked = true};
	struct device_info info;
	char error[KERNEL_ERROR_MAX];
	int bad = 0;

	if (compile_sources_open(NULL, &work.sources, error) ||
		device_cpu.open(NULL, &work.plain.device, &info, error) ||
		device_cpu.open(NULL, &work.checked.device, &info, error) ||
		device_cpu.check(work.checked.device, DEVICE_SHUFFLED, error)) {
		printf("FAILED to open the device: %s\n", error);
		return 1;
	}
	for (int i = 0; i < compiler_count; i++)
		bad += run_units(&work, &compilers[i], items, count);
	device_cpu.close(work.checked.device);
	device_cpu.close(work.plain.device);
	compile_sources_close(work.sources);
	printf("process %d: %d objects' kernels\n", share, work.kernels);
	return bad != 0;
}

static int run_all(struct item *items, int count, const struct batch_compiler *compilers,
				   int compiler_count)
{
	pid_t children[PROCESSES];
	struct rusage used;
	int bad = 0;

	fflush(stdout);
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		if (children[i] == 0)
			exit(run_share(items, count, compilers, compiler_count, i));
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status = 1;
		if (children[i] > 0)
			waitpid(children[i], &status, 0);
		bad = bad || status != 0;
	}
	getrusage(RUSAGE_CHILDREN, &used);
	printf("%ld s of processors\n", (long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec));
	return bad;
}

/* ---- Which ---- */

static uint64_t today(void)
{
	const char *seed = getenv("KILN_TEST_SEED");

	return seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) / 86400;
}

/* A kernel is taken with all of its cases. */
static bool is_taken(const struct item *item, uint64_t seed)
{
	const char *const texts[] = {item->plan.source, item->plan.instantiation, item->plan.generated};
	uint64_t state = cases_word(&seed);

	for (int i = 0; i < 3; i++)
		for (const char *at = texts[i]; *at; at++) {
			state ^= (unsigned char)*at;
			state = cases_word(&state);
		}
	return getenv("KILN_TEST_ALL") || state % SHARE == 0;
}

/* As it is planned for the device, or for a narrow one; then by the generic kernel. */
static int plan_case(const struct cases_case *c, const struct kernel_limits *limits, uint64_t seed,
					 struct item *items)
{
	int count = 0;

	for (int generic = 0; generic < 2; generic++) {
		struct item *item = &items[count];
		item->c = *c;
		if (!plan_one(limits, generic, item))
			return -1;
		count += item->plan.kind == KERNEL_LAUNCH && is_taken(item, seed);
	}
	return count;
}

static int plan_all(struct item *items, uint64_t seed)
{
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];
	int sums, count = 0;
	const struct cases_case *list = cases_sums(&sums);

	if (plan_limits_for("cpu", &limits, error))
		return -1;
	for (int i = 0; i < sums + RANDOM_CASES; i++) {
		struct cases_case c;
		int planned;
		if (i < sums)
			c = list[i];
		else
			cases_random(RANDOM_SEED, (uint64_t)(i - sums), &c);
		planned = plan_case(&c, i % NARROW_SHARE == 0 ? &narrow : &limits, seed, &items[count]);
		if (planned < 0)
			return -1;
		count += planned;
	}
	qsort(items, (size_t)count, sizeof(items[0]), by_instantiation);
	return count;
}

/* Those that device cpu is meant for, and which this machine has not. */
static void name_missing(const struct batch_compiler *compilers, int count)
{
	static const char *const wanted[][2] = {{"g++-12", ") 12."},
											{"g++-13", ") 13."},
											{"g++-14", ") 14."},
											{"clang++", "clang version"}};

	for (int i = 0; i < 4; i++) {
		bool there = false;
		for (int k = 0; k < count; k++)
			there = there || strstr(compilers[k].version, wanted[i][1]);
		if (!there)
			printf("[  SKIPPED ] %s-is-not-on-this-machine\n", wanted[i][0]);
	}
}

int main(void)
{
	struct batch_compiler compilers[BATCH_COMPILERS];
	int compiler_count = batch_compilers(compilers), sums, count, bad = 1;
	uint64_t seed = today();
	struct item *items;

	name_missing(compilers, compiler_count);
	if (compiler_count == 0) {
		printf("skipped: no compiler for device cpu\n");
		return SKIPPED;
	}
	cases_sums(&sums);
	items = calloc(2 * (size_t)(sums + RANDOM_CASES), sizeof(*items));
	if (!items)
		return 1;
	count = plan_all(items, seed);
	for (int i = 0; i < compiler_count; i++)
		printf("compiler: %s %s\n", compilers[i].name, compilers[i].version);
	printf("seed %llu (KILN_TEST_SEED), %d cases%s\n", (unsigned long long)seed, count,
		   getenv("KILN_TEST_ALL") ? ", all there are" : "");
	if (count > 0)
		bad = run_all(items, count, compilers, compiler_count);
	printf("%s\n", bad ? "FAILED" : "all right");
	for (int i = 0; i < count; i++)
		free(items[i].kept);
	free(items);
	return bad;
}
