/*
 * recompile.c: reads the row, asks who compiles, makes the key, looks whether it is there,
 * compiles, keeps.
 */
#include "recompile.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

enum recompile_phase {
	RECOMPILE_STORE,  /* the store's thread has it: it reads, looks or keeps */
	RECOMPILE_ASKING, /* who compiles */
	RECOMPILE_COMPILING,
};

struct recompile {
	struct broker *broker;
	struct recompile_want want;
	enum recompile_phase phase;
	struct alt_compiler *taken; /* the compiler; another may be closed at any time */
	bool stopped;               /* while the store had it: nobody is to be told */
	recompile_done done;
	void *arg;
	struct cache_row row;      /* as it was read, and then the new one */
	struct compile_again unit; /* of the row that was read */
	const struct compile_job *job;
	char target[KERNEL_TARGET_MAX];
	struct pool_job *pooled;
	struct turn_place place; /* there */
	struct compile_key key;
	char compiler[96]; /* that it names */
	bool was_there, skipped;
	int status;
	char error[KERNEL_ERROR_MAX];
};

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

static void answer(struct recompile *recompile, int status, const char *error, const char *log)
{
	const struct kernel_ref *ref = recompile->want.ref;
	const struct cache_row *row = &recompile->row;
	struct recompile_answer found = {
		.status = status,
		.error = error,
		.log = log ? log : "",
		.was_there = recompile->was_there,
		.skipped = recompile->skipped,
		.key = recompile->key.hex,
		.op = ref ? ref->plan.op : row->op,
		.target = recompile->target,
		.instantiation = ref ? ref->plan.instantiation : row->instantiation,
		.bytes = recompile->was_there ? 0 : (int64_t)row->object_bytes,
		.micros = recompile->was_there ? 0 : row->compile_micros,
	};
	recompile->done(recompile->arg, &found);
	recompile_free(recompile);
}

static void fail(struct recompile *recompile, int status)
{
	answer(recompile, status, recompile->error, "");
}

/* Hands it to the store; the answer comes by done. */
static void run(struct recompile *recompile, store_work work, store_done done)
{
	recompile->phase = RECOMPILE_STORE;
	if (store_run_for(recompile->broker, recompile->want.owner, work, done, recompile) == KILN_OK)
		return;
	util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a kernel");
	fail(recompile, KILN_ENOMEM);
}

/* False: nobody is to be told any more, or it failed and was answered. */
static bool goes_on(struct recompile *recompile)
{
	if (recompile->stopped)
		recompile_free(recompile);
	else if (recompile->status != KILN_OK)
		fail(recompile, recompile->status);
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
		answer(recompile, KILN_OK, NULL, NULL);
}

/* What was read becomes the row of the new key; of a planned kernel there is none yet. */
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

static void compiled(void *arg, struct compile_result *result)
{
	struct recompile *recompile = arg;
	recompile->pooled = NULL;
	if (result->status != KILN_OK) {
		answer(recompile, result->status, result->error, result->log);
	} else if (make_row(recompile, result)) {
		run(recompile, keep_work, keep_done);
	} else {
		util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a kernel");
		fail(recompile, KILN_ENOMEM);
	}
}

/* ---- Compiling ---- */

static void look_work(struct cache *cache, void *arg)
{
	struct recompile *recompile = arg;
	int status = cache_has(cache, recompile->key.hex, recompile->error);
	recompile->was_there = status == KILN_OK;
	/* A cache that cannot be read costs a compile, not the kernel. */
	recompile->status = KILN_OK;
}

static void look_done(struct broker *broker, void *arg)
{
	struct recompile *recompile = arg;
	if (!goes_on(recompile))
		return;
	if (recompile->was_there) {
		answer(recompile, KILN_OK, NULL, NULL);
		return;
	}
	recompile->phase = RECOMPILE_COMPILING;
	if (recompile->want.compiler) {
		alt_compiler_submit(recompile->want.compiler, recompile->job, compiled, recompile);
		return;
	}
	if (strcmp(recompile->compiler, job_compiler(broker, recompile->target)) != 0) {
		util_fail(recompile->error, sizeof(recompile->error), 0,
				  "the compiler was replaced while the kernel was looked for: ask again");
		fail(recompile, KILN_EIO);
		return;
	}
	recompile->pooled = pool_submit(broker, recompile->job, compiled, recompile);
	if (recompile->pooled) {
		pool_join(broker, recompile->pooled, recompile->want.priority, recompile->want.owner,
				  &recompile->place);
	} else {
		util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a compile job");
		fail(recompile, KILN_ENOMEM);
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
		run(recompile, look_work, look_done);
		return;
	}
	util_fail(recompile->error, sizeof(recompile->error), 0, "out of memory for a key");
	fail(recompile, status);
}

static void on_second_known(void *arg, const struct compile_toolchain *toolchain, const char *error)
{
	struct recompile *recompile = arg;
	if (!error) {
		compile_by(recompile, toolchain);
		return;
	}
	snprintf(recompile->error, sizeof(recompile->error), "%s", error);
	fail(recompile, KILN_ENOTSUP);
}

static void on_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct recompile *recompile = arg;
	const struct compile_toolchain *toolchain =
		!strcmp(recompile->target, "cpu") ? &toolchains->host : &toolchains->nvrtc;
	if (!error && toolchain->id[0]) {
		compile_by(recompile, toolchain);
		return;
	}
	snprintf(recompile->error, sizeof(recompile->error), "%s", error ? error : toolchain->reason);
	fail(recompile, error ? KILN_EIO : KILN_ENOTSUP);
}

/* Nothing can be done with this kernel, and nothing is wrong with that. */
static void skip(struct recompile *recompile)
{
	recompile->skipped = true;
	answer(recompile, KILN_OK, NULL, NULL);
}

/* Who compiles?  job and target are there. */
static void ask(struct recompile *recompile)
{
	struct alt_compiler *alt = recompile->want.compiler;
	recompile->phase = RECOMPILE_ASKING;
	if (!alt) {
		pool_when_known(recompile->broker, on_known, recompile);
	} else if (!recompile->taken) {
		util_fail(recompile->error, sizeof(recompile->error), 0,
				  "a second compiler takes one kernel at a time of a connection");
		fail(recompile, KILN_EBUSY);
	} else if (!alt_compiler_serves(alt, recompile->target) && !recompile->want.ref) {
		skip(recompile);
	} else if (!alt_compiler_serves(alt, recompile->target)) {
		util_fail(
			recompile->error, sizeof(recompile->error), 0,
			"%.120s does not compile for %s: a libnvrtc does for GPUs, a C++ compiler for cpu",
			alt_compiler_path(alt), recompile->target);
		fail(recompile, KILN_EINVAL);
	} else {
		alt_compiler_ask(alt, on_second_known, recompile);
	}
}

/* ---- Of a row of the cache ---- */

static void read_work(struct cache *cache, void *arg)
{
	struct recompile *recompile = arg;
	recompile->status = cache_peek(cache, recompile->want.key, &recompile->row, recompile->error);
}

/* One unit serves all GPUs; the cpu's is another. */
static void read_done(struct broker *broker, void *arg)
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
	if (!goes_on(recompile))
		return;
	memcpy(recompile->unit.job.target, recompile->target, sizeof(recompile->target));
	recompile->job = &recompile->unit.job;
	ask(recompile);
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
		ask(recompile);
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
	/* Also what need not be read takes the way over the store: answers come from the loop. */
	if (store_run_for(broker, want->owner, planned ? start_work : read_work,
					  planned ? start_done : read_done, recompile) == KILN_OK)
		return recompile;
	recompile_free(recompile);
	return NULL;
}

void recompile_stop(struct recompile *recompile)
{
	switch (recompile->phase) {
	case RECOMPILE_STORE:
		/* It may outlive the compiler. */
		give_back(recompile);
		recompile->stopped = true;
		return;
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
	}
	recompile_free(recompile);
}
