/*
 * cpu_worker: the host threads of the device.  Each worker takes the next blocks of a STARTED work,
 * or starts the work at the head of a stream; the last worker to leave a work ends it.
 */
#include "cpu_module.h"
#include "cpu_work.h"
#include "cpu_worker.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Each stack is two mappings; all of them together stay below vm.max_map_count (65530). */
#define MAX_WORKERS 24

static bool has_blocks(const struct cpu_work *work)
{
	return atomic_load(&work->taken) < work->total && atomic_load(&work->status) == KILN_OK;
}

/* Picks a STARTED work with blocks left, else one that may start. *due: when the next delayed
 * one may. */
static struct cpu_work *pick(struct device *device, uint64_t *due)
{
	struct cpu_work *waiting = NULL;
	uint64_t now = 0;
	*due = 0;
	for (struct cpu_stream *stream = device->streams; stream; stream = stream->next) {
		struct cpu_work *work = stream->head;
		if (!work)
			continue;
		if (work->state == CPU_WORK_STARTED) {
			if (has_blocks(work))
				return work;
			continue;
		}
		if (work->due_us != 0 && now == 0)
			now = util_now_us();
		if (work->due_us > now) {
			if (*due == 0 || work->due_us < *due)
				*due = work->due_us;
		} else if (!waiting && cpu_graph_free_to_start(work)) {
			waiting = work;
		}
	}
	return waiting;
}

/* Moves the stream to the end of the list, so that streams take turns.  Frees one that has ended
 * and is empty. */
static void rotate(struct device *device, struct cpu_stream *stream)
{
	struct cpu_stream **link = &device->streams;
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	if (stream->ended && !stream->head) {
		cpu_stream_free(device, stream);
		return;
	}
	while (*link)
		link = &(*link)->next;
	stream->next = NULL;
	*link = stream;
}

static void finish_work(struct device *device, struct cpu_work *work)
{
	struct cpu_stream *stream = work->stream;
	char error[KERNEL_ERROR_MAX];
	cpu_scratch_check(work);
	if (cpu_graph_next(device, work)) {
		rotate(device, stream);
		pthread_cond_broadcast(&device->changed);
		return;
	}
	if (atomic_load(&work->status) == KILN_OK &&
		device_report(&work->report, work->reported, error) != KILN_OK)
		cpu_work_fail(work, KILN_EINDEX, error);
	cpu_graph_blame(work);
	cpu_graph_ended(device, work);
	work->end_us = util_now_us();
	stream->head = work->next;
	if (!stream->head)
		stream->tail = NULL;
	else if (stream->head->delay_us)
		stream->head->due_us = work->end_us + stream->head->delay_us;
	if (stream->head)
		pthread_cond_broadcast(&device->changed);
	cpu_stream_assert_valid(stream);
	rotate(device, stream);
	work->state = CPU_WORK_ENDED;
	work->stream = NULL;
	work->next = NULL;
	struct device *part = work->part;
	*part->done_tail = work;
	part->done_tail = &work->next;
	uint64_t one = 1;
	ssize_t written = write(part->event_fd, &one, sizeof(one));
	(void)written; /* full: readable already */
}

static void copy_chunk(const struct cpu_work *work, uint64_t index)
{
	uint64_t from = index * CPU_COPY_CHUNK;
	if (work->copy_bytes == 0) /* the pointers may be null */
		return;
	uint64_t bytes = work->copy_bytes - from;
	memmove(work->copy_to + from, work->copy_from + from,
			bytes < CPU_COPY_CHUNK ? bytes : CPU_COPY_CHUNK);
}

static void run_blocks(struct cpu_worker *worker, struct cpu_work *work)
{
	worker->work = work;
	if (work->module)
		work->module->about->attach(&worker->state);
	bool checked = work->module && work->module->about->variables;
	if (checked)
		cpu_check_begin(worker);
	while (has_blocks(work)) {
		uint64_t first = atomic_fetch_add(&work->taken, work->chunk);
		for (uint64_t i = first; i < first + work->chunk && i < work->total; i++) {
			if (atomic_load(&work->status) != KILN_OK)
				break; /* of another worker */
			if (!work->module)
				copy_chunk(work, i);
			else if (!cpu_block_run(worker, cpu_order_block(worker, i)))
				break;
			/* One worker alone runs a checked kernel, so nobody else writes this. */
			if (checked)
				work->blocks++;
		}
	}
	if (checked)
		cpu_check_end(worker, work);
	worker->work = NULL;
}

/* Waits until something changes or the first delayed work is due (0: there is none). */
static void wait_for_work(struct device *device, uint64_t due)
{
	if (due == 0) {
		pthread_cond_wait(&device->changed, &device->mutex);
		return;
	}
	struct timespec until = {(time_t)(due / 1000000), (long)(due % 1000000) * 1000};
	pthread_cond_timedwait(&device->changed, &device->mutex, &until);
}

static void *worker_main(void *argument)
{
	struct cpu_worker *worker = argument;
	struct device *device = worker->device;
	if (cpu_fault_enter(worker) != KILN_OK)
		util_log(UTIL_WARN, "a cpu worker has no alternate signal stack: a fault of a kernel will "
							"end the executor without a sentence");
	int event_fds[DEVICE_PARTS_MOST];
	for (int i = 0; i < device->part_count; i++)
		event_fds[i] = device->parts[i]->event_fd;
	sandbox_kernel_thread(event_fds, device->part_count);
	pthread_mutex_lock(&device->mutex);
	while (!device->stopping) {
		uint64_t due;
		struct cpu_work *work = pick(device, &due);
		if (!work) {
			wait_for_work(device, due);
			continue;
		}
		if (work->state == CPU_WORK_QUEUED) {
			work->state = CPU_WORK_STARTED;
			work->start_us = util_now_us();
			cpu_graph_started(work);
			cpu_scratch_give(device, work);
			if (work->total > work->chunk)
				pthread_cond_broadcast(&device->changed);
		}
		work->active++;
		pthread_mutex_unlock(&device->mutex);
		run_blocks(worker, work);
		pthread_mutex_lock(&device->mutex);
		if (--work->active == 0 && !device->given_up)
			finish_work(device, work);
	}
	pthread_mutex_unlock(&device->mutex);
	cpu_fault_leave(worker);
	return NULL;
}

static int start_one(struct device *device, char error[KERNEL_ERROR_MAX])
{
	struct cpu_worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a cpu worker");
	worker->device = device;
	worker->state.runtime = &cpu_runtime;
	int status = cpu_block_prepare(worker, error);
	if (status != KILN_OK) {
		free(worker);
		return status;
	}
	/* The main thread takes the signals of the process; each thread takes its own faults. */
	sigset_t all, old;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int why = pthread_create(&worker->thread, NULL, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (why != 0) {
		cpu_block_release(worker);
		free(worker);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "no thread for a cpu worker: %s (ulimit -u)", strerror(why));
	}
	device->workers[device->worker_count++] = worker;
	return KILN_OK;
}

int cpu_workers_start(struct device *device, int count, char error[KERNEL_ERROR_MAX])
{
	if (count > MAX_WORKERS)
		count = MAX_WORKERS;
	device->workers = calloc((size_t)count, sizeof(*device->workers));
	if (!device->workers)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for cpu workers");
	for (int i = 0; i < count; i++) {
		int status = start_one(device, error);
		if (status != KILN_OK)
			return status;
	}
	return KILN_OK;
}

void cpu_workers_stop(struct device *device)
{
	pthread_mutex_lock(&device->mutex);
	device->stopping = true;
	pthread_cond_broadcast(&device->changed);
	pthread_mutex_unlock(&device->mutex);
	for (int i = 0; i < device->worker_count; i++) {
		pthread_join(device->workers[i]->thread, NULL);
		cpu_block_release(device->workers[i]);
		free(device->workers[i]);
	}
	free(device->workers);
	device->workers = NULL;
}
