/*
 * command_tune.c: the winners of tuning: what explain says of them, and the requests that list,
 * keep and forget them.  Reading is from memory; a write goes to the disk first, then to memory,
 * then to the second tier.
 */
#include <stdlib.h>
#include <string.h>

#include "query.h"
#include "daemon/plan/plan.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/kernels/tuned.h"
#include "daemon/base/util.h"

/* ---- explain ---- */

static void put_operands(struct wire_out *out, const struct kernel_problem *problem,
						 const struct kernel_plan *plan)
{
	char name[24];
	wire_list_begin(out, "operands");
	for (int i = 0; i < problem->tensor_count; i++) {
		const struct kernel_tensor *tensor = &problem->tensors[i];
		wire_map_begin(out, NULL);
		wire_put_str(out, "name", kernel_operand_name(plan->operands, i, name));
		wire_put_int(out, "d", (int64_t)tensor->dtype);
		if (tensor->dtype != KILN_DTYPE_NONE) {
			wire_put_ints(out, "s", tensor->shape, tensor->rank);
			wire_put_ints(out, "t", tensor->stride, tensor->rank);
			wire_put_uint(out, "bytes", i < plan->operand_count ? plan->extents[i].bytes : 0);
			wire_put_bool(out, "written", i < plan->operand_count && plan->extents[i].written);
		}
		wire_map_end(out);
	}
	wire_list_end(out);
}

void command_put_tuning(struct wire_out *out, const struct kernel_ref *ref,
						const struct kernel_problem *problem, const struct kernel_limits *limits)
{
	static const struct tuned_note nothing;
	const struct tuned_note *note = ref->tuned ? ref->tuned : &nothing;
	const struct cache_tuned *row = &note->row;
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX];
	int count = plan_choices(problem, limits, names, error);
	put_operands(out, problem, &ref->plan);
	wire_list_begin(out, "choices");
	for (int i = 0; i < count; i++)
		wire_put_str(out, NULL, names[i]);
	wire_list_end(out);
	wire_put_str(out, "model", row->model);
	wire_put_str(out, "signature", row->signature);
	if (!row->choice[0])
		return;
	wire_map_begin(out, "tuned");
	wire_put_str(out, "choice", row->choice);
	wire_put_real(out, "micros", row->micros);
	wire_put_real(out, "own_micros", row->own_micros);
	wire_put_int(out, "when", row->when);
	wire_put_str(out, "refused", note->refused);
	wire_map_end(out);
}

/* ---- tuned.ls ---- */

static void tune_put_row(struct wire_out *out, const struct cache_tuned *row)
{
	wire_map_begin(out, NULL);
	wire_put_str(out, "op", row->op);
	wire_put_str(out, "model", row->model);
	wire_put_str(out, "target", row->target);
	wire_put_str(out, "signature", row->signature);
	wire_put_str(out, "choice", row->choice);
	wire_put_real(out, "micros", row->micros);
	wire_put_real(out, "own_micros", row->own_micros);
	wire_put_int(out, "candidates", row->candidates);
	wire_put_int(out, "when", row->when);
	wire_put_str(out, "version", row->version);
	wire_map_end(out);
}

void serve_tuned_ls(struct session *session, struct wire_in *message)
{
	struct wire_out out;
	size_t count;
	const struct cache_tuned **rows = tuned_list(session->broker, &count);
	reply_begin(&out, wire_id(message));
	wire_list_begin(&out, "rows");
	for (size_t i = 0; i < count; i++)
		tune_put_row(&out, rows[i]);
	wire_list_end(&out);
	free(rows);
	reply_send(session, &out, NULL, 0);
}

/* ---- tuned.put, tuned.rm ---- */

void query_tuned_put(struct cache *cache, void *arg)
{
	struct query *query = arg;
	query->status = cache_tuned_put(cache, &query->row, query->error);
}

static void put_after(struct broker *broker, struct query *query)
{
	query->status = tuned_put(broker, &query->row);
	if (query->status != KILN_OK)
		util_fail(query->error, sizeof(query->error), query->status,
				  "the winner of tuning is on disk and cannot be kept in memory");
	else
		remote_winner_put(broker, &query->row);
}

void query_tuned_rm(struct cache *cache, void *arg)
{
	struct query *query = arg;
	query->status = cache_tuned_remove(cache, query->all ? NULL : &query->row, query->error);
}

static void remove_after(struct broker *broker, struct query *query)
{
	wire_put_int(&query->out, "removed", tuned_remove(broker, query->all ? NULL : &query->row));
	/* To forget all is about this host, as `kiln cache clear`. */
	if (!query->all)
		remote_winner_remove(broker, &query->row);
}

static int take_text(struct wire_in *message, const char *key, char *out, size_t size,
					 char error[KERNEL_ERROR_MAX])
{
	const char *text = wire_get_str(message, &message->root, key);
	if (!text || !text[0] || strlen(text) >= size)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a winner of tuning needs %s, a text of 1 to %zu bytes; it has %zu", key,
						 size - 1, text ? strlen(text) : 0);
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "%s of a winner of tuning has the control character %d; it must have "
							 "none",
							 key, *at);
	memcpy(out, text, strlen(text) + 1);
	return KILN_OK;
}

static int take_time(struct wire_in *message, const char *key, double *out,
					 char error[KERNEL_ERROR_MAX])
{
	*out = wire_get_real(&message->root, key, -1);
	if (!(*out > 0) || *out > 1e12)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a winner of tuning needs %s, microseconds above 0 and at most 1e12; it "
						 "has %g",
						 key, *out);
	return KILN_OK;
}

/* Reads what a row is found by. */
static int take_place(struct wire_in *message, struct cache_tuned *row,
					  char error[KERNEL_ERROR_MAX])
{
	int status = take_text(message, "model", row->model, sizeof(row->model), error);
	if (status == KILN_OK)
		status = take_text(message, "target", row->target, sizeof(row->target), error);
	if (status == KILN_OK)
		status = take_text(message, "signature", row->signature, sizeof(row->signature), error);
	return status;
}

static int take_row(struct wire_in *message, struct cache_tuned *row, char error[KERNEL_ERROR_MAX])
{
	const char *version = wire_get_str(message, &message->root, "version");
	int status = take_place(message, row, error);
	if (status == KILN_OK)
		status = take_text(message, "op", row->op, sizeof(row->op), error);
	if (status == KILN_OK)
		status = take_text(message, "choice", row->choice, sizeof(row->choice), error);
	if (status == KILN_OK)
		status = take_time(message, "micros", &row->micros, error);
	if (status == KILN_OK)
		status = take_time(message, "own_micros", &row->own_micros, error);
	row->candidates = wire_get_int(&message->root, "candidates", 0);
	row->when = wire_get_int(&message->root, "when", 0);
	snprintf(row->version, sizeof(row->version), "%s", version ? version : KILN_VERSION_STRING);
	return status;
}

int query_take_put(struct wire_in *message, struct query *query)
{
	int status = take_row(message, &query->row, query->error);
	query->after = put_after;
	if (status == KILN_OK && !tuned_has_room(query->request.session->broker, &query->row))
		status = util_fail(query->error, sizeof(query->error), KILN_ELIMIT,
						   "there are %d winners of tuning, the most that are kept; "
						   "`kiln tune --forget` removes them",
						   CACHE_TUNED_MOST);
	return status;
}

int query_take_remove(struct wire_in *message, struct query *query)
{
	const msgpack_object *root = &message->root;
	query->after = remove_after;
	query->all =
		!wire_get(root, "model") && !wire_get(root, "target") && !wire_get(root, "signature");
	return query->all ? KILN_OK : take_place(message, &query->row, query->error);
}
