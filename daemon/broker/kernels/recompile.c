/*
 * recompile.c: the steps of a recompile.
 *
 *   READING ---> ASKING ----> LOOKING ----> COMPILING ---> KEEPING ---> answered and freed
 *   (the row)    (who          (whether      (a process    (the store
 *                compiles)     the key is    of the pool,  writes the
 *                              there)        or want's)    row)
 *
 *   READING, LOOKING, KEEPING --recompile_stop--> STOPPED --the store is done--> freed
 *   ASKING, COMPILING --recompile_stop--> freed
 *   COMPILING --a verified row is compared--> answered and freed; its way omits LOOKING
 *   (any) --it fails, or there is nothing to compile--> answered and freed
 *
 * The store's thread has the recompile in READING, LOOKING, KEEPING and STOPPED: nothing else may
 * write to it then.  `taken` is held until the recompile is freed or STOPPED: a STOPPED one may
 * outlive that compiler.
 */
#include "recompile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

enum recompile_state {
	RECOMPILE_READING,
	RECOMPILE_ASKING,
	RECOMPILE_LOOKING,
	RECOMPILE_COMPILING,
	RECOMPILE_KEEPING,
	RECOMPILE_STOPPED,
};

struct recompile {
	struct broker *broker;
	struct recompile_want want; /* its ref is held */
	enum recompile_state state;
	struct alt_compiler *taken; /* want.compiler; NULL: it was busy with another recompile */
	recompile_done done;
	void *arg;
	struct cache_row row;      /* the one that was read, later the new one */
	struct compile_again unit; /* of the row that was read */
	const struct compile_job *job;
	char target[KERNEL_TARGET_MAX];
	struct pool_job *pooled; /* COMPILING by the pool */
	struct turn_place place; /* there */
	struct compile_key key;
	char compiler[96]; /* that the key names */
	enum recompile_outcome outcome;
	int64_t verify_micros; /* of the compile that was compared */
	int status;
	char error[KERNEL_ERROR_MAX];
};

static void recompile_assert_valid(const struct recompile *recompile)
{
	assert(!recompile->taken || recompile->taken == recompile->want.compiler);
	assert(!recompile->taken || recompile->state != RECOMPILE_STOPPED);
	assert(!recompile->pooled || recompile->state == RECOMPILE_COMPILING);
	assert(recompile->job || recompile->state == RECOMPILE_READING ||
		   recompile->state == RECOMPILE_STOPPED);
	(void)recompile; /* without asserts nothing uses it */
}

static void give_back(struct recompile *recompile)
{
	if (recompile->taken)
		alt_compiler_give(recompile->taken);
	recompile->taken = NULL;
}

static void recompile_free(struct recompile *recompile)
{
	give_back(recompile);
	compile_again_close(&recompile->unit);
	compile_key_free(&recompile->key);
	cache_row_free(&recompile->row);
	kernel_drop(recompile->want.ref);
	free(recompile);
}

static void answer_recompile(struct recompile *recompile, int status, const char *error,
							 const char *log)
{
	const struct kernel_ref *ref = recompile->want.ref;
	const struct cache_row *row = &recompile->row;
	bool new_row = recompile->outcome != RECOMPILE_FOUND && !recompile->want.verify;
	struct recompile_answer found = {
		.status = status,
		.error = error,
		.log = log ? log : "",
		.outcome = recompile->outcome,
		.why = recompile->error,
		.key = recompile->key.hex,
		.op = ref ? ref->plan.op : row->op,
		.target = recompile->target,
		.instantiation = ref ? ref->plan.instantiation : row->instantiation,
		.bytes = new_row ? (int64_t)row->object_bytes : 0,
		.micros = new_row ? row->compile_micros : recompile->verify_micros,
	};
	recompile->done(recompile->arg, &found);
	recompile_free(recompile);
}

static void fail_recompile(struct recompile *recompile, int status)
{
	answer_recompile(recompile, status, recompile->error, "");
}

/* Hands the recompile to the store. */
static void recompile_run(struct recompile *recompile, enum recompile_state state, store_work work,
						  store_done done)
{
	recompile->state = state;
	recompile_assert_valid(recompile);
	if (store_run_for(recompile->broker, recompile->want.owner, work, done, recompile) == KILN_OK)
		return;
	util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a kernel");
	fail_recompile(recompile, KILN_ENOMEM);
}

/* False: it was stopped, or it failed and is answered; either way it is freed. */
static bool goes_on(struct recompile *recompile)
{
	if (recompile->state == RECOMPILE_STOPPED)
		recompile_free(recompile);
	else if (recompile->status != KILN_OK)
		fail_recompile(recompile, recompile->status);
	else
		return true;
	return false;
}

/* ---- Keeping ---- */

static void keep_work(struct cache *cache, void *arg)
{
	struct recompile *recompile = arg;
	recompile->status = cache_put(cache, &recompile->row, recompile->error);
}

static void keep_done(struct broker *broker, void *arg)
{
	struct recompile *recompile = arg;
	(void)broker;
	if (goes_on(recompile))
		answer_recompile(recompile, KILN_OK, NULL, NULL);
}

/* Replaces the row that was read, if any, by that of the new key. */
static bool make_row(struct recompile *recompile, struct compile_result *result)
{
	struct cache_row *row = &recompile->row, old = *row;
	struct kernel_ref *ref = recompile->want.ref;
	*row = (struct cache_row){.pinned = false};
	memcpy(row->op, ref ? ref->plan.op : old.op, sizeof(row->op));
	row->instantiation = strdup(ref ? ref->plan.instantiation : old.instantiation);
	row->plan = strdup(ref ? kernel_text(ref) : old.plan);
	memcpy(row->key, recompile->key.hex, sizeof(row->key));
	memcpy(row->target, recompile->target, sizeof(row->target));
	row->key_text = strdup(recompile->key.text);
	job_take_result(row, result);
	compile_again_close(&recompile->unit);
	cache_row_free(&old);
	return row->key_text && row->instantiation && row->plan;
}

/* Says in error what is different, if anything is. */
static enum recompile_outcome compare(const struct cache_row *row,
									  const struct compile_result *result,
									  char error[KERNEL_ERROR_MAX])
{
	const unsigned char *ours = row->object, *theirs = result->object;
	const char *entry = result->entry ? result->entry : "";
	size_t at = 0;
	if (result->status != KILN_OK) {
		snprintf(error, KERNEL_ERROR_MAX, "%s", result->error);
		return RECOMPILE_FAILED;
	}
	while (at < row->object_bytes && at < result->object_bytes && ours[at] == theirs[at])
		at++;
	if (strcmp(row->entry, entry) != 0)
		util_fail(error, KERNEL_ERROR_MAX, 0, "the entry was %.120s and is now %.120s", row->entry,
				  result->entry ? entry : "missing");
	else if (row->object_bytes != result->object_bytes)
		util_fail(error, KERNEL_ERROR_MAX, 0, "the object had %zu bytes and has now %zu",
				  row->object_bytes, result->object_bytes);
	else if (at < row->object_bytes)
		util_fail(error, KERNEL_ERROR_MAX, 0,
				  "the objects, of %zu bytes, differ from byte %zu on (0x%02x, now 0x%02x)",
				  row->object_bytes, at, ours[at], theirs[at]);
	else
		return RECOMPILE_SAME;
	return RECOMPILE_DIFFERS;
}

static void compiled(void *arg, struct compile_result *result)
{
	struct recompile *recompile = arg;
	recompile->pooled = NULL;
	if (recompile->want.verify) {
		recompile->outcome = compare(&recompile->row, result, recompile->error);
		recompile->verify_micros = result->micros;
		answer_recompile(recompile, KILN_OK, NULL, NULL);
	} else if (result->status != KILN_OK) {
		answer_recompile(recompile, result->status, result->error, result->log);
	} else if (make_row(recompile, result)) {
		recompile_run(recompile, RECOMPILE_KEEPING, keep_work, keep_done);
	} else {
		util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a kernel");
		fail_recompile(recompile, KILN_ENOMEM);
	}
}

/* ---- Compiling ---- */

static void look_work(struct cache *cache, void *arg)
{
	struct recompile *recompile = arg;
	/* An unreadable cache costs a compile, not the kernel. */
	if (cache_has(cache, recompile->key.hex, recompile->error) == KILN_OK)
		recompile->outcome = RECOMPILE_FOUND;
	recompile->status = KILN_OK;
}

/* Hands the job to the pool. */
static void recompile_submit(struct recompile *recompile)
{
	recompile->state = RECOMPILE_COMPILING;
	recompile->pooled = pool_submit(recompile->broker, recompile->job, compiled, recompile);
	if (recompile->pooled) {
		pool_join(recompile->broker, recompile->pooled, recompile->want.priority,
				  recompile->want.owner, &recompile->place);
	} else {
		util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a compile job");
		fail_recompile(recompile, KILN_ENOMEM);
	}
}

static void look_done(struct broker *broker, void *arg)
{
	struct recompile *recompile = arg;
	if (!goes_on(recompile))
		return;
	if (recompile->outcome == RECOMPILE_FOUND) {
		answer_recompile(recompile, KILN_OK, NULL, NULL);
	} else if (recompile->want.compiler) {
		recompile->state = RECOMPILE_COMPILING;
		alt_compiler_submit(recompile->want.compiler, recompile->job, compiled, recompile);
	} else if (strcmp(recompile->compiler, job_compiler(broker, recompile->target)) != 0) {
		util_fail(recompile->error, sizeof(recompile->error), 0,
				  "the compiler was replaced while the kernel was looked for: ask again");
		fail_recompile(recompile, KILN_EIO);
	} else {
		recompile_submit(recompile);
	}
}

static void compile_by(struct recompile *recompile, const struct compile_toolchain *toolchain)
{
	int status;
	snprintf(recompile->compiler, sizeof(recompile->compiler), "%s", toolchain->id);
	if (recompile->want.ref)
		status = compile_key_make(recompile->job, toolchain->id, &recompile->key);
	else
		status = compile_key_again(recompile->row.key_text, recompile->target, toolchain->id,
								   &recompile->key);
	if (status == KILN_OK) {
		recompile_run(recompile, RECOMPILE_LOOKING, look_work, look_done);
		return;
	}
	util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a key");
	fail_recompile(recompile, status);
}

static void on_second_known(void *arg, const struct compile_toolchain *toolchain, const char *error)
{
	struct recompile *recompile = arg;
	if (!error) {
		compile_by(recompile, toolchain);
		return;
	}
	snprintf(recompile->error, sizeof(recompile->error), "%s", error);
	fail_recompile(recompile, KILN_ENOTSUP);
}

static void skip(struct recompile *recompile)
{
	recompile->outcome = RECOMPILE_SKIPPED;
	answer_recompile(recompile, KILN_OK, NULL, NULL);
}

/* Only the compiler of a row can make the same object once more. */
static void verify_by(struct recompile *recompile, const struct compile_toolchain *toolchain)
{
	const char *maker = recompile->unit.toolchain;
	if (!strcmp(toolchain->id, maker)) {
		recompile_submit(recompile);
		return;
	}
	util_fail(recompile->error, sizeof(recompile->error), 0,
			  "it was made by %.100s, and here is %.200s", maker,
			  toolchain->id[0] ? toolchain->id : toolchain->reason);
	skip(recompile);
}

static void on_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct recompile *recompile = arg;
	const struct compile_toolchain *toolchain =
		!strcmp(recompile->target, "cpu") ? &toolchains->host : &toolchains->nvrtc;
	if (!error && recompile->want.verify) {
		verify_by(recompile, toolchain);
	} else if (!error && toolchain->id[0]) {
		compile_by(recompile, toolchain);
	} else {
		snprintf(recompile->error, sizeof(recompile->error), "%s",
				 error ? error : toolchain->reason);
		fail_recompile(recompile, error ? KILN_EIO : KILN_ENOTSUP);
	}
}

/* Asks which compiler will compile for the target. */
static void recompile_ask(struct recompile *recompile)
{
	struct alt_compiler *alt = recompile->want.compiler;
	recompile->state = RECOMPILE_ASKING;
	recompile_assert_valid(recompile);
	if (!alt) {
		pool_when_known(recompile->broker, on_known, recompile);
	} else if (!recompile->taken) {
		util_fail(recompile->error, sizeof(recompile->error), 0,
				  "a second compiler takes one kernel at a time of a connection");
		fail_recompile(recompile, KILN_EBUSY);
	} else if (!alt_compiler_serves(alt, recompile->target) && !recompile->want.ref) {
		skip(recompile);
	} else if (!alt_compiler_serves(alt, recompile->target)) {
		util_fail(
			recompile->error, sizeof(recompile->error), 0,
			"%.120s does not compile for %s: a libnvrtc does for GPUs, a C++ compiler for cpu",
			alt_compiler_path(alt), recompile->target);
		fail_recompile(recompile, KILN_EINVAL);
	} else {
		alt_compiler_ask(alt, on_second_known, recompile);
	}
}

/* ---- Reading a row of the cache ---- */

static void read_row_work(struct cache *cache, void *arg)
{
	struct recompile *recompile = arg;
	recompile->status = cache_peek(cache, recompile->want.key, &recompile->row, recompile->error);
}

/* All GPUs share a unit; device cpu has another. */
static void on_row_read(struct broker *broker, void *arg)
{
	struct recompile *recompile = arg;
	const char *target = recompile->want.target;
	(void)broker;
	if (!goes_on(recompile))
		return;
	snprintf(recompile->target, sizeof(recompile->target), "%s",
			 target[0] ? target : recompile->row.target);
	memcpy(recompile->key.hex, recompile->row.key, sizeof(recompile->key.hex));
	if (!strcmp(recompile->target, "cpu") != !strcmp(recompile->row.target, "cpu")) {
		skip(recompile);
		return;
	}
	recompile->status = compile_again_open(recompile->row.key_text, recompile->row.source,
										   &recompile->unit, recompile->error);
	if (recompile->want.verify && recompile->status == KILN_ENOTSUP) {
		skip(recompile);
		return;
	}
	if (!goes_on(recompile))
		return;
	memcpy(recompile->unit.job.target, recompile->target, sizeof(recompile->target));
	recompile->job = &recompile->unit.job;
	recompile_ask(recompile);
}

/* ---- Starting and stopping ---- */

static void start_work(struct cache *cache, void *arg)
{
	(void)cache;
	(void)arg;
}

static void start_done(struct broker *broker, void *arg)
{
	struct recompile *recompile = arg;
	(void)broker;
	if (goes_on(recompile))
		recompile_ask(recompile);
}

/* Nobody is held by a disk that does not answer: the store's thread keeps the recompile. */
static void read_late(struct broker *broker, void *arg, const char *why)
{
	struct recompile *recompile = arg;
	struct recompile_answer late = {.status = KILN_ETIMEDOUT, .error = why, .log = ""};
	(void)broker;
	if (recompile->state == RECOMPILE_STOPPED)
		return;
	recompile_stop(recompile);
	recompile->done(recompile->arg, &late);
}

struct recompile *recompile_start(struct broker *broker, const struct recompile_want *want,
								  recompile_done done, void *arg)
{
	struct recompile *recompile = calloc(1, sizeof(*recompile));
	bool planned = want->ref != NULL;
	if (!recompile)
		return NULL;
	recompile->broker = broker;
	recompile->want = *want;
	recompile->done = done;
	recompile->arg = arg;
	if (want->compiler && alt_compiler_take(want->compiler))
		recompile->taken = want->compiler;
	if (planned) {
		kernel_hold(want->ref);
		recompile->job = &want->ref->job;
		memcpy(recompile->target, want->ref->target, sizeof(recompile->target));
	}
	/* A planned kernel has no row to read.  It takes the way over the store all the same, for no
	 * answer may come from inside this function. */
	int status = want->verify
					 ? store_wait(broker, want->owner, read_row_work, on_row_read, read_late,
								  recompile, NULL)
					 : store_run_for(broker, want->owner, planned ? start_work : read_row_work,
									 planned ? start_done : on_row_read, recompile);
	if (status == KILN_OK)
		return recompile;
	recompile_free(recompile);
	return NULL;
}

void recompile_stop(struct recompile *recompile)
{
	recompile_assert_valid(recompile);
	switch (recompile->state) {
	case RECOMPILE_ASKING:
		if (recompile->taken)
			alt_compiler_cancel(recompile->taken);
		else
			pool_forget(recompile->broker, recompile);
		break;
	case RECOMPILE_COMPILING:
		if (recompile->taken)
			alt_compiler_cancel(recompile->taken);
		else
			pool_cancel(recompile->broker, recompile->pooled);
		break;
	default:
		give_back(recompile);
		recompile->state = RECOMPILE_STOPPED;
		return;
	}
	recompile_free(recompile);
}
