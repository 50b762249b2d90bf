/*
 * command_warm.c: warm: a line of a manifest becomes a kernel in the cache, before anybody asks for
 * it.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel_request.h"
#include "daemon/plan/manifest.h"
#include "daemon/base/util.h"
#include "planned.h"

/* ---- Answers ---- */

static void answer_success(struct kernel_request *asked, const char *origin,
						   const struct recompile_answer *found)
{
	struct wire_out out;
	reply_begin(&out, asked->request.id);
	wire_put_str(&out, "key", found->key);
	wire_put_str(&out, "op", found->op);
	wire_put_str(&out, "target", found->target);
	wire_put_str(&out, "instantiation", found->instantiation);
	wire_put_str(&out, "origin", origin);
	wire_put_int(&out, "bytes", found->bytes);
	wire_put_int(&out, "compile_micros", found->micros);
	wire_put_uint(&out, "micros", util_now_us() - asked->began_us);
	reply_send(asked->request.session, &out, NULL, 0);
	kernel_request_end(asked);
}

static void on_recompiled(void *arg, const struct recompile_answer *found)
{
	static const char *const origins[] = {"compiled", "hit", "skipped"};
	struct kernel_request *asked = arg;
	kernel_request_arrived(asked);
	if (found->status == KILN_OK)
		answer_success(asked, origins[found->outcome], found);
	else
		kernel_request_fail(asked, found->status, found->error, found->log);
}

static void answer_plan(struct kernel_request *asked, const char *origin,
						const struct cache_row *row)
{
	const struct kernel_ref *ref = asked->ref;
	struct recompile_answer found = {
		.key = ref->key,
		.op = ref->plan.op,
		.target = ref->target,
		.instantiation = ref->plan.instantiation,
		.bytes = row ? (int64_t)row->object_bytes : 0,
		.micros = row ? row->compile_micros : 0,
	};
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

/* The session's second compiler; one that it had is given up for another. */
static int choose_compiler(struct session *session, const char *path, struct alt_compiler **out,
						   char error[KERNEL_ERROR_MAX])
{
	*out = NULL;
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
	*out = session->alt_compiler;
	return status;
}

struct wanted {
	const char *line, *target, *key;
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

/* Compiles a row of the cache for another target, or a planned kernel by another compiler. */
static void recompile(struct kernel_request *asked, const struct wanted *wanted)
{
	struct recompile_want want = {.ref = asked->ref,
								  .compiler = wanted->compiler,
								  .priority = POOL_BACKGROUND,
								  .owner = session_turn(asked->request.session)};
	snprintf(want.key, sizeof(want.key), "%s", wanted->key ? wanted->key : "");
	snprintf(want.target, sizeof(want.target), "%s", wanted->target ? wanted->target : "");
	kernel_request_recompile(asked, &want, on_recompiled);
}

void serve_warm(struct session *session, struct wire_in *message)
{
	const struct job_terms terms = {
		.asker = session, .priority = POOL_BACKGROUND, .unrecorded = true};
	struct wanted wanted = {.ref = NULL};
	char error[KERNEL_ERROR_MAX];
	uint64_t id = wire_id(message);
	int status = warm_take(session, message, &wanted, error);
	if (status != KILN_OK) {
		reply_error(session, id, status, "%s", error);
		kernel_drop(wanted.ref);
		return;
	}
	struct kernel_request *asked = kernel_request_open(session, id, wanted.ref, sizeof(*asked));
	if (!asked)
		return;
	if (!wanted.line) {
		reply_ok(session, id);
		kernel_request_end(asked);
	} else if (wanted.ref && wanted.ref->plan.kind != KERNEL_LAUNCH) {
		answer_plan(asked, "copy", NULL);
	} else if (wanted.key || wanted.compiler) {
		recompile(asked, &wanted);
	} else {
		kernel_request_resolve(asked, asked->ref, &terms, on_resolved);
	}
}
