/*
 * executor: what the files of the executor process share.
 *
 *   executor.c          start, the main loop, the end
 *   executor_request.c  the table of requests and the short ones
 *   executor_launch.c   launches and copies: checks, what they hold, their ends
 *   executor_mapping.c  the clients' memory that copies go through
 *   discipline.c        what the process gives up before it serves
 */
#ifndef KILN_DAEMON_EXECUTOR_H
#define KILN_DAEMON_EXECUTOR_H

#include "client/frame.h"
#include "client/wire.h"
#include "exec.h"
#include "daemon/util/map.h"

#include <sys/types.h>

/* The broker keeps stricter limits for each session; these keep a broken broker from hurting. */
#define EXEC_MAX_FLIGHTS 4096
#define EXEC_MAX_BUFFERS 65536
#define EXEC_MAX_MODULES 8192
#define EXEC_MAX_MESSAGE (128u << 20)
#define EXEC_MAX_QUEUE (64u << 20)

struct exec_buffer {
	struct device_memory *memory;
	uint64_t bytes;
	uint32_t misaligned; /* of its first byte, from 256: alignment is checked against it */
	bool allocated;      /* here; else imported */
	int uses;            /* flights */
	uint64_t free_id;    /* the request that waits for the last use; 0: none */
};

struct exec_module {
	struct device_module *module;
	int uses;
	uint64_t unload_id;
};

/* A client's memfd, mapped. */
struct exec_mapping {
	dev_t dev;
	ino_t ino;
	void *address;
	size_t bytes;
	bool writable;
	int uses;
};

/* Work that the device has. */
struct exec_flight {
	uint64_t id; /* of the request, and the device's ticket */
	struct exec_module *module;
	struct exec_buffer *buffers[KERNEL_MAX_OPERANDS];
	int buffer_count;
	struct exec_mapping *mapping;
};

struct exec {
	const struct device_ops *ops;
	struct device *device;
	struct device_info info;
	int sock, epoll;
	unsigned watched; /* events the epoll descriptor waits for */
	struct frame_queue queue;
	bool ended; /* the socket has */
	struct map buffers, modules, flights;
	struct exec_mapping *kept; /* the last one: clients use one again and again */
};

/* ---- executor.c ---- */
/* Answers a request. */
void exec_reply(struct exec *executor, uint64_t id, int status, const char *error);
/* Ends and sends a begun message; fd (-1: none) goes along and stays the caller's. */
void exec_send(struct exec *executor, struct wire_out *message, int fd);

/* ---- executor_request.c ---- */
void exec_request(struct exec *executor, struct wire_in *message, struct frame *frame);
/* One use less; what waited for that is freed and answered. */
void exec_release_buffer(struct exec *executor, struct exec_buffer *buffer);
void exec_release_module(struct exec *executor, struct exec_module *module);

/* ---- executor_launch.c ---- */
/* KILN_OK: the device has it, and the answer comes with its end. */
int exec_launch(struct exec *executor, struct wire_in *message, char error[KERNEL_ERROR_MAX]);
int exec_copy(struct exec *executor, struct wire_in *message, struct frame *frame,
			  char error[KERNEL_ERROR_MAX]);
void exec_finish(struct exec *executor, const struct device_done *done);

/* ---- executor_mapping.c ---- */
int exec_map(struct exec *executor, int fd, uint64_t bytes, bool writable,
			 struct exec_mapping **out, char error[KERNEL_ERROR_MAX]);
void exec_unmap(struct exec *executor, struct exec_mapping *mapping);
/* Forgets the mapping kept for the next copy. */
void exec_unmap_kept(struct exec *executor);

/* ---- discipline.c ---- */
/* No core files, no new privileges; and unless it is wrapped a process group of its own, death with
 * its parent, no descriptors but 0 to 2 and sock. */
void exec_discipline(int sock, bool wrapped);

#endif
