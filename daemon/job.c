/* job.c: flights: one for each key that somebody wants and that is not there yet. */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "freeze.h"
#include "pool.h"
#include "raw.h"
#include "remote.h"
#include "session.h"
#include "store.h"
#include "tier.h"
#include "util/util.h"

const char *const job_origin_names[] = {"hit", "shared", "compiled", "generic", "remote"};

enum flight_phase { FLIGHT_LOOKUP, FLIGHT_REMOTE, FLIGHT_COMPILE };

struct job_wait {
	struct broker *broker;
	struct kernel_ref *ref;
	struct flight *flight;  /* NULL until the compilers are known */
	uv_timer_t *later;      /* an answer that is ready before it may be given */
	struct job_terms terms; /* without an asker it is not counted */
	struct keying *keying;  /* its key is being made on the store's thread */
	bool first;
	job_done done;
	void *arg;
	uint64_t asked_us;
	struct job_wait *next;
};

struct flight {
	struct broker *broker;
	struct kernel_ref *ref;
	enum flight_phase phase;
	struct remote_fetch *fetch; /* while another tier is asked */
	struct pool_job *job;
	struct job_wait *waits;
	bool finished; /* its waiters are being answered */
	uint64_t began_us;
	struct flight *next;
	/* Its own, for the store's thread reads them and the plan's may be made anew meanwhile. */
	char key[KERNEL_KEY_HEX];
	char *key_text;
	/* the lookup's answer, written by the store's thread */
	struct cache_row row;
	struct cache_failure failure; /* what is remembered instead of a row */
	int lookup_status;
	char error[KERNEL_ERROR_MAX];
};

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

/* Sources do not change while the broker runs, but compilers may. */
static bool has_key(const struct kernel_ref *ref, const char *compiler)
{
	return ref->key[0] && ref->key_text && !strcmp(ref->compiler, compiler);
}

static void set_key(struct kernel_ref *ref, const struct compile_key *key, const char *compiler)
{
	memcpy(ref->key, key->hex, sizeof ref->key);
	free(ref->key_text);
	ref->key_text = key->text;
	snprintf(ref->compiler, sizeof ref->compiler, "%s", compiler);
}

void job_key(struct broker *broker, struct kernel_ref *ref)
{
	const char *compiler = job_compiler(broker, ref->target);
	struct compile_key key = {0};
	if (has_key(ref, compiler))
		return;
	ref->key[0] = 0;
	if (compiler[0] && compile_key_make(&ref->job, compiler, &key) == KILN_OK)
		set_key(ref, &key, compiler);
}

/* ---- Answers ---- */

struct tally *job_tally(struct broker *broker, struct kernel_ref *ref)
{
	if (!ref->tally)
		ref->tally = operator_tally(&broker->operators, ref->plan.op);
	return ref->tally;
}

/* A user's kernel is found again by its key, as long as the cache has its source. */
static void record(struct broker *broker, const struct kernel_ref *ref,
				   const struct job_answer *answer)
{
	char line[sizeof "kernel " + KERNEL_KEY_HEX], label[160];
	if (ref->manifest) {
		record_note(&broker->record, ref->manifest, ref->target, NULL);
	} else if (ref->raw && answer->status == KILN_OK) {
		snprintf(line, sizeof line, "kernel %s", ref->key);
		record_note(&broker->record, line, ref->target, raw_label(&ref->plan, label));
	}
}

/* All that this request is counted as is counted at once, so that the equations hold between any
 * two messages. */
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
	else if (!answer->row || answer->row->in_memory)
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
	record(broker, ref, &answer);
}

static void answer_wait(struct job_wait *wait, struct job_answer *answer)
{
	struct broker *broker = wait->broker;
	answer->micros = (int64_t)(util_now_us() - wait->asked_us);
	struct session *asker = wait->terms.asker;
	bool found = answer->status == KILN_OK, look = wait->terms.look;
	/* Who only looked asked for nothing unless it is there. */
	broker->counters.asked += asker && look && found;
	broker->waiting -= asker && !look;
	if (asker && (!look || found)) {
		count_answer(broker, wait->ref, asker, answer);
		if (!wait->terms.unrecorded)
			record(broker, wait->ref, answer);
	}
	wait->done(wait->arg, answer);
	kernel_drop(wait->ref);
	free(wait);
}

static void answer_error(struct job_wait *wait, int status, const char *error)
{
	struct job_answer answer = {.status = status, .error = error, .log = ""};
	answer_wait(wait, &answer);
}

static void unlink_flight(struct flight *flight)
{
	struct flight **link = &flight->broker->flights;
	while (*link != flight)
		link = &(*link)->next;
	*link = flight->next;
}

static void free_flight(struct flight *flight)
{
	cache_row_free(&flight->row);
	cache_failure_free(&flight->failure);
	kernel_drop(flight->ref);
	free(flight->key_text);
	free(flight);
}

/* Answers all waiters; the flight is out of the list before, so that they may ask again. */
static void finish(struct flight *flight, int status, enum job_origin origin, const char *error,
				   const char *log)
{
	struct job_wait *wait;
	flight->finished = true;
	while ((wait = flight->waits)) {
		struct job_answer answer = {
			.status = status,
			.origin = origin == JOB_COMPILED && !wait->first ? JOB_SHARED : origin,
			.row = status == KILN_OK ? &flight->row : NULL,
			.remembered = flight->failure.status != KILN_OK,
			.error = error,
			.log = log,
		};
		flight->waits = wait->next;
		answer_wait(wait, &answer);
	}
}

static bool is_compiled(const struct flight *flight)
{
	return flight->phase == FLIGHT_COMPILE ||
		   (flight->phase == FLIGHT_REMOTE && remote_is_waiting(flight->fetch));
}

/* The owner of a compile is who came first of those that are counted and still wait. */
static void choose_owner(struct flight *flight)
{
	struct job_wait *owner = NULL;
	for (struct job_wait *wait = flight->waits; wait && !owner; wait = wait->next)
		if (wait->terms.asker)
			owner = wait;
	if (owner)
		owner->first = true;
}

static void answer_frozen(struct job_wait *wait)
{
	char error[JOB_ERROR_MAX];
	char *log = freeze_sentence(wait->ref, &wait->terms, error);
	struct job_answer answer = {.status = KILN_EFROZEN, .error = error, .log = log ? log : ""};
	answer_wait(wait, &answer);
	free(log);
}

/* Of a flight that has missed, those who may have nothing compiled. */
static void refuse_frozen(struct flight *flight)
{
	struct job_wait **link = &flight->waits;
	while (*link) {
		struct job_wait *wait = *link;
		if (!freeze_refuses(&wait->terms)) {
			link = &wait->next;
			continue;
		}
		*link = wait->next;
		answer_frozen(wait);
		/* What is called then may have changed the list. */
		link = &flight->waits;
	}
	choose_owner(flight);
}

/* Of those who stay, the first who wants to hear of it. */
static void warn_of(const struct flight *flight)
{
	const struct job_wait *wait = flight->waits;
	while (wait && wait->terms.on_miss != OPTIONS_MISS_WARN)
		wait = wait->next;
	if (wait)
		freeze_warn(wait->ref, &wait->terms);
}

/* ---- Compiling ---- */

static void put_work(struct cache *cache, void *arg)
{
	struct flight *flight = arg;
	flight->lookup_status = cache_put(cache, &flight->row, flight->error);
}

static void put_done(struct broker *broker, void *arg)
{
	struct flight *flight = arg;
	/* The kernel runs all the same; the next daemon will compile it again. */
	if (flight->lookup_status != KILN_OK)
		util_log(UTIL_WARN, "kernel %.12s is not kept on disk: %s", flight->key, flight->error);
	if (flight->phase == FLIGHT_COMPILE)
		remote_compiled(broker, &flight->row);
	free_flight(flight);
}

/* Its waiters were answered: the row goes to where the next will find it. */
static void keep_row(struct flight *flight)
{
	if (store_run(flight->broker, put_work, put_done, flight) == KILN_OK)
		return;
	remote_not_compiled(flight->broker, flight->key);
	free_flight(flight);
}

void job_take_result(struct cache_row *row, struct compile_result *result)
{
	row->entry = result->entry;
	row->source = result->source;
	row->log = result->log;
	row->object = result->object;
	row->object_bytes = result->object_bytes;
	row->registers = result->registers;
	row->shared_bytes = result->shared_bytes;
	row->spill_bytes = result->spill_bytes;
	row->local_bytes = result->local_bytes;
	row->compile_micros = result->micros;
	row->created = row->used = (int64_t)time(NULL);
	result->entry = result->source = result->log = NULL;
	result->object = NULL;
}

static void take_result(struct flight *flight, struct compile_result *result)
{
	struct cache_row *row = &flight->row;
	const struct kernel_ref *ref = flight->ref;
	memcpy(row->key, flight->key, sizeof row->key);
	memcpy(row->op, ref->plan.op, sizeof row->op);
	memcpy(row->target, ref->target, sizeof row->target);
	row->instantiation = util_strdup(ref->plan.instantiation);
	row->key_text = flight->key_text;
	flight->key_text = NULL;
	row->plan = util_strdup(ref->explain);
	tier_note_compile(flight->broker, ref->target, result->micros);
	job_take_result(row, result);
}

static void compiled(void *arg, struct compile_result *result)
{
	struct flight *flight = arg;
	struct broker *broker = flight->broker;
	flight->job = NULL;
	unlink_flight(flight);
	if (result->status != KILN_OK) {
		failure_keep(broker, flight->ref, flight->key, flight->key_text, result);
		remote_not_compiled(broker, flight->key);
		broker->counters.jobs_failed++;
		finish(flight, result->status, JOB_COMPILED, result->error, result->log ? result->log : "");
		free_flight(flight);
	} else {
		broker->counters.jobs_done++;
		take_result(flight, result);
		finish(flight, KILN_OK, JOB_COMPILED, NULL, NULL);
		keep_row(flight);
	}
	server_progress(broker);
}

/* Stops what is under way for it and forgets it; no lookup. */
static void drop_flight(struct flight *flight)
{
	struct broker *broker = flight->broker;
	if (flight->phase == FLIGHT_REMOTE) {
		broker->counters.lookups_left++;
		remote_leave(broker, flight->fetch);
	} else {
		broker->counters.canceled++;
		pool_cancel(broker, flight->job);
		remote_not_compiled(broker, flight->key);
	}
	unlink_flight(flight);
	free_flight(flight);
}

static void cancel_if_unwanted(struct flight *flight)
{
	struct broker *broker = flight->broker;
	/* A lookup under way comes back soon and finds nobody. */
	if (flight->waits || flight->finished || flight->phase == FLIGHT_LOOKUP)
		return;
	drop_flight(flight);
	server_progress(broker);
}

/* ---- Looking up ---- */

static void lookup_work(struct cache *cache, void *arg)
{
	struct flight *flight = arg;
	char error[KERNEL_ERROR_MAX];
	flight->lookup_status = cache_get(cache, flight->key, &flight->row, flight->error);
	if (flight->lookup_status == KILN_ENOENT)
		cache_failure_get(cache, flight->key, &flight->failure, error);
}

static void answer_remembered(struct flight *flight)
{
	const struct cache_failure *failure = &flight->failure;
	flight->broker->counters.lookup_failures++;
	unlink_flight(flight);
	finish(flight, failure->status, JOB_HIT, failure->error, failure->row.log);
	free_flight(flight);
}

/* That of whoever is in the greatest hurry. */
static enum pool_priority priority_of(const struct flight *flight)
{
	enum pool_priority priority = POOL_BACKGROUND;
	for (const struct job_wait *wait = flight->waits; wait; wait = wait->next)
		if (wait->terms.priority < priority)
			priority = wait->terms.priority;
	return priority;
}

/* Who only looks is answered now: that is not worth a compile, nor waiting for one. */
static void answer_lookers(struct flight *flight)
{
	struct job_wait **link = &flight->waits, *wait;
	while ((wait = *link))
		if (wait->terms.look) {
			*link = wait->next;
			answer_error(wait, KILN_ENOENT, "the cache has no such kernel");
			link = &flight->waits; /* it may have had others leave */
		} else {
			link = &wait->next;
		}
}

/* It is nowhere: whoever may have it compiled waits on. */
static void compile(struct flight *flight)
{
	struct broker *broker = flight->broker;
	/* Nothing is under way that who leaves now would stop. */
	flight->phase = FLIGHT_LOOKUP;
	answer_lookers(flight);
	uint64_t *left =
		flight->waits ? &broker->counters.lookups_frozen : &broker->counters.lookups_left;
	refuse_frozen(flight);
	if (!flight->waits) {
		(*left)++;
		remote_not_compiled(broker, flight->key);
		unlink_flight(flight);
		free_flight(flight);
		return;
	}
	warn_of(flight);
	flight->phase = FLIGHT_COMPILE;
	broker->counters.jobs++;
	flight->job = pool_submit(broker, &flight->ref->job, priority_of(flight), compiled, flight);
	if (flight->job)
		return;
	broker->counters.jobs_failed++;
	remote_not_compiled(broker, flight->key);
	unlink_flight(flight);
	finish(flight, KILN_ENOMEM, JOB_COMPILED, "out of memory for a compile job", "");
	free_flight(flight);
}

static void fetched(void *arg, struct cache_row *row)
{
	struct flight *flight = arg;
	struct broker *broker = flight->broker;
	flight->fetch = NULL;
	if (!row) {
		compile(flight);
		return;
	}
	flight->row = *row;
	*row = (struct cache_row){{0}};
	unlink_flight(flight);
	finish(flight, KILN_OK, JOB_REMOTE, NULL, NULL);
	keep_row(flight);
	server_progress(broker);
}

static bool may_compile(const struct flight *flight)
{
	const struct job_wait *wait = flight->waits;
	while (wait && (wait->terms.look || freeze_refuses(&wait->terms)))
		wait = wait->next;
	return wait != NULL;
}

static void lookup_done(struct broker *broker, void *arg)
{
	struct flight *flight = arg;
	/* A cache that cannot be read costs a compile, not the kernel. */
	if (flight->lookup_status != KILN_OK && flight->lookup_status != KILN_ENOENT)
		util_log(UTIL_WARN, "%s", flight->error);
	if (flight->failure.status != KILN_OK) {
		answer_remembered(flight);
		return;
	}
	if (flight->lookup_status == KILN_OK || !flight->waits) {
		*(flight->lookup_status == KILN_OK ? &broker->counters.lookup_hits
										   : &broker->counters.lookups_left) += 1;
		unlink_flight(flight);
		finish(flight, flight->lookup_status, JOB_HIT, flight->error, "");
		free_flight(flight);
		return;
	}
	flight->phase = FLIGHT_REMOTE;
	flight->fetch = remote_fetch(broker, flight->key, flight->ref->plan.op, flight->ref->target,
								 may_compile(flight), fetched, flight);
	if (!flight->fetch)
		compile(flight);
}

static struct flight *find_flight(struct broker *broker, const char *key)
{
	struct flight *flight = broker->flights;
	while (flight && strcmp(flight->key, key) != 0)
		flight = flight->next;
	return flight;
}

static void join(struct job_wait *wait, struct flight *flight)
{
	struct job_wait **link = &flight->waits;
	while (*link)
		link = &(*link)->next;
	wait->flight = flight;
	*link = wait;
	choose_owner(flight);
	if (flight->job && wait->terms.priority == POOL_INTERACTIVE)
		pool_raise(flight->broker, flight->job);
}

static struct flight *new_flight(struct broker *broker, struct kernel_ref *ref)
{
	struct flight *flight = calloc(1, sizeof *flight);
	if (!flight)
		return NULL;
	flight->broker = broker;
	flight->began_us = util_now_us();
	flight->ref = kernel_hold(ref);
	memcpy(flight->key, ref->key, sizeof flight->key);
	flight->key_text = strdup(ref->key_text);
	if (!flight->key_text || store_run(broker, lookup_work, lookup_done, flight) != KILN_OK) {
		free_flight(flight);
		return NULL;
	}
	broker->counters.lookups++;
	flight->next = broker->flights;
	broker->flights = flight;
	return flight;
}

/* The ref has a key. */
static void enter(struct job_wait *wait)
{
	struct broker *broker = wait->broker;
	struct flight *flight = find_flight(broker, wait->ref->key);
	/* A compile is under way, here or elsewhere: it would be waited for. */
	if (flight && is_compiled(flight) && wait->terms.look) {
		answer_error(wait, KILN_ENOENT, "the cache has no such kernel yet");
		return;
	}
	if (flight && is_compiled(flight) && freeze_refuses(&wait->terms)) {
		answer_frozen(wait);
		return;
	}
	if (!flight)
		flight = new_flight(broker, wait->ref);
	if (flight)
		join(wait, flight);
	else
		answer_error(wait, KILN_ENOMEM, "out of memory for a compile job");
}

/* For nobody who waits the key is made off the loop: that takes as long as reading all sources. */
struct keying {
	struct job_wait *wait; /* NULL: it has left */
	struct kernel_ref *ref;
	char compiler[96];
	struct compile_key key;
};

static void key_work(struct cache *cache, void *arg)
{
	struct keying *keying = arg;
	(void)cache;
	compile_key_make(&keying->ref->job, keying->compiler, &keying->key);
}

static void key_done(struct broker *broker, void *arg)
{
	struct keying *keying = arg;
	struct job_wait *wait = keying->wait;
	(void)broker;
	if (keying->key.text && !has_key(keying->ref, keying->compiler))
		set_key(keying->ref, &keying->key, keying->compiler);
	else
		compile_key_free(&keying->key);
	if (wait) {
		wait->keying = NULL;
		if (wait->ref->key[0])
			enter(wait);
		else
			answer_error(wait, KILN_ENOMEM, "out of memory for a key");
	}
	kernel_drop(keying->ref);
	free(keying);
}

static bool key_later(struct job_wait *wait, const char *compiler)
{
	struct keying *keying = calloc(1, sizeof *keying);
	if (!keying)
		return false;
	keying->wait = wait;
	keying->ref = kernel_hold(wait->ref);
	snprintf(keying->compiler, sizeof keying->compiler, "%s", compiler);
	if (store_run(wait->broker, key_work, key_done, keying) == KILN_OK) {
		wait->keying = keying;
		return true;
	}
	kernel_drop(keying->ref);
	free(keying);
	return false;
}

static void on_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct job_wait *wait = arg;
	struct broker *broker = wait->broker;
	const struct compile_toolchain *toolchain = toolchain_for(broker, wait->ref->target);
	(void)toolchains;
	if (error || !toolchain->id[0]) {
		answer_error(wait, error ? KILN_EIO : KILN_ENOTSUP, error ? error : toolchain->reason);
		return;
	}
	if (!wait->terms.asker && !has_key(wait->ref, toolchain->id) && key_later(wait, toolchain->id))
		return;
	job_key(broker, wait->ref);
	if (wait->ref->key[0])
		enter(wait);
	else
		answer_error(wait, KILN_ENOMEM, "out of memory for a key");
}

/* Answers must not come from inside job_resolve, so the first step is taken from the loop. */
static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

static void on_later(uv_timer_t *timer)
{
	struct job_wait *wait = timer->data;
	wait->later = NULL;
	uv_close((uv_handle_t *)timer, on_closed);
	pool_when_known(wait->broker, on_known, wait);
}

struct job_wait *job_resolve(struct broker *broker, struct kernel_ref *ref,
							 const struct job_terms *terms, job_done done, void *arg)
{
	struct job_wait *wait = calloc(1, sizeof *wait);
	uv_timer_t *later = calloc(1, sizeof *later);
	if (!wait || !later) {
		free(wait);
		free(later);
		return NULL;
	}
	*wait = (struct job_wait){.broker = broker,
							  .ref = kernel_hold(ref),
							  .later = later,
							  .terms = *terms,
							  .done = done,
							  .arg = arg,
							  .asked_us = util_now_us()};
	if (terms->asker && !terms->look) {
		broker->counters.asked++;
		broker->waiting++;
	}
	later->data = wait;
	uv_timer_init(&broker->loop, later);
	uv_timer_start(later, on_later, 0, 0);
	return wait;
}

void job_leave(struct broker *broker, struct job_wait *wait)
{
	struct flight *flight = wait->flight;
	if (wait->terms.asker && !wait->terms.look) {
		broker->counters.left++;
		broker->waiting--;
	}
	if (wait->later) {
		uv_close((uv_handle_t *)wait->later, on_closed);
	} else if (wait->keying) {
		wait->keying->wait = NULL;
	} else if (!flight) {
		pool_forget(broker, wait);
	} else {
		struct job_wait **link = &flight->waits;
		while (*link != wait)
			link = &(*link)->next;
		*link = wait->next;
		choose_owner(flight);
	}
	kernel_drop(wait->ref);
	free(wait);
	if (flight)
		cancel_if_unwanted(flight);
}

static int count_waits(const struct flight *flight, uint64_t *owner)
{
	int count = 0;
	*owner = 0;
	for (const struct job_wait *wait = flight->waits; wait; wait = wait->next) {
		count++;
		if (!*owner && wait->terms.asker)
			*owner = wait->terms.asker->id;
	}
	return count;
}

void job_each(const struct broker *broker, job_visit visit, void *arg)
{
	uint64_t now = util_now_us();
	for (const struct flight *flight = broker->flights; flight; flight = flight->next) {
		struct job_flight seen = {
			.key = flight->key,
			.op = flight->ref->plan.op,
			.target = flight->ref->target,
			.elsewhere = flight->phase == FLIGHT_REMOTE,
			.compiling = flight->phase == FLIGHT_COMPILE,
			.on_worker = flight->job && pool_running(broker, flight->job),
			.age_us = now - flight->began_us,
		};
		seen.waiters = count_waits(flight, &seen.owner);
		visit(arg, &seen);
	}
}

bool job_busy(const struct broker *broker)
{
	return broker->flights != NULL;
}

void job_close(struct broker *broker)
{
	struct flight *flight = broker->flights;
	while (flight) {
		struct flight *next = flight->next;
		if (flight->phase != FLIGHT_LOOKUP)
			drop_flight(flight);
		flight = next;
	}
}
