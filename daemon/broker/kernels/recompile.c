/*
 * recompile.c: reads the row, asks who compiles, makes the key, looks whether it is there,
 * compiles, keeps.
 */
#include "recompile.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

enum again_phase {
	AGAIN_STORE,  /* the store's thread has it: it reads, looks or keeps */
	AGAIN_ASKING, /* who compiles */
	AGAIN_COMPILING,
};

struct again {
	struct broker *broker;
	struct again_want want;
	enum again_phase phase;
	struct second *taken; /* the compiler; another may be closed at any time */
	bool stopped;         /* while the store had it: nobody is to be told */
	again_done done;
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

static void give_back(struct again *again)
{
	if (again->taken)
		second_give(again->taken);
	again->taken = NULL;
}

static void free_again(struct again *again)
{
	give_back(again);
	compile_again_close(&again->unit);
	compile_key_free(&again->key);
	cache_row_free(&again->row);
	kernel_drop(again->want.ref);
	free(again);
}

static void answer(struct again *again, int status, const char *error, const char *log)
{
	const struct kernel_ref *ref = again->want.ref;
	const struct cache_row *row = &again->row;
	struct again_answer found = {
		.status = status,
		.error = error,
		.log = log ? log : "",
		.was_there = again->was_there,
		.skipped = again->skipped,
		.key = again->key.hex,
		.op = ref ? ref->plan.op : row->op,
		.target = again->target,
		.instantiation = ref ? ref->plan.instantiation : row->instantiation,
		.bytes = again->was_there ? 0 : (int64_t)row->object_bytes,
		.micros = again->was_there ? 0 : row->compile_micros,
	};
	again->done(again->arg, &found);
	free_again(again);
}

static void fail(struct again *again, int status)
{
	answer(again, status, again->error, "");
}

/* Hands it to the store; the answer comes by done. */
static void run(struct again *again, store_work work, store_done done)
{
	again->phase = AGAIN_STORE;
	if (store_run_for(again->broker, again->want.owner, work, done, again) == KILN_OK)
		return;
	util_fail(again->error, sizeof(again->error), 0, "out of memory for a kernel");
	fail(again, KILN_ENOMEM);
}

/* False: nobody is to be told any more, or it failed and was answered. */
static bool goes_on(struct again *again)
{
	if (again->stopped)
		free_again(again);
	else if (again->status != KILN_OK)
		fail(again, again->status);
	else
		return true;
	return false;
}

/* ---- Keeping ---- */

static void keep_work(struct cache *cache, void *arg)
{
	struct again *again = arg;
	again->status = cache_put(cache, &again->row, again->error);
}

static void keep_done(struct broker *broker, void *arg)
{
	struct again *again = arg;
	(void)broker;
	if (goes_on(again))
		answer(again, KILN_OK, NULL, NULL);
}

/* What was read becomes the row of the new key; of a planned kernel there is none yet. */
static bool make_row(struct again *again, struct compile_result *result)
{
	struct cache_row *row = &again->row, old = *row;
	struct kernel_ref *ref = again->want.ref;
	*row = (struct cache_row){.pinned = false};
	memcpy(row->op, ref ? ref->plan.op : old.op, sizeof(row->op));
	row->instantiation = strdup(ref ? ref->plan.instantiation : old.instantiation);
	row->plan = strdup(ref ? kernel_text(ref) : old.plan);
	memcpy(row->key, again->key.hex, sizeof(row->key));
	memcpy(row->target, again->target, sizeof(row->target));
	row->key_text = strdup(again->key.text);
	job_take_result(row, result);
	compile_again_close(&again->unit);
	cache_row_free(&old);
	return row->key_text && row->instantiation && row->plan;
}

static void compiled(void *arg, struct compile_result *result)
{
	struct again *again = arg;
	again->pooled = NULL;
	if (result->status != KILN_OK) {
		answer(again, result->status, result->error, result->log);
	} else if (make_row(again, result)) {
		run(again, keep_work, keep_done);
	} else {
		util_fail(again->error, sizeof(again->error), 0, "out of memory for a kernel");
		fail(again, KILN_ENOMEM);
	}
}

/* ---- Compiling ---- */

static void look_work(struct cache *cache, void *arg)
{
	struct again *again = arg;
	int status = cache_has(cache, again->key.hex, again->error);
	again->was_there = status == KILN_OK;
	/* A cache that cannot be read costs a compile, not the kernel. */
	again->status = KILN_OK;
}

static void look_done(struct broker *broker, void *arg)
{
	struct again *again = arg;
	if (!goes_on(again))
		return;
	if (again->was_there) {
		answer(again, KILN_OK, NULL, NULL);
		return;
	}
	again->phase = AGAIN_COMPILING;
	if (again->want.compiler) {
		second_submit(again->want.compiler, again->job, compiled, again);
		return;
	}
	if (strcmp(again->compiler, job_compiler(broker, again->target)) != 0) {
		util_fail(again->error, sizeof(again->error), 0,
				  "the compiler was replaced while the kernel was looked for: ask again");
		fail(again, KILN_EIO);
		return;
	}
	again->pooled = pool_submit(broker, again->job, compiled, again);
	if (again->pooled) {
		pool_join(broker, again->pooled, again->want.priority, again->want.owner, &again->place);
	} else {
		util_fail(again->error, sizeof(again->error), 0, "out of memory for a compile job");
		fail(again, KILN_ENOMEM);
	}
}

static void compile_by(struct again *again, const struct compile_toolchain *toolchain)
{
	int status;
	snprintf(again->compiler, sizeof(again->compiler), "%s", toolchain->id);
	if (again->want.ref)
		status = compile_key_make(again->job, toolchain->id, &again->key);
	else
		status = compile_key_again(again->row.key_text, again->target, toolchain->id, &again->key);
	if (status == KILN_OK) {
		run(again, look_work, look_done);
		return;
	}
	util_fail(again->error, sizeof(again->error), 0, "out of memory for a key");
	fail(again, status);
}

static void on_second_known(void *arg, const struct compile_toolchain *toolchain, const char *error)
{
	struct again *again = arg;
	if (!error) {
		compile_by(again, toolchain);
		return;
	}
	snprintf(again->error, sizeof(again->error), "%s", error);
	fail(again, KILN_ENOTSUP);
}

static void on_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct again *again = arg;
	const struct compile_toolchain *toolchain =
		!strcmp(again->target, "cpu") ? &toolchains->host : &toolchains->nvrtc;
	if (!error && toolchain->id[0]) {
		compile_by(again, toolchain);
		return;
	}
	snprintf(again->error, sizeof(again->error), "%s", error ? error : toolchain->reason);
	fail(again, error ? KILN_EIO : KILN_ENOTSUP);
}

/* Nothing can be done with this kernel, and nothing is wrong with that. */
static void skip(struct again *again)
{
	again->skipped = true;
	answer(again, KILN_OK, NULL, NULL);
}

/* Who compiles?  job and target are there. */
static void ask(struct again *again)
{
	struct second *second = again->want.compiler;
	again->phase = AGAIN_ASKING;
	if (!second) {
		pool_when_known(again->broker, on_known, again);
	} else if (!again->taken) {
		util_fail(again->error, sizeof(again->error), 0,
				  "a second compiler takes one kernel at a time of a connection");
		fail(again, KILN_EBUSY);
	} else if (!second_serves(second, again->target) && !again->want.ref) {
		skip(again);
	} else if (!second_serves(second, again->target)) {
		util_fail(
			again->error, sizeof(again->error), 0,
			"%.120s does not compile for %s: a libnvrtc does for GPUs, a C++ compiler for cpu",
			second_path(second), again->target);
		fail(again, KILN_EINVAL);
	} else {
		second_ask(second, on_second_known, again);
	}
}

/* ---- Of a row of the cache ---- */

static void read_work(struct cache *cache, void *arg)
{
	struct again *again = arg;
	again->status = cache_peek(cache, again->want.key, &again->row, again->error);
}

/* One unit serves all GPUs; the cpu's is another. */
static void read_done(struct broker *broker, void *arg)
{
	struct again *again = arg;
	const char *target = again->want.target;
	(void)broker;
	if (!goes_on(again))
		return;
	snprintf(again->target, sizeof(again->target), "%s", target[0] ? target : again->row.target);
	memcpy(again->key.hex, again->row.key, sizeof(again->key.hex));
	if (!strcmp(again->target, "cpu") != !strcmp(again->row.target, "cpu")) {
		skip(again);
		return;
	}
	again->status =
		compile_again_open(again->row.key_text, again->row.source, &again->unit, again->error);
	if (!goes_on(again))
		return;
	memcpy(again->unit.job.target, again->target, sizeof(again->target));
	again->job = &again->unit.job;
	ask(again);
}

/* ---- Starting and stopping ---- */

static void start_work(struct cache *cache, void *arg)
{
	(void)cache;
	(void)arg;
}

static void start_done(struct broker *broker, void *arg)
{
	struct again *again = arg;
	(void)broker;
	if (goes_on(again))
		ask(again);
}

struct again *again_start(struct broker *broker, const struct again_want *want, again_done done,
						  void *arg)
{
	struct again *again = calloc(1, sizeof(*again));
	bool planned = want->ref != NULL;
	if (!again)
		return NULL;
	again->broker = broker;
	again->want = *want;
	again->done = done;
	again->arg = arg;
	if (want->compiler && second_take(want->compiler))
		again->taken = want->compiler;
	if (planned) {
		kernel_hold(want->ref);
		again->job = &want->ref->job;
		memcpy(again->target, want->ref->target, sizeof(again->target));
	}
	/* Also what need not be read takes the way over the store: answers come from the loop. */
	if (store_run_for(broker, want->owner, planned ? start_work : read_work,
					  planned ? start_done : read_done, again) == KILN_OK)
		return again;
	free_again(again);
	return NULL;
}

void again_stop(struct again *again)
{
	switch (again->phase) {
	case AGAIN_STORE:
		/* It may outlive the compiler. */
		give_back(again);
		again->stopped = true;
		return;
	case AGAIN_ASKING:
		if (again->taken)
			second_cancel(again->taken);
		else
			pool_forget(again->broker, again);
		break;
	case AGAIN_COMPILING:
		if (again->taken)
			second_cancel(again->taken);
		else
			pool_cancel(again->broker, again->pooled);
		break;
	}
	free_again(again);
}
