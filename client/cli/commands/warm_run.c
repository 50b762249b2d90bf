/*
 * warm_run.c: asks for many kernels at a time: threads with a connection each take one after
 * another, and the command prints how far they are.  An interrupt loses the compiles under way
 * alone: kernels in the cache are not compiled again.
 */
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/interrupt.h"
#include "client/cli/sink.h"
#include "client/cli/table.h"
#include "client/cli/timing.h"
#include "warm.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 64
#define QUIET_TICKS 50 /* between two lines where standard error is no terminal */
#define FAILURES_KEPT 1000

struct run {
	struct warm *warm;
	pthread_mutex_t lock; /* guards everything below, and warm */
	pthread_cond_t ended;
	int64_t next, done;
	int living;
	int broken;  /* status of a connection that is gone, or was refused */
	double left; /* seconds to go, as was said last: this never rises */
	char why[WARM_ERROR];
};

int64_t warm_all(const struct warm *warm)
{
	return (int64_t)warm->line_count * (warm->target_count ? warm->target_count : 1);
}

/* ---- A thread ---- */

static void note_failure(struct run *run, int64_t item, int status)
{
	struct warm *warm = run->warm;
	int targets = warm->target_count ? warm->target_count : 1;

	warm->failed++;
	if (!warm->failures || warm->failure_count == FAILURES_KEPT)
		return;
	struct warm_failure *failure = &warm->failures[warm->failure_count++];
	failure->line = (int)(item / targets);
	failure->target = (int)(item % targets);
	failure->status = status;
	snprintf(failure->error, sizeof(failure->error), "%s", kiln_errmsg());
}

static void note_success(struct warm *warm, const kiln_reply *reply)
{
	const char *origin = kiln_reply_str(reply, "origin");

	if (!strcmp(origin, "compiled"))
		warm->compiled++;
	else if (!strcmp(origin, "copy"))
		warm->copies++;
	else if (!strcmp(origin, "skipped"))
		warm->skipped++;
	else /* hits, and kernels that another line compiles just now */
		warm->hits++;
}

static int warm_run_ask(const struct warm *warm, kiln_client *client, int64_t item,
						kiln_reply **reply)
{
	int targets = warm->target_count ? warm->target_count : 1;
	kiln_attr args[3] = {cli_attr_string("line", warm->lines[item / targets].text)};
	int count = 1;

	if (warm->target_count)
		args[count++] = cli_attr_string("target", warm->targets[item % targets]);
	if (warm->compiler)
		args[count++] = cli_attr_string("compiler", warm->compiler);
	return kiln_request(client, "warm", args, count, reply);
}

/* Takes one kernel after another until there is none.  Returns why the connection is gone, or
 * KILN_OK. */
static int work(struct run *run, kiln_client *client)
{
	int64_t all = warm_all(run->warm);
	int status = KILN_OK;

	pthread_mutex_lock(&run->lock);
	while (run->next < all && !run->broken) {
		int64_t item = run->next++;
		kiln_reply *reply = NULL;

		pthread_mutex_unlock(&run->lock);
		status = warm_run_ask(run->warm, client, item, &reply);
		pthread_mutex_lock(&run->lock);
		if (status == KILN_ECONN || status == KILN_EPROTO || status == KILN_EVERSION)
			break;
		run->done++;
		if (status)
			note_failure(run, item, status);
		else
			note_success(run->warm, reply);
		kiln_reply_free(reply);
		status = KILN_OK;
	}
	pthread_mutex_unlock(&run->lock);
	return status;
}

static void *thread_main(void *arg)
{
	struct run *run = arg;
	const struct cli *cli = run->warm->cli;
	kiln_connect_options options = {
		.size = sizeof(options),
		.socket = cli->socket,
		.device = cli_device(cli),
		.timeout_ms = cli->timeout_ms,
		.flags = cli->connect_flags,
	};
	kiln_client *client = NULL;
	int status = kiln_connect(&options, &client);
	bool connected = !status;

	if (connected)
		status = work(run, client);
	pthread_mutex_lock(&run->lock);
	/* Fewer connections will do. */
	if (connected && status && !run->broken) {
		run->broken = status;
		snprintf(run->why, sizeof(run->why), "%s", kiln_errmsg());
	}
	run->living--;
	pthread_cond_signal(&run->ended);
	pthread_mutex_unlock(&run->lock);
	kiln_close(client);
	return NULL;
}

/* ---- How far it is ---- */

static double now(void)
{
	return time_us() / 1e6;
}

static void say(struct run *run, double began, const char *before, const char *after)
{
	const struct warm *warm = run->warm;
	int64_t all = warm_all(warm);
	double left = run->done ? (now() - began) / (double)run->done * (double)(all - run->done) : 0;
	char eta[FIGURE_MAX];

	if (run->done && (run->left <= 0 || left < run->left))
		run->left = left;

	fprintf(sink_terminal(),
			"%swarm: %" PRId64 " of %" PRId64 " (%d %%), %" PRId64 " there, %" PRId64
			" compiled, %" PRId64 " failed",
			before, run->done, all, (int)(100 * run->done / all), warm->hits, warm->compiled,
			warm->failed);
	if (run->done && run->done < all)
		fprintf(sink_terminal(), ", %s to go", figure_micros(run->left * 1e6, eta));
	fprintf(sink_terminal(), "%s", after);
}

/* Waits until all threads have ended; holds the lock. */
static void warm_run_watch(struct run *run, double began)
{
	bool terminal = isatty(STDERR_FILENO);

	interrupt_watch();
	for (int tick = 1; run->living; tick++) {
		if (interrupt_seen()) {
			say(run, began, terminal ? "\r\033[K" : "", "\n");
			interrupt_end("warm: the next run goes on from there");
		}
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += PAUSE_WARM_TICK_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&run->ended, &run->lock, &until);
		if (terminal)
			say(run, began, "\r\033[K", "");
		else if (tick % QUIET_TICKS == 0)
			say(run, began, "", "\n");
	}
	if (terminal)
		fputs("\r\033[K", sink_terminal());
}

/* ---- All of it ---- */

/* One more connection than workers, so that no worker waits for the next request.  With --compiler
 * each connection has a worker of its own. */
static int count_threads(const struct warm *warm, kiln_client *client)
{
	kiln_reply *reply;
	int64_t workers = 1, all = warm_all(warm);

	if (!kiln_request(client, "info", NULL, 0, &reply)) {
		workers = kiln_reply_int(reply, "workers.count");
		kiln_reply_free(reply);
	}
	workers += !warm->compiler;
	workers = workers < MOST_THREADS ? workers : MOST_THREADS;
	return (int)(workers < all ? workers : all);
}

int warm_run(struct warm *warm, kiln_client *client)
{
	struct run run = {.warm = warm, .lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t threads[MOST_THREADS];
	pthread_condattr_t attr;
	double began = now();
	int started, wanted = count_threads(warm, client);

	warm->failures = calloc(FAILURES_KEPT, sizeof(*warm->failures));
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&run.ended, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_lock(&run.lock);
	for (started = 0; started < wanted; started++) {
		if (pthread_create(&threads[started], NULL, thread_main, &run))
			break;
		run.living++;
	}
	warm_run_watch(&run, began);
	pthread_mutex_unlock(&run.lock);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&run.ended);
	warm->seconds = now() - began;
	if (run.broken)
		return cli_failed_here(warm->cli, run.broken, "warm: after %" PRId64 " of %" PRId64 ": %s",
							   run.done, warm_all(warm), run.why);
	if (run.done < warm_all(warm))
		return cli_failed_here(warm->cli, KILN_ECONN,
							   "warm: no connection to the daemon could be "
							   "had for %" PRId64 " of %" PRId64,
							   warm_all(warm) - run.done, warm_all(warm));
	return CLI_OK;
}
