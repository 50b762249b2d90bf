/*
 * check_daemon.c: --check: starts a daemon of the command's own, in a directory of its own, whose
 * device cpu checks every access of a kernel.  A bad access ends the call with a sentence, like any
 * failure.
 *
 * A shell beside it, the keeper, removes the directory when the command has ended in any way, and
 * ends the daemon if the command could not.
 *
 *   NOTHING --- mkdtemp() ---> DIRECTORY --- spawn() ---> STARTED --- spawn() ---> KEPT
 *      |                           |                         |                      |
 *      +---------------------------+----- check_close() -----+----------------------+--> freed
 *
 * check_close() ends the daemon, and tells the keeper; without a keeper it removes the directory
 * itself.
 */
#include "check_daemon.h"
#include "deadlines.h"
#include "failure.h"
#include "json.h"
#include "sink.h"
#include "table.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum check_state { CHECK_NOTHING, CHECK_DIRECTORY, CHECK_STARTED, CHECK_KEPT };

struct checking_daemon {
	enum check_state state;
	char dir[80], socket[96], cache[96], log[96], program[PATH_MAX];
	pid_t daemon, keeper; /* 0: not running */
	int pipe;             /* KEPT: the pipe to the keeper; else -1 */
};

static void check_assert_valid(const struct checking_daemon *check)
{
	(void)check;
	assert((check->state >= CHECK_DIRECTORY) == (check->dir[0] != 0));
	assert(check->state >= CHECK_STARTED || !check->daemon);
	assert((check->state == CHECK_KEPT) == (check->keeper > 0));
	assert((check->state == CHECK_KEPT) == (check->pipe >= 0));
}

static const char *thread_order(const struct cli *cli)
{
	const char *order = cli_value(cli, "order");
	return order ? order : "natural";
}

int check_settle(struct cli *cli)
{
	const char *order = cli_value(cli, "order");

	if (order && strcmp(order, "natural") != 0 && strcmp(order, "reversed") != 0 &&
		strcmp(order, "shuffled") != 0)
		return cli_usage("--order '%s': there are natural, reversed and shuffled", order);
	if (!cli_value(cli, "check"))
		return order ? cli_usage("--order %s is for --check", order) : CLI_OK;
	if (cli->socket)
		return cli_usage("--check starts a daemon of its own: leave --socket %s out", cli->socket);
	if (cli->device && strcmp(cli->device, "cpu") != 0)
		return cli_usage(
			"--check is for device cpu, not %s; see 'Checking a kernel' in docs/raw-kernels.md",
			cli->device);
	cli->device = "cpu";
	cli->timeout_ms = cli->timeout_ms ? cli->timeout_ms : DEADLINE_CHECK_CALL_MS;
	return CLI_OK;
}

/* ---- The daemon ---- */

static int make_directory(struct checking_daemon *check)
{
	const char *base = getenv("TMPDIR");

	/* The path of a socket has at most 107 bytes. */
	if (!base || base[0] != '/' || strlen(base) > sizeof(check->dir) - 32)
		base = "/tmp";
	snprintf(check->dir, sizeof(check->dir), "%s/kiln-check-XXXXXX", base);
	if (!mkdtemp(check->dir)) {
		fprintf(stderr, "kiln: --check: no directory %s can be made: %s\n", check->dir,
				strerror(errno));
		check->dir[0] = 0;
		return CLI_FAILED;
	}
	snprintf(check->socket, sizeof(check->socket), "%s/sock", check->dir);
	snprintf(check->cache, sizeof(check->cache), "%s/cache", check->dir);
	snprintf(check->log, sizeof(check->log), "%s/log", check->dir);
	check->state = CHECK_DIRECTORY;
	return CLI_OK;
}

/* Finds $KILN_DAEMON, or kilnd beside this program, or in PATH. */
static void find_daemon(char program[PATH_MAX])
{
	const char *named = getenv("KILN_DAEMON");
	ssize_t length = readlink("/proc/self/exe", program, PATH_MAX - sizeof("kilnd"));
	char *slash;

	program[length > 0 ? length : 0] = 0;
	slash = strrchr(program, '/');
	if (named && named[0]) {
		snprintf(program, PATH_MAX, "%s", named);
		return;
	}
	if (slash)
		memcpy(slash + 1, "kilnd", sizeof("kilnd"));
	if (access(program, X_OK) != 0)
		snprintf(program, PATH_MAX, "kilnd");
}

/* Starts a process in a group of its own, so that a terminal interrupts the command alone.  in:
 * becomes its descriptor 3 unless -1; err: the file of its standard error. */
static int spawn(char *const *argv, int in, const char *err, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int error;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	if (in >= 0)
		posix_spawn_file_actions_adddup2(&actions, in, 3);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, err, O_WRONLY | O_CREAT | O_APPEND, 0600);
	error = posix_spawnp(pid, argv[0], &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	if (error) {
		*pid = 0;
		fprintf(stderr, "kiln: --check: %s cannot be started: %s\n", argv[0], strerror(error));
	}
	return error ? CLI_FAILED : CLI_OK;
}

static int start_daemon(struct checking_daemon *check, const char *order)
{
	char memcheck[40];
	int status;
	char *argv[] = {(char *)check->program,
					(char *)"--socket",
					(char *)check->socket,
					(char *)"--cache-dir",
					(char *)check->cache,
					(char *)"--device",
					(char *)"cpu",
					memcheck,
					(char *)"--workers",
					(char *)"1",
					(char *)"--log-level",
					(char *)"warn",
					NULL};

	snprintf(memcheck, sizeof(memcheck), "--memcheck=%s", order);
	unsetenv("KILN_EXECUTOR_WRAPPER");
	status = spawn(argv, -1, check->log, &check->daemon);
	if (!status)
		check->state = CHECK_STARTED;
	return status;
}

/* The keeper reads from the pipe: a line says that the daemon has ended, an end without a line that
 * the command has. */
static int start_keeper(struct checking_daemon *check)
{
	static const char script[] =
		"trap '' INT TERM HUP\n"
		"PATH=$PATH:/usr/bin:/bin\n"
		"read -r line <&3 || kill \"$1\"\n"
		"tries=0\n"
		"while [ -z \"$line\" ] && kill -0 \"$1\" && [ $tries -lt 100 ]; do\n"
		"	tries=$((tries + 1))\n"
		"	sleep 0.1\n"
		"done\n"
		"[ -n \"$line\" ] || kill -KILL \"$1\"\n"
		"rm -rf \"$2\"\n";
	char daemon[16];
	char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)script, (char *)"kiln-check", daemon,
					check->dir,        NULL};
	int pipes[2], status;

	snprintf(daemon, sizeof(daemon), "%d", (int)check->daemon);
	if (pipe2(pipes, O_CLOEXEC) != 0) {
		fprintf(stderr, "kiln: --check: no pipe: %s\n", strerror(errno));
		return CLI_FAILED;
	}
	status = spawn(argv, pipes[0], "/dev/null", &check->keeper);
	close(pipes[0]);
	if (status) {
		close(pipes[1]);
		return status;
	}
	check->pipe = pipes[1];
	check->state = CHECK_KEPT;
	return CLI_OK;
}

/* Prints the last line of the daemon's log, which says why it is not there. */
static void print_reason(const struct checking_daemon *check)
{
	char line[512], last[512] = "it said nothing";
	FILE *log = fopen(check->log, "r");

	while (log && fgets(line, sizeof(line), log)) {
		line[strcspn(line, "\n")] = 0;
		memcpy(last, line, sizeof(last));
	}
	if (log)
		fclose(log);
	fprintf(stderr, "kiln: --check: the daemon that checks does not answer: %s\n", last);
}

static int await(struct checking_daemon *check)
{
	kiln_connect_options options = {.size = sizeof(options),
									.socket = check->socket,
									.device = "none",
									.timeout_ms = DEADLINE_CHECK_START_MS};

	for (int waited = 0; waited < DEADLINE_CHECK_START_MS; waited += PAUSE_CHECK_LOOK_MS) {
		kiln_client *client;
		int status = kiln_connect(&options, &client);
		if (!status) {
			kiln_close(client);
			return CLI_OK;
		}
		if (waitpid(check->daemon, NULL, WNOHANG) == check->daemon) {
			check->daemon = 0;
			break;
		}
		poll(NULL, 0, PAUSE_CHECK_LOOK_MS);
	}
	print_reason(check);
	return CLI_FAILED;
}

/* Blocks signals that would end the command until the keeper is there. */
static int check_daemon_start(struct checking_daemon *check, const char *order)
{
	sigset_t all, before;
	int status;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	status = make_directory(check);
	if (!status)
		status = start_daemon(check, order);
	if (!status)
		status = start_keeper(check);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

int check_open(struct cli *cli)
{
	struct checking_daemon *check;
	int status;

	if (!cli_value(cli, "check") || cli->checks)
		return CLI_OK;
	cli->checks = check = calloc(1, sizeof(*check));
	if (!check) {
		fputs("kiln: --check: out of memory\n", stderr);
		return CLI_FAILED;
	}
	check->pipe = -1;
	find_daemon(check->program);
	status = check_daemon_start(check, thread_order(cli));
	check_assert_valid(check);
	if (!status)
		status = await(check);
	cli->socket = check->socket;
	return status;
}

static void stop_daemon(struct checking_daemon *check)
{
	kill(check->daemon, SIGTERM);
	for (int waited = 0; waitpid(check->daemon, NULL, WNOHANG) == 0;
		 waited += PAUSE_CHECK_LOOK_MS) {
		if (waited >= DEADLINE_CHECK_STOP_MS)
			kill(check->daemon, SIGKILL);
		poll(NULL, 0, PAUSE_CHECK_LOOK_MS);
	}
}

void check_close(struct cli *cli)
{
	struct checking_daemon *check = cli->checks;

	if (!check)
		return;
	check_assert_valid(check);
	if (check->daemon)
		stop_daemon(check);
	if (check->state == CHECK_KEPT) {
		(void)write_all(check->pipe, "ended\n", 6);
		close(check->pipe);
		while (waitpid(check->keeper, NULL, 0) < 0 && errno == EINTR) {
		}
	} else if (check->state != CHECK_NOTHING) {
		unlink(check->log);
		rmdir(check->dir);
	}
	free(check);
	cli->checks = NULL;
}

/* ---- What was checked ---- */

struct figures {
	int64_t launches, blocks, accesses;
};

static bool check_daemon_ask(const struct cli *cli, kiln_client *client, struct figures *figures)
{
	kiln_reply *reply;

	if (!cli->checks || kiln_request(client, "info", NULL, 0, &reply))
		return false;
	figures->launches = kiln_reply_int(reply, "checked.launches");
	figures->blocks = kiln_reply_int(reply, "checked.blocks");
	figures->accesses = kiln_reply_int(reply, "checked.accesses");
	kiln_reply_free(reply);
	return true;
}

void check_print(const struct cli *cli, kiln_client *client)
{
	struct figures figures;

	if (!check_daemon_ask(cli, client, &figures))
		return;
	if (figures.launches)
		print_pair("check",
				   "no bad access among %" PRId64 " of %" PRId64 " block%s and %" PRId64
				   " launch%s, threads in %s order",
				   figures.accesses, figures.blocks, figures.blocks == 1 ? "" : "s",
				   figures.launches, figures.launches == 1 ? "" : "es", thread_order(cli));
	else
		print_pair("check", "no kernel ran, so there was nothing to check");
}

void check_print_json(const struct cli *cli, kiln_client *client)
{
	struct figures figures;

	if (!check_daemon_ask(cli, client, &figures))
		return;
	json_int("checked_launches", figures.launches);
	json_int("checked_blocks", figures.blocks);
	json_int("checked_accesses", figures.accesses);
	json_string("thread_order", thread_order(cli));
}
