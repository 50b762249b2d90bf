/*
 * launch_mps.c: NVIDIA MPS, the vendor's way to let processes share a GPU: a control daemon of our
 * own in a directory of its own, for the processes that name it, and for nobody else.
 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL "nvidia-cuda-mps-control"
#define START_MS 10000
#define QUIT_MS 15000

extern char **environ;

/* ---- The program ---- */

static bool is_program(const char *directory, size_t length, char path[128])
{
	int bytes = snprintf(path, 128, "%.*s/" CONTROL, (int)length, directory);
	return bytes > 0 && bytes < 128 && access(path, X_OK) == 0;
}

static bool find_program(char path[128])
{
	static const char *const usual[] = {"/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin",
										"/usr/local/cuda/bin", "/opt/nvidia/bin"};
	for (const char *at = getenv("PATH"); at && *at;) {
		size_t length = strcspn(at, ":");
		if (length && is_program(at, length, path))
			return true;
		at += length;
		at += *at == ':';
	}
	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (is_program(usual[i], strlen(usual[i]), path))
			return true;
	return false;
}

/* Runs it with an argument (NULL: none) and input.  Its exit status; -1. */
static int run_control(const struct mps *mps, const char *argument, const char *input,
					   int milliseconds)
{
	const char *arguments[] = {CONTROL, argument, NULL};
	char *environment[1024];
	int ends[2], count = 0, status = -1;
	pid_t pid;
	posix_spawn_file_actions_t actions;
	for (; mps->environment[count]; count++)
		environment[count] = (char *)(uintptr_t)mps->environment[count];
	for (char **at = environ; *at && count < 1023; at++)
		environment[count++] = *at;
	environment[count] = NULL;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	int error = posix_spawn(&pid, mps->program, &actions, NULL, (char *const *)(uintptr_t)arguments,
							environment);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[0]);
	size_t bytes = strlen(input);
	bool told = error || write(ends[1], input, bytes) == (ssize_t)bytes;
	close(ends[1]);
	if (error)
		return -1;
	double end = runner_now_us() + (told ? milliseconds : 0) * 1e3;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (runner_now_us() > end) {
			crew_reap(pid, 0);
			return -1;
		}
		usleep(5000);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- The control daemon ---- */

/* It leaves its number in its directory; 0: it does not run. */
static pid_t control_pid(const struct mps *mps)
{
	char path[128], text[32] = "";
	snprintf(path, sizeof(path), "%s/" CONTROL ".pid", mps->directory);
	FILE *file = fopen(path, "r");
	if (!file)
		return 0;
	bool read = fgets(text, sizeof(text), file) != NULL;
	fclose(file);
	long number = read ? strtol(text, NULL, 10) : 0;
	return number > 1 && kill((pid_t)number, 0) == 0 ? (pid_t)number : 0;
}

/* The signals that end this program end it, too: it would outlive us. */
static volatile sig_atomic_t control_running;

static void on_end(int signal)
{
	if (control_running)
		kill((pid_t)control_running, SIGTERM);
	_exit(128 + signal);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	return remove(path);
}

/* The server sees the devices that its control daemon was given, and its clients number them from
 * 0: to name them as this program does would leave a client without any. */
static void number_devices(struct mps *mps)
{
	const char *named = getenv("CUDA_VISIBLE_DEVICES");
	size_t used = 0;
	if (!named || !*named)
		return;
	used += (size_t)snprintf(mps->devices, sizeof(mps->devices), "CUDA_VISIBLE_DEVICES=0");
	for (int i = 1; (named = strchr(named, ',')) && used < sizeof(mps->devices) - 4; i++, named++)
		used += (size_t)snprintf(mps->devices + used, sizeof(mps->devices) - used, ",%d", i);
	mps->environment[2] = mps->devices;
}

bool mps_start(struct mps *mps, char why[LAUNCH_WHY])
{
	*mps = (struct mps){0};
	if (!find_program(mps->program)) {
		snprintf(why, LAUNCH_WHY, CONTROL " is not installed here");
		return false;
	}
	snprintf(mps->directory, sizeof(mps->directory), "/tmp/kiln-mps-XXXXXX");
	if (!mkdtemp(mps->directory)) {
		snprintf(why, LAUNCH_WHY, "no directory for it: %s", strerror(errno));
		return false;
	}
	snprintf(mps->pipe, sizeof(mps->pipe), "CUDA_MPS_PIPE_DIRECTORY=%s", mps->directory);
	snprintf(mps->log, sizeof(mps->log), "CUDA_MPS_LOG_DIRECTORY=%s", mps->directory);
	mps->environment[0] = mps->pipe;
	mps->environment[1] = mps->log;
	mps->environment[2] = NULL;
	mps->running = true;
	int status = run_control(mps, "-d", "", START_MS);
	if (status != 0) {
		snprintf(why, LAUNCH_WHY, CONTROL " -d ended in %d", status);
		mps_end(mps);
		return false;
	}
	number_devices(mps);
	control_running = control_pid(mps);
	signal(SIGTERM, on_end);
	signal(SIGINT, on_end);
	return true;
}

void mps_end(struct mps *mps)
{
	if (!mps->running)
		return;
	pid_t control = control_pid(mps);
	if (control)
		run_control(mps, NULL, "quit\n", QUIT_MS);
	double end = runner_now_us() + 5e6;
	while (control && kill(control, 0) == 0 && runner_now_us() < end)
		usleep(10000);
	if (control && control_pid(mps) == control) {
		runner_fail("MPS", CONTROL " did not end by \"quit\"; it was killed");
		kill(control, SIGKILL);
	}
	control_running = 0;
	nftw(mps->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	mps->running = false;
}
