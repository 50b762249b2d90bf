/*
 * cuda_poll: waits for works to end, and reports their ends.  It must not know the purpose of a
 * work.
 *
 * Waiting is adaptive.  The thread spins for a moment, which catches short kernels; then it takes
 * naps that grow with the time already waited.  So a long kernel costs little CPU, and the thread
 * sees its end late by at most an eighth of its time.  While nothing runs, the thread sleeps until
 * it is woken.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_cell.h"
#include "cuda_graph.h"
#include "cuda_module.h"
#include "cuda_print.h"
#include "cuda_stream.h"
#include "cuda_work.h"
#include "daemon/base/deadlines.h"
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Starts held works whose time has come.  Works that do not start are FAILED, for the next
 * report. */
static void start_due(struct device *device, uint64_t now)
{
	struct cuda_stream *next;
	for (struct cuda_stream *stream = device->active; stream; stream = next) {
		next = stream->active_next;
		while (cuda_stream_ready(stream) && stream->held.head->due_us <= now && !device->broken) {
			struct cuda_work *work = cuda_queue_take(&stream->held);
			work->status = work->canceled
							   ? util_fail(work->error, sizeof(work->error), KILN_ECANCELED,
										   "the call was canceled before it started")
							   : cuda_start(device, stream, work, work->error);
			if (work->status != KILN_OK) {
				work->state = CUDA_WORK_FAILED;
				cuda_queue_add(&device->failed, work);
			}
		}
		cuda_stream_settle(device, stream);
	}
}

/* Carries the fraction of a microsecond over to the next answer, so that sums stay exact. */
static uint64_t elapsed_us(struct device *device, const struct cuda_work *work)
{
	float ms = 0;
	if (work->untimed)
		return 0;
	if (device->cu.cuEventElapsedTime(&ms, work->begin, work->end) != CUDA_SUCCESS || !(ms > 0))
		return 0;
	double exact = (double)ms * 1000.0 + device->fraction_us;
	uint64_t whole = (uint64_t)exact;
	device->fraction_us = exact - (double)whole;
	return whole;
}

static void report_work(struct device *device, struct cuda_work *work, int status,
						const char *error, uint64_t micros, struct device_done *done)
{
	done->ticket = work->ticket;
	done->status = status;
	done->micros = micros;
	done->culprit = work->suspect;
	done->reported = work->reported ? work->reported->value : 0;
	done->error[0] = 0;
	if (*error)
		snprintf(done->error, sizeof(done->error), "%s", error);
	cuda_work_retire(device, work);
}

/* Behind a recorded launch the GPU tells this process alone. */
static void tell_client(const struct cuda_work *work)
{
	if (work->record && work->done_word)
		atomic_store_explicit((_Atomic uint32_t *)(uintptr_t)work->done_word, work->done_value,
							  memory_order_release);
}

/* Collects what has ended.  Stops at the first sign that the device is broken. */
static int collect(struct device *device, struct device_done *done, int max)
{
	int count = 0;
	for (struct cuda_work *work; count < max && (work = cuda_queue_take(&device->failed));)
		report_work(device, work, work->status, work->error, 0, &done[count++]);
	struct cuda_stream *next;
	for (struct cuda_stream *stream = device->active; stream && !device->broken; stream = next) {
		next = stream->active_next;
		while (count < max && stream->running.head) {
			char error[KERNEL_ERROR_MAX];
			const struct cuda_work *head = stream->running.head;
			CUresult result = head->untimed ? cuda_mark_query(device, stream, head)
											: device->cu.cuEventQuery(head->end);
			if (result == CUDA_ERROR_NOT_READY)
				break;
			int status = KILN_OK;
			if (result != CUDA_SUCCESS)
				status = cuda_fail(device, error, KILN_EDEVICE, result,
								   "%s does not say whether the call ended", device->name);
			if (device->broken)
				break;
			struct cuda_work *work = cuda_queue_take(&stream->running);
			if (status == KILN_OK)
				tell_client(work);
			if (status == KILN_OK)
				status = cuda_report_read(work, error);
			device->running--;
			device->progress_us = device->now_us;
			cuda_print_flush(device, stream, work);
			report_work(device, work, status, status == KILN_OK ? "" : error,
						status == KILN_OK ? elapsed_us(device, work) : 0, &done[count++]);
		}
		if (!device->broken)
			cuda_stream_settle(device, stream);
	}
	return count;
}

/* ---- A device that cannot go on ---- */

/* True: works of other parts may have made the device fail, too. */
static bool others_run(const struct device *device)
{
	for (int i = 0; i < device->part_count; i++)
		if (device->parts[i] != device && device->parts[i]->running > 0)
			return true;
	return false;
}

/* Names the works that may have made the device fail: the first unfinished one of each stream. */
static int suspects(const struct device *device, char *text, size_t size)
{
	int count = 0;
	size_t used = 0;
	text[0] = 0;
	for (const struct cuda_stream *s = device->active; s; s = s->active_next) {
		const struct cuda_work *work = s->running.head;
		if (!work)
			continue;
		count++;
		used = util_append(text, size, used, "%s%llu", count > 1 ? ", " : "",
						   (unsigned long long)work->ticket);
		if (work->kind == CUDA_WORK_KERNEL)
			used = util_append(text, size, used, " (%.40s)", work->module->entry);
		if (work->kind == CUDA_WORK_GRAPH)
			used = util_append(text, size, used, " (a graph of %d launches)", work->graph->count);
	}
	if (count > 0 && others_run(device)) {
		count++;
		util_append(text, size, used, " and others that ran beside");
	}
	return count;
}

static void condemn_work(struct device *device, struct cuda_work *work, const char *how,
						 const char *who)
{
	size_t size = sizeof(work->error);
	work->state = CUDA_WORK_FAILED;
	work->status = KILN_EDEVICE;
	size_t used = util_append(work->error, size, 0, "%s ", device->name);
	used = util_append(work->error, size, used, "%s%s%s", how, *who ? " " : "", who);
	util_append(work->error, size, used, ": %s", device->broken_why);
	cuda_queue_add(&device->failed, work);
}

/* Makes all works FAILED, the suspects first: the first end that is reported names one of them. */
static void condemn(struct device *device)
{
	char who[120];
	int count = suspects(device, who, sizeof(who));
	const char *others = count > 1 ? "failed before this call had ended, in one of the calls"
						 : count   ? "failed before this call had ended, in call"
								   : "failed before this call had ended, in an earlier call";
	for (struct cuda_stream *stream = device->active; stream; stream = stream->active_next) {
		struct cuda_work *work = cuda_queue_take(&stream->running);
		if (!work)
			continue;
		work->suspect = true;
		condemn_work(device, work, count > 1 ? others : "failed in call", who);
	}
	struct cuda_stream *next;
	for (struct cuda_stream *stream = device->active; stream; stream = next) {
		next = stream->active_next;
		for (struct cuda_work *work;
			 (work = cuda_queue_take(&stream->running)) || (work = cuda_queue_take(&stream->held));)
			condemn_work(device, work, others, who);
		cuda_stream_settle(device, stream);
	}
	device->running = 0;
}

/* ---- Waiting ---- */

static uint64_t wake_time(const struct device *device, uint64_t now, uint64_t deadline)
{
	uint64_t until = deadline;
	if (device->running > 0) {
		uint64_t waited = now > device->progress_us ? now - device->progress_us : 0;
		uint64_t nap = waited / 8;
		if (waited < PAUSE_CUDA_SPIN_US)
			return now;
		nap = nap < PAUSE_NAP_LEAST_US  ? PAUSE_NAP_LEAST_US
			  : nap > PAUSE_NAP_MOST_US ? PAUSE_NAP_MOST_US
										: nap;
		if (now + nap < until)
			until = now + nap;
	}
	for (const struct cuda_stream *s = device->active; s; s = s->active_next)
		if (cuda_stream_ready(s) && s->held.head->due_us < until)
			until = s->held.head->due_us;
	return until;
}

/* Returns true if the caller is wanted: woken, or out of time. */
static bool rest(const struct device *device, int wake_fd, uint64_t deadline)
{
	uint64_t now = device->now_us;
	if (now >= deadline)
		return true;
	uint64_t until = wake_time(device, now, deadline);
	uint64_t left = until > now ? until - now : 0;
	struct timespec time = {(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
	struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
	return ppoll(&wake, 1, until == UINT64_MAX ? NULL : &time, NULL) != 0;
}

int cuda_poll(struct device *device, int wake_fd, int timeout_ms, struct device_done *done, int max,
			  bool *broken)
{
	uint64_t deadline = UINT64_MAX;
	*broken = false;
	device->now_us = util_now_us();
	if (timeout_ms >= 0)
		deadline = device->now_us + (uint64_t)timeout_ms * 1000;
	for (;; device->now_us = util_now_us()) {
		start_due(device, device->now_us);
		cuda_marks_write(device);
		int count = collect(device, done, max);
		if (device->broken) {
			cuda_print_assertion(device);
			condemn(device);
			count += collect(device, done + count, max - count);
			*broken = true;
			return count;
		}
		if (count > 0 || timeout_ms == 0)
			return count;
		if (rest(device, wake_fd, deadline)) {
			device->now_us = util_now_us();
			return 0;
		}
	}
}

#endif
