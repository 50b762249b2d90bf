/*
 * cpu: the device that runs kernels on the host: open, close, poll, and the row of functions.
 * Correctness before speed; cpu.h says which file does what.
 */
#include "cpu.h"
#include "cpu_work.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#if defined(__x86_64__)
#define HOST_MODEL "x86-64 host"
#elif defined(__aarch64__)
#define HOST_MODEL "arm64 host"
#else
#define HOST_MODEL "host"
#endif

static void fill_info(struct device_info *info, int workers)
{
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "cpu");
	snprintf(info->model, sizeof(info->model), "%s", HOST_MODEL);
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	info->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
	info->limits = (struct kernel_limits){
		.target = "cpu",
		.max_threads = CPU_MAX_THREADS,
		.shared_default = CPU_SHARED_DEFAULT,
		.shared_optin = CPU_SHARED_OPTIN,
		.grid_x = INT32_MAX,
		.grid_y = 65535,
		.grid_z = 65535,
		.multiprocessors = (uint32_t)workers,
		.warp = CPU_WARP,
	};
}

/* Workers wait for due times, which are of the monotonic clock. */
static int init_locks(struct device *device)
{
	pthread_condattr_t attr;
	if (pthread_condattr_init(&attr) != 0)
		return -1;
	int failed = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) != 0 ||
				 pthread_cond_init(&device->changed, &attr) != 0;
	pthread_condattr_destroy(&attr);
	if (failed)
		return -1;
	if (pthread_mutex_init(&device->mutex, NULL) != 0) {
		pthread_cond_destroy(&device->changed);
		return -1;
	}
	pthread_mutex_init(&device->printed.mutex, NULL);
	return 0;
}

static void free_works(struct cpu_work *work)
{
	while (work) {
		struct cpu_work *next = work->next;
		free(work);
		work = next;
	}
}

/*
 * Waits for the blocks that run, and drops the queued works.  A broken device stays open: its
 * workers are parked in signal handlers, and only the end of the process ends them.
 */
static void cpu_close(struct device *device)
{
	if (!device || atomic_load(&device->broken))
		return;
	cpu_workers_stop(device);
	while (device->streams) {
		struct cpu_stream *next = device->streams->next;
		free_works(device->streams->head);
		cpu_stream_free(device, device->streams);
		device->streams = next;
	}
	pthread_cond_destroy(&device->changed);
	pthread_mutex_destroy(&device->mutex);
	pthread_mutex_destroy(&device->printed.mutex);
	for (int i = device->part_count - 1; i >= 0; i--) {
		struct device *part = device->parts[i];
		free_works(part->done);
		close(part->event_fd);
		free(part);
	}
}

static int cpu_open(const struct device_name *name, struct device **out, struct device_info *info,
					char error[KERNEL_ERROR_MAX])
{
	(void)name; /* the host is one device */
	int status = cpu_fault_install(error);
	if (status != KILN_OK)
		return status;
	struct device *device = calloc(1, sizeof(*device));
	if (!device)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for device cpu");
	device->whole = device->parts[device->part_count++] = device;
	device->done_tail = &device->done;
	device->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (device->event_fd < 0 || init_locks(device) != 0) {
		int why = errno;
		if (device->event_fd >= 0)
			close(device->event_fd);
		free(device);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "device cpu cannot be opened: %s",
						 strerror(why));
	}
	status = cpu_workers_start(device, util_cpu_count(), error);
	if (status != KILN_OK) {
		cpu_close(device);
		return status;
	}
	fill_info(info, device->worker_count);
	*out = device;
	return KILN_OK;
}

/* Workers may write to the descriptors of the parts that are there when they start. */
int cpu_split(struct device *device, int count, struct device **parts, char error[KERNEL_ERROR_MAX])
{
	int workers = device->worker_count;
	cpu_workers_stop(device);
	device->worker_count = 0;
	device->stopping = false;
	while (device->part_count < count) {
		struct device *part = calloc(1, sizeof(*part));
		if (!part || (part->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
			free(part);
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
							 "device cpu cannot have %d parts: %s", count, strerror(errno));
		}
		part->whole = device;
		part->done_tail = &part->done;
		device->parts[device->part_count++] = part;
	}
	memcpy(parts, device->parts, (size_t)count * sizeof(*parts));
	return cpu_workers_start(device, workers, error);
}

/* Starts one worker alone: a checked kernel has its __shared__ variables once, for the one block
 * that runs. */
static int cpu_checked(struct device *device, enum device_order order, char error[KERNEL_ERROR_MAX])
{
	cpu_workers_stop(device);
	device->worker_count = 0;
	device->stopping = false;
	device->order = order;
	return cpu_workers_start(device, 1, error);
}

/* ---- Ends ---- */

static void end_work(struct cpu_work *work)
{
	struct device *part = work->part;
	work->state = CPU_WORK_ENDED;
	work->next = NULL;
	*part->done_tail = work;
	part->done_tail = &work->next;
}

/* Moves all works of the streams to the ends: first the work that broke the device, then the
 * others. */
static void end_all_works(struct device *device, struct cpu_work *culprit)
{
	if (device->given_up)
		return;
	cpu_check_fault(culprit);
	cpu_graph_blame(culprit);
	device->given_up = true; /* workers that still run end nothing any more */
	struct cpu_work *behind = culprit->next;
	end_work(culprit);
	for (struct cpu_stream *stream = device->streams; stream; stream = stream->next) {
		struct cpu_work *next = stream->head == culprit ? behind : stream->head;
		while (next) {
			struct cpu_work *work = next;
			next = work->next;
			cpu_work_fail(work, KILN_EDEVICE,
						  "the device failed in another call while this one was in flight");
			end_work(work);
		}
		stream->head = stream->tail = NULL;
	}
}

static int collect(struct device *part, struct device_done *done, int max, bool *broken)
{
	struct device *device = part->whole;
	int count = 0;
	pthread_mutex_lock(&device->mutex);
	struct cpu_work *culprit = atomic_load(&device->broken);
	*broken = culprit != NULL;
	if (culprit)
		end_all_works(device, culprit);
	while (count < max && part->done) {
		struct cpu_work *work = part->done;
		part->done = work->next;
		if (!part->done)
			part->done_tail = &part->done;
		struct device_done *end = &done[count++];
		end->ticket = work->ticket;
		end->status = atomic_load(&work->status);
		memcpy(end->error, work->error, sizeof(end->error));
		end->reported = work->reported;
		end->micros = work->end_us > work->start_us ? work->end_us - work->start_us : 0;
		end->blocks = work->blocks;
		end->accesses = work->accesses;
		end->culprit = work == culprit;
		if (!culprit) /* else a worker may still be in it */
			free(work);
	}
	pthread_mutex_unlock(&device->mutex);
	return count;
}

static int cpu_poll(struct device *part, int wake_fd, int timeout_ms, struct device_done *done,
					int max, bool *broken)
{
	uint64_t until = timeout_ms > 0 ? util_now_us() + (uint64_t)timeout_ms * 1000 : 0;
	for (;;) {
		int count = collect(part, done, max, broken);
		if (count > 0 || *broken)
			return count;
		struct pollfd fds[2] = {{.fd = wake_fd, .events = POLLIN},
								{.fd = part->event_fd, .events = POLLIN}};
		int ready = poll(fds, 2, timeout_ms);
		uint64_t events;
		if (ready > 0 && fds[1].revents &&
			read(part->event_fd, &events, sizeof(events)) == (ssize_t)sizeof(events))
			continue;
		if (ready > 0 || timeout_ms == 0)
			return collect(part, done, max, broken);
		if (timeout_ms > 0) {
			uint64_t now = util_now_us();
			if (now >= until)
				return collect(part, done, max, broken);
			timeout_ms = (int)((until - now + 999) / 1000);
		}
	}
}

const struct device_ops device_cpu = {
	.open = cpu_open,
	.check = cpu_checked,
	.close = cpu_close,
	.split = cpu_split,
	.alloc = cpu_alloc,
	.import = cpu_import,
	.share = cpu_share,
	.free = cpu_free,
	.load = cpu_load,
	.describe = cpu_describe,
	.unload = cpu_unload,
	.launch = cpu_launch,
	.copy = cpu_copy,
	.cancel = cpu_cancel,
	.begun_us = cpu_begun_us,
	.stream_end = cpu_stream_end,
	.graph_make = cpu_graph_make,
	.graph_launch = cpu_graph_launch,
	.scratch_bytes = cpu_scratch_bytes,
	.printed = cpu_printed,
	.graph_free = cpu_graph_free,
	.poll = cpu_poll,
};
