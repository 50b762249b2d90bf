/* command_cache.c: requests that look into the cache; all of them run on the store's thread and
 * answer afterwards. */
#include <string.h>

#include "query.h"
#include "daemon/base/util.h"

#define ROWS_MOST 10000

static void put_names(struct wire_out *out, const struct cache_row *row)
{
	wire_put_str(out, "key", row->key);
	wire_put_str(out, "op", row->op);
	wire_put_str(out, "target", row->target);
	wire_put_str(out, "instantiation", row->instantiation);
}

void query_put_row(const struct cache_row *row, void *arg)
{
	struct wire_out *out = arg;
	wire_map_begin(out, NULL);
	put_names(out, row);
	wire_put_uint(out, "bytes", row->object_bytes);
	wire_put_int(out, "hits", row->hits);
	wire_put_int(out, "used", row->used);
	wire_put_int(out, "created", row->created);
	wire_put_int(out, "compile_micros", row->compile_micros);
	wire_put_uint(out, "size", row->size);
	wire_put_str(out, "compiler", row->compiler);
	wire_put_bool(out, "pinned", row->pinned);
	wire_put_int(out, "registers", row->registers);
	wire_put_int(out, "shared", row->shared_bytes);
	wire_put_int(out, "spills", row->spill_bytes);
	wire_put_int(out, "local", row->local_bytes);
	wire_map_end(out);
}

/* Rows of one operator: all are counted, and the first are put. */
struct of_operator {
	struct query *query;
	int64_t count;
};

static void put_of_operator(const struct cache_row *row, void *arg)
{
	struct of_operator *of = arg;
	if (strcmp(row->op, of->query->op) == 0 && of->count++ < of->query->limit)
		query_put_row(row, &of->query->out);
}

void query_cache_ls(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct of_operator of = {.query = query};
	struct cache_stats stats;
	const char *sort = query->sort[0] ? query->sort : NULL;
	cache_stats(cache, &stats);
	wire_put_str(&query->out, "trouble", stats.trouble);
	wire_list_begin(&query->out, "rows");
	query->status = query->op[0] ? cache_list(cache, sort, query->key, INT64_MAX, put_of_operator,
											  &of, query->error)
								 : cache_list(cache, sort, query->key, query->limit, query_put_row,
											  &query->out, query->error);
	wire_list_end(&query->out);
	wire_put_uint(&query->out, "all", query->op[0] ? (uint64_t)of.count : stats.rows);
	if (query->op[0])
		wire_put_str(&query->out, "op", query->op);
}

static void put_failure(const struct cache_failure *failure, void *arg)
{
	struct wire_out *out = arg;
	const struct cache_row *row = &failure->row;
	wire_map_begin(out, NULL);
	put_names(out, row);
	wire_put_str(out, "status", util_status_name(failure->status));
	wire_put_str(out, "error", failure->error);
	wire_put_int(out, "until", failure->until);
	wire_put_int(out, "hits", row->hits);
	wire_put_int(out, "used", row->used);
	wire_put_int(out, "created", row->created);
	wire_map_end(out);
}

void query_cache_failed(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct cache_stats stats;
	cache_stats(cache, &stats);
	wire_put_uint(&query->out, "all", stats.failures);
	wire_list_begin(&query->out, "rows");
	query->status = cache_failure_list(cache, query->limit, put_failure, &query->out, query->error);
	wire_list_end(&query->out);
}

void query_cache_retry(struct cache *cache, void *arg)
{
	struct query *query = arg;
	int64_t removed = 0;
	query->status =
		cache_failure_forget(cache, query->key[0] ? query->key : NULL, &removed, query->error);
	wire_put_int(&query->out, "removed", removed);
}

static void put_argument(void *arg, const char *argument, bool optional)
{
	struct wire_out *out = arg;
	wire_map_begin(out, NULL);
	wire_put_str(out, "text", argument);
	wire_put_bool(out, "optional", optional);
	wire_map_end(out);
}

/* Puts what kernels and failures have both. */
static void put_texts(struct wire_out *out, const struct cache_row *row)
{
	put_names(out, row);
	wire_put_int(out, "compile_micros", row->compile_micros);
	wire_put_int(out, "created", row->created);
	wire_put_int(out, "used", row->used);
	wire_put_int(out, "hits", row->hits);
	wire_put_str(out, "plan", row->plan);
	wire_put_str(out, "source", row->source);
	wire_put_str(out, "log", row->log);
	wire_put_str(out, "key_text", row->key_text);
	/* The list is empty where this kilnd would not compile the kernel in that way. */
	wire_list_begin(out, "arguments");
	(void)compile_arguments(row->key_text, put_argument, out);
	wire_list_end(out);
}

static void show_failure(struct cache *cache, struct query *query)
{
	struct cache_failure failure;
	char error[KERNEL_ERROR_MAX];
	int status = cache_failure_show(cache, query->key, &failure, error);
	/* A key that names neither gets the sentence of kernels. */
	if (status == KILN_ENOENT)
		return;
	query->status = status;
	memcpy(query->error, error, sizeof(error));
	if (status != KILN_OK)
		return;
	wire_put_bool(&query->out, "failed", true);
	wire_put_str(&query->out, "status", util_status_name(failure.status));
	wire_put_str(&query->out, "error", failure.error);
	wire_put_int(&query->out, "until", failure.until);
	put_texts(&query->out, &failure.row);
	cache_failure_free(&failure);
}

void query_cache_show(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct wire_out *out = &query->out;
	struct cache_row row = {0};
	query->status = cache_show(cache, query->key, &row, query->error);
	if (query->status == KILN_ENOENT)
		show_failure(cache, query);
	if (query->status != KILN_OK || !row.key[0])
		return;
	wire_put_bool(out, "failed", false);
	put_texts(out, &row);
	wire_put_str(out, "entry", row.entry);
	wire_put_uint(out, "bytes", row.object_bytes);
	wire_put_int(out, "registers", row.registers);
	wire_put_int(out, "shared", row.shared_bytes);
	wire_put_int(out, "spills", row.spill_bytes);
	wire_put_int(out, "local", row.local_bytes);
	wire_put_uint(out, "size", row.size);
	wire_put_str(out, "compiler", row.compiler);
	wire_put_bool(out, "pinned", row.pinned);
	cache_row_free(&row);
}

void query_cache_get(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct cache_row row = {0};
	/* cache_peek() counts no use. */
	query->status = cache_peek(cache, query->key, &row, query->error);
	if (query->status != KILN_OK)
		return;
	wire_put_str(&query->out, "key", row.key);
	wire_put_str(&query->out, "target", row.target);
	wire_put_bin(&query->out, "object", row.object, row.object_bytes);
	cache_row_free(&row);
}

int query_take_limit(struct wire_in *message, struct query *query)
{
	query->limit = wire_get_int(&message->root, "limit", 0);
	if (query->limit <= 0 || query->limit > ROWS_MOST)
		query->limit = ROWS_MOST;
	return KILN_OK;
}

int query_take_page(struct wire_in *message, struct query *query)
{
	query_copy_text(message, "sort", query->sort, sizeof(query->sort));
	query_copy_text(message, "next", query->key, sizeof(query->key));
	query_copy_text(message, "op", query->op, sizeof(query->op));
	return query_take_limit(message, query);
}

int query_take_retry(struct wire_in *message, struct query *query)
{
	bool named = wire_get_str(message, &message->root, "key") != NULL;
	bool all = wire_get_int(&message->root, "all", 0) == 1;
	if (named != all)
		return KILN_OK;
	return util_fail(query->error, sizeof(query->error), KILN_EINVAL,
					 "cache.retry needs either the key of a failure or all");
}
