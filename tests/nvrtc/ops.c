/*
 * ops.c: every kernel that the cases of a family need, compiled by the NVRTC of this machine.  A
 * kernel that does not compile, that takes NVRTC minutes, that spills registers, or whose shared
 * memory no block has, is a failure.  No GPU is needed.
 *
 *   nvrtc_ops FAMILY...           "softmax": the cases of tests/ops/softmax.c
 *   nvrtc_ops --generic [OP...]   the operators' generic kernels, or those of these
 *
 * Five targets compile what they would be asked for.  sm_90 takes the first case of every third
 * kind (operator, variant, dtype of the first operand) and a twelfth of the rest: the borders of
 * sizes and strides and the operands that are left out.  The others take turns: each kind is one
 * target's, and the next dtype of a variant the next target's; and each takes every 32nd kernel of
 * the rest.
 * Generic kernels are long and many: sm_90 takes one of each form, a template with its arguments
 * but for dtypes, numbers and truth values, and the others take every 128th kernel.
 * With KILN_TEST_ALL set, which takes ten times as long, each takes every one.
 *
 * Two processes share the work: NVRTC compiles one thing at a time.
 */
#include "tests/ops/common/problem.h"
#include "daemon/compile/compile.h"
#include "tests/kept.h"
#include "daemon/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 2
#define SKIPPED 77
/* Most take a quarter of a second and the longest six; the rest is for machines with other work. */
#define SECONDS_MOST 120

static const char *const targets[] = {"sm_90", "sm_75", "sm_80", "sm_100", "sm_120"};
#define TARGETS (int)(sizeof(targets) / sizeof(targets[0]))

static bool all_targets_take_all, generics;
static struct compile_toolchain toolchain; /* a child's own */

/* These alone spill: 1024 threads, of a block or of four that share a multiprocessor, leave 64
 * registers to each, and 1120 leave 56. */
#define SPILLED_MOST 32
static const struct {
	const char *target, *name;
} known_spills[] = {
	{"sm_80", "softmax f32 2x65536"},
	{"sm_80", "rms_norm_backward f32 3x8192 gamma dx dgamma dbeta"},
	{"sm_90", "topk f32 3x24576 k 50 largest 0"},
	{"sm_120", "permute f32 31x129x65x127 (2,0,3,1)"},
	{"sm_120", "permute f32 3x129x5x127 (2,0,3,1)"},
	{"sm_90", "index_add f16 131072x1024 i32 131072 f16 131072x1024 f16 131072x1024"},
};

struct unit {
	const struct cases_case *c; /* the first that needs it; of a generic kernel NULL */
	const struct plan_op *op;   /* of a generic kernel, and which */
	int index;
	char name[192]; /* of the case */
	char source[64], instantiation[KERNEL_INSTANTIATION_MAX];
	char kind[KERNEL_INSTANTIATION_MAX + 16];
	uint32_t threads;
	bool representative; /* the first of its kind */
	int turn; /* which dtype it has of its variant's, or which kernel it is of its form's */
};

struct list {
	struct unit *units;
	int count;
};

struct tally {
	int compiled, refused, most_registers;
	int64_t micros, slowest;
	const struct unit *slow;
};

static int by_instantiation(const void *a, const void *b)
{
	const struct unit *left = a, *right = b;
	int order = strcmp(left->source, right->source);

	order = order ? order : strcmp(left->instantiation, right->instantiation);
	return order ? order : (left->c > right->c) - (left->c < right->c);
}

static int by_kind(const void *a, const void *b)
{
	const struct unit *left = a, *right = b;
	int order = strcmp(left->kind, right->kind);

	return order ? order : (left->c > right->c) - (left->c < right->c);
}

static bool is_word(const char *at, size_t length, const char *word)
{
	return strlen(word) == length && memcmp(at, word, length) == 0;
}

/* A generic kernel's kind is its form and its index.  Dtypes and numbers, which the form lacks, are
 * the words that have a digit. */
static void set_form(struct unit *unit, const char *instantiation)
{
	size_t used = 0, length;

	for (const char *at = instantiation; *at; at += length) {
		length = strcspn(at, "<>, ");
		bool dropped = strcspn(at, "0123456789") < length || is_word(at, length, "true") ||
					   is_word(at, length, "false");
		length += length == 0;
		if (!dropped) {
			memcpy(unit->kind + used, at, length);
			used += length;
		}
	}
	snprintf(unit->kind + used, sizeof(unit->kind) - used, " %d", unit->index);
}

static void set_unit(struct unit *unit, const struct kernel_plan *plan)
{
	memcpy(unit->source, plan->source, sizeof(unit->source));
	memcpy(unit->instantiation, plan->instantiation, sizeof(unit->instantiation));
	unit->threads = plan->block[0] * plan->block[1] * plan->block[2];
	if (unit->c) {
		snprintf(unit->kind, sizeof(unit->kind), "%s %s %d", plan->op, plan->variant,
				 (int)unit->c->operand[0].dtype);
		snprintf(unit->name, sizeof(unit->name), "%s", unit->c->name);
	} else {
		set_form(unit, plan->instantiation);
		snprintf(unit->name, sizeof(unit->name), "%s %d", plan->op, unit->index);
	}
}

/* The plan of a unit; or the planner's refusal. */
static int plan_unit(const struct unit *unit, const struct kernel_limits *limits,
					 struct kernel_plan *plan, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem problem;

	if (!unit->c)
		return plan_generic_at(unit->op, unit->index, limits, plan, error);
	cases_problem(unit->c, &problem);
	return plan_problem(&problem, limits, plan, error);
}

/* Two kinds differ in their last word, the dtype, at most. */
static bool same_variant(const struct unit *a, const struct unit *b)
{
	size_t length = (size_t)(strrchr(a->kind, ' ') - a->kind) + 1;

	return strncmp(a->kind, b->kind, length) == 0 && !strchr(b->kind + length, ' ');
}

/* Marks the first of each kind, and keeps one of each instantiation. */
static void drop_repeats(struct list *list)
{
	int kept = 0;

	qsort(list->units, (size_t)list->count, sizeof(list->units[0]), by_kind);
	for (int i = 0; i < list->count; i++) {
		struct unit *unit = &list->units[i], *last = i ? unit - 1 : NULL;
		unit->representative = !last || strcmp(last->kind, unit->kind) != 0;
		if (last && same_variant(last, unit))
			unit->turn = last->turn + unit->representative;
	}
	qsort(list->units, (size_t)list->count, sizeof(list->units[0]), by_instantiation);
	for (int i = 0; i < list->count; i++) {
		struct unit *unit = &list->units[i], *last = kept ? &list->units[kept - 1] : NULL;
		if (last && strcmp(unit->instantiation, last->instantiation) == 0 &&
			strcmp(unit->source, last->source) == 0) {
			if (unit->representative && (!last->representative || unit->turn < last->turn))
				last->turn = unit->turn;
			last->representative = last->representative || unit->representative;
		} else {
			list->units[kept++] = *unit;
		}
	}
	list->count = kept;
}

static bool is_listed(const char *name, char **list)
{
	for (; *list; list++)
		if (strcmp(*list, name) == 0)
			return true;
	return false;
}

#define MOST_GENERICS 2000

/* The generic kernels. */
static bool plan_generics(const struct kernel_limits *limits, char **ops, struct list *list)
{
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];
	int status;

	list->count = 0;
	list->units = calloc(MOST_GENERICS, sizeof(list->units[0]));
	for (const struct plan_op *op = plan_op_next(NULL); op && list->units; op = plan_op_next(op)) {
		bool wanted = op->generics && (!*ops || is_listed(op->name, ops));
		for (int i = 0; wanted && list->count < MOST_GENERICS; i++) {
			struct unit *unit = &list->units[list->count];
			unit->op = op;
			unit->index = i;
			status = plan_unit(unit, limits, &plan, error);
			if (status == KILN_ENOENT)
				break;
			if (status) {
				printf("FAILED to plan generic %d of %s: %s\n", i, op->name, error);
				return false;
			}
			set_unit(unit, &plan);
			list->count++;
		}
	}
	if (list->count == 0 || list->count == MOST_GENERICS)
		return false;
	drop_repeats(list);
	return true;
}

/* Distinct kernels for a target; false after a message. */
static bool plan_list(const char *target, char **families, struct list *list)
{
	struct kernel_limits limits;
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];
	int count;
	const struct cases_case *all = cases_all(&count);

	if (plan_limits_for(target, &limits, error))
		return false;
	if (generics)
		return plan_generics(&limits, families + 1, list);
	list->count = 0;
	list->units = calloc((size_t)count, sizeof(list->units[0]));
	if (!list->units)
		return false;
	for (int i = 0; i < count; i++) {
		struct unit *unit = &list->units[list->count];
		if (!is_listed(all[i].family, families))
			continue;
		unit->c = &all[i];
		if (plan_unit(unit, &limits, &plan, error)) {
			printf("FAILED to plan %s for %s: %s\n", all[i].name, target, error);
			return false;
		}
		if (plan.kind != KERNEL_LAUNCH)
			continue;
		set_unit(unit, &plan);
		list->count++;
	}
	drop_repeats(list);
	if (list->count == 0)
		printf("FAILED: no case of these families needs a kernel\n");
	return list->count > 0;
}

static bool may_spill(const char *target, const struct unit *unit,
					  const struct compile_result *result)
{
	bool known = false;
	for (size_t i = 0; i < sizeof(known_spills) / sizeof(known_spills[0]); i++)
		known = known || (strcmp(known_spills[i].target, target) == 0 &&
						  strcmp(known_spills[i].name, unit->name) == 0);
	return known && result->spill_bytes <= SPILLED_MOST && result->local_bytes <= SPILLED_MOST;
}

/* Says what is wrong with what NVRTC made of a kernel, if anything is. */
static bool is_good(const char *target, const struct unit *unit, const struct kernel_plan *plan,
					const struct kernel_limits *limits, const struct compile_result *result,
					struct tally *tally)
{
	char wrong[256] = "";

	if (result->status) /* the next logs mostly say the same */
		printf("FAILED %s %s (%s): %s\n%s\n", target, unit->instantiation, unit->name,
			   result->error, result->log && tally->refused++ == 0 ? result->log : "");
	else if (result->micros > SECONDS_MOST * INT64_C(1000000))
		snprintf(wrong, sizeof(wrong), "NVRTC took %.1f s, more than %d s",
				 (double)result->micros / 1e6, SECONDS_MOST);
	else if ((result->spill_bytes != 0 || result->local_bytes > 0) &&
			 !may_spill(target, unit, result))
		snprintf(wrong, sizeof(wrong), "%lld bytes spilled, %lld local",
				 (long long)result->spill_bytes, (long long)result->local_bytes);
	else if (result->registers <= 0 || result->registers * unit->threads > 65536 ||
			 result->object_bytes < 64)
		snprintf(wrong, sizeof(wrong), "%lld registers, %zu bytes", (long long)result->registers,
				 result->object_bytes);
	else if (result->shared_bytes + plan->shared_bytes > limits->shared_optin)
		snprintf(wrong, sizeof(wrong), "%u bytes of dynamic shared memory and %lld of its own",
				 plan->shared_bytes, (long long)result->shared_bytes);
	if (wrong[0])
		printf("FAILED %s %s (%s): %s\n", target, unit->instantiation, unit->name, wrong);
	return !result->status && !wrong[0];
}

static bool compile_one(struct compile_sources *sources, const char *target,
						const struct unit *unit, struct tally *tally)
{
	struct compile_file files[COMPILE_MAX_HEADERS];
	struct compile_job job = {
		.source = unit->source, .instantiation = unit->instantiation, .files = files};
	struct compile_result result = {0};
	char error[KERNEL_ERROR_MAX];
	struct kernel_limits limits;
	struct kernel_plan plan;
	bool good;

	/* Again, for the text that the planner may have written. */
	if (plan_limits_for(target, &limits, error) || plan_unit(unit, &limits, &plan, error) ||
		compile_sources_of_plan(sources, &plan, target, files, &job.file_count, error)) {
		printf("FAILED: %s\n", error);
		return false;
	}
	memcpy(job.target, target, strlen(target) + 1);
	kept_compile(&job, toolchain.id, nvrtc_compile, false, &result);
	good = is_good(target, unit, &plan, &limits, &result, tally);
	tally->compiled++;
	tally->micros += result.micros;
	if (result.registers > tally->most_registers)
		tally->most_registers = (int)result.registers;
	if (result.micros > tally->slowest) {
		tally->slowest = result.micros;
		tally->slow = unit;
	}
	compile_result_free(&result);
	return good;
}

static bool is_taken(const struct unit *unit, int number, int target)
{
	if (generics && !all_targets_take_all)
		return target ? number % 128 == target : unit->representative && unit->turn == 0;
	if (all_targets_take_all)
		return true;
	if (target == 0)
		return unit->representative ? number % 3 == 0 : cases_in_sample(unit->name);
	if (unit->representative && unit->turn % (TARGETS - 1) == target - 1)
		return true;
	return number % (8 * (TARGETS - 1)) == target - 1;
}

/* The kernels of a target that one process compiles. */
static int run_target(int t, int share, struct compile_sources *sources, char **families)
{
	struct tally tally = {0};
	struct list list;
	int bad = 0, taken = 0;

	if (!plan_list(targets[t], families, &list))
		return 1;
	for (int i = 0; i < list.count; i++)
		if (is_taken(&list.units[i], i, t) && taken++ % PROCESSES == share)
			bad += !compile_one(sources, targets[t], &list.units[i], &tally);
	printf("%-7s process %d: %d of %d kernels, %.1f ms each, at most %d registers\n", targets[t],
		   share, tally.compiled, list.count,
		   tally.compiled ? (double)tally.micros / 1000 / tally.compiled : 0, tally.most_registers);
	if (tally.slow)
		printf("        slowest: %.1f ms, %s, for %s\n", (double)tally.slowest / 1000,
			   tally.slow->instantiation, tally.slow->name);
	fflush(stdout);
	free(list.units);
	return bad;
}

/* NVRTC is opened in the children: it does not like to be forked. */
static int child(int share, char **families)
{
	struct compile_sources *sources;
	char error[KERNEL_ERROR_MAX];
	int bad = 0;

	if (nvrtc_open(&toolchain) || !toolchain.id[0]) {
		if (share == 0)
			printf("skipped: no NVRTC here: %s\n", toolchain.reason);
		return SKIPPED;
	}
	if (compile_sources_open(NULL, &sources, error)) {
		printf("FAILED: %s\n", error);
		return 1;
	}
	nvrtc_warm();
	for (int t = 0; t < TARGETS; t++)
		if (strstr(toolchain.targets, targets[t]))
			bad += run_target(t, share, sources, families);
		else if (share == 0)
			printf("%-7s skipped: this NVRTC does not know it\n", targets[t]);
	compile_sources_close(sources);
	return bad != 0;
}

int main(int argc, char **argv)
{
	pid_t children[PROCESSES];
	int result = 0;

	(void)argc;
	all_targets_take_all = getenv("KILN_TEST_ALL") != NULL;
	generics = argv[1] && strcmp(argv[1], "--generic") == 0;
	for (int i = 0; i < PROCESSES; i++) {
		fflush(stdout);
		children[i] = fork();
		if (children[i] == 0)
			exit(child(i, argv + 1));
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status = 1;
		if (children[i] > 0)
			waitpid(children[i], &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
			result = result ? result : SKIPPED;
		else if (status != 0)
			result = 1;
	}
	return result;
}
