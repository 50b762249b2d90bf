/*
 * command_warm.c: warm puts the kernel of a manifest's line into the cache, before anybody asks for
 * it.
 */
#include <string.h>

#include "kernel_request.h"
#include "daemon/plan/manifest.h"
#include "daemon/base/util.h"
#include "planned.h"

/* ---- Answers ---- */

static void answer_success(struct kernel_request *asked, const char *origin,
						   const struct cache_row *found)
{
	struct wire_out out;
	reply_begin(&out, asked->request.id);
	wire_put_str(&out, "key", found->key);
	wire_put_str(&out, "op", found->op);
	wire_put_str(&out, "target", found->target);
	wire_put_str(&out, "instantiation", found->instantiation);
	wire_put_str(&out, "origin", origin);
	wire_put_int(&out, "bytes", (int64_t)found->object_bytes);
	wire_put_int(&out, "compile_micros", found->compile_micros);
	wire_put_uint(&out, "micros", util_now_us() - asked->began_us);
	reply_send(asked->request.session, &out, NULL, 0);
	kernel_request_end(asked);
}

static void answer_plan(struct kernel_request *asked, const char *origin,
						const struct cache_row *row)
{
	struct kernel_ref *ref = asked->ref;
	struct cache_row found = {.instantiation = ref->plan.instantiation,
							  .object_bytes = row ? row->object_bytes : 0,
							  .compile_micros = row ? row->compile_micros : 0};
	memcpy(found.key, ref->key, sizeof(found.key));
	memcpy(found.op, ref->plan.op, sizeof(found.op));
	memcpy(found.target, ref->target, sizeof(found.target));
	answer_success(asked, origin, &found);
}

static void on_resolved(void *arg, const struct job_answer *answer)
{
	struct kernel_request *asked = arg;
	kernel_request_arrived(asked);
	if (answer->status == KILN_OK)
		answer_plan(asked, job_origin_names[answer->origin], answer->row);
	else
		kernel_request_fail(asked, answer->status, answer->error, answer->log);
}

/* ---- A line ---- */

static int plan_line(struct session *session, const char *line, const char *target,
					 struct kernel_ref **out, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem problem;
	struct kernel_limits limits;
	const char *model;
	int status = manifest_read(line, &problem, error);
	if (status == KILN_OK)
		status = plan_infer(&problem, error);
	if (status == KILN_OK)
		status = planned_limits(session, target, &limits, &model, error);
	return status == KILN_OK ? job_open(session->broker, &problem, &limits, model, out, error)
							 : status;
}

/* "kernel KEY # comment": the key, or NULL: it is another line, or *status says what is wrong. */
static const char *read_kernel(const char *line, char key[KERNEL_KEY_HEX], int *status,
							   char error[KERNEL_ERROR_MAX])
{
	static const char word[] = "kernel";
	const char *at = manifest_begin(line), *end;
	size_t size;
	*status = KILN_OK;
	if (strncmp(at, word, strlen(word)) != 0 || !strchr(" \t\n\r#", at[strlen(word)]))
		return NULL;
	at += strlen(word);
	at += strspn(at, " \t");
	size = strspn(at, "0123456789abcdef");
	end = at + size + strspn(at + size, " \t");
	if (size < 4 || size >= KERNEL_KEY_HEX || !strchr("\n\r#", *end)) {
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							"column %d: expected a key, 4 to 64 digits of 0-9 and a-f, and nothing "
							"behind it",
							(int)(at - line) + 1);
		return NULL;
	}
	snprintf(key, KERNEL_KEY_HEX, "%.*s", (int)size, at);
	return key;
}

/* Takes the session's second compiler; one that it had is given up for another. */
static int choose_compiler(struct session *session, const char *path, struct alt_compiler **out,
						   char error[KERNEL_ERROR_MAX])
{
	if (!path)
		return KILN_OK;
	if (session->alt_compiler && strcmp(alt_compiler_path(session->alt_compiler), path) != 0) {
		if (alt_compiler_taken(session->alt_compiler))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EBUSY,
							 "%.120s still compiles for this connection",
							 alt_compiler_path(session->alt_compiler));
		alt_compiler_close(session->alt_compiler);
		session->alt_compiler = NULL;
	}
	int status = session->alt_compiler
					 ? KILN_OK
					 : alt_compiler_open(session->broker, path, &session->alt_compiler, error);
	if (status == KILN_OK && !alt_compiler_take(session->alt_compiler))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EBUSY,
						 "a second compiler takes one kernel at a time of a connection");
	*out = status == KILN_OK ? session->alt_compiler : NULL;
	return status;
}

struct wanted {
	const char *line, *target;
	const char *key; /* in room; NULL: the line has a problem */
	char room[KERNEL_KEY_HEX];
	struct alt_compiler *compiler;
	struct kernel_ref *ref;
};

static int warm_take(struct session *session, struct wire_in *message, struct wanted *wanted,
					 char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *root = &message->root;
	struct kernel_limits limits;
	int status;
	wanted->line = wire_get_str(message, root, "line");
	wanted->target = wire_get_str(message, root, "target");
	if (session->broker->draining)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED, "kilnd is shutting down");
	if (!wanted->line && !wanted->target)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL, "warm needs the line of a manifest");
	status = wanted->target ? plan_limits_for(wanted->target, &limits, error) : KILN_OK;
	if (status != KILN_OK || !wanted->line)
		return status;
	wanted->key = read_kernel(wanted->line, wanted->room, &status, error);
	if (status == KILN_OK && !wanted->key)
		status = plan_line(session, wanted->line, wanted->target, &wanted->ref, error);
	if (status == KILN_OK)
		status = choose_compiler(session, wire_get_str(message, root, "compiler"),
								 &wanted->compiler, error);
	return status;
}

/* ---- Beside the calls ---- */

/* A kernel of the cache, for another target or by another compiler. */
struct row_warming {
	struct row_request read;
	char target[KERNEL_TARGET_MAX]; /* "": the row's own */
};

static void recompile(struct kernel_request *asked)
{
	const struct job_terms terms = {.asker = asked->request.session,
									.purpose = JOB_RECOMPILE,
									.priority = POOL_BACKGROUND,
									.compiler = asked->compiler};
	const char *target = asked->ref->target;
	char error[KERNEL_ERROR_MAX];
	if (!terms.compiler || alt_compiler_serves(terms.compiler, target)) {
		kernel_request_resolve(asked, asked->ref, &terms, on_resolved);
		return;
	}
	util_fail(error, sizeof(error), 0,
			  "%.120s does not compile for %s: a libnvrtc does for GPUs, a C++ compiler for cpu",
			  alt_compiler_path(terms.compiler), target);
	kernel_request_fail(asked, KILN_EINVAL, error, "");
}

static void on_row_read(struct broker *broker, void *arg)
{
	struct row_warming *warming = arg;
	struct row_request *request = &warming->read;
	struct kernel_request *asked = &request->asked;
	struct cache_row *row = &asked->row;
	(void)broker;
	if (!kernel_request_arrived(asked))
		return;
	if (request->status != KILN_OK) {
		kernel_request_fail(asked, request->status, request->error, "");
		return;
	}
	bool host = !strcmp(row->target, "cpu");
	if (warming->target[0])
		memcpy(row->target, warming->target, sizeof(row->target));
	/* All GPUs share a unit; device cpu has another. */
	if (host != !strcmp(row->target, "cpu") ||
		(asked->compiler && !alt_compiler_serves(asked->compiler, row->target)))
		answer_success(asked, "skipped", row);
	else if ((request->status = job_open_row(row, row->target, &asked->ref, request->error)) !=
			 KILN_OK)
		kernel_request_fail(asked, request->status, request->error, "");
	else
		recompile(asked);
}

void serve_warm(struct session *session, struct wire_in *message)
{
	const struct job_terms terms = {
		.asker = session, .purpose = JOB_WARM, .priority = POOL_BACKGROUND};
	struct wanted wanted = {.ref = NULL};
	char error[KERNEL_ERROR_MAX];
	uint64_t id = wire_id(message);
	int status = warm_take(session, message, &wanted, error);
	if (status != KILN_OK) {
		reply_error(session, id, status, "%s", error);
		kernel_drop(wanted.ref);
		return;
	}
	struct row_warming *warming = kernel_request_open(session, id, wanted.ref, sizeof(*warming));
	if (!warming) {
		if (wanted.compiler)
			alt_compiler_give(wanted.compiler);
		return;
	}
	struct kernel_request *asked = &warming->read.asked;
	asked->compiler = wanted.compiler;
	if (!wanted.line) {
		reply_ok(session, id);
		kernel_request_end(asked);
	} else if (wanted.key) {
		snprintf(warming->target, sizeof(warming->target), "%s",
				 wanted.target ? wanted.target : "");
		kernel_request_read(&warming->read, wanted.key, on_row_read);
	} else if (asked->ref->plan.kind != KERNEL_LAUNCH) {
		answer_plan(asked, "copy", NULL);
	} else if (asked->compiler) {
		recompile(asked);
	} else {
		kernel_request_resolve(asked, asked->ref, &terms, on_resolved);
	}
}
