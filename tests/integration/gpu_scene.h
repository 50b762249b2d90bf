/*
 * gpu_scene.h: a daemon over the fake driver, whose GPUs are what a file says that the test writes
 * (tests/unit/exec/cuda/fake_cuda.c).
 */
#ifndef KILN_TESTS_GPU_SCENE_H
#define KILN_TESTS_GPU_SCENE_H

#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void gpu_is(const struct kilnd *daemon, const char *settings)
{
	char path[96], text[256] = {0};
	int fd;
	snprintf(path, sizeof(path), "%s/gpu", daemon->dir);
	/* Always as long, and by one write: whoever reads meanwhile sees the old or the new. */
	memset(text, ',', sizeof(text) - 1);
	memcpy(text, settings, strlen(settings));
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(pwrite(fd, text, sizeof(text), 0), sizeof(text));
	close(fd);
}

#ifdef KILN_FAKE_CUDA_LIBRARY
/* devices: as --device takes them. */
static inline void gpu_start(struct kilnd *daemon, const char *settings, const char *devices)
{
	char path[96];
	snprintf(path, sizeof(path), "%s/gpu", daemon->dir);
	setenv("KILN_LIBCUDA", KILN_FAKE_CUDA_LIBRARY, 1);
	setenv("KILN_FAKE_CUDA_IMAGES", "1", 1);
	setenv("KILN_FAKE_CUDA_FILE", path, 1);
	gpu_is(daemon, settings);
	kilnd_start(daemon, OPTIONS("--device", devices));
}
#endif

static inline void gpu_end(struct kilnd *daemon)
{
	char path[96];
	kilnd_stop(daemon);
	snprintf(path, sizeof(path), "%s/gpu", daemon->dir);
	unlink(path);
}

static inline int connect_to(const struct kilnd *daemon, const char *device, kiln_client **client)
{
	const kiln_connect_options options = {.size = sizeof(options),
										  .socket = daemon->socket,
										  .device = device,
										  .timeout_ms = CALL_TIMEOUT_MS};
	return kiln_connect(&options, client);
}

static inline kiln_reply *gpu_ask(kiln_client *client, const char *request)
{
	kiln_reply *reply;
	assert_ok(kiln_request(client, request, NULL, 0, &reply));
	return reply;
}

/* The row of `devices` or of the processes of `info` whose member has this value; -1: none. */
static inline int gpu_row(const kiln_reply *reply, const char *rows, const char *member,
						  const char *value)
{
	char path[64];
	for (int i = 0; i < kiln_reply_count(reply, rows); i++) {
		snprintf(path, sizeof(path), "%s[%d].%s", rows, i, member);
		if (!strcmp(kiln_reply_str(reply, path), value))
			return i;
	}
	return -1;
}

/* The pid of a device's process, 0: it has none; restarts may be NULL. */
static inline pid_t gpu_process(kiln_client *viewer, const char *device, int64_t *restarts)
{
	char path[64];
	kiln_reply *reply = gpu_ask(viewer, "info");
	int row = gpu_row(reply, "executors", "device", device);
	snprintf(path, sizeof(path), "executors[%d].pid", row);
	pid_t pid = row >= 0 ? (pid_t)kiln_reply_int(reply, path) : 0;
	snprintf(path, sizeof(path), "executors[%d].restarts", row);
	if (restarts)
		*restarts = kiln_reply_int(reply, path);
	kiln_reply_free(reply);
	return pid;
}

#endif
