/*
 * command_recompile.c: cache.recompile: verifies that a kernel of the cache compiles to the same
 * bits once more.  One a request, so that a compile for a launch waits for one at most.
 */
#include <string.h>

#include "kernel_request.h"
#include "daemon/broker/kernels/raw.h"
#include "daemon/base/util.h"

/* Says what is different; "": nothing. */
static void compare(const struct cache_row *row, const struct cache_row *found,
					char why[KERNEL_ERROR_MAX])
{
	const unsigned char *ours = row->object, *theirs = found->object;
	size_t at = 0;
	why[0] = 0;
	while (at < row->object_bytes && at < found->object_bytes && ours[at] == theirs[at])
		at++;
	if (strcmp(row->entry, found->entry ? found->entry : "") != 0)
		util_fail(why, KERNEL_ERROR_MAX, 0, "the entry was %.120s and is now %.120s", row->entry,
				  found->entry ? found->entry : "missing");
	else if (row->object_bytes != found->object_bytes)
		util_fail(why, KERNEL_ERROR_MAX, 0, "the object had %zu bytes and has now %zu",
				  row->object_bytes, found->object_bytes);
	else if (at < row->object_bytes)
		util_fail(why, KERNEL_ERROR_MAX, 0,
				  "the objects, of %zu bytes, differ from byte %zu on (0x%02x, now 0x%02x)",
				  row->object_bytes, at, ours[at], theirs[at]);
}

/* result: same, differs, failed, skipped. */
static void verify_answer(struct row_request *request, const char *result, const char *why,
						  int64_t micros)
{
	struct kernel_request *asked = &request->asked;
	const struct cache_row *row = &asked->row;
	struct wire_out out;
	reply_begin(&out, asked->request.id);
	wire_put_str(&out, "key", row->key);
	wire_put_str(&out, "op", row->op);
	wire_put_str(&out, "target", row->target);
	wire_put_str(&out, "instantiation", row->instantiation);
	wire_put_str(&out, "result", result);
	wire_put_str(&out, "why", why);
	wire_put_int(&out, "compile_micros", micros);
	reply_send(asked->request.session, &out, NULL, 0);
	kernel_request_end(asked);
}

static void verify_fail(struct kernel_request *asked, int status, const char *error)
{
	reply_error(asked->request.session, asked->request.id, status, "%s", error);
	kernel_request_end(asked);
}

static void on_compiled_again(void *arg, const struct job_answer *answer)
{
	struct row_request *request = arg;
	char why[KERNEL_ERROR_MAX];
	kernel_request_arrived(&request->asked);
	if (!answer->row && answer->status == KILN_ENOTSUP) {
		verify_answer(request, "skipped", answer->error, 0);
	} else if (!answer->row) {
		verify_fail(&request->asked, answer->status, answer->error);
	} else if (answer->status != KILN_OK) {
		verify_answer(request, "failed", answer->error, answer->row->compile_micros);
	} else {
		compare(&request->asked.row, answer->row, why);
		verify_answer(request, why[0] ? "differs" : "same", why, answer->row->compile_micros);
	}
}

static void on_row_read(struct broker *broker, void *arg)
{
	struct row_request *request = arg;
	struct kernel_request *asked = &request->asked;
	(void)broker;
	if (!kernel_request_arrived(asked))
		return;
	const struct job_terms terms = {
		.asker = asked->request.session, .purpose = JOB_VERIFY, .priority = POOL_BACKGROUND};
	if (request->status == KILN_OK) {
		request->status = job_open_row(&asked->row, asked->row.target, &asked->ref, request->error);
		if (request->status == KILN_ENOTSUP) {
			verify_answer(request, "skipped", request->error, 0);
			return;
		}
	}
	if (request->status == KILN_OK && raw_is_gone(asked->ref))
		verify_answer(request, "skipped", RAW_BY_NAME, 0);
	else if (request->status == KILN_OK)
		kernel_request_resolve(asked, asked->ref, &terms, on_compiled_again);
	else
		verify_fail(asked, request->status, request->error);
}

void serve_cache_recompile(struct session *session, struct wire_in *message)
{
	const char *key = wire_get_str(message, &message->root, "key");
	struct row_request *request =
		kernel_request_open(session, wire_id(message), NULL, sizeof(*request));
	if (request)
		kernel_request_read(request, key ? key : "", on_row_read);
}
