/* daemon.c: the soak's own daemon, and what it says of itself. */
#include "soak.h"

#include "process_figures.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 60000
#define STOP_MS 30000
#define SETTLE_MS 30000
#define ASK_MS 20000

/* Every other one compiles what is asked for at once; the others run generic kernels first.  Steps
 * that are repeated have exact kernels, if nothing else is asked for. */
static const char *specialize(const struct conductor *conductor)
{
	const char *asked = getenv("KILN_SPECIALIZE");
	if (conductor->soak->options.repeat)
		return asked ? asked : "eager";
	return conductor->daemon_lives % 2 ? "eager" : "lazy";
}

bool soak_daemon_start(struct conductor *conductor)
{
	struct soak *soak = conductor->soak;
	const char *const arguments[] = {"--device",
									 soak->options.device,
									 "--test-requests",
									 "--specialize",
									 specialize(conductor),
									 "--max-own",
									 "6",
									 "--test-memory-cache-bytes",
									 "4MiB",
									 "--cache-bytes",
									 "64MiB",
									 "--test-liveness-timeout",
									 "5000",
									 "--launch-timeout",
									 "20000",
									 "--test-retry-after",
									 "1",
									 NULL};
	int64_t until = soak_now_ms() + START_MS;

	conductor->daemon_lives++;
	if (!own_daemon_start(&conductor->daemon, "cache", arguments)) {
		soak_fail(soak, "the daemon does not start; see %s/log", conductor->daemon.directory);
		return false;
	}
	for (kiln_reply *reply = NULL; soak_now_ms() < until; soak_pause_ms(20)) {
		if ((reply = soak_info(conductor))) {
			kiln_reply_free(reply);
			return true;
		}
		if (waitpid(conductor->daemon.pid, NULL, WNOHANG) != 0)
			break;
	}
	soak_fail(soak, "the daemon does not answer (%s); see %s/log", kiln_errmsg(),
			  conductor->daemon.directory);
	return false;
}

void soak_daemon_stop(struct conductor *conductor)
{
	int64_t until = soak_now_ms() + STOP_MS;
	int status = 0;
	pid_t got;

	soak_disconnect(conductor);
	kill(conductor->daemon.pid, SIGTERM);
	while ((got = waitpid(conductor->daemon.pid, &status, WNOHANG)) == 0 && soak_now_ms() < until)
		soak_pause_ms(10);
	if (got == 0) {
		soak_fail(conductor->soak, "the daemon has not ended %d ms after SIGTERM", STOP_MS);
		kill(conductor->daemon.pid, SIGKILL);
		waitpid(conductor->daemon.pid, &status, 0);
	} else if (got < 0 || status != 0) {
		soak_fail(conductor->soak, "the daemon ended with wait status %#x", (unsigned)status);
	}
}

void soak_disconnect(struct conductor *conductor)
{
	kiln_close(conductor->client);
	conductor->client = NULL;
}

/* The first equation that does not hold is a failure. */
static void check_equations(struct soak *soak, const kiln_reply *reply)
{
	char path[48];
	int count = kiln_reply_count(reply, "identities");

	if (count == 0)
		soak_fail(soak, "the daemon lists no equations between its figures");
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "identities[%d].holds", i);
		if (kiln_reply_int(reply, path))
			continue;
		snprintf(path, sizeof(path), "identities[%d].text", i);
		const char *text = kiln_reply_str(reply, path);
		snprintf(path, sizeof(path), "identities[%d].left", i);
		long long left = kiln_reply_int(reply, path);
		snprintf(path, sizeof(path), "identities[%d].right", i);
		soak_fail(soak, "the figures do not add up: %s: %lld and %lld", text, left,
				  (long long)kiln_reply_int(reply, path));
	}
}

kiln_reply *soak_info(struct conductor *conductor)
{
	const kiln_connect_options options = {.size = sizeof(options),
										  .socket = conductor->daemon.socket,
										  .device = "none",
										  .timeout_ms = ASK_MS};
	kiln_reply *reply = NULL;
	int status = conductor->client ? KILN_OK : kiln_connect(&options, &conductor->client);

	if (status == KILN_OK)
		status = kiln_request(conductor->client, "info", NULL, 0, &reply);
	if (status == KILN_OK) {
		check_equations(conductor->soak, reply);
		return reply;
	}
	if (status != KILN_ECONN)
		soak_fail(conductor->soak, "info ended in %s: %s", kiln_status_name(status), kiln_errmsg());
	soak_disconnect(conductor);
	return NULL;
}

/* A daemon that makes its generic kernels ready looks for these, and compiles. */
static bool is_busy(const kiln_reply *reply, char what[80])
{
	static const char *const gauges[] = {"waiting",        "looking_up",     "compiling",
										 "launching",      "lane_launching", "transferring",
										 "device_pending", "remote_asking"};
	bool warming = kiln_reply_int(reply, "tiers.warming");
	char path[64];

	for (size_t i = warming ? 3 : 0; i < sizeof(gauges) / sizeof(gauges[0]); i++) {
		snprintf(path, sizeof(path), "busy.%s", gauges[i]);
		snprintf(what, 80, "%s is %lld", path, (long long)kiln_reply_int(reply, path));
		if (kiln_reply_int(reply, path))
			return true;
	}
	snprintf(what, 80, "%lld sessions", (long long)kiln_reply_int(reply, "server.sessions"));
	return kiln_reply_int(reply, "server.sessions") != 1;
}

int soak_shared_maps(const struct conductor *conductor, const kiln_reply *info)
{
	pid_t pid = (pid_t)kiln_reply_int(info, "executors[0].pid");
	bool cpu = strcmp(conductor->soak->options.device, "cpu") == 0;
	return cpu && pid > 0 ? count_shared_maps(pid) : -1;
}

bool soak_settle(struct conductor *conductor)
{
	int64_t until = soak_now_ms() + SETTLE_MS;
	char what[80] = "it does not answer";
	bool busy = true;

	while (busy && soak_now_ms() < until) {
		kiln_reply *reply = soak_info(conductor);
		busy = !reply || is_busy(reply, what);
		kiln_reply_free(reply);
		if (busy)
			soak_pause_ms(20);
	}
	if (busy)
		soak_fail(conductor->soak, "nobody is connected, and the daemon is busy: %s", what);
	return !busy;
}
