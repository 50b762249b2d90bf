/*
 * command_recompile.c: cache.recompile: a kernel of the cache is compiled once more, from the unit
 * that it was compiled from, and the objects compared bit for bit.  One a request, so that whoever
 * compiles for a launch waits for one at most.
 */
#include <stdlib.h>
#include <string.h>

#include "query.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/base/util.h"

struct recompile {
	struct request request;
	struct broker *broker;
	enum { READING, ASKING, COMPILING } phase;
	char prefix[KERNEL_KEY_HEX];
	struct cache_row row;
	int status;
	char error[KERNEL_ERROR_MAX];
	struct compile_again again;
	struct pool_job *job;
	struct turn_place place;
};

static void drop(struct recompile *recompile)
{
	compile_again_close(&recompile->again);
	cache_row_free(&recompile->row);
	request_close(&recompile->request);
	free(recompile);
}

/* ---- Answers ---- */

static void recompile_fail(struct recompile *recompile, int status, const char *error)
{
	reply_error(recompile->request.session, recompile->request.id, status, "%s", error);
	drop(recompile);
}

/* result: same, differs, failed, skipped. */
static void recompile_answer(struct recompile *recompile, const char *result, const char *why,
							 int64_t micros)
{
	const struct cache_row *row = &recompile->row;
	struct wire_out out;
	reply_begin(&out, recompile->request.id);
	wire_put_str(&out, "key", row->key);
	wire_put_str(&out, "op", row->op);
	wire_put_str(&out, "target", row->target);
	wire_put_str(&out, "instantiation", row->instantiation);
	wire_put_str(&out, "result", result);
	wire_put_str(&out, "why", why);
	wire_put_int(&out, "compile_micros", micros);
	reply_send(recompile->request.session, &out, NULL, 0);
	drop(recompile);
}

/* What is different, or "". */
static void recompile_compare(const struct cache_row *row, const struct compile_result *result,
							  char why[KERNEL_ERROR_MAX])
{
	const unsigned char *ours = row->object, *theirs = result->object;
	size_t at = 0;
	why[0] = 0;
	if (strcmp(row->entry, result->entry ? result->entry : "") != 0) {
		util_fail(why, KERNEL_ERROR_MAX, 0, "the entry was %.120s and is now %.120s", row->entry,
				  result->entry ? result->entry : "missing");
		return;
	}
	if (row->object_bytes != result->object_bytes) {
		util_fail(why, KERNEL_ERROR_MAX, 0, "the object had %zu bytes and has now %zu",
				  row->object_bytes, result->object_bytes);
		return;
	}
	while (at < row->object_bytes && ours[at] == theirs[at])
		at++;
	if (at < row->object_bytes)
		util_fail(why, KERNEL_ERROR_MAX, 0,
				  "the objects, of %zu bytes, differ from byte %zu on (0x%02x, now 0x%02x)",
				  row->object_bytes, at, ours[at], theirs[at]);
}

static void compiled(void *arg, struct compile_result *result)
{
	struct recompile *recompile = arg;
	char why[KERNEL_ERROR_MAX];
	recompile->job = NULL;
	if (result->status != KILN_OK) {
		recompile_answer(recompile, "failed", result->error, result->micros);
		return;
	}
	recompile_compare(&recompile->row, result, why);
	recompile_answer(recompile, why[0] ? "differs" : "same", why, result->micros);
}

/* ---- The way there ---- */

static void known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct recompile *recompile = arg;
	const struct cache_row *row = &recompile->row;
	const struct compile_toolchain *here =
		!strcmp(row->target, "cpu") ? &toolchains->host : &toolchains->nvrtc;
	char why[KERNEL_ERROR_MAX];
	if (error) {
		recompile_fail(recompile, KILN_EIO, error);
		return;
	}
	int status = compile_again_open(row->key_text, row->source, &recompile->again, why);
	if (status == KILN_OK && strcmp(here->id, recompile->again.toolchain) != 0)
		status =
			util_fail(why, sizeof(why), KILN_ENOTSUP, "it was made by %.100s, and here is %.200s",
					  recompile->again.toolchain, here->id[0] ? here->id : here->reason);
	if (status == KILN_ENOTSUP) {
		recompile_answer(recompile, "skipped", why, 0);
		return;
	}
	recompile->phase = COMPILING;
	if (status == KILN_OK)
		recompile->job = pool_submit(recompile->broker, &recompile->again.job, compiled, recompile);
	if (recompile->job)
		pool_join(recompile->broker, recompile->job, POOL_BACKGROUND,
				  session_turn(recompile->request.session), &recompile->place);
	else
		recompile_fail(recompile, KILN_ENOMEM, "out of memory for a compile job");
}

static void recompile_read_work(struct cache *cache, void *arg)
{
	struct recompile *recompile = arg;
	recompile->status = cache_peek(cache, recompile->prefix, &recompile->row, recompile->error);
}

static void recompile_read_done(struct broker *broker, void *arg)
{
	struct recompile *recompile = arg;
	if (!recompile->request.session) {
		drop(recompile);
	} else if (recompile->status != KILN_OK) {
		recompile_fail(recompile, recompile->status, recompile->error);
	} else {
		recompile->phase = ASKING;
		pool_when_known(broker, known, recompile);
	}
}

static void abandon(struct request *request)
{
	struct recompile *recompile = (struct recompile *)request;
	/* The store's thread has it: read_done finds nobody. */
	if (recompile->phase == READING)
		return;
	if (recompile->phase == ASKING)
		pool_forget(recompile->broker, recompile);
	else
		pool_cancel(recompile->broker, recompile->job);
	drop(recompile);
}

void serve_cache_recompile(struct session *session, struct wire_in *message, struct frame *frame)
{
	const char *key = wire_get_str(message, &message->root, "key");
	struct recompile *recompile = calloc(1, sizeof(*recompile));
	(void)frame;
	if (!recompile) {
		reply_error(session, wire_id(message), KILN_ENOMEM, "out of memory");
		return;
	}
	if (!request_open(session, wire_id(message), &recompile->request, abandon)) {
		free(recompile);
		return;
	}
	recompile->broker = session->broker;
	snprintf(recompile->prefix, sizeof(recompile->prefix), "%s", key ? key : "");
	if (request_store(&recompile->request, recompile_read_work, recompile_read_done) != KILN_OK)
		recompile_fail(recompile, KILN_ENOMEM, "out of memory");
}
