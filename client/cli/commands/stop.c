/* stop.c: 'kiln stop': asks the daemon to end, and waits until its process is gone. */
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/json.h"
#include "client/cli/timing.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Waits until the process has ended, whoever its parent is. */
static bool wait_gone(int pidfd, int timeout_ms)
{
	struct pollfd poller = {.fd = pidfd, .events = POLLIN};
	double end_us = time_us() + timeout_ms * 1e3, left_us;
	int n;

	do {
		left_us = end_us - time_us();
		n = poll(&poller, 1, left_us > 0 ? (int)(left_us / 1e3) : 0);
	} while (n < 0 && errno == EINTR);
	return n > 0;
}

static int cli_stop(struct cli *cli)
{
	kiln_attr section = cli_attr_string("section", "server");
	kiln_client *client;
	kiln_reply *reply = NULL;
	int status = CLI_FAILED, error, pidfd = -1;
	int64_t pid, others;

	if (cli_connect(cli, &client))
		return CLI_FAILED;
	error = kiln_request(client, "info", &section, 1, &reply);
	if (error) {
		cli_failed(cli, error, "stop");
		goto out;
	}
	others = kiln_reply_int(reply, "server.sessions") - 1;
	if (cli_value(cli, "if-idle") && others > 0) {
		fprintf(stderr,
				"kiln: stop: %" PRId64 " other session%s there; without --if-idle %s ended\n",
				others, others == 1 ? " is" : "s are", others == 1 ? "it is" : "they are");
		goto out;
	}
	/* The descriptor is opened before the daemon is asked to stop, while the pid cannot be another
	 * process's. */
	pid = kiln_reply_int(reply, "server.pid");
	pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1;
	kiln_reply_free(reply);
	reply = NULL;
	error = kiln_request(client, "stop", NULL, 0, &reply);
	if (error) {
		cli_failed(cli, error, "stop");
		goto out;
	}
	kiln_close(client);
	client = NULL;
	if (pidfd >= 0 && !wait_gone(pidfd, cli->timeout_ms ? cli->timeout_ms : DEADLINE_CLI_MS)) {
		fprintf(stderr, "kiln: stop: process %" PRId64 " is still there after the deadline\n", pid);
		goto out;
	}
	if (cli->json) {
		json_begin();
		json_int("pid", pid);
		json_end();
	} else
		printf("stopped process %" PRId64 "\n", pid);
	status = CLI_OK;
out:
	kiln_reply_free(reply);
	kiln_close(client);
	if (pidfd >= 0)
		close(pidfd);
	return status;
}

static const struct cli_option stop_options[] = {
	{"if-idle", NULL, "only where no other program is connected"},
	{0},
};

static const struct cli_example stop_examples[] = {
	{"kiln stop", "end the daemon after what is under way"},
	{"kiln stop --if-idle", "leave a daemon alone that serves programs"},
	{0}};

const struct cli_command command_stop = {"stop",
										 cli_stop,
										 "",
										 "stop the daemon, and wait until it is gone",
										 {0, 0},
										 stop_options,
										 .examples = stop_examples};
