/*
 * kernel_request: a request that waits for one kernel: compile, prepare, object, warm.
 *
 *   IDLE ----+--start-----> STARTING      the device process starts
 *    ^  |    +--resolve---> RESOLVING     job_resolve() looks for the kernel, or compiles it
 *    |  |    +--load------> LOADING       the device process loads the kernel
 *    |  |    +--store-----> READING       the store's thread reads what the kernel is made of
 *    |  |    |
 *    |  |    +--arrived---> IDLE          the callback's first act
 *    |  +--end, fail--> answered and freed
 *    READING --the session ends--> the store's thread ends its work; freed
 *    (any other) --the session ends--> what is under way is stopped; freed
 *
 * A command embeds a kernel_request as the first member of its own struct, or has nothing to add.
 * The request owns that memory, one hold of ref, its row and the compiler that it has taken: all go
 * with it.  Unless it is IDLE, exactly one thing is under way.
 */
#ifndef KILN_DAEMON_KERNEL_REQUEST_H
#define KILN_DAEMON_KERNEL_REQUEST_H

#include "command.h"
#include "daemon/broker/kernels/job.h"

enum kernel_request_state {
	KERNEL_REQUEST_IDLE,
	KERNEL_REQUEST_STARTING,
	KERNEL_REQUEST_RESOLVING,
	KERNEL_REQUEST_LOADING,
	KERNEL_REQUEST_READING,
};

struct kernel_request {
	struct request request;
	enum kernel_request_state state;
	struct kernel_ref *ref;        /* NULL: not made yet */
	struct cache_row row;          /* owned; empty but after kernel_request_read() */
	struct alt_compiler *compiler; /* taken from its session; NULL: none */
	struct broker *broker;
	uint64_t began_us;
	bool noted; /* it is noted in recent.h when it ends, with what is below */
	int status;
	const char *choice; /* of the kernel that ref has, or that stands in for it; NULL: ref's */
	struct recent_parts parts;
	union {
		struct device_handle *executor; /* STARTING, LOADING */
		struct job_wait *wait;
	};
};

/* Opens a request in `size` zeroed bytes and takes over the caller's hold of ref.  NULL: it is
 * refused and answered, and ref is dropped. */
void *kernel_request_open(struct session *session, uint64_t id, struct kernel_ref *ref,
						  size_t size);
/* Closes and frees an answered request. */
void kernel_request_end(struct kernel_request *asked);
/* Answers with status, sentence and compiler's log, then ends the request. */
void kernel_request_fail(struct kernel_request *asked, int status, const char *error,
						 const char *log);

/* Each of these calls back with the request as its argument; the callback says "arrived". */
void kernel_request_start(struct kernel_request *asked, struct device_handle *executor,
						  handle_ready ready);
/* Without memory the request fails here. */
void kernel_request_resolve(struct kernel_request *asked, struct kernel_ref *kernel,
							const struct job_terms *terms, job_done done);
/* False: the device process cannot be reached, and the request is IDLE again. */
bool kernel_request_load(struct kernel_request *asked, struct device_handle *executor,
						 const struct cache_row *row, const struct kernel_plan *plan,
						 handle_done loaded);
/* A request for a kernel that the cache has. */
struct row_request {
	struct kernel_request asked;
	char key[KERNEL_KEY_HEX]; /* how the row's key begins */
	int status;
	char error[KERNEL_ERROR_MAX];
};
/* Reads the row, or sets status and error.  Without memory the request fails here. */
void kernel_request_read(struct row_request *request, const char *key, store_done done);
/* False: the session ended while the store's thread had the request, which is freed now. */
bool kernel_request_arrived(struct kernel_request *asked);

#endif
