/*
 * kiln_check: --check: a daemon of the command's own whose device cpu checks every access of a
 * kernel, with a directory of its own that is gone afterwards.  What it finds ends the call with a
 * sentence, as any failure.
 *
 * A process between the command and the daemon ends the daemon and removes the directory when the
 * command has ended, in whichever way.
 */
#include "kiln_cli.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL_MS (20 * CLI_TIMEOUT_MS) /* checked kernels are slow */
#define START_MS 30000
#define STEP_MS 20
#define STOP_STEPS 500

struct cli_check {
	char dir[80], socket[96], cache[96], log[96], program[PATH_MAX];
	pid_t keeper;
	int pipe; /* open as long as the daemon is wanted */
};

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
		return cli_usage("--check is for device cpu, not %s; see 'Checking a kernel' in the README",
						 cli->device);
	cli->device = "cpu";
	cli->timeout_ms = cli->timeout_ms ? cli->timeout_ms : CALL_MS;
	return CLI_OK;
}

/* ---- The directory ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
	(void)info;
	(void)kind;
	(void)place;
	remove(path);
	return 0;
}

static void remove_all(const char *dir)
{
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int make_directory(struct cli_check *check)
{
	const char *base = getenv("TMPDIR");

	/* The path of a socket has at most 107 bytes. */
	if (!base || base[0] != '/' || strlen(base) > sizeof(check->dir) - 32)
		base = "/tmp";
	snprintf(check->dir, sizeof(check->dir), "%s/kiln-check-XXXXXX", base);
	if (!mkdtemp(check->dir)) {
		fprintf(stderr, "kiln: --check: no directory %s can be made: %s\n", check->dir,
				strerror(errno));
		return CLI_FAILED;
	}
	snprintf(check->socket, sizeof(check->socket), "%s/sock", check->dir);
	snprintf(check->cache, sizeof(check->cache), "%s/cache", check->dir);
	snprintf(check->log, sizeof(check->log), "%s/log", check->dir);
	return CLI_OK;
}

/* ---- The daemon ---- */

/* $KILN_DAEMON, or kilnd beside this program, or in PATH. */
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
		strcpy(slash + 1, "kilnd");
	if (access(program, X_OK) != 0)
		strcpy(program, "kilnd");
}

static _Noreturn void become_daemon(const struct cli_check *check, const char *order)
{
	char *argv[] = {(char *)check->program, (char *)"--socket",   (char *)check->socket,
					(char *)"--cache-dir",  (char *)check->cache, (char *)"--device",
					(char *)"cpu",          (char *)"--memcheck", (char *)"--thread-order",
					(char *)order,          (char *)"--workers",  (char *)"1",
					(char *)"--log-level",  (char *)"warn",       NULL};
	int null = open("/dev/null", O_RDWR);
	int log = open(check->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	unsetenv("KILN_EXECUTOR_WRAPPER");
	if (null >= 0 && log >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(log, 2) == 2)
		execvp(check->program, argv);
	dprintf(log, "%s cannot be started: %s\n", check->program, strerror(errno));
	_exit(127);
}

/* Until the command has gone, or the daemon. */
static _Noreturn void keep(const struct cli_check *check, const char *order, int wanted)
{
	struct pollfd watch = {.fd = wanted, .events = POLLIN};
	pid_t daemon;
	int steps = 0;

	setpgid(0, 0); /* what a terminal interrupts is the command */
	daemon = fork();
	if (daemon == 0)
		become_daemon(check, order);
	while (daemon > 0 && poll(&watch, 1, STEP_MS) <= 0)
		if (waitpid(daemon, NULL, WNOHANG) == daemon)
			_exit(CLI_FAILED);
	if (daemon > 0)
		kill(daemon, SIGTERM);
	while (daemon > 0 && waitpid(daemon, NULL, WNOHANG) == 0) {
		if (++steps == STOP_STEPS)
			kill(daemon, SIGKILL);
		poll(NULL, 0, STEP_MS);
	}
	remove_all(check->dir);
	_exit(CLI_OK);
}

static int start(struct cli_check *check, const char *order)
{
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC) != 0) {
		fprintf(stderr, "kiln: --check: no pipe: %s\n", strerror(errno));
		return CLI_FAILED;
	}
	fflush(NULL);
	check->keeper = fork();
	if (check->keeper == 0) {
		close(pipes[1]);
		keep(check, order, pipes[0]);
	}
	close(pipes[0]);
	check->pipe = pipes[1];
	if (check->keeper > 0)
		return CLI_OK;
	fprintf(stderr, "kiln: --check: no process: %s\n", strerror(errno));
	return CLI_FAILED;
}

/* The last line that the daemon wrote says why it is not there. */
static void print_reason(const struct cli_check *check)
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

static int await(struct cli_check *check)
{
	kiln_connect_options options = {
		.size = sizeof(options), .socket = check->socket, .device = "none", .timeout_ms = START_MS};

	for (int waited = 0; waited < START_MS; waited += STEP_MS) {
		kiln_client *client;
		int status = kiln_connect(&options, &client);
		if (!status) {
			kiln_close(client);
			return CLI_OK;
		}
		if (waitpid(check->keeper, NULL, WNOHANG) == check->keeper) {
			check->keeper = -1;
			break;
		}
		poll(NULL, 0, STEP_MS);
	}
	print_reason(check);
	return CLI_FAILED;
}

int check_open(struct cli *cli)
{
	struct cli_check *check;
	int status;

	if (!cli_value(cli, "check") || cli->check)
		return CLI_OK;
	cli->check = check = calloc(1, sizeof(*check));
	if (!check) {
		fputs("kiln: --check: out of memory\n", stderr);
		return CLI_FAILED;
	}
	check->keeper = check->pipe = -1;
	find_daemon(check->program);
	status = make_directory(check);
	if (!status)
		status = start(check, thread_order(cli));
	if (!status)
		status = await(check);
	cli->socket = check->socket;
	return status;
}

void check_close(struct cli *cli)
{
	struct cli_check *check = cli->check;

	if (!check)
		return;
	if (check->pipe >= 0)
		close(check->pipe);
	while (check->keeper > 0 && waitpid(check->keeper, NULL, 0) < 0 && errno == EINTR) {
	}
	if (check->keeper <= 0 && check->dir[0])
		remove_all(check->dir);
	free(check);
	cli->check = NULL;
}

/* ---- What was checked ---- */

struct figures {
	int64_t launches, blocks, accesses;
};

static bool ask(const struct cli *cli, kiln_client *client, struct figures *figures)
{
	kiln_reply *reply;

	if (!cli->check || kiln_request(client, "info", NULL, 0, &reply))
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

	if (!ask(cli, client, &figures))
		return;
	if (figures.launches)
		print_pair("check",
				   "no bad access in %" PRId64 " launches, %" PRId64 " blocks, %" PRId64
				   " accesses to memory; threads in %s order",
				   figures.launches, figures.blocks, figures.accesses, thread_order(cli));
	else
		print_pair("check", "no kernel ran, so there was nothing to check");
}

void check_print_json(const struct cli *cli, kiln_client *client)
{
	struct figures figures;

	if (!ask(cli, client, &figures))
		return;
	json_int("checked_launches", figures.launches);
	json_int("checked_blocks", figures.blocks);
	json_int("checked_accesses", figures.accesses);
	json_string("thread_order", thread_order(cli));
}
