/*
 * executor_say: sends messages to the broker: answers, and what the process says by itself: that it
 * is ready, that it lives, how much scratch memory there is, and why it leaves.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/heart.h"
#include "daemon/base/util.h"
#include "executor.h"

#include <stdlib.h>
#include <unistd.h>

#define DEVICES_LISTED (DEVICE_ORDINAL_MOST + 1)

/* The heart's thread sends these; they are made before it starts. */
struct pulse_out {
	int sock;
	struct wire_out beats[2]; /* by whether the process is busy */
};

void exec_send(struct exec *executor, struct wire_out *message, int fd)
{
	int status = wire_end(message);
	pthread_mutex_lock(&executor->saying);
	if (status == KILN_OK)
		status = frame_queue_send(&executor->queue, executor->sock, message->buffer.data,
								  message->buffer.size, &fd, fd >= 0, EXEC_MAX_QUEUE);
	executor->queued = executor->queue.count;
	pthread_mutex_unlock(&executor->saying);
	wire_out_free(message);
	/* The broker waits for this message.  A process that cannot send it has to be replaced. */
	if (status != KILN_OK) {
		if (status != KILN_ECONN)
			util_log(UTIL_ERROR, "an executor cannot answer the broker (%d) and ends", status);
		executor->ended = true;
	}
	if (status != KILN_OK || executor->queued > 0)
		exec_tell(executor);
}

void exec_reply(struct exec *executor, uint64_t id, int status, const char *error)
{
	struct wire_out message;
	wire_begin(&message, "reply", id);
	wire_put_int(&message, "st", status);
	if (status != KILN_OK)
		wire_put_str(&message, "err", error);
	exec_send(executor, &message, -1);
}

static void put_info(struct wire_out *out, const struct device_info *info)
{
	const struct kernel_limits *limits = &info->limits;
	wire_put_str(out, "name", info->name);
	wire_put_str(out, "model", info->model);
	wire_put_str(out, "uuid", info->uuid);
	wire_put_str(out, "bus", info->bus);
	wire_put_uint(out, "memory", info->memory_bytes);
	wire_put_str(out, "target", limits->target);
	wire_put_uint(out, "max_threads", limits->max_threads);
	wire_put_uint(out, "shared_default", limits->shared_default);
	wire_put_uint(out, "shared_optin", limits->shared_optin);
	wire_put_ints(out, "grid", (int64_t[]){limits->grid_x, limits->grid_y, limits->grid_z}, 3);
	wire_put_uint(out, "mps", limits->multiprocessors);
	wire_put_uint(out, "warp", limits->warp);
}

/* All that the driver shows: the broker learns of devices that nobody has opened. */
static void put_list(const struct exec *executor, struct wire_out *out)
{
	struct device_info *seen;
	if (!executor->ops->list)
		return;
	seen = util_alloc(DEVICES_LISTED * sizeof(*seen));
	int count = executor->ops->list(executor->device, seen, DEVICES_LISTED);
	wire_list_begin(out, "seen");
	for (int i = 0; i < count; i++) {
		wire_map_begin(out, NULL);
		put_info(out, &seen[i]);
		wire_map_end(out);
	}
	wire_list_end(out);
	free(seen);
}

void exec_say_ready(struct exec *executor, int status, const char *error, const char *held)
{
	struct wire_out message;
	wire_begin(&message, "ready", 0);
	wire_put_str(&message, "build", util_build());
	wire_put_int(&message, "st", status);
	if (status != KILN_OK) {
		wire_put_str(&message, "err", error);
		exec_send(executor, &message, -1);
		return;
	}
	put_info(&message, &executor->info);
	put_list(executor, &message);
	wire_put_str(&message, "sandbox", held);
	wire_put_int(&message, "launchers", executor->launcher_count);
	exec_send(executor, &message, -1);
}

void exec_say_printed(struct exec *executor)
{
	char text[DEVICE_PRINTED_MOST];
	uint64_t cut = 0;
	struct wire_out message;
	size_t size = executor->own ? executor->ops->printed(executor->device, text, &cut) : 0;
	if (size == 0)
		return;
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "printed");
	wire_put_bin(&message, "text", text, size);
	wire_put_uint(&message, "cut", cut);
	exec_send(executor, &message, -1);
}

void exec_say_fault(struct exec *executor, const struct device_done *culprit)
{
	struct wire_out message;
	exec_say_printed(executor);
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "fault");
	wire_put_str(&message, "err", culprit ? culprit->error : "the device failed");
	if (culprit)
		wire_put_uint(&message, "ticket", culprit->ticket);
	if (culprit)
		wire_put_int(&message, "st", culprit->status);
	uint64_t until = util_now_us() + DEADLINE_LAST_WORDS_MS * 1000;
	pthread_mutex_lock(&executor->saying); /* for good: these are the last words */
	while (executor->queue.count > 0 && util_now_us() < until &&
		   frame_queue_flush(&executor->queue, executor->sock) == KILN_EAGAIN)
		usleep(PAUSE_LAST_WORDS_US);
	if (wire_end(&message) == KILN_OK)
		frame_send_wait(executor->sock, message.buffer.data, message.buffer.size, NULL, 0,
						DEADLINE_LAST_WORDS_MS);
	wire_out_free(&message);
}

void exec_say_scratch(struct exec *executor)
{
	struct wire_out message;
	uint64_t bytes = executor->ops->scratch_bytes(executor->device);
	if (bytes == executor->scratch_told)
		return;
	executor->scratch_told = bytes;
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "scratch");
	wire_put_uint(&message, "bytes", bytes);
	exec_send(executor, &message, -1);
}

/* The heart's thread calls this.  A frame is sent whole or not at all, so beats may go between
 * the messages of the main thread. */
static bool on_beat(void *arg, bool busy)
{
	const struct pulse_out *out = arg;
	const struct wire_out *message = &out->beats[busy];
	return frame_send(out->sock, message->buffer.data, message->buffer.size, NULL, 0) == KILN_OK;
}

struct heart *exec_heart_start(const struct exec_options *options)
{
	static struct pulse_out out;
	if (!options->beat_ms)
		return NULL;
	out.sock = options->sock;
	for (int busy = 0; busy < 2; busy++) {
		wire_begin(&out.beats[busy], "event", 0);
		wire_put_str(&out.beats[busy], "what", "alive");
		wire_put_bool(&out.beats[busy], "busy", busy);
		if (wire_end(&out.beats[busy]) != KILN_OK)
			return NULL;
	}
	return heart_start(options->beat_ms, on_beat, &out);
}
