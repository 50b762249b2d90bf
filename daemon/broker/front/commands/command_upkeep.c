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

void query_cache_verify(struct cache *cache, void *arg)
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

int query_take_next(struct wire_in *message, struct query *query)
{
	query_copy_text(message, "next", query->key, sizeof(query->key));
	return KILN_OK;
}

/* ---- Trim and clear ---- */

void query_cache_trim(struct cache *cache, void *arg)
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

/* Reads the text of a filter, or NULL; refuses one that no row can have. */
static int take_filter(struct wire_in *message, struct query *query, const char *name, char *room,
					   size_t size, const char **out)
{
	const char *text = wire_get_str(message, &message->root, name);
	*out = text ? room : NULL;
	if (text && (!*text || strlen(text) >= size))
		return util_fail(
			query->error, sizeof(query->error), KILN_EINVAL,
			"cache.trim: %s \"%.*s\" is none that a kernel has: it has 1 to %d letters", name,
			PLAIN_CUT(text, 100), (int)size - 1);
	if (text)
		memcpy(room, text, strlen(text) + 1);
	return KILN_OK;
}

static int take_filters(struct wire_in *message, struct query *query)
{
	struct cache_trim *trim = &query->trim;
	int status = take_filter(message, query, "op", query->op, sizeof(query->op), &trim->op);
	if (status == KILN_OK)
		status = take_filter(message, query, "target", query->target, sizeof(query->target),
							 &trim->target);
	if (status == KILN_OK)
		status = take_filter(message, query, "compiler", query->compiler, sizeof(query->compiler),
							 &trim->compiler);
	return status;
}

int query_take_trim(struct wire_in *message, struct query *query)
{
	const msgpack_object *root = &message->root;
	struct cache_trim *trim = &query->trim;
	uint64_t bytes = wire_get_uint(root, "bytes", UINT64_MAX);
	uint64_t rows = wire_get_uint(root, "left", UINT64_MAX);
	int64_t age = wire_get_int(root, "older_than", 0);
	int status = take_filters(message, query);
	if (status != KILN_OK)
		return status;
	bool filtered = trim->op || trim->target || trim->compiler || age > 0;
	bool all = bytes == UINT64_MAX && rows == UINT64_MAX;
	bool malformed = (wire_get(root, "bytes") && bytes == UINT64_MAX) ||
					 (wire_get(root, "left") && rows == UINT64_MAX) || age < 0;
	if (malformed || (!filtered && all))
		return util_fail(query->error, sizeof(query->error), KILN_EINVAL,
						 "cache.trim needs bytes, left, older_than (whole numbers that are not "
						 "negative), op, target or compiler");
	/* Filters without bytes or left remove all rows that match. */
	trim->bytes = all ? 0 : bytes;
	trim->rows = all ? 0 : rows;
	trim->used_before = age > 0 ? util_wall_s() - age : 0;
	trim->dry_run = wire_get_int(root, "dry_run", 0) != 0;
	query->trimmed.after = wire_get_int(root, "next", 0);
	return KILN_OK;
}

/* A trim without limits: to nothing. */
int query_take_clear(struct wire_in *message, struct query *query)
{
	query->trimmed.after = wire_get_int(&message->root, "next", 0);
	return KILN_OK;
}

/* ---- Pins ---- */

static void set_pin(struct cache *cache, struct query *query, bool pin)
{
	char key[KERNEL_KEY_HEX] = "";
	query->status = cache_pin(cache, query->key, pin, key, query->error);
	wire_put_str(&query->out, "key", key);
}

void query_cache_pin(struct cache *cache, void *arg)
{
	set_pin(cache, arg, true);
}

void query_cache_unpin(struct cache *cache, void *arg)
{
	set_pin(cache, arg, false);
}
