/*
 * child: a process and all that it had started end together, and no signal goes to an id that may
 * be another's by then; nothing that it sends holds up the broker.  The child is this program, with
 * another role.
 */
#include "daemon/base/child.h"
#include "daemon/base/closer.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <kiln/kiln.h>
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

/* An event, with these descriptors. */
static bool send_event(int sock, const int *fds, int count)
{
	struct wire_out out;
	wire_begin(&out, "event", 0);
	bool sent = wire_end(&out) == KILN_OK &&
				frame_send(sock, out.buffer.data, out.buffer.size, fds, count) == KILN_OK;
	wire_out_free(&out);
	return sent;
}

/* Sends one descriptor that waits for others when it is closed, and one that does not. */
static bool send_descriptors(void)
{
	int fds[2];
	if (pipe(fds) < 0)
		return false;
	fds[1] = frame_memfd("child", 4096);
	return fds[1] >= 0 && send_event(3, fds, 2);
}

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
	int size = snprintf(line, sizeof(line), "%d\n", (int)left);
	if (write(STDOUT_FILENO, line, (size_t)size) != size)
		return 99;
	if (!strcmp(way, "--sends") && !send_descriptors())
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

/* ---- Messages that are taken ---- */

#define ENDLESS 1000000 /* a process that reads so many has no end */

static bool endless; /* there is always one more */
static int taken_endless;

int __real_frame_recv_foreign(int sock, struct frame *frame, size_t limit);

int __wrap_frame_recv_foreign(int sock, struct frame *frame, size_t limit);
int __wrap_frame_recv_foreign(int sock, struct frame *frame, size_t limit)
{
	struct wire_out out;
	if (!endless)
		return __real_frame_recv_foreign(sock, frame, limit);
	if (++taken_endless > ENDLESS)
		fail_msg("what a child's successors write is read without end");
	wire_begin(&out, "event", 0);
	assert_int_equal(wire_end(&out), KILN_OK);
	*frame = (struct frame){.data = malloc(out.buffer.size), .size = out.buffer.size};
	memcpy(frame->data, out.buffer.data, frame->size);
	wire_out_free(&out);
	return KILN_OK;
}

struct scene {
	uv_loop_t loop;
	struct child *child;
	int messages, gone, exit_status, signal;
	pid_t left; /* what it had started */
	char why[256];
};

/* The harmless descriptors of a message are there, and no others. */
static void on_message(void *owner, struct wire_in *message, struct frame *frame)
{
	struct scene *scene = owner;
	assert_string_equal(wire_type(message), "event");
	scene->messages++;
	if (endless)
		return;
	assert_int_equal(frame->fd_count, 2);
	assert_int_equal(frame->fds[0], -1);
	assert_true(frame_fd_is_safe(frame->fds[1], 4096));
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
	snprintf(scene->why, sizeof(scene->why), "%s", why);
}

static void start(struct scene *scene, const char *way)
{
	const char *const arguments[] = {way, NULL};
	const struct child_program program = {
		.arguments = arguments, .trail = -1, .message_most = 4096};
	const struct child_events events = {on_message, on_gone};
	char error[256] = "";
	*scene = (struct scene){0};
	late = 0;
	assert_int_equal(uv_loop_init(&scene->loop), 0);
	scene->child = child_start(&scene->loop, &program, &events, scene, error, sizeof(error));
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

static void one_that_sends_descriptors(void **state)
{
	struct scene scene;
	(void)state;
	start(&scene, "--sends");
	finish(&scene);
	assert_int_equal(scene.exit_status, 7);
	assert_int_equal(scene.messages, 1);
}

/* A process that got away has its socket, and writes and writes. */
static void one_whose_socket_is_never_empty(void **state)
{
	struct scene scene;
	(void)state;
	start(&scene, "--leaves");
	endless = true;
	finish(&scene);
	endless = false;
	assert_true(scene.messages > 0);
	assert_int_equal(scene.exit_status, 7);
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
	assert_null(child_start(&scene.loop, &program, &events, &scene, error, sizeof(error)));
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
		cmocka_unit_test(one_that_sends_descriptors),
		cmocka_unit_test(one_whose_socket_is_never_empty),
		cmocka_unit_test(one_that_cannot_start),
	};
	if (argc > 1)
		return be_child(argv[1]);
	alarm(300);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
