/*
 * child: a process and all that it had started end together, and no signal goes to an id that may
 * be another's by then.  The child is this program, with another role.
 */
#include "daemon/child.h"
#include "daemon/util/util.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

/* ---- The child ---- */

/* Leaves one behind in its group, says who that is, and ends as it was told to. */
static int be_child(const char *way)
{
	pid_t left = fork();
	if (left < 0)
		return 99;
	if (left == 0)
		for (;;)
			pause();
	char line[32];
	int size = snprintf(line, sizeof line, "%d\n", (int)left);
	if (write(STDOUT_FILENO, line, (size_t)size) != size)
		return 99;
	if (!strcmp(way, "--killed"))
		raise(SIGTERM);
	while (!strcmp(way, "--stays"))
		pause();
	return 7;
}

/* ---- Signals that are sent ---- */

static int late; /* those to a group whose leader was nobody's child any more */

int __real_kill(pid_t pid, int signal);

int __wrap_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal)
{
	siginfo_t info;
	pid_t leader = pid < 0 ? -pid : pid;
	late += waitid(P_PID, (id_t)leader, &info, WEXITED | WNOHANG | WNOWAIT) != 0;
	return __real_kill(pid, signal);
}

/* ---- Its end ---- */

struct scene {
	uv_loop_t loop;
	struct child *child;
	int gone, exit_status, signal;
	pid_t left; /* what it had started */
	char why[256];
};

static void on_message(void *owner, struct wire_in *message, struct frame *frame)
{
	(void)owner, (void)message, (void)frame;
	fail_msg("the child sent a message");
}

static void on_gone(void *owner, int exit_status, int signal, const char *why)
{
	struct scene *scene = owner;
	char tail[OUTPUT_TAIL];
	child_tail(scene->child, tail);
	scene->left = (pid_t)strtol(tail, NULL, 10);
	scene->gone++;
	scene->exit_status = exit_status;
	scene->signal = signal;
	snprintf(scene->why, sizeof scene->why, "%s", why);
}

static void start(struct scene *scene, const char *way)
{
	const char *const arguments[] = {way, NULL};
	const struct child_program program = {.arguments = arguments, .trail = -1, .message_most = 64};
	const struct child_events events = {on_message, on_gone};
	char error[256] = "";
	*scene = (struct scene){0};
	late = 0;
	assert_int_equal(uv_loop_init(&scene->loop), 0);
	scene->child = child_start(&scene->loop, &program, &events, scene, error, sizeof error);
	if (!scene->child)
		fail_msg("%s", error);
	assert_int_equal(child_count(), 1);
}

/* It has ended, its end is told once, and nothing is left of its group or of the child. */
static void finish(struct scene *scene)
{
	uv_run(&scene->loop, UV_RUN_DEFAULT);
	assert_int_equal(scene->gone, 1);
	assert_int_equal(late, 0);
	assert_int_equal(child_count(), 0);
	/* This program inherits what the child left. */
	int status;
	assert_int_equal(waitpid(scene->left, &status, 0), scene->left);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(uv_loop_close(&scene->loop), 0);
}

static void one_that_leaves(void **state)
{
	struct scene scene;
	(void)state;
	start(&scene, "--leaves");
	finish(&scene);
	assert_int_equal(scene.exit_status, 7);
	assert_int_equal(scene.signal, 0);
	assert_string_equal(scene.why, "ended with status 7");
}

static void one_that_is_killed(void **state)
{
	struct scene scene;
	(void)state;
	start(&scene, "--killed");
	finish(&scene);
	assert_int_equal(scene.exit_status, 0);
	assert_int_equal(scene.signal, SIGTERM);
}

/* Killed by the broker, once it has said something. */
static void one_that_stays(void **state)
{
	struct scene scene;
	char tail[OUTPUT_TAIL];
	(void)state;
	start(&scene, "--stays");
	do {
		uv_run(&scene.loop, UV_RUN_ONCE);
		child_tail(scene.child, tail);
	} while (!strchr(tail, '\n'));
	child_kill(scene.child);
	finish(&scene);
	assert_int_equal(scene.signal, SIGKILL);
}

/* No program: nothing of it stays. */
static void one_that_cannot_start(void **state)
{
	struct scene scene = {0};
	const char *const arguments[] = {NULL};
	const struct child_program program = {
		.arguments = arguments, .wrapper = "/nonexistent/wrapper", .trail = -1};
	const struct child_events events = {on_message, on_gone};
	char error[256] = "";
	(void)state;
	assert_int_equal(uv_loop_init(&scene.loop), 0);
	assert_null(child_start(&scene.loop, &program, &events, &scene, error, sizeof error));
	assert_non_null(strstr(error, "cannot start a child process"));
	uv_run(&scene.loop, UV_RUN_DEFAULT);
	assert_int_equal(scene.gone, 0);
	assert_int_equal(child_count(), 0);
	assert_int_equal(uv_loop_close(&scene.loop), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_leaves),
		cmocka_unit_test(one_that_is_killed),
		cmocka_unit_test(one_that_stays),
		cmocka_unit_test(one_that_cannot_start),
	};
	if (argc > 1)
		return be_child(argv[1]);
	alarm(60);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
