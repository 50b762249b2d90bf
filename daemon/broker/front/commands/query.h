/*
 * query: a request that the store's thread answers: the commands of the cache, of keys, of reports
 * and of the winners of tuning.
 */
#ifndef KILN_DAEMON_COMMAND_QUERY_H
#define KILN_DAEMON_COMMAND_QUERY_H

#include "command.h"
#include "daemon/broker/devices/store.h"

struct query {
	struct request request;
	struct wire_out out; /* the reply, begun; the work puts its members */
	/* The members of the request; those that it does not have are zero. */
	char key[KERNEL_KEY_HEX];
	char sort[16];
	int64_t limit;
	char name[SEAL_NAME_MAX], line[SEAL_LINE_MAX];
	const struct options *options;
	struct cache_trim trim; /* points to the texts below */
	char op[24], target[KERNEL_TARGET_MAX], compiler[CACHE_COMPILER_MAX];
	struct cache_trimmed trimmed;
	struct cache_tuned row;
	bool all; /* tuned.rm without a row */
	/* Runs on the loop when the work went well, before the answer, whether or not anybody still
	 * waits for that.  NULL: the work is all. */
	void (*after)(struct broker *broker, struct query *query);
	int status;
	char error[KERNEL_ERROR_MAX];
};

/* Reads members of the message into an open query.  KILN_OK, or a status with query->error. */
typedef int (*query_take)(struct wire_in *message, struct query *query);
/* Opens a query with the message's key, has take read the rest, and runs work on the store's
 * thread; then the answer goes.  The work sets status, and error where it fails. */
void query_serve(struct session *session, struct wire_in *message, query_take take,
				 store_work work);
/* The key is all. */
int query_take_key(struct wire_in *message, struct query *query);
/* Copies a text of the message, or refuses one that is missing, or longer than its room; what:
 * "name of a key". */
int query_take_text(struct wire_in *message, const char *name, const char *what, char *room,
					size_t size, char error[KERNEL_ERROR_MAX]);
/* Copies a text of the message, cut to its room; "" where there is none. */
void query_copy_text(struct wire_in *message, const char *name, char *room, size_t size);
/* Puts a row of the cache as a member of a list in arg, a wire_out. */
void query_put_row(const struct cache_row *row, void *arg);

/* The requests of protocol.h that are queries: what they read, and their work. */
#define QUERIES(ROW)                                          \
	ROW("cache.ls", query_take_page, query_cache_ls)          \
	ROW("cache.failed", query_take_limit, query_cache_failed) \
	ROW("cache.retry", query_take_retry, query_cache_retry)   \
	ROW("cache.show", query_take_key, query_cache_show)       \
	ROW("cache.get", query_take_key, query_cache_get)         \
	ROW("cache.verify", query_take_next, query_cache_verify)  \
	ROW("cache.pin", query_take_key, query_cache_pin)         \
	ROW("cache.unpin", query_take_key, query_cache_unpin)     \
	ROW("cache.trim", query_take_trim, query_cache_trim)      \
	ROW("cache.clear", query_take_clear, query_cache_trim)    \
	ROW("key.new", query_take_name, query_key_new)            \
	ROW("key.ls", query_take_key, query_key_ls)               \
	ROW("key.trust", query_take_line, query_key_trust)        \
	ROW("key.distrust", query_take_name, query_key_distrust)  \
	ROW("tuned.put", query_take_put, query_tuned_put)         \
	ROW("tuned.rm", query_take_remove, query_tuned_rm)        \
	ROW("fault.ls", query_take_key, query_fault_ls)           \
	ROW("fault.show", query_take_id, query_fault_show)

#define DECLARE(name, take, work)                           \
	int take(struct wire_in *message, struct query *query); \
	void work(struct cache *cache, void *arg);
QUERIES(DECLARE)
#undef DECLARE

#endif
