/*
 * launch_side.c: what threads that launch side by side are worth: the same programs as clients of
 * daemons of our own that differ in --launchers alone.
 */
#include "launch.h"
#include "own_daemon.h"

#include <stdio.h>

#define READY_SECONDS 30

static void measure(struct bench *bench, const char *launchers, int clients)
{
	struct crew crew;
	struct crew_word words[CREW_MOST];
	char why[LAUNCH_WHY] = "", name[64];
	snprintf(name, sizeof(name), "%d clients, --launchers %s", clients, launchers);
	if (!crew_start(bench, &crew, "kiln", clients, NULL, why)) {
		runner_fail(name, "%s", why);
		return;
	}
	double rate = crew_hear(&crew, READY_SECONDS, words, why)
					  ? crew_round(&crew, bench->options.quick ? 0.3 : 1.0, why)
					  : -1;
	crew_end(&crew);
	if (rate < 0) {
		runner_fail(name, "%s", why);
		return;
	}
	runner_pass();
	table_row(bench, &(struct figure){name, rate, "launches/s", 0, NULL, AIM_NONE, 0});
}

static void with_launchers(struct bench *bench, const char *launchers)
{
	const char *arguments[] = {"--device", bench->options.device, "--launchers", launchers, NULL};
	const char *before = bench->options.socket;
	struct own_daemon daemon;
	if (!own_daemon_make(&daemon, "bench-launch"))
		return;
	if (own_daemon_start(&daemon, "cache", arguments)) {
		bench->options.socket = daemon.socket;
		measure(bench, launchers, 1);
		measure(bench, launchers, 8);
		if (!bench->options.quick)
			measure(bench, launchers, 64);
		bench->options.socket = before;
		own_daemon_stop(&daemon);
	}
	own_daemon_remove(&daemon, 0);
}

void launch_side(struct bench *bench)
{
	static const char *const settings[] = {"1", "2", "4", "8"};
	table_section("threads that launch side by side, each client waits for its launch");
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]);
		 i += bench->options.quick ? 2 : 1)
		with_launchers(bench, settings[i]);
}
