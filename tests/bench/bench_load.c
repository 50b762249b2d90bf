/*
 * bench_load: what a daemon takes that has much to keep: memory of the broker and of the device
 * process for each session, buffer and prepared call; lookups in a large cache beside a small one;
 * its upkeep, and what others wait meanwhile; connecting and launching among many.
 *
 *   bench_load [--device NAME] [--quick] [--count KERNELS] [--json FILE]
 *
 * 256 sessions of 9 processes, 10 000 buffers, 5 000 kernels, 1 GB of cache; --quick: a twelfth of
 * it and less.  Fails where something is refused, and where memory or time is far from what it was
 * when this was written.  Starts kilnds of its own, from $KILN_DAEMON or from beside this program.
 */
#include "load.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct load_scale whole = {.sessions = 256,
										.processes = 8,
										.buffers = 10000,
										.kernels = 5000,
										.probes = 200,
										.cache_bytes = 1000000000};
static const struct load_scale quick = {.sessions = 32,
										.processes = 2,
										.buffers = 1000,
										.kernels = 400,
										.probes = 40,
										.cache_bytes = 16000000};

static void figure(const struct bench *bench, const char *name, double value, const char *unit)
{
	runner_figure(bench->options, name, value, unit);
}

/* ---- Starting ---- */

static bool start(struct bench *bench, const char *cache, const char *what)
{
	const char *const arguments[] = {"--device", bench->options->device, "--specialize", "eager",
									 NULL};
	double began = runner_now_us();
	if (!own_daemon_start(&bench->daemon, cache, arguments))
		return false;
	kiln_client *client = runner_connect(bench->options);
	double us = runner_now_us() - began;
	/* The daemon asks the compilers who they are before it answers the first. */
	bool good = client && load_lookup(client, 0) >= 0;
	if (good && what) {
		figure(bench, what, us / 1e3, "ms");
		figure(bench, "the first kernel then", (runner_now_us() - began - us) / 1e3, "ms");
		figure(bench, "the broker then", load_resident(bench->daemon.pid) / 1024, "KiB");
	}
	if (!good)
		runner_fail("start", "%s", kiln_errmsg());
	kiln_close(client);
	return good;
}

/* ---- Lookups ---- */

static bool look(const struct bench *bench, kiln_client *client, const char *what, int step)
{
	double times[1000];
	for (int i = 0; i < bench->scale->probes; i++)
		if ((times[i] = load_lookup(client, i * step)) < 0) {
			runner_fail(what, "kernel %d: %s", i * step, kiln_errmsg());
			return false;
		}
	load_times(bench->options, what, times, bench->scale->probes);
	return true;
}

/* Kernels that are not there: for one who has none compiled. */
static bool miss(const struct bench *bench, int first, const char *what)
{
	kiln_connect_options options = {.size = sizeof(options),
									.socket = bench->daemon.socket,
									.device = bench->options->device,
									.on_miss = "error"};
	kiln_client *client = NULL;
	kiln_call *call = NULL;
	double times[1000];
	bool good = !kiln_connect(&options, &client);
	for (int i = 0; good && i < bench->scale->probes; i++) {
		kiln_tensor tensors[2];
		load_problem(first + i, NULL, tensors);
		double began = runner_now_us();
		good = kiln_prepare(client, "softmax", tensors, 2, NULL, 0, &call) == KILN_EFROZEN;
		times[i] = runner_now_us() - began;
	}
	if (good)
		load_times(bench->options, what, times, bench->scale->probes);
	else
		runner_fail(what, "%s", kiln_errmsg());
	kiln_close(client);
	return good;
}

static bool look_everywhere(const struct bench *bench, const char *size, int kernels)
{
	char name[80];
	int step = kernels / bench->scale->probes;
	kiln_client *client = runner_connect(bench->options);
	snprintf(name, sizeof(name), "lookup among %s, on disk", size);
	bool good = client && look(bench, client, name, step);
	snprintf(name, sizeof(name), "lookup among %s, in memory", size);
	good = good && look(bench, client, name, step);
	snprintf(name, sizeof(name), "lookup among %s, not there", size);
	good = good && miss(bench, kernels, name);
	kiln_close(client);
	return good;
}

/* ---- All of it ---- */

static void check(bool good)
{
	if (good)
		runner_pass();
}

/* Measures a daemon with the small cache, or with the whole one. */
static void run_many(struct bench *bench, bool (*measure)(const struct bench *bench))
{
	if (start(bench, "small", NULL)) {
		check(measure(bench));
		own_daemon_stop(&bench->daemon);
	}
}

static void run_calls(struct bench *bench, bool different)
{
	if (start(bench, "full", NULL)) {
		check(load_calls(bench, different));
		own_daemon_stop(&bench->daemon);
	}
}

static void run_small(struct bench *bench)
{
	struct load_scale small = *bench->scale;
	small.cache_bytes = small.cache_bytes / (uint64_t)small.kernels * (uint64_t)small.probes;
	small.kernels = small.probes;
	if (!load_cache_make(&bench->daemon, bench->options, &small, "small") ||
		!start(bench, "small", "start, few kernels"))
		return;
	check(look_everywhere(bench, "few", small.kernels));
	own_daemon_stop(&bench->daemon);
	run_many(bench, load_sessions);
	run_many(bench, load_buffers);
}

static void run_full(struct bench *bench)
{
	const struct load_scale *scale = bench->scale;
	if (!load_cache_make(&bench->daemon, bench->options, scale, "full") ||
		!start(bench, "full", "start, all kernels"))
		return;
	check(look_everywhere(bench, "all", scale->kernels));
	kill(bench->daemon.pid, SIGKILL);
	waitpid(bench->daemon.pid, NULL, 0);
	unlink(bench->daemon.socket);
	if (start(bench, "full", "start after kill -9, all kernels"))
		own_daemon_stop(&bench->daemon);
	run_calls(bench, false);
	run_calls(bench, true);
	if (!start(bench, "full", NULL))
		return;
	check(load_upkeep(bench->options, "cache.verify", 0, "verify all"));
	check(load_upkeep(bench->options, "cache.trim", scale->cache_bytes / 2, "trim to a half"));
	check(load_upkeep(bench->options, "cache.clear", 0, "clear the rest"));
	own_daemon_stop(&bench->daemon);
}

int main(int argc, char **argv)
{
	struct runner_options options;
	struct load_scale scale;
	struct bench bench = {.options = &options, .scale = &scale};
	if (!runner_options_read(argc, argv, &options))
		return 2;
	scale = options.quick ? quick : whole;
	if (options.count > scale.probes)
		scale.kernels = options.count;
	if (!own_daemon_make(&bench.daemon, "load"))
		return 1;
	options.socket = bench.daemon.socket;
	setvbuf(stdout, NULL, _IOLBF, 0);
	run_small(&bench);
	run_full(&bench);
	int status = runner_end(&options);
	own_daemon_remove(&bench.daemon, status);
	return status;
}
