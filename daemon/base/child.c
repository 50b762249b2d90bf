/*
 * child.c: one uv_poll on the socket, and one report of the end, after all that the child
 * has said.  libuv starts the process and this file reaps it: libuv would reap before it tells, and
 * the group of the process can be killed safely only while the ended process keeps its id from
 * others.
 *
 *   CHILD_RUNS --child_kill()--> CHILD_KILLED --(DEADLINE_CHILD_END_MS pass)--> CHILD_HELD
 *        |                            |                                            |
 *        +-------(it has ended)-------+--------------------------------------------+--> CHILD_ENDED
 *
 * - RUNS: the patience timer, where it runs, will kill the child.
 * - KILLED: SIGKILL is sent; the patience timer will give the child up.
 * - HELD: a driver or a disk holds the process in the kernel; gone() was called, and child_count()
 *   counts it no longer.
 * - ENDED: gone() was called; the handles close, and the last frees the child.
 *
 * abandoned: gone() was called, or the owner wants no call.
 */
#include "child.h"

#include <assert.h>
#include <errno.h>
#include <kiln/kiln.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "closer.h"
#include "deadlines.h"
#include "output.h"
#include "util.h"

/* One turn of the loop reads so much of a child that talks; then clients have their turn. */
#define FRAMES_A_TURN 256
#define BYTES_A_TURN ((size_t)1 << 20)
/* A socket keeps no more of a child that has ended. */
#define FRAMES_AT_END 4096

enum child_state { CHILD_RUNS, CHILD_KILLED, CHILD_HELD, CHILD_ENDED };

struct child {
	uv_process_t process; /* closed once it is started, so that libuv does not reap it */
	uv_signal_t ended;    /* SIGCHLD: some child has ended */
	int pid;
	enum child_state state;
	uv_poll_t poll;
	int watched; /* the events that the poll is started for */
	uv_timer_t patience;
	int sock;
	int open_handles;
	size_t message_most;
	bool abandoned;
	char condemned[256]; /* why it was killed, for gone(): the child or its message is wrong; "" */
	struct frame_queue queue;
	struct child_events events;
	void *owner;
	struct output *output; /* NULL: the child writes to the daemon's stderr itself */
};

static int alive;
#ifdef KILN_TEST_HOOKS
static int spared; /* children that child_kill() will not kill */
static uint64_t end_deadline_ms = DEADLINE_CHILD_END_MS;
#else
static const uint64_t end_deadline_ms = DEADLINE_CHILD_END_MS;
#endif

static void child_watch(struct child *child);

static void child_assert_valid(const struct child *child)
{
	assert(child->open_handles > 0 && child->pid > 0);
	assert(child->state != CHILD_HELD || child->abandoned);
	(void)child;
}

static void on_child_closed(uv_handle_t *handle)
{
	struct child *child = handle->data;
	if (--child->open_handles > 0)
		return;
	frame_queue_free(&child->queue);
	closer_put(getuid(), child->sock);
	alive--;
	free(child);
}

/* A child's first message names its build.  A child of another build may mean other things by its
 * messages: it is condemned, and none of them is handed over. */
static bool is_stranger(struct child *child, struct wire_in *message)
{
	const char *build = wire_get_str(message, &message->root, "build");
	if (strcmp(wire_type(message), "ready") != 0 || (build && !strcmp(build, util_build())))
		return false;
	util_fail(child->condemned, sizeof(child->condemned), 0,
			  "is build %.12s of kilnd, and the daemon is build %.12s: its program was replaced "
			  "while it ran; restart kilnd",
			  build ? build : "(unknown)", util_build());
	return true;
}

static void note_unreadable(struct child *child, const char *why)
{
	if (!child->condemned[0])
		snprintf(child->condemned, sizeof(child->condemned), "sent what cannot be read: %s", why);
}

static int child_take(struct child *child, struct frame *frame)
{
	struct wire_in message;
	int status = wire_parse(&message, frame->data, frame->size);
	if (status != KILN_OK) {
		note_unreadable(child, message.why);
		return status;
	}
	if (is_stranger(child, &message))
		status = KILN_EVERSION;
	else if (!child->abandoned && !child->condemned[0])
		child->events.message(child->owner, &message, frame);
	wire_in_free(&message);
	return status;
}

/* Reads the messages that are there, up to most; false when the socket ended or broke.  Users' code
 * ran in the child, so its descriptors are closed as a user's are. */
static bool read_messages(struct child *child, int most, size_t bytes_most)
{
	size_t bytes = 0;
	for (int i = 0; i < most && bytes < bytes_most; i++) {
		struct frame frame = {0};
		int status = frame_recv_foreign(child->sock, &frame, child->message_most);
		if (status == KILN_EAGAIN)
			return true;
		bytes += frame.size;
		closer_sift(getuid(), &frame);
		if (status == KILN_OK)
			status = child_take(child, &frame);
		else if (status != KILN_ECONN)
			note_unreadable(child, frame.why);
		frame_free_by(&frame, &closer_ours);
		if (status != KILN_OK)
			return false;
	}
	return true;
}

static void on_child_ready(uv_poll_t *poll, int status, int events)
{
	struct child *child = poll->data;
	bool works = status == 0;
	if (works && (events & UV_WRITABLE))
		works = frame_queue_flush(&child->queue, child->sock) != KILN_ECONN;
	if (works && (events & (UV_READABLE | UV_DISCONNECT)))
		works = read_messages(child, FRAMES_A_TURN, BYTES_A_TURN);
	if (child->abandoned) {
		uv_poll_stop(poll); /* the rest of its messages is not read */
	} else if (works) {
		child_watch(child);
	} else {
		/* A child whose socket is gone is of no use; its exit brings the one report. */
		uv_poll_stop(poll);
		child->watched = 0;
		child_kill(child);
	}
}

static void child_watch(struct child *child)
{
	if (child->state == CHILD_ENDED || child->abandoned)
		return;
	int events = UV_READABLE | UV_DISCONNECT | (child->queue.count ? UV_WRITABLE : 0);
	/* uv_poll_start() makes system calls even where nothing changes. */
	if (events != child->watched)
		uv_poll_start(&child->poll, events, on_child_ready);
	child->watched = events;
}

static void child_end(struct child *child, int exit_status, int term_signal)
{
	char why[sizeof(child->condemned)];
	bool was_held = child->state == CHILD_HELD;
	child->state = CHILD_ENDED;
	alive += was_held;
	uv_poll_stop(&child->poll);
	/* The socket may still hold the child's last message, a fault's sentence.  The read is bounded:
	 * a process that the child left behind may write there for ever. */
	read_messages(child, FRAMES_AT_END, child->message_most);
	output_drain(child->output);
	if (was_held)
		util_log(UTIL_INFO, "process %d, which did not end when it was killed, has ended",
				 child->pid);
	if (child->condemned[0])
		snprintf(why, sizeof(why), "%s", child->condemned);
	else if (term_signal)
		snprintf(why, sizeof(why), "was killed by signal %d (%s)", term_signal,
				 strsignal(term_signal));
	else
		snprintf(why, sizeof(why), "ended with status %d", exit_status);
	util_debug("process %d %s", (int)child->pid, why);
	if (!child->abandoned)
		child->events.gone(child->owner, exit_status, term_signal, why);
	output_close(child->output);
	uv_close((uv_handle_t *)&child->ended, on_child_closed);
	uv_close((uv_handle_t *)&child->poll, on_child_closed);
	uv_close((uv_handle_t *)&child->patience, on_child_closed);
}

static void on_child_ended(uv_signal_t *signal, int number)
{
	struct child *child = signal->data;
	siginfo_t info = {0};
	(void)number;
	if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid)
		return;
	/* The programs that the child started, such as a compiler, are in its group. */
	kill(-child->pid, SIGKILL);
	waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG);
	bool exited = info.si_code == CLD_EXITED;
	child_end(child, exited ? info.si_status : 0, exited ? 0 : info.si_status);
}

struct child *child_start(uv_loop_t *loop, const struct child_program *program,
						  const struct child_events *events, void *owner, char *error,
						  size_t error_size)
{
	int pair[2], said = -1;
	char journal[64];
	/* A new process closes its copies of these descriptors, and the loop would wait for that. */
	if (!closer_settle()) {
		util_fail(error, error_size, KILN_EIO,
				  "no child process can be started: descriptors that other programs have sent wait "
				  "to be closed");
		return NULL;
	}
	struct child *child = calloc(1, sizeof(*child));
	if (!child || frame_pair(pair) != KILN_OK) {
		util_fail(error, error_size, KILN_EIO, "cannot make a socket pair for a child process: %s",
				  strerror(errno));
		free(child);
		return NULL;
	}
	child->sock = pair[0];
	child->queue.closer = &closer_ours;
	child->events = *events;
	child->owner = owner;
	child->message_most = program->message_most;
	child->process.data = child;
	child->ended.data = child;
	child->poll.data = child;
	child->patience.data = child;
	child->output = output_open(loop, &said);
	uv_signal_init(loop, &child->ended);
	output_variable(child->output, journal);
	int status = uv_signal_start(&child->ended, on_child_ended, SIGCHLD);
	if (status == 0) {
		status = child_spawn(loop, &child->process, program, pair[1],
							 child->output ? said : STDERR_FILENO, journal);
	}
	child->pid = child->process.pid;
	close(pair[1]);
	if (child->output)
		close(said);
	alive++;
	if (status < 0) {
		util_fail(error, error_size, KILN_EIO, "cannot start a child process: %s",
				  uv_strerror(status));
		output_close(child->output);
		/* A failed uv_spawn() leaves a handle to close; where it was not reached there is none. */
		bool spawned = child->process.type == UV_PROCESS;
		child->open_handles = 1 + spawned;
		uv_close((uv_handle_t *)&child->ended, on_child_closed);
		if (spawned)
			uv_close((uv_handle_t *)&child->process, on_child_closed);
		return NULL;
	}
	util_debug("process %d is started: %s", (int)child->pid,
			   program->arguments[0] ? program->arguments[0] : "kilnd");
	child->open_handles = 4;
	uv_close((uv_handle_t *)&child->process, on_child_closed);
	uv_timer_init(loop, &child->patience);
	uv_poll_init(loop, &child->poll, child->sock);
	child_watch(child);
	return child;
}

int child_send(struct child *child, const struct wire_out *message, const int *fds, int fd_count)
{
	if (message->error)
		return message->error;
	int status = frame_queue_send(&child->queue, child->sock, message->buffer.data,
								  message->buffer.size, fds, fd_count, CHILD_QUEUE_LIMIT);
	if (status == KILN_OK && child->queue.count)
		child_watch(child);
	else if (status == KILN_ECONN)
		child_kill(child);
	return status;
}

/* Reports the end of a child that the kernel holds, and waits for it no longer. */
static void child_give_up(struct child *child)
{
	char why[160];
	util_fail(why, sizeof(why), 0,
			  "was killed, and has not ended for %llu ms: the system holds process %d",
			  (unsigned long long)end_deadline_ms, child->pid);
	util_log(UTIL_WARN, "a child %s", why);
	output_drain(child->output);
	bool reports = !child->abandoned;
	child->state = CHILD_HELD;
	child->abandoned = true;
	alive--;
	uv_poll_stop(&child->poll);
	/* The loop may end while the process is held. */
	uv_unref((uv_handle_t *)&child->ended);
	if (reports)
		child->events.gone(child->owner, 0, SIGKILL, child->condemned[0] ? child->condemned : why);
	output_close(child->output);
	child->output = NULL;
	child_assert_valid(child);
}

static void on_patience(uv_timer_t *timer)
{
	struct child *child = timer->data;
	if (child->state == CHILD_KILLED)
		child_give_up(child);
	else
		child_kill(child);
}

void child_kill(struct child *child)
{
	child_assert_valid(child);
	if (child->state != CHILD_RUNS)
		return;
	child->state = CHILD_KILLED;
	uv_timer_start(&child->patience, on_patience, end_deadline_ms, 0);
#ifdef KILN_TEST_HOOKS
	if (spared && spared--)
		return;
#endif
	/* The child is the leader of its group from its first instruction on (setsid before exec). */
	if (kill(-child->pid, SIGKILL) < 0)
		kill(child->pid, SIGKILL);
}

void child_condemn(struct child *child, const char *why)
{
	snprintf(child->condemned, sizeof(child->condemned), "%s", why);
	child_kill(child);
}

void child_abandon(struct child *child)
{
	child->abandoned = true;
	child_kill(child);
}

void child_dismiss(struct child *child, uint64_t patience_ms)
{
	child->abandoned = true;
	if (child->state == CHILD_ENDED)
		return;
	uv_poll_stop(&child->poll);
	shutdown(child->sock, SHUT_RDWR);
	child_expect_end(child, patience_ms);
}

void child_expect_end(struct child *child, uint64_t patience_ms)
{
	bool waits = uv_is_active((uv_handle_t *)&child->patience);
	if (child->state == CHILD_RUNS &&
		(!waits || uv_timer_get_due_in(&child->patience) > patience_ms))
		uv_timer_start(&child->patience, on_patience, patience_ms, 0);
}

#ifdef KILN_TEST_HOOKS
void child_spare(int count, uint64_t deadline_ms)
{
	spared = count;
	end_deadline_ms = deadline_ms;
}
#endif

void child_tail(const struct child *child, char tail[OUTPUT_TAIL])
{
	output_tail(child->output, tail);
}

int child_pid(const struct child *child)
{
	return child->pid;
}

int child_count(void)
{
	return alive;
}
