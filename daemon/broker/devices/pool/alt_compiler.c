/*
 * alt_compiler.c: a worker (worker.h) for one asker, who asks first which compiler it is, then for
 * one compile at a time.
 *
 *              alt_compiler_ask           known()         alt_compiler_submit
 *       FREE ------------------> ASKED -----------> FREE -------------------> COMPILING
 *        ^                                                                        |
 *        +---------------------------------- done() ------------------------------+
 *
 * alt_compiler_cancel() leads back to FREE from each state, without an answer.  The question is
 * forgotten before its callback runs, so that the callback may ask for more.
 */
#include "alt_compiler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/util.h"
#include "worker.h"

enum question { FREE, ASKED, COMPILING };

struct alt_compiler {
	struct worker worker; /* its pause brings answers that may not come from inside */
	char path[PATH_MAX];
	char name[200]; /* for reports */
	bool is_nvrtc, taken;
	struct compile_toolchain toolchain;
	char stamp[256];            /* spares a later process to identify the compiler; "": unknown */
	char why[KERNEL_ERROR_MAX]; /* why there is no process */
	enum question question;
	const struct compile_job *job;
	alt_compiler_known known;
	pool_done done;
	void *arg;
};

static void alt_compiler_assert_valid(const struct alt_compiler *alt)
{
	assert((alt->question == ASKED) == (alt->known != NULL));
	assert((alt->question == COMPILING) == (alt->done != NULL));
	assert((alt->question == COMPILING) == (alt->job != NULL));
	(void)alt;
}

static void set_free(struct alt_compiler *alt)
{
	alt->question = FREE;
	alt->known = NULL;
	alt->done = NULL;
	alt->job = NULL;
}

/* ---- Answers ---- */

static void tell_known(struct alt_compiler *alt, const char *error)
{
	alt_compiler_known known = alt->known;
	alt_compiler_assert_valid(alt);
	if (!known)
		return;
	set_free(alt);
	known(alt->arg, &alt->toolchain, error);
}

/* Frees what the callback leaves of the result. */
static void tell_done(struct alt_compiler *alt, struct compile_result *result)
{
	pool_done done = alt->done;
	alt_compiler_assert_valid(alt);
	set_free(alt);
	if (done)
		done(alt->arg, result);
	compile_result_free(result);
}

static void tell_failed(struct alt_compiler *alt, int status, const char *error)
{
	struct compile_result result;
	compile_result_begin(&result);
	result.status = status;
	snprintf(result.error, sizeof(result.error), "%s", error);
	tell_done(alt, &result);
}

/* ---- What the worker says ---- */

static void on_alt_compiler_ready(void *owner, const struct compile_toolchains *found)
{
	struct alt_compiler *alt = owner;
	char error[KERNEL_ERROR_MAX];
	alt->toolchain = alt->is_nvrtc ? found->nvrtc : found->host;
	if (alt->toolchain.id[0]) {
		snprintf(alt->stamp, sizeof(alt->stamp), "%s=%s:%s",
				 alt->is_nvrtc ? COMPILE_NVRTC_ID : COMPILE_CXX_ID, alt->toolchain.stamp,
				 alt->toolchain.id);
		tell_known(alt, NULL);
		return;
	}
	util_fail(error, sizeof(error), 0, "%.80s cannot be used as a compiler: %.200s", alt->path,
			  alt->toolchain.reason);
	worker_end(&alt->worker);
	tell_known(alt, error);
}

/* As in the pool, the process ends with all that a user's source or lost memory left in it. */
static void on_result(void *owner, struct compile_result *result)
{
	struct alt_compiler *alt = owner;
	struct worker *worker = &alt->worker;
	if (alt->job->user_files || result->status == KILN_ENOMEM ||
		worker->jobs_done >= (uint64_t)worker->broker->options.worker_jobs)
		worker_end(worker);
	tell_done(alt, result);
}

static void on_alt_compiler_gone(void *owner, const struct worker_end *end)
{
	struct alt_compiler *alt = owner;
	char error[KERNEL_ERROR_MAX];
	if (end->was == WORKER_BUSY && end->overran) {
		util_fail(error, sizeof(error), 0,
				  "compiling %.100s for %s by %.60s took longer than %d ms (--compile-timeout)",
				  alt->job->instantiation, alt->job->target, alt->path,
				  (int)alt->worker.broker->options.compile_timeout_ms);
		tell_failed(alt, KILN_ETIMEDOUT, error);
	} else if (end->was == WORKER_BUSY) {
		util_fail(error, sizeof(error), 0, "the compiler %.60s %s on %.100s for %s", alt->path,
				  end->why, alt->job->instantiation, alt->job->target);
		tell_failed(alt, KILN_ECOMPILE, error);
	} else if (end->was == WORKER_STARTING) {
		util_fail(error, sizeof(error), 0,
				  "a worker for the compiler %.100s could not be started: "
				  "it %s",
				  alt->path, end->overran ? "took too long" : end->why);
		tell_known(alt, error);
	} else {
		/* This question, or the next, is answered so. */
		util_fail(alt->why, sizeof(alt->why), 0,
				  "the worker for the compiler %.100s %s while it had nothing to do; ask again",
				  alt->path, end->why);
		tell_known(alt, alt->why);
	}
}

static void on_due(void *owner)
{
	struct alt_compiler *alt = owner;
	if (alt->question == COMPILING)
		tell_failed(alt, KILN_EIO, alt->why);
	else
		tell_known(alt, alt->worker.state == WORKER_IDLE ? NULL : alt->why);
}

/* ---- What is asked of it ---- */

static void alt_compiler_start(struct alt_compiler *alt)
{
	const struct compile_toolchains *pool = pool_toolchains(alt->worker.broker);
	char compiler[PATH_MAX + 16], other[256];
	/* The other kind of compiler is the pool's, which is identified already. */
	const char *const environment[] = {compiler, other, alt->stamp[0] ? alt->stamp : NULL, NULL};
	snprintf(compiler, sizeof(compiler), "%s=%s", alt->is_nvrtc ? "KILN_NVRTC" : "KILN_CXX",
			 alt->path);
	if (alt->is_nvrtc)
		snprintf(other, sizeof(other), COMPILE_CXX_ID "=%s:%s", pool->host.stamp, pool->host.id);
	else
		snprintf(other, sizeof(other), COMPILE_NVRTC_ID "=%s:%s", pool->nvrtc.stamp,
				 pool->nvrtc.id);
	if (!worker_start(&alt->worker, environment, NULL, alt->why))
		worker_pause(&alt->worker, 0);
}

void alt_compiler_ask(struct alt_compiler *alt, alt_compiler_known known, void *arg)
{
	alt->question = ASKED;
	alt->known = known;
	alt->arg = arg;
	alt_compiler_assert_valid(alt);
	if (alt->worker.state == WORKER_IDLE)
		worker_pause(&alt->worker, 0);
	else
		alt_compiler_start(alt);
}

void alt_compiler_submit(struct alt_compiler *alt, const struct compile_job *job, pool_done done,
						 void *arg)
{
	alt->question = COMPILING;
	alt->job = job;
	alt->done = done;
	alt->arg = arg;
	alt_compiler_assert_valid(alt);
	/* The process may have ended since it named its compiler. */
	if (alt->worker.state == WORKER_EMPTY)
		worker_pause(&alt->worker, 0);
	else
		worker_send(&alt->worker, job, job);
}

void alt_compiler_cancel(struct alt_compiler *alt)
{
	struct worker *worker = &alt->worker;
	set_free(alt);
	if (worker->state == WORKER_BUSY || worker->state == WORKER_STARTING)
		worker_end(worker);
	uv_timer_stop(&worker->timer);
}

bool alt_compiler_note(const struct alt_compiler *alt, struct wait_note *note)
{
	bool busy = alt->worker.state == WORKER_BUSY;
	if (alt->question == FREE)
		return false;
	note->what = busy ? "compiling" : "start";
	note->of = "compiler";
	note->pid = worker_pid(&alt->worker);
	note->left_ms = waits_timer_left(&alt->worker.timer);
	waits_say(note, busy ? "its compile by another compiler" : "the start of another compiler");
	return true;
}

const char *alt_compiler_path(const struct alt_compiler *alt)
{
	return alt->path;
}

bool alt_compiler_take(struct alt_compiler *alt)
{
	bool had = alt->taken;
	alt->taken = true;
	return !had;
}

void alt_compiler_give(struct alt_compiler *alt)
{
	alt->taken = false;
}

bool alt_compiler_taken(const struct alt_compiler *alt)
{
	return alt->taken;
}

bool alt_compiler_serves(const struct alt_compiler *alt, const char *target)
{
	return alt->is_nvrtc == (strcmp(target, "cpu") != 0);
}

/* ---- Opening and closing ---- */

int alt_compiler_open(struct broker *broker, const char *path, struct alt_compiler **out,
					  char error[KERNEL_ERROR_MAX])
{
	static const struct worker_events events = {on_alt_compiler_ready, on_result,
												on_alt_compiler_gone, on_due};
	struct stat status;
	if (path[0] != '/' || strlen(path) >= PATH_MAX || stat(path, &status) != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "\"%.200s\" is no compiler: the absolute path of a libnvrtc, of its "
						 "directory, or of a C++ compiler",
						 path);
	if (broker->alt_compilers >= (int)broker->options.workers)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "%d connections use a second compiler, as many as kilnd has --workers",
						 broker->alt_compilers);
	struct alt_compiler *alt = calloc(1, sizeof(*alt));
	if (!alt)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a compiler");
	snprintf(alt->path, sizeof(alt->path), "%s", path);
	snprintf(alt->name, sizeof(alt->name), "the compiler %.160s", path);
	alt->is_nvrtc = S_ISDIR(status.st_mode) || strstr(strrchr(path, '/'), ".so");
	worker_open(&alt->worker, broker, &events, alt);
	alt->worker.name = alt->name;
	broker->alt_compilers++;
	*out = alt;
	return KILN_OK;
}

void alt_compiler_close(struct alt_compiler *alt)
{
	if (!alt)
		return;
	set_free(alt);
	alt->worker.broker->alt_compilers--;
	worker_close(&alt->worker, free);
}
