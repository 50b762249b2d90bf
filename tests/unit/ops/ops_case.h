/*
 * ops_case.h: a case of the list as the cpu device runs it.  Every operand lies between poisoned
 * edges, and nothing but the outputs may change.  A case runs twice, with different bytes in its
 * outputs before: an element that is not written, or not the same again, differs.  Knows no
 * compiler.
 */
#ifndef KILN_TESTS_OPS_CASE_H
#define KILN_TESTS_OPS_CASE_H

#include "tests/ops/common/problem.h"
#include "daemon/exec/device.h"
#include "daemon/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLACK 64           /* bytes around an operand that must not change */
#define DEADLINE_MS 300000 /* of one that hangs; a busy machine needs a minute for a checked one */

struct item {
	struct cases_case c;
	struct kernel_plan plan;
	unsigned char *kept; /* the outputs of the first object, where others are compared with it */
};

/* A device, and what is under way there. */
struct ops_device {
	struct device *device;
	uint64_t ticket;
	bool checked; /* it looks after every access of kernels that were compiled to be checked */
};

/* An operand's memory: slack, the case's offset, the operand, slack. */
struct place {
	struct device_memory *memory;
	uint64_t begin, bytes; /* of the first element; of all */
	unsigned char *before, *after, *again;
};

/* ---- Plans ---- */

/* A device so small that grids have to loop and tiles to shrink. */
static const struct kernel_limits narrow = {.target = "cpu",
											.max_threads = 64,
											.shared_default = 2048,
											.shared_optin = 2048,
											.grid_x = 3,
											.grid_y = 1,
											.grid_z = 1,
											.multiprocessors = 1,
											.warp = 32};

static bool plan_one(const struct kernel_limits *limits, bool generic, struct item *item)
{
	struct kernel_problem problem;
	char error[KERNEL_ERROR_MAX];

	cases_problem(&item->c, &problem);
	if (generic)
		cases_problem_choose(&problem, PLAN_GENERIC);
	if (plan_problem(&problem, limits, &item->plan, error) == KILN_OK)
		return true;
	printf("FAILED to plan %s: %s\n", item->c.name, error);
	return false;
}

/* Those of one kernel follow one another. */
static int by_instantiation(const void *a, const void *b)
{
	const struct kernel_plan *left = &((const struct item *)a)->plan;
	const struct kernel_plan *right = &((const struct item *)b)->plan;
	int order = (int)left->kind - (int)right->kind;

	if (!order)
		order = strcmp(left->source, right->source);
	if (!order)
		order = strcmp(left->instantiation, right->instantiation);
	return order ? order : strcmp(left->generated, right->generated);
}

static int fail(const struct item *item, const char *what, const char *detail)
{
	printf("FAILED %s: %s: %s\n  %s %s\n", item->c.name, what, detail, item->plan.variant,
		   item->plan.instantiation);
	return 1;
}

/* ---- One case ---- */

/* Waits for the end of the last launch or copy.  One that does not end still uses its operands and
 * its module, so the process ends without freeing them. */
static int finish(struct ops_device *on, const struct item *item, char error[KERNEL_ERROR_MAX])
{
	struct device_done done;
	bool broken = false;

	if (device_cpu.poll(on->device, -1, DEADLINE_MS, &done, 1, &broken) != 1 ||
		done.ticket != on->ticket) {
		snprintf(error, KERNEL_ERROR_MAX, "the device did not answer within %d ms", DEADLINE_MS);
		fail(item, "waiting", error);
		fflush(stdout);
		_exit(1);
	}
	memcpy(error, done.error, KERNEL_ERROR_MAX);
	return done.status;
}

static int move(struct ops_device *on, const struct item *item, const struct place *place,
				unsigned char *host, bool to_device, char error[KERNEL_ERROR_MAX])
{
	int status = device_cpu.copy(on->device, 1, ++on->ticket, place->memory, 0, host, place->bytes,
								 to_device, error);

	return status ? status : finish(on, item, error);
}

static int launch(struct ops_device *on, const struct item *item, struct device_module *module,
				  const struct place *places, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_plan *plan = &item->plan;
	struct device_operand operands[KERNEL_MAX_OPERANDS] = {0};
	struct device_launch request = {
		.copies = plan->kind == KERNEL_COPY,
		.module = module,
		.shared_bytes = plan->shared_bytes,
		.args = plan->args,
		.arg_count = plan->arg_count,
		.operands = operands,
		.operand_count = plan->operand_count,
		.scratch = plan->scratch,
		.report = plan->report,
		.copy_bytes = plan->copy_bytes,
		.granule = on->checked ? 16 : 0,
		.ticket = ++on->ticket,
		.stream = 1,
	};
	int status;

	if (plan->kind == KERNEL_NOTHING)
		return KILN_OK;
	for (int i = 0; i < item->c.operand_count; i++)
		if (places[i].memory)
			operands[i] = (struct device_operand){.memory = places[i].memory,
												  .offset = places[i].begin,
												  .bytes = plan->extents[i].bytes};
	memcpy(request.grid, plan->grid, sizeof(request.grid));
	memcpy(request.block, plan->block, sizeof(request.block));
	status = device_cpu.launch(on->device, &request, error);
	return status ? status : finish(on, item, error);
}

/* Memory of the host and of the device; what inputs hold is decided. */
static bool place_open(struct ops_device *on, const struct cases_operand *o, uint64_t seed,
					   struct place *place)
{
	char error[KERNEL_ERROR_MAX];

	place->begin = SLACK + o->offset;
	place->bytes = place->begin + cases_bytes(o) + SLACK;
	place->before = malloc(place->bytes);
	place->after = malloc(place->bytes);
	place->again = malloc(place->bytes);
	if (!place->before || !place->after || !place->again ||
		device_cpu.alloc(on->device, place->bytes, &place->memory, error))
		return false;
	memset(place->before, 0xff, place->bytes); /* no number, in any of the floats */
	if (!o->output)
		cases_fill_operand(o, place->before + place->begin, seed);
	else if (o->kept)
		memset(place->before + place->begin, CASES_KEPT, cases_bytes(o));
	return true;
}

static void place_close(struct ops_device *on, struct place *place)
{
	if (place->memory)
		device_cpu.free(on->device, place->memory);
	free(place->before);
	free(place->after);
	free(place->again);
}

/* Where an index is out of range, that is what the call must end in. */
static bool ends_well(const struct item *item, int status, char error[KERNEL_ERROR_MAX])
{
	bool strays = item->c.flags & CASES_STRAYS;

	if (strays && status == KILN_OK)
		snprintf(error, KERNEL_ERROR_MAX, "no index was found to be out of range");
	return status == (strays ? KILN_EINDEX : KILN_OK);
}

/* Runs the case once: what the operands hold afterwards comes to after, or again. */
static int run_once(struct ops_device *on, const struct item *item, struct device_module *module,
					struct place *places, bool again)
{
	char error[KERNEL_ERROR_MAX] = "";
	int count = item->c.operand_count, bad = 0;

	for (int i = 0; i < count && !bad; i++) {
		struct place *place = &places[i];
		if (!place->memory)
			continue;
		if (again && item->c.operand[i].output)
			memset(place->before, CASES_KEPT, place->bytes);
		bad = move(on, item, place, place->before, true, error);
	}
	if (bad || !ends_well(item, launch(on, item, module, places, error), error))
		return fail(item, "launch", error);
	for (int i = 0; i < count && !bad; i++)
		if (places[i].memory)
			bad =
				move(on, item, &places[i], again ? places[i].again : places[i].after, false, error);
	return bad ? fail(item, "reading back", error) : 0;
}

/* Bytes outside the results that are not as before. */
static int check_untouched(const struct item *item, const struct place *places, bool again)
{
	char text[96];

	for (int i = 0; i < item->c.operand_count; i++) {
		const struct place *place = &places[i];
		const struct cases_operand *o = &item->c.operand[i];
		const unsigned char *seen = again ? place->again : place->after;
		uint64_t end = place->begin + cases_bytes(o);
		for (uint64_t at = 0; at < place->bytes; at++) {
			if (o->output && at == place->begin)
				at = end;
			if (seen[at] == place->before[at])
				continue;
			snprintf(text, sizeof(text), "byte %lld of operand %d, which has %llu, was written",
					 (long long)at - (long long)place->begin, i,
					 (unsigned long long)(end - place->begin));
			return fail(item, o->output ? "edges" : "inputs", text);
		}
	}
	return 0;
}

static int check_right(struct item *item, const struct place *places)
{
	const struct cases_case *c = &item->c;
	const void *memory[CASES_MAX_OPERANDS] = {NULL};
	struct cases_verdict verdict = {0};
	char text[160];

	for (int i = 0; i < c->operand_count; i++)
		if (places[i].memory)
			memory[i] = places[i].after + places[i].begin;
	cases_judge(c, memory, 0, c->op->units(c), &verdict);
	if (!verdict.wrong)
		return 0;
	snprintf(text, sizeof(text), "element %lld of operand %d is %.9g, not %.9g (+- %.3g)",
			 (long long)verdict.element, verdict.operand, verdict.got, verdict.expected,
			 verdict.allowed);
	return fail(item, "result", text);
}

static int check_again(const struct item *item, const struct place *places)
{
	const struct cases_case *c = &item->c;
	char text[160];

	for (int i = 0; i < c->operand_count; i++) {
		uint64_t bytes = cases_bytes(&c->operand[i]), begin = places[i].begin;
		for (uint64_t at = begin; c->operand[i].output && at < begin + bytes; at++) {
			if (places[i].after[at] == places[i].again[at])
				continue;
			snprintf(text, sizeof(text), "element %llu of operand %d is not the same again",
					 (unsigned long long)((at - begin) / cases_element(&c->operand[i])), i);
			return fail(item, "repetition", text);
		}
	}
	return 0;
}

/* Judges what the operands hold after a case has run: 0, or 1 after a message. */
typedef int ops_judge(struct item *item, const struct place *places);

static int run_case(struct ops_device *on, struct item *item, struct device_module *module,
					ops_judge *judge)
{
	struct place places[CASES_MAX_OPERANDS] = {0};
	int bad = 0;

	for (int i = 0; i < item->c.operand_count && !bad; i++)
		if (item->c.operand[i].dtype != KILN_DTYPE_NONE &&
			!place_open(on, &item->c.operand[i], 7 + (uint64_t)i, &places[i]))
			bad = fail(item, "memory", "there is none");
	if (!bad)
		bad = run_once(on, item, module, places, false) || check_untouched(item, places, false);
	if (!bad)
		bad = run_once(on, item, module, places, true) || check_untouched(item, places, true);
	if (!bad)
		bad = judge(item, places) || check_again(item, places);
	for (int i = 0; i < item->c.operand_count; i++)
		place_close(on, &places[i]);
	return bad;
}

#endif
