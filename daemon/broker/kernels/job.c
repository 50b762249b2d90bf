/* job.c: waits: how a request for a kernel gets its key, and joins the lookup of that key. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lookup.h"
#include "freeze.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"

const char *const job_step_names[] = {"lookup", "remote", "queued", "compiling"};
const char *const job_origin_names[] = {"hit", "shared", "compiled", "generic", "remote"};

/* ---- Keys ---- */

static const struct compile_toolchain *toolchain_for(struct broker *broker, const char *target)
{
	const struct compile_toolchains *toolchains = pool_toolchains(broker);
	return !strcmp(target, "cpu") ? &toolchains->host : &toolchains->nvrtc;
}

const char *job_compiler(struct broker *broker, const char *target)
{
	return toolchain_for(broker, target)->id;
}

/* Compilers may change while the broker runs; sources do not. */
static bool has_key(const struct kernel_ref *ref, const char *compiler)
{
	return ref->key[0] && ref->key_text && !strcmp(ref->compiler, compiler);
}

void job_set_key(struct kernel_ref *ref, const struct compile_key *key, const char *compiler)
{
	memcpy(ref->key, key->hex, sizeof(ref->key));
	free(ref->key_text);
	ref->key_text = key->text;
	snprintf(ref->compiler, sizeof(ref->compiler), "%s", compiler);
}

static int make_key(const struct kernel_ref *ref, const char *compiler, struct compile_key *key)
{
	return ref->unit ? compile_key_again(ref->unit->key_text, ref->target, compiler, key)
					 : compile_key_make(&ref->job, compiler, key);
}

static void key_by(struct kernel_ref *ref, const char *compiler)
{
	struct compile_key key = {0};
	if (has_key(ref, compiler))
		return;
	ref->key[0] = 0;
	if (compiler[0] && make_key(ref, compiler, &key) == KILN_OK)
		job_set_key(ref, &key, compiler);
}

void job_key(struct broker *broker, struct kernel_ref *ref)
{
	key_by(ref, job_compiler(broker, ref->target));
}

/* ---- Joining a lookup ---- */

static void wait_assert_valid(const struct job_wait *wait)
{
	assert((wait->state == WAIT_LATER) == (wait->timer != NULL));
	assert((wait->state == WAIT_LOOKUP) == (wait->lookup != NULL));
	assert(wait->state == WAIT_LOOKUP || (!wait->previous && !wait->next));
	assert(wait->ref->holders > 0);
	(void)wait; /* without asserts nothing uses it */
}

/* Says whether a compile is under way, here or on another host. */
static bool is_compiled(const struct lookup *lookup)
{
	return lookup->state == LOOKUP_COMPILING ||
		   (lookup->state == LOOKUP_REMOTE && remote_is_waiting(lookup->fetch));
}

static void join(struct job_wait *wait, struct lookup *lookup)
{
	wait_link(wait, lookup);
	lookup_choose_owner(lookup);
}

/* The ref has a key. */
static void job_enter(struct job_wait *wait)
{
	struct broker *broker = wait->broker;
	bool beside = is_beside(wait->terms.purpose);
	struct cache_row row;
	struct lookup *lookup =
		beside ? NULL : map_get(&broker->lookups_by_key, wait->ref->key, KERNEL_KEY_HEX - 1);
	if (lookup && is_compiled(lookup) && wait->terms.purpose == JOB_LOOK) {
		wait_fail(wait, KILN_ENOENT, "the cache has no such kernel yet");
		return;
	}
	if (lookup && is_compiled(lookup) && freeze_refuses(&wait->terms)) {
		wait_refuse(wait);
		return;
	}
	if (lookup) {
		join(wait, lookup);
		lookup_join(wait);
	} else if (!beside && lookup_take(broker, wait->ref->key, &row)) {
		lookup_answer_kept(wait, &row);
	} else if ((lookup = lookup_open(wait))) {
		join(wait, lookup);
		if (lookup->purpose == JOB_VERIFY)
			lookup_compile(lookup);
	} else {
		wait_fail(wait, KILN_ENOMEM, "out of memory for a compile job");
	}
}

static void key_work(struct cache *cache, void *arg)
{
	struct job_wait *wait = arg;
	(void)cache;
	make_key(wait->ref, wait->compiler, &wait->key);
}

static void key_done(struct broker *broker, void *arg)
{
	struct job_wait *wait = arg;
	struct kernel_ref *ref = wait->ref;
	(void)broker;
	if (wait->key.text && !has_key(ref, wait->compiler))
		job_set_key(ref, &wait->key, wait->compiler);
	else
		compile_key_free(&wait->key);
	/* A tier gives its ref a key without the text; the thread has made that. */
	if (wait->state == WAIT_LEFT)
		wait_free(wait);
	else if (ref->key[0] && ref->key_text)
		job_enter(wait);
	else
		wait_fail(wait, KILN_ENOMEM, "out of memory for a key");
}

static void on_compiler(void *arg, const struct compile_toolchain *toolchain, const char *error)
{
	struct job_wait *wait = arg;
	struct kernel_ref *ref = wait->ref;
	char why[KERNEL_ERROR_MAX];
	if (!error && wait->terms.purpose == JOB_VERIFY &&
		strcmp(toolchain->id, ref->unit->again.toolchain) != 0) {
		util_fail(why, sizeof(why), 0, "it was made by %.100s, and here is %.200s",
				  ref->unit->again.toolchain, toolchain->id[0] ? toolchain->id : toolchain->reason);
		wait_fail(wait, KILN_ENOTSUP, why);
		return;
	}
	if (error || !toolchain->id[0]) {
		bool may_pass = error && !wait->terms.compiler;
		wait_fail(wait, may_pass ? KILN_EIO : KILN_ENOTSUP, error ? error : toolchain->reason);
		return;
	}
	/* A worker thread makes keys that no session waits for, for hashing all sources takes time; and
	 * those of users' kernels, whose sources are as long as a user likes. */
	if ((!wait->terms.asker || ref->raw) && !has_key(ref, toolchain->id)) {
		snprintf(wait->compiler, sizeof(wait->compiler), "%s", toolchain->id);
		if (store_aside(wait->broker, session_turn(wait->terms.asker), key_work, key_done, wait) ==
			KILN_OK) {
			wait->state = WAIT_KEY;
			return;
		}
	}
	key_by(ref, toolchain->id);
	if (ref->key[0])
		job_enter(wait);
	else
		wait_fail(wait, KILN_ENOMEM, "out of memory for a key");
}

static void on_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct job_wait *wait = arg;
	(void)toolchains;
	on_compiler(wait, toolchain_for(wait->broker, wait->ref->target), error);
}

static void on_job_closed(uv_handle_t *handle)
{
	free(handle);
}

/* True while a job takes its first step. */
static bool stepping;

static void on_job_timer(uv_timer_t *timer)
{
	struct job_wait *wait = timer->data;
	wait->timer = NULL;
	wait->state = WAIT_COMPILERS;
	uv_close((uv_handle_t *)timer, on_job_closed);
	stepping = true;
	if (wait->terms.compiler)
		alt_compiler_ask(wait->terms.compiler, on_compiler, wait);
	else
		pool_when_known(wait->broker, on_known, wait);
	stepping = false;
}

static struct job_wait *open_wait(struct broker *broker, struct kernel_ref *ref,
								  const struct job_terms *terms, job_done done, void *arg)
{
	struct job_wait *wait = malloc(sizeof(*wait));
	if (!wait)
		return NULL;
	*wait = (struct job_wait){.broker = broker,
							  .ref = kernel_hold(ref),
							  .terms = *terms,
							  .done = done,
							  .arg = arg,
							  .asked_us = util_now_us(),
							  .all_next = broker->waits};
	if (broker->waits)
		broker->waits->all_previous = wait;
	broker->waits = wait;
	if (wait_is_counted(wait)) {
		broker->counters.asked++;
		broker->waiting++;
	}
	return wait;
}

bool job_resolve_kept(struct broker *broker, struct kernel_ref *ref, const struct job_terms *terms,
					  job_done done, void *arg)
{
	const char *compiler = job_compiler(broker, ref->target);
	struct cache_row row;
	/* A thread makes the key of a user's kernel. */
	if (!compiler[0] || (ref->raw && !has_key(ref, compiler)))
		return false;
	key_by(ref, compiler);
	if (!ref->key[0] || map_get(&broker->lookups_by_key, ref->key, KERNEL_KEY_HEX - 1) ||
		!lookup_take(broker, ref->key, &row))
		return false;
	struct job_wait *wait = open_wait(broker, ref, terms, done, arg);
	if (wait)
		lookup_answer_kept(wait, &row);
	else
		cache_row_free(&row);
	return wait != NULL;
}

struct job_wait *job_resolve(struct broker *broker, struct kernel_ref *ref,
							 const struct job_terms *terms, job_done done, void *arg)
{
	uv_timer_t *timer = malloc(sizeof(*timer));
	struct job_wait *wait = timer ? open_wait(broker, ref, terms, done, arg) : NULL;
	if (!wait) {
		free(timer);
		return NULL;
	}
	/* No answer may come from inside this function: the loop takes the first step.  A job that
	 * another one's step asks for waits for the loop's next turn: a work whose device process is
	 * gone asks again and again, and the loop hears of that between two turns only. */
	wait->timer = timer;
	timer->data = wait;
	uv_timer_init(&broker->loop, timer);
	uv_timer_start(timer, on_job_timer, stepping ? PAUSE_JOB_AGAIN_MS : 0, 0);
	return wait;
}

struct job_terms job_terms_of(struct session *session)
{
	return (struct job_terms){
		.asker = session,
		.priority = session->background ? POOL_BACKGROUND : POOL_INTERACTIVE,
		.on_miss = session->on_miss,
		.device = session->device ? &session->device->info : NULL,
	};
}

/* Adds the load to the trace, and how long it waited in the device process until nothing ran.  A
 * load that this one joined may have waited for longer. */
static void trace_load(struct session *session, const struct kernel_ref *ref, uint64_t began_us,
					   uint64_t ended_us, const struct wire_in *reply)
{
	struct trace *trace = session->broker->trace;
	const uint64_t track = session_track(session, ~trace->spans);
	int64_t quiet[2];
	trace_add(trace, track,
			  &(struct trace_span){.name = "load",
								   .begin_ns = began_us * 1000,
								   .end_ns = ended_us * 1000,
								   .flow = trace_flow(ref->key)});
	if (wire_get_ints(&reply->root, "quiet", quiet, 2) != 2)
		return;
	const uint64_t begin_us = (uint64_t)quiet[0] > began_us ? (uint64_t)quiet[0] : began_us;
	if (quiet[0] > 0 && (uint64_t)quiet[1] > begin_us && (uint64_t)quiet[1] <= ended_us)
		trace_add(trace, track,
				  &(struct trace_span){.name = "quiet point",
									   .begin_ns = begin_us * 1000,
									   .end_ns = (uint64_t)quiet[1] * 1000,
									   .depth = 1});
}

void job_note_load(struct session *session, struct kernel_ref *ref, uint64_t began_us,
				   const struct wire_in *reply)
{
	uint64_t now_us = util_now_us(), micros = now_us - began_us;
	if (trace_shows(session->broker->trace, session->id))
		trace_load(session, ref, began_us, now_us, reply);
	histogram_note(&session->tally.load, micros);
	histogram_note(&job_tally(session->broker, ref)->load, micros);
}

void job_leave(struct broker *broker, struct job_wait *wait)
{
	struct lookup *lookup = wait->lookup;
	wait_assert_valid(wait);
	if (wait_is_counted(wait)) {
		broker->counters.left++;
		broker->waiting--;
	}
	wait_forget(wait);
	switch (wait->state) {
	case WAIT_LATER:
		uv_close((uv_handle_t *)wait->timer, on_job_closed);
		break;
	case WAIT_COMPILERS:
		if (wait->terms.compiler)
			alt_compiler_cancel(wait->terms.compiler);
		else
			pool_forget(broker, wait);
		break;
	case WAIT_LOOKUP:
		wait_unlink(wait);
		lookup_choose_owner(lookup);
		break;
	default:
		wait->state = WAIT_LEFT;
		return;
	}
	wait_free(wait);
	if (lookup)
		lookup_cancel_if_unwanted(lookup);
}

static int count_waits(const struct lookup *lookup, uint64_t *owner)
{
	int count = 0;
	*owner = 0;
	for (const struct job_wait *wait = lookup->waits; wait; wait = wait->next) {
		count++;
		if (!*owner && wait->terms.asker)
			*owner = wait->terms.asker->id;
	}
	return count;
}

void job_each(const struct broker *broker, job_visit visit, void *arg)
{
	uint64_t now = util_now_us();
	for (const struct lookup *lookup = broker->lookups; lookup; lookup = lookup->next) {
		struct job_lookup seen = {
			.key = lookup->key,
			.op = lookup->ref->plan.op,
			.target = lookup->ref->target,
			.age_us = now - lookup->began_us,
		};
		if (lookup->state == LOOKUP_COMPILING)
			seen.step = lookup->alt || pool_running(broker, lookup->job) ? JOB_STEP_COMPILING
																		 : JOB_STEP_QUEUED;
		else if (lookup->state == LOOKUP_REMOTE)
			seen.step = JOB_STEP_REMOTE;
		seen.waiters = count_waits(lookup, &seen.owner);
		visit(arg, &seen);
	}
}

static void note_wait(const struct job_wait *wait, struct wait_note *note)
{
	const struct lookup *lookup = wait->lookup;
	memcpy(note->key, wait->ref->key, sizeof(note->key));
	if (wait->terms.compiler && alt_compiler_note(wait->terms.compiler, note))
		return;
	if (lookup && lookup->fetch) {
		remote_note(lookup->fetch, note);
	} else if (lookup && lookup->job) {
		pool_note(wait->broker, lookup->job, note);
	} else if (lookup || wait->state == WAIT_KEY) {
		note->what = note->of = "store";
		waits_say(note, lookup ? "the cache to be looked into" : "its key");
	} else {
		note->what = "compilers";
		note->of = "compiler";
		waits_say(note, "the first compiler worker, which says what compilers are here");
	}
}

void job_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	for (const struct job_wait *wait = broker->waits; wait; wait = wait->all_next) {
		struct wait_note note = {.owner = wait->arg,
								 .alone = !wait->terms.asker,
								 .since_us = wait->asked_us,
								 .left_ms = WAITS_NO_DEADLINE};
		note_wait(wait, &note);
		visit(arg, &note);
	}
}

struct distrusted {
	char key[KERNEL_KEY_HEX], error[KERNEL_ERROR_MAX];
};

static void distrust_work(struct cache *cache, void *arg)
{
	struct distrusted *distrusted = arg;
	cache_remove(cache, distrusted->key, distrusted->error);
}

static void distrust_done(struct broker *broker, void *arg)
{
	broker->distrusted--;
	free(arg);
}

void job_distrust(struct broker *broker, const char *key, const char *why)
{
	struct distrusted *distrusted = calloc(1, sizeof(*distrusted));
	util_log(UTIL_WARN, "kernel %.12s leaves the cache, to be compiled again: %s", key, why);
	if (!distrusted)
		return;
	memcpy(distrusted->key, key, sizeof(distrusted->key));
	if (store_run(broker, distrust_work, distrust_done, distrusted) != KILN_OK)
		free(distrusted);
	else
		broker->distrusted++;
}

bool job_busy(const struct broker *broker)
{
	return broker->lookups != NULL;
}

void job_close(struct broker *broker)
{
	struct lookup *lookup = broker->lookups;
	while (lookup) {
		struct lookup *next = lookup->next;
		if (lookup->state == LOOKUP_REMOTE || lookup->state == LOOKUP_COMPILING)
			lookup_drop(lookup);
		lookup = next;
	}
}
