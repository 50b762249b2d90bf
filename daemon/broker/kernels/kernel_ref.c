/*
 * kernel_ref.c: makes planned kernels of problems and plans, holds them and frees them.  Keys come
 * later, in job.c.
 */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/plan/manifest.h"
#include "daemon/plan/plan.h"
#include "raw.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"

/* Lists the files of a ref's plan in its compile job. */
static int add_job(struct broker *broker, struct kernel_ref *ref, char error[KERNEL_ERROR_MAX])
{
	struct compile_file files[COMPILE_MAX_HEADERS];
	struct compile_job *job = &ref->job;
	int status = compile_sources_of_plan(broker->sources, &ref->plan, ref->target, files,
										 &job->file_count, error);
	if (status != KILN_OK)
		return status;
	size_t bytes = (size_t)job->file_count * sizeof(*files);
	ref->files = malloc(bytes);
	if (!ref->files)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a plan");
	memcpy(ref->files, files, bytes);
	job->files = ref->files;
	job->check = broker->options.memcheck && !strcmp(ref->target, "cpu");
	return KILN_OK;
}

struct kernel_ref *kernel_new(const struct kernel_plan *plan, const struct kernel_limits *limits)
{
	size_t bytes = kernel_plan_bytes(plan);
	struct kernel_ref *ref = malloc(offsetof(struct kernel_ref, plan) + bytes);
	if (!ref)
		return NULL;
	memset(ref, 0, offsetof(struct kernel_ref, plan));
	memcpy(&ref->plan, plan, bytes);
	memcpy(ref->target, limits->target, sizeof(ref->target));
	memcpy(ref->job.target, limits->target, sizeof(ref->job.target));
	ref->job.source = ref->plan.source;
	ref->job.instantiation = ref->plan.instantiation;
	ref->limits = *limits;
	ref->holders = 1;
	return ref;
}

int job_open_plan(struct broker *broker, const struct kernel_plan *plan,
				  const struct kernel_limits *limits, struct kernel_ref **out,
				  char error[KERNEL_ERROR_MAX])
{
	struct kernel_ref *ref = kernel_new(plan, limits);
	if (!ref)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a plan");
	int status = plan->kind == KERNEL_LAUNCH ? add_job(broker, ref, error) : KILN_OK;
	if (status == KILN_OK)
		*out = ref;
	else
		kernel_drop(ref);
	return status;
}

static char *print_manifest(const struct kernel_problem *problem)
{
	char line[MANIFEST_LINE_MAX];
	return manifest_print(problem, line, sizeof(line)) ? strdup(line) : NULL;
}

int job_open_generic(struct broker *broker, const struct kernel_problem *problem,
					 const struct kernel_plan *plan, const struct kernel_limits *limits,
					 struct kernel_ref **out, char error[KERNEL_ERROR_MAX])
{
	int status = job_open_plan(broker, plan, limits, out, error);
	if (status == KILN_OK)
		(*out)->manifest = print_manifest(problem);
	return status;
}

int job_open_exact(struct broker *broker, const struct kernel_problem *problem,
				   const struct kernel_limits *limits, const char *model, struct kernel_plan *plan,
				   struct kernel_ref **out, char error[KERNEL_ERROR_MAX])
{
	struct tuned_note note;
	tuned_plan(broker, problem, limits, model, plan, &note);
	int status = job_open_plan(broker, plan, limits, out, error);
	if (status == KILN_OK && note.row.signature[0] && ((*out)->tuned = malloc(sizeof(note))))
		*(*out)->tuned = note;
	return status;
}

void job_note_plan(struct broker *broker, uint64_t began_ns, const char *op)
{
	broker->planned_us += (trace_now_ns() - began_ns) / 1000;
	if (trace_shows(broker->trace, broker->serving))
		trace_add(broker->trace, trace_track(broker->trace, 0, TRACK_LOOP, "loop"),
				  &(struct trace_span){
					  .name = "plan", .begin_ns = began_ns, .end_ns = trace_now_ns(), .about = op});
}

int job_open(struct broker *broker, const struct kernel_problem *problem,
			 const struct kernel_limits *limits, const char *model, struct kernel_ref **out,
			 char error[KERNEL_ERROR_MAX])
{
	struct kernel_plan plan;
	const uint64_t began_ns = trace_now_ns();
	int status = plan_problem(problem, limits, &plan, error);
	if (status == KILN_OK)
		status = job_open_exact(broker, problem, limits, model, &plan, out, error);
	job_note_plan(broker, began_ns, problem->op);
	if (status == KILN_OK)
		(*out)->manifest = print_manifest(problem);
	return status;
}

int job_open_row(struct cache_row *row, const char *target, struct kernel_ref **out,
				 char error[KERNEL_ERROR_MAX])
{
	struct kernel_plan plan = {.kind = KERNEL_LAUNCH};
	struct kernel_limits limits = {{0}};
	memcpy(plan.op, row->op, sizeof(plan.op));
	snprintf(plan.instantiation, sizeof(plan.instantiation), "%s", row->instantiation);
	snprintf(limits.target, sizeof(limits.target), "%s", target);
	struct kernel_ref *ref = kernel_new(&plan, &limits);
	struct kernel_unit *unit = ref ? calloc(1, sizeof(*unit)) : NULL;
	if (!unit) {
		kernel_drop(ref);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a kernel");
	}
	ref->unit = unit;
	ref->explain = row->plan;
	unit->key_text = row->key_text;
	unit->source = row->source;
	row->plan = row->key_text = row->source = NULL;
	int status = compile_again_open(unit->key_text, unit->source, &unit->again, error);
	if (status != KILN_OK) {
		kernel_drop(ref);
		return status;
	}
	ref->job = unit->again.job;
	memcpy(ref->job.target, ref->target, sizeof(ref->job.target));
	*out = ref;
	return KILN_OK;
}

const char *kernel_operand_name(const char *operands, int i, char name[24])
{
	if (operands[0] && i < plan_operand_count(operands))
		plan_operand_name(operands, i, name);
	else
		snprintf(name, 24, "operand %d", i);
	return name;
}

const char *kernel_text(struct kernel_ref *ref)
{
	char text[2048 + 2048], more[2048] = "";
	if (ref->explain)
		return ref->explain;
	if (ref->raw)
		raw_explain(ref, more, sizeof(more));
	else if (ref->tuned)
		tuned_explain(ref->tuned, more, sizeof(more));
	plan_explain(&ref->plan, &ref->limits, text, 2048);
	util_append(text, sizeof(text), strlen(text), "%s", more);
	ref->explain = strdup(text);
	return ref->explain ? ref->explain : "";
}

struct kernel_ref *kernel_hold(struct kernel_ref *ref)
{
	ref->holders++;
	return ref;
}

void kernel_drop(struct kernel_ref *ref)
{
	if (!ref || --ref->holders > 0)
		return;
	if (ref->tier)
		ref->close_tier(ref->tier);
	free(ref->tuned);
	free(ref->files);
	free(ref->explain);
	free(ref->line);
	free(ref->manifest);
	free(ref->key_text);
	raw_source_free(ref->raw);
	if (ref->unit) {
		compile_again_close(&ref->unit->again);
		free(ref->unit->key_text);
		free(ref->unit->source);
		free(ref->unit);
	}
	free(ref);
}

/* ---- For post-mortems ---- */

void kernel_describe(struct handle_about *about, const struct kernel_ref *kernel,
					 const struct kernel_ref *asked)
{
	memcpy(about->op, asked->plan.op, sizeof(about->op));
	memcpy(about->choice, kernel->plan.choice, sizeof(about->choice));
	memcpy(about->key, kernel->key, sizeof(about->key));
	for (int i = 0; i < 3; i++) {
		about->grid[i] = kernel->plan.grid[i];
		about->block[i] = kernel->plan.block[i];
	}
	/* A post-mortem quotes no user: neither a map's statement nor a kernel's macros and options. */
	char label[160];
	if (asked->raw)
		util_append(about->line, sizeof(about->line), 0, "%s", raw_label(&asked->plan, label));
	else if (asked->manifest && strcmp(asked->plan.op, "map") != 0)
		util_append(about->line, sizeof(about->line), 0, "%s", asked->manifest);
}
