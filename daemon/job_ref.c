/*
 * job_ref.c: planned kernels, before anything is known of their keys: made from a problem or a
 * plan, held and let go.
 */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "line.h"
#include "plan/manifest.h"
#include "raw.h"
#include "tier/tier.h"
#include "util/util.h"
/* Of a ref with its plan. */
static int add_job(struct broker *broker, struct kernel_ref *ref,
				   const struct kernel_limits *limits, char error[KERNEL_ERROR_MAX])
{
	struct compile_job *job = &ref->job;
	job->source = ref->plan.source;
	job->instantiation = ref->plan.instantiation;
	memcpy(job->target, limits->target, sizeof job->target);
	job->check = broker->options.memcheck && !strcmp(limits->target, "cpu");
	job->files = ref->files;
	return compile_sources_of_plan(broker->sources, &ref->plan, limits->target, ref->files,
								   &job->file_count, error);
}

int job_open(struct broker *broker, const struct kernel_problem *problem,
			 const struct kernel_limits *limits, const char *model, struct kernel_ref **out,
			 char error[KERNEL_ERROR_MAX])
{
	char tuned[512], line[MANIFEST_LINE_MAX];
	struct kernel_ref *ref = calloc(1, sizeof *ref);
	if (!ref)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a plan");
	int status = tuned_plan(broker, problem, limits, model, &ref->plan, &ref->tuned, error);
	if (status == KILN_OK && ref->plan.kind == KERNEL_LAUNCH)
		status = add_job(broker, ref, limits, error);
	if (status != KILN_OK) {
		free(ref);
		return status;
	}
	ref->line = line_of_problem(problem);
	tuned_explain(&ref->tuned, tuned, sizeof tuned);
	kernel_ref_open(ref, limits, tuned);
	if (manifest_print(problem, line, sizeof line))
		ref->manifest = strdup(line);
	*out = ref;
	return KILN_OK;
}

int job_open_plan(struct broker *broker, const struct kernel_problem *problem,
				  const struct kernel_plan *plan, const struct kernel_limits *limits,
				  struct kernel_ref **out, char error[KERNEL_ERROR_MAX])
{
	struct kernel_ref *ref = calloc(1, sizeof *ref);
	if (!ref)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a plan");
	ref->plan = *plan;
	ref->line = problem ? line_of_problem(problem) : NULL;
	int status = add_job(broker, ref, limits, error);
	if (status != KILN_OK) {
		free(ref->line);
		free(ref);
		return status;
	}
	kernel_ref_open(ref, limits, "");
	*out = ref;
	return KILN_OK;
}

void kernel_ref_open(struct kernel_ref *ref, const struct kernel_limits *limits, const char *more)
{
	char text[2048 + 2048];
	memcpy(ref->target, limits->target, sizeof ref->target);
	plan_explain(&ref->plan, limits, text, 2048);
	util_append(text, sizeof text, strlen(text), "%s", more);
	ref->explain = util_strdup(text);
	ref->holders = 1;
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
	tier_close(ref->tier);
	free(ref->explain);
	free(ref->line);
	free(ref->manifest);
	free(ref->key_text);
	raw_source_free(ref->raw);
	free(ref);
}
