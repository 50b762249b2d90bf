/*
 * executor: the process that owns one device: opens it, then serves the broker until the socket
 * ends or the device breaks.  This is the main thread, which also is the first launcher; what may
 * take long is the device's.
 */
#include "executor.h"
#include "executor_buffer.h"
#include "executor_flight.h"
#include "executor_graph.h"
#include "executor_lane.h"
#include "executor_module.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/heart.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FRAMES_PER_TURN 64
#define FRAMES_BESIDE_LANES 4 /* while entries of lanes wait */
#define EVENTS_PER_TURN 16
#define LAUNCHERS_BY_ITSELF 4
#define CPUS_OF_A_LAUNCHER 4
#define DEVICES_COUNTED 16
#define NAP_SLACK_NS 1000 /* naps of 20 us end 50 us late by default */

/* ---- Start ---- */

/* There is no sandbox for a wrapped process, because the sandbox would take away what the wrapper
 * needs, and none for checked kernels, because it forbids to start addr2line. */
static int enter_sandbox(const struct exec_options *options, enum sandbox_role role,
						 char held[SANDBOX_TEXT], char error[KERNEL_ERROR_MAX])
{
	enum sandbox_mode mode = options->wrapped || options->check ? SANDBOX_OFF : options->sandbox;
	return sandbox_enter(role, mode, NULL, held, error, KERNEL_ERROR_MAX);
}

/* Opens the device that options name, and enters the sandbox. */
static int open_device(struct exec *executor, const struct exec_options *options,
					   char held[SANDBOX_TEXT], char error[KERNEL_ERROR_MAX])
{
	int status = KILN_OK;
	const char *text = options->device ? options->device : "";
	struct device_name name;
	if (!device_name_read(text, strlen(text), &name))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "\"%.40s\" names no device: cpu, cuda:0, cuda:1 ... and UUIDs of GPUs do",
						 text);
	executor->ops = name.cpu ? &device_cpu : &device_cuda;
	if (options->check && !executor->ops->check)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "kernels cannot be checked on device %s: --memcheck is for device cpu",
						 text);
	/* The cpu device makes its threads within the sandbox; a driver opens its device before. */
	if (executor->ops == &device_cpu)
		status = enter_sandbox(options, SANDBOX_HOST, held, error);
	if (status == KILN_OK)
		status = executor->ops->open(&name, &executor->device, &executor->info, error);
	/* A program that watches the process shows what kernels print itself. */
	executor->own = options->own && !options->wrapped;
	if (status == KILN_OK && executor->own && executor->ops->keep_printed)
		status = executor->ops->keep_printed(executor->device, error);
	if (status == KILN_OK && executor->ops != &device_cpu)
		status = enter_sandbox(options, SANDBOX_DRIVER, held, error);
	return status == KILN_OK && options->check
			   ? executor->ops->check(executor->device, options->order, error)
			   : status;
}

/* Makes the descriptor that the device's poll() watches: readable when the socket has something
 * for this process. */
static int watch_socket(struct exec *executor, char error[KERNEL_ERROR_MAX])
{
	struct epoll_event event = {.events = EPOLLIN};
	executor->watched = EPOLLIN;
	executor->launchers[0].epoll = epoll_create1(EPOLL_CLOEXEC);
	if (executor->launchers[0].epoll >= 0 &&
		epoll_ctl(executor->launchers[0].epoll, EPOLL_CTL_ADD, executor->sock, &event) == 0)
		return KILN_OK;
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "the broker's socket cannot be watched: %s",
					 strerror(errno));
}

/* ---- The loop ---- */

static void watch_what_is_needed(struct exec *executor)
{
	/* Without EPOLLIN requests wait in the socket. */
	unsigned events = exec_may_receive(executor) ? (unsigned)EPOLLIN : 0;
	if (executor->queued > 0)
		events |= EPOLLOUT;
	if (events == executor->watched)
		return;
	struct epoll_event event = {.events = events};
	epoll_ctl(executor->launchers[0].epoll, EPOLL_CTL_MOD, executor->sock, &event);
	executor->watched = events;
}

static void receive_one(struct exec *executor, struct frame *frame)
{
	struct wire_in message;
	int status = wire_parse(&message, frame->data, frame->size);
	if (status == KILN_OK) {
		exec_request_serve(executor, &message, frame);
		wire_in_free(&message);
	} else {
		util_log(UTIL_ERROR, "an executor cannot read the broker's message: %s", message.why);
		executor->ended = true;
	}
}

/* A frame takes as long as a few launches do, so many of them would keep lanes waiting.  The next
 * turn reads on. */
static bool lets_lanes_go(struct exec *executor)
{
	const struct launcher *launcher = &executor->launchers[0];
	if (!exec_lanes_may_launch(launcher) || !exec_lanes_waiting(launcher))
		return false;
	atomic_store(&executor->looks, true);
	return true;
}

static void receive_frames(struct exec *executor)
{
	for (int i = 0; i < FRAMES_PER_TURN && !executor->ended && exec_may_receive(executor); i++) {
		struct frame frame;
		if (i >= FRAMES_BESIDE_LANES && lets_lanes_go(executor))
			return;
		int status = frame_recv(executor->sock, &frame, EXEC_MAX_MESSAGE);
		if (status == KILN_EAGAIN)
			return;
		if (status == KILN_OK) {
			receive_one(executor, &frame);
		} else {
			if (status != KILN_ECONN)
				util_log(UTIL_ERROR, "an executor cannot receive from the broker: %s", frame.why);
			executor->ended = true;
		}
		frame_free(&frame);
	}
}

/* Reads and writes the socket as far as it is ready.  A lane's doorbell has done its work when
 * it woke this process.  A hang-up counts also while nothing more is read. */
static void serve_socket(struct exec *executor)
{
	struct epoll_event events[EVENTS_PER_TURN];
	unsigned ready = 0;
	int count = epoll_wait(executor->launchers[0].epoll, events, EVENTS_PER_TURN, 0);
	for (int i = 0; i < count; i++)
		if (!events[i].data.ptr)
			ready = events[i].events;
	if (!(ready & EPOLLIN) && count < EVENTS_PER_TURN && (executor->watched & EPOLLIN))
		executor->empty++;
	if (ready & EPOLLOUT) {
		pthread_mutex_lock(&executor->saying);
		int status = frame_queue_flush(&executor->queue, executor->sock);
		executor->queued = executor->queue.count;
		pthread_mutex_unlock(&executor->saying);
		if (status != KILN_OK && status != KILN_EAGAIN)
			executor->ended = true;
	}
	if (ready && (executor->watched & EPOLLIN))
		receive_frames(executor);
	else if (ready & (EPOLLHUP | EPOLLERR))
		executor->ended = true;
}

/* Waits for the device, the socket, doorbells and launchers. */
static int look(struct exec *executor, int patience, struct device_done *done, bool *broken)
{
	struct launcher *launcher = &executor->launchers[0];
	if (patience != 0) {
		atomic_store(&executor->sleeps, true);
		if (atomic_load(&executor->told) || atomic_load(&executor->looks))
			patience = 0;
	}
	if (patience != 0 && launcher_in_flight(launcher) == 0)
		atomic_store_explicit(&launcher->active, 0, memory_order_relaxed);
	if (patience != 0 && launcher_in_flight(launcher) == 0 && !executor->quiet.first &&
		executor->queued == 0)
		heart_busy(executor->heart, &launcher->busy, false);
	int count = launcher->ops->poll(launcher->device, launcher->epoll, patience, done,
									LAUNCHER_ENDS, broken);
	heart_busy(executor->heart, &launcher->busy, true);
	atomic_store_explicit(&executor->sleeps, false, memory_order_relaxed);
	return count;
}

/* Launchers tell of ends while this is set, for which a task or a request may wait. */
static void want_ends(struct exec *executor)
{
	bool wants = executor->quiet.first || !exec_may_receive(executor);
	if (wants != atomic_load_explicit(&executor->wants_ends, memory_order_relaxed))
		atomic_store(&executor->wants_ends, wants);
	if (wants)
		atomic_thread_fence(memory_order_seq_cst);
}

static void serve(struct exec *executor)
{
	struct launcher *launcher = &executor->launchers[0];
	struct device_done done[LAUNCHER_ENDS];
	uint64_t asked_us = 0;
	while (!executor->ended) {
		bool broken = false;
		launcher->now_us = launcher->turn_us = util_now_us();
		launchers_listen(executor);
		want_ends(executor);
		exec_quiet_serve(executor, exec_lanes_waiting);
		exec_lanes_serve(launcher);
		int patience = exec_quiet_patience(executor, exec_lanes_patience(launcher));
		patience = exec_account_patience(launcher, exec_pace_patience(launcher, patience));
		if (patience != 0 && !exec_lanes_sleep(launcher))
			patience = 0;
		watch_what_is_needed(executor);
		int count = look(executor, patience, done, &broken);
		if (patience != 0) {
			exec_lanes_wake(launcher);
			launcher->now_us = util_now_us();
		}
		launcher_take_ends(launcher, done, count, broken);
		/* While this process spins on lanes, it makes these system calls only now and then. */
		if (patience != 0 || launcher->now_us - asked_us >= PAUSE_SOCKET_LOOK_US ||
			atomic_load_explicit(&executor->looks, memory_order_relaxed)) {
			asked_us = launcher->now_us;
			atomic_store_explicit(&executor->looks, false, memory_order_relaxed);
			exec_say_scratch(executor);
			serve_socket(executor);
		}
		exec_lanes_nap(launcher);
	}
}

/* ---- End ---- */

/* While work is in flight, nothing can be freed: the end of the process frees everything.  Then
 * this returns false, and the threads of launchers wait for it. */
static bool take_down(struct exec *executor)
{
	struct exec_buffer *buffer;
	struct exec_module *module;
	launchers_stop(executor);
	frame_queue_free(&executor->queue);
	if (exec_in_flight(executor) > 0)
		return false;
	for (int i = 0; i < executor->launcher_count; i++)
		exec_graphs_drop(&executor->launchers[i], 0);
	launchers_listen(executor);
	exec_quiet_close(executor);
	launchers_end(executor);
	while ((buffer = map_take(&executor->buffers))) {
		executor->ops->free(executor->device, buffer->memory);
		free(buffer);
	}
	while ((module = map_take(&executor->modules))) {
		executor->ops->unload(executor->device, module->module);
		free(module);
	}
	map_free(&executor->buffers);
	map_free(&executor->modules);
	map_free(&executor->generics);
	launchers_close(executor);
	exec_trail_close(executor);
	executor->ops->close(executor->device);
	return true;
}

/* With few sessions there is one thread (launcher.c); for 64 of them, on an H200 with 16 CPUs, four
 * threads make 1.04 to 1.4 times the launches of one.  Programs that wait for their launches, and
 * the threads of other GPUs, need CPUs, too. */
static int launchers_by_itself(const struct exec *executor)
{
	struct device_info seen[DEVICES_COUNTED];
	if (executor->ops != &device_cuda)
		return 1;
	int devices = executor->ops->list(executor->device, seen, DEVICES_COUNTED);
	int count = executor->cpus / CPUS_OF_A_LAUNCHER / (devices > 1 ? devices : 1);
	if (count < 1)
		return 1;
	return count < LAUNCHERS_BY_ITSELF ? count : LAUNCHERS_BY_ITSELF;
}

static int count_launchers(const struct exec *executor, const struct exec_options *options)
{
	if (options->own || options->check)
		return 1;
	if (options->launchers < 1)
		return launchers_by_itself(executor);
	return options->launchers < DEVICE_PARTS_MOST ? options->launchers : DEVICE_PARTS_MOST;
}

static int start(struct exec *executor, const struct exec_options *options, char held[SANDBOX_TEXT],
				 char error[KERNEL_ERROR_MAX])
{
	int status = executor->trail ? watch_socket(executor, error)
								 : util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory");
	if (status == KILN_OK)
		status = open_device(executor, options, held, error);
	if (status == KILN_OK)
		status = launchers_open(executor, count_launchers(executor, options), launcher_run, error);
	return status;
}

int exec_main(const struct exec_options *options)
{
	struct exec *executor = util_alloc(sizeof(*executor));
	char error[KERNEL_ERROR_MAX] = "", held[SANDBOX_TEXT] = "";
	executor->sock = options->sock;
	executor->cpus = util_cpu_count();
	executor->alone = executor->cpus == 1;
	executor->launchers[0].epoll = -1;
	pthread_mutex_init(&executor->saying, NULL);
	exec_quiet_open(executor, options->quiet_patience_ms);
	exec_account_open(executor);
	exec_trail_open(executor, options->trail);
	exec_give_up_rights(options);
	int status = start(executor, options, held, error);
	/* This thread and its launchers, which inherit it, nap more exactly; the driver's do not. */
	prctl(PR_SET_TIMERSLACK, NAP_SLACK_NS, 0, 0, 0);
	if (!misdeed_do((enum misdeed)options->test_misdeed, executor->sock, "ready", 0))
		exec_say_ready(executor, status, error, held);
	bool idle = true;
	if (status == KILN_OK) {
		executor->heart = exec_heart_start(options);
		serve(executor);
		idle = take_down(executor);
	}
	if (executor->launchers[0].epoll >= 0)
		close(executor->launchers[0].epoll);
	close(executor->sock);
	if (idle)
		free(executor);
	return status == KILN_OK ? 0 : EXEC_EXIT_NO_DEVICE;
}
