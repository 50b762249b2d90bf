/*
 * query: a request that the store's thread answers: the commands of the cache and of keys.
 */
#ifndef KILN_DAEMON_COMMAND_QUERY_H
#define KILN_DAEMON_COMMAND_QUERY_H

#include "command.h"
#include "daemon/broker/devices/store.h"

struct query {
	struct request request;
	struct wire_out out; /* built on the store's thread */
	/* The members of the request; those that it does not have are zero. */
	char key[KERNEL_KEY_HEX];
	char sort[16];
	int64_t limit;
	bool pin;
	char name[SEAL_NAME_MAX], line[SEAL_LINE_MAX];
	const struct options *options;
	struct cache_trim trim; /* points to the texts below */
	char op[24], target[KERNEL_TARGET_MAX], compiler[CACHE_COMPILER_MAX];
	struct cache_trimmed trimmed;
	int status;
	char error[KERNEL_ERROR_MAX];
};

/* With the message's key, and a reply begun; NULL: refused, and answered. */
struct query *query_open(struct session *session, struct wire_in *message);
/* The work fills out, or status and error; then the answer goes. */
void query_run(struct query *query, store_work work);
/* Already answered. */
void query_drop(struct query *query);
/* A row as a member of a list in arg, a wire_out. */
void query_put_row(const struct cache_row *row, void *arg);

#endif
