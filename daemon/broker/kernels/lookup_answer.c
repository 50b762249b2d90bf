/* lookup_answer.c: answers waits, and counts them. */
#include "lookup.h"

#include <stdlib.h>
#include <string.h>

#include "failed_keys.h"
#include "freeze.h"
#include "raw.h"
#include "daemon/broker/requests/session.h"
#include "daemon/base/list.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"

struct tally *job_tally(struct broker *broker, struct kernel_ref *ref)
{
	if (!ref->tally)
		ref->tally = operator_tally(&broker->operators, ref->plan.op);
	return ref->tally;
}

/* The manifest names a user's kernel by its key: the cache keeps its source. */
static void note_usage(struct broker *broker, const struct kernel_ref *ref,
					   const struct job_answer *answer)
{
	char line[sizeof "kernel " + KERNEL_KEY_HEX], label[160];
	if (ref->manifest) {
		usage_log_note(&broker->usage_log, ref->manifest, ref->target, NULL);
	} else if (ref->raw && answer->status == KILN_OK) {
		snprintf(line, sizeof(line), "kernel %s", ref->key);
		usage_log_note(&broker->usage_log, line, ref->target, raw_label(&ref->plan, label));
	}
}

/* Logs which kernel a request got, why this one, and where it was.  Leaves out the names that a
 * client gave. */
static void log_answer(const struct kernel_ref *ref, const struct session *asker,
					   const struct job_answer *answer)
{
	const struct kernel_plan *plan = &ref->plan;
	const char *place = job_origin_names[answer->origin];
	char what[512];
	if (answer->status == KILN_EFROZEN)
		place = "refused";
	else if (answer->status != KILN_OK)
		place = answer->remembered ? "failed before" : "failed";
	else if (answer->origin == JOB_HIT)
		place = !answer->row || answer->row->kept ? "in memory" : "on disk";
	if (ref->raw)
		snprintf(what, sizeof(what), "a kernel of its own for %s", ref->target);
	else
		snprintf(what, sizeof(what), "%s for %s: %s%s%s", plan->op, ref->target,
				 plan->choice[0] ? plan->choice : plan->variant, plan->note[0] ? ", " : "",
				 plan->note);
	util_debug("session %llu: %s, key %.12s: %s after %.1f ms%s%s", (unsigned long long)asker->id,
			   what, ref->key, place, (double)answer->micros / 1e3,
			   answer->status != KILN_OK ? ": " : "",
			   answer->status != KILN_OK ? util_status_name(answer->status) : "");
}

/* Adds how long a kernel was waited for, where that took any time. */
static void trace_answer(const struct kernel_ref *ref, const struct session *asker,
						 const struct job_answer *answer)
{
	struct trace *trace = asker->broker->trace;
	const uint64_t end = trace_now_ns();
	trace_add(trace, session_track(asker, ~trace->spans),
			  &(struct trace_span){.name = ref->raw ? "kernel of its own" : ref->plan.op,
								   .begin_ns = end - (uint64_t)answer->micros * 1000,
								   .end_ns = end,
								   .flow = trace_flow(ref->key),
								   .about = answer->status == KILN_OK
												? job_origin_names[answer->origin]
												: util_status_name(answer->status)});
}

/* Raises all counters of a request at once, so that the identities between counters hold whenever a
 * message is handled. */
static void count_answer(struct broker *broker, struct kernel_ref *ref, struct session *asker,
						 const struct job_answer *answer)
{
	struct counters *counters = &broker->counters;
	struct tally *of_session = &asker->tally;
	struct tally *of_operator = job_tally(broker, ref);
	uint64_t micros = (uint64_t)answer->micros;
	bool compiled = answer->origin == JOB_COMPILED;
#define COUNT(name) (counters->name++, of_session->name++, of_operator->name++)
#define NOTE(name) \
	(histogram_note(&of_session->name, micros), histogram_note(&of_operator->name, micros))
	if (util_log_level >= UTIL_DEBUG)
		log_answer(ref, asker, answer);
	if (trace_shows(broker->trace, asker->id))
		trace_answer(ref, asker, answer);
	COUNT(requests);
	if (answer->status == KILN_EFROZEN)
		COUNT(frozen);
	else if (answer->status != KILN_OK && answer->remembered)
		COUNT(remembered);
	else if (answer->status != KILN_OK)
		COUNT(failures);
	else if (answer->origin == JOB_GENERIC)
		COUNT(generic);
	else if (answer->origin == JOB_SHARED)
		COUNT(shared);
	else if (compiled)
		COUNT(compiles), NOTE(compile);
	else if (answer->origin == JOB_REMOTE)
		counters->hits++, COUNT(remote_hits), NOTE(remote_hit);
	else if (!answer->row || answer->row->kept)
		counters->hits++, COUNT(memory_hits), NOTE(memory_hit);
	else
		counters->hits++, COUNT(disk_hits), NOTE(disk_hit);
#undef COUNT
#undef NOTE
}

void job_count_resident(struct broker *broker, struct kernel_ref *ref, struct session *asker,
						enum job_origin origin, uint64_t micros)
{
	const struct job_answer answer = {.origin = origin, .micros = (int64_t)micros};
	broker->counters.asked++;
	count_answer(broker, ref, asker, &answer);
	note_usage(broker, ref, &answer);
}

void wait_link(struct job_wait *wait, struct lookup *lookup)
{
	wait->lookup = lookup;
	wait->state = WAIT_LOOKUP;
	if (wait->terms.asker)
		trace_ask(wait->broker->trace, wait->terms.asker->id, lookup->key);
	QUEUE_APPEND(lookup->waits, lookup->last_wait, wait);
}

void wait_unlink(struct job_wait *wait)
{
	struct lookup *lookup = wait->lookup;
	turns_leave(&wait->place);
	QUEUE_REMOVE(lookup->waits, lookup->last_wait, wait);
}

void wait_forget(struct job_wait *wait)
{
	if (wait->all_previous)
		wait->all_previous->all_next = wait->all_next;
	else
		wait->broker->waits = wait->all_next;
	if (wait->all_next)
		wait->all_next->all_previous = wait->all_previous;
}

void wait_free(struct job_wait *wait)
{
	kernel_drop(wait->ref);
	free(wait);
}

bool wait_is_counted(const struct job_wait *wait)
{
	enum job_purpose purpose = wait->terms.purpose;
	return wait->terms.asker && (purpose == JOB_CALL || purpose == JOB_WARM);
}

/* Divides the time of a wait among the steps of its lookup, which may have begun before it. */
static void divide_time(const struct job_wait *wait, struct job_answer *answer)
{
	const struct lookup *lookup = wait->lookup;
	const uint64_t now = util_now_us(), asked = wait->asked_us;
	answer->micros = (int64_t)(now - asked);
	if (!lookup)
		return;
	const uint64_t remote = lookup->remote_us > asked ? lookup->remote_us : asked;
	const uint64_t missed = lookup->missed_us > asked ? lookup->missed_us : asked;
	if (lookup->missed_us)
		answer->compile_us = now - missed;
	if (lookup->remote_us)
		answer->remote_us = (lookup->missed_us ? missed : now) - remote;
}

void job_answer_note(const struct job_answer *answer, struct recent_parts *parts)
{
	parts->us[RECENT_REMOTE] += answer->remote_us;
	parts->us[RECENT_COMPILE] += answer->compile_us;
	parts->us[RECENT_LOOK] += (uint64_t)answer->micros - answer->remote_us - answer->compile_us;
	if (answer->status == KILN_OK)
		parts->origin = job_origin_names[answer->origin];
}

void wait_answer(struct job_wait *wait, struct job_answer *answer)
{
	struct broker *broker = wait->broker;
	divide_time(wait, answer);
	struct session *asker = wait->terms.asker;
	bool counted = wait_is_counted(wait);
	/* A wait that only looks counts as a request if, and only if, it finds the kernel. */
	bool found = asker && wait->terms.purpose == JOB_LOOK && answer->status == KILN_OK;
	broker->counters.asked += found;
	broker->waiting -= counted;
	if (counted || found) {
		count_answer(broker, wait->ref, asker, answer);
		if (wait->terms.purpose != JOB_WARM)
			note_usage(broker, wait->ref, answer);
	}
	if (answer->status == KILN_OK)
		raw_let_go(wait->ref);
	wait->done(wait->arg, answer);
	wait_forget(wait);
	wait_free(wait);
}

void wait_fail(struct job_wait *wait, int status, const char *error)
{
	struct job_answer answer = {.status = status, .error = error, .log = ""};
	wait_answer(wait, &answer);
}

void lookup_finish(struct lookup *lookup, int status, enum job_origin origin, const char *error,
				   const char *log)
{
	struct job_wait *wait;
	lookup->state = LOOKUP_ANSWERING;
	lookup->origin = origin;
	lookup_assert_valid(lookup);
	while ((wait = lookup->waits)) {
		struct job_answer answer = {
			.status = status,
			.origin = origin == JOB_COMPILED && !wait->first ? JOB_SHARED : origin,
			.row = status == KILN_OK || lookup->purpose == JOB_VERIFY ? &lookup->row : NULL,
			.remembered = lookup->failure.status != KILN_OK,
			.error = error,
			.log = log,
		};
		wait_unlink(wait);
		wait_answer(wait, &answer);
	}
}

void lookup_choose_owner(struct lookup *lookup)
{
	struct job_wait *owner = NULL;
	for (struct job_wait *wait = lookup->waits; wait && !owner; wait = wait->next)
		if (wait->terms.asker)
			owner = wait;
	if (owner)
		owner->first = true;
}

void wait_refuse(struct job_wait *wait)
{
	char error[JOB_ERROR_MAX];
	char *log = freeze_sentence(wait->ref, &wait->terms, error);
	struct job_answer answer = {.status = KILN_EFROZEN, .error = error, .log = log ? log : ""};
	wait_answer(wait, &answer);
	free(log);
}

void lookup_refuse_frozen(struct lookup *lookup)
{
	struct job_wait *wait = lookup->waits;
	while (wait) {
		if (!freeze_refuses(&wait->terms)) {
			wait = wait->next;
			continue;
		}
		wait_unlink(wait);
		wait_refuse(wait);
		/* The callback may have made other waits leave. */
		wait = lookup->waits;
	}
	lookup_choose_owner(lookup);
}

void lookup_answer_lookers(struct lookup *lookup)
{
	struct job_wait *wait = lookup->waits;
	while (wait)
		if (wait->terms.purpose == JOB_LOOK) {
			wait_unlink(wait);
			wait_fail(wait, KILN_ENOENT, "the cache has no such kernel");
			wait = lookup->waits; /* the callback may have made others leave */
		} else {
			wait = wait->next;
		}
}
