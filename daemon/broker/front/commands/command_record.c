/*
 * command_record.c: record lists what the daemon was asked for, or all generic kernels, as the
 * lines of a manifest.
 */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "daemon/plan/manifest.h"
#include "daemon/base/util.h"

static void put_recorded(struct wire_out *out, const struct usage_log *record, const char *after)
{
	const char *last;
	char *text = usage_log_page(record, after, &last);
	wire_put_str(out, "text", text ? text : "");
	wire_put_str(out, "next", last ? last : "");
	wire_put_bool(out, "more", last != NULL);
	wire_put_int(out, "problems", record->count);
	wire_put_uint(out, "left_out", record->left_out);
	free(text);
}

/* A kernel that cannot be printed is a defect: `kiln warm` would miss it. */
static int add_generic(const struct plan_op *op, int index, struct util_text *text)
{
	struct kernel_problem problem = {.tensor_count = 0};
	struct kernel_attr *choice;
	char line[MANIFEST_LINE_MAX];
	int status = op->generics(index, &problem);
	if (status != KILN_OK)
		return status;
	snprintf(problem.op, sizeof(problem.op), "%s", op->name);
	choice = &problem.attrs[problem.attr_count++];
	snprintf(choice->name, sizeof(choice->name), "%s", PLAN_CHOICE);
	kernel_attr_set_text(&problem, choice, PLAN_GENERIC, strlen(PLAN_GENERIC));
	if (manifest_print(&problem, line, sizeof(line)))
		util_text_add(text, "%s\n", line);
	else
		util_log(UTIL_ERROR, "generic kernel %d of %s cannot be printed", index, op->name);
	return KILN_OK;
}

static void put_generic(struct wire_out *out)
{
	struct util_text text = {0};
	int count = 0;
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op))
		for (int i = 0; op->generics && add_generic(op, i, &text) == KILN_OK; i++)
			count++;
	wire_put_str(out, "text", text.text ? text.text : "");
	wire_put_str(out, "next", "");
	wire_put_bool(out, "more", false);
	wire_put_int(out, "problems", count);
	wire_put_uint(out, "left_out", text.failed ? 1 : 0);
	util_text_free(&text);
}

void serve_record(struct session *session, struct wire_in *message)
{
	const char *after = wire_get_str(message, &message->root, "next");
	struct wire_out out;
	reply_begin(&out, wire_id(message));
	if (wire_get_int(&message->root, "generic", 0))
		put_generic(&out);
	else
		put_recorded(&out, &session->broker->usage_log, after ? after : "");
	reply_send(session, &out, NULL, 0);
}
