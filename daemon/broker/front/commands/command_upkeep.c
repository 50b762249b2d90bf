/*
 * command_upkeep.c: the cache's upkeep: verify, trim, clear, pin, unpin.  Each request is one piece
 * of the work, and the client asks for the next: lookups of others go between, and with the client
 * the work ends.
 */
#include <string.h>

#include "query.h"
#include "daemon/base/util.h"

/* ---- Verify ---- */

static void put_bad(const char *key, const char *why, void *arg)
{
	struct wire_out *out = arg;
	wire_map_begin(out, NULL);
	wire_put_str(out, "key", key);
	wire_put_str(out, "why", why);
	wire_map_end(out);
}

static void verify_work(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct cache_verified progress = {.checked = 0};
	struct cache_stats stats;
	memcpy(progress.next, query->key, sizeof(progress.next));
	wire_list_begin(&query->out, "rows");
	query->status = cache_verify(cache, &progress, put_bad, &query->out, query->error);
	wire_list_end(&query->out);
	cache_stats(cache, &stats);
	wire_put_int(&query->out, "checked", progress.checked);
	wire_put_int(&query->out, "bad", progress.bad);
	wire_put_uint(&query->out, "total", stats.rows);
	wire_put_str(&query->out, "next", progress.next);
	wire_put_bool(&query->out, "more", progress.next[0] != 0);
}

void serve_cache_verify(struct session *session, struct wire_in *message, struct frame *frame)
{
	const char *after = wire_get_str(message, &message->root, "next");
	struct query *query = query_open(session, message);
	(void)frame;
	if (!query)
		return;
	snprintf(query->key, sizeof(query->key), "%s", after ? after : "");
	query_run(query, verify_work);
}

/* ---- Trim and clear ---- */

static void trim_work(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct cache_stats stats;
	wire_list_begin(&query->out, "rows");
	query->status =
		cache_trim(cache, &query->trim, &query->trimmed, query->trim.dry_run ? query_put_row : NULL,
				   &query->out, query->error);
	wire_list_end(&query->out);
	cache_stats(cache, &stats);
	wire_put_int(&query->out, "removed", query->trimmed.removed);
	wire_put_uint(&query->out, "freed", query->trimmed.freed);
	wire_put_uint(&query->out, "bytes", stats.bytes);
	wire_put_uint(&query->out, "left", stats.rows);
	wire_put_uint(&query->out, "pinned", stats.pinned);
	wire_put_int(&query->out, "next", query->trimmed.after);
	wire_put_bool(&query->out, "more", query->trimmed.more);
}

/* The text of a filter, or NULL; false: longer than any that a row has, and refused. */
static bool take_filter(struct session *session, struct wire_in *message, const char *name,
						char *room, size_t size, const char **out)
{
	const char *text = wire_get_str(message, &message->root, name);
	*out = text ? room : NULL;
	if (text && (!*text || strlen(text) >= size)) {
		reply_error(session, wire_id(message), KILN_EINVAL,
					"cache.trim: %s \"%.*s\" is none that a kernel has: it has 1 to %d letters",
					name, PLAIN_CUT(text, 100), (int)size - 1);
		return false;
	}
	if (text)
		snprintf(room, size, "%s", text);
	return true;
}

/* What is to go; false: refused, and answered. */
static bool take_trim(struct session *session, struct wire_in *message, struct query *query)
{
	const msgpack_object *root = &message->root;
	struct cache_trim *trim = &query->trim;
	uint64_t bytes = wire_get_uint(root, "bytes", UINT64_MAX);
	uint64_t rows = wire_get_uint(root, "left", UINT64_MAX);
	int64_t age = wire_get_int(root, "older_than", 0);
	if (!take_filter(session, message, "op", query->op, sizeof(query->op), &trim->op) ||
		!take_filter(session, message, "target", query->target, sizeof(query->target),
					 &trim->target) ||
		!take_filter(session, message, "compiler", query->compiler, sizeof(query->compiler),
					 &trim->compiler))
		return false;
	bool filtered = trim->op || trim->target || trim->compiler || age > 0;
	bool malformed = (wire_get(root, "bytes") && bytes == UINT64_MAX) ||
					 (wire_get(root, "left") && rows == UINT64_MAX) || age < 0;
	if (malformed || (!filtered && bytes == UINT64_MAX && rows == UINT64_MAX)) {
		reply_error(session, wire_id(message), KILN_EINVAL,
					"cache.trim needs bytes, left, older_than (whole numbers that are not "
					"negative), op, target or compiler");
		return false;
	}
	/* With filters alone all that fit go. */
	bool all = bytes == UINT64_MAX && rows == UINT64_MAX;
	trim->bytes = all ? 0 : bytes;
	trim->rows = all ? 0 : rows;
	trim->used_before = age > 0 ? util_wall_s() - age : 0;
	trim->dry_run = wire_get_int(root, "dry_run", 0) != 0;
	query->trimmed.after = wire_get_int(root, "next", 0);
	return true;
}

void serve_cache_trim(struct session *session, struct wire_in *message, struct frame *frame)
{
	struct query *query = query_open(session, message);
	(void)frame;
	if (!query)
		return;
	if (take_trim(session, message, query))
		query_run(query, trim_work);
	else
		query_drop(query);
}

/* Clearing is trimming to nothing. */
void serve_cache_clear(struct session *session, struct wire_in *message, struct frame *frame)
{
	struct query *query = query_open(session, message);
	(void)frame;
	if (!query)
		return;
	query->trimmed.after = wire_get_int(&message->root, "next", 0);
	query_run(query, trim_work);
}

/* ---- Pins ---- */

static void pin_work(struct cache *cache, void *arg)
{
	struct query *query = arg;
	char key[KERNEL_KEY_HEX] = "";
	query->status = cache_pin(cache, query->key, query->pin, key, query->error);
	wire_put_str(&query->out, "key", key);
}

static void set_pin(struct session *session, struct wire_in *message, bool pin)
{
	struct query *query = query_open(session, message);
	if (!query)
		return;
	query->pin = pin;
	query_run(query, pin_work);
}

void serve_cache_pin(struct session *session, struct wire_in *message, struct frame *frame)
{
	(void)frame;
	set_pin(session, message, true);
}

void serve_cache_unpin(struct session *session, struct wire_in *message, struct frame *frame)
{
	(void)frame;
	set_pin(session, message, false);
}
