/*
 * command_record.c: record lists what the daemon was asked for, or all generic kernels, as the
 * lines of a manifest, or as command lines.
 */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "daemon/broker/kernels/cli_line.h"
#include "daemon/plan/manifest.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"

/* A line is read, inferred and written in some 10 us: a page must not hold the loop. */
#define COMMANDS_PAGE_BYTES ((size_t)4 << 10)

/* Makes commands of the lines of a page, which is freed.  Kernels that programs brought are left
 * out, for they have no choices. */
static char *make_commands(char *page)
{
	struct util_text text = {0};
	struct kernel_problem problem;
	char error[KERNEL_ERROR_MAX], *rest = page, *line;
	util_text_add(&text, "%s", "");
	while (page && (line = strsep(&rest, "\n"))) {
		if (!line[0] || manifest_read(line, &problem, error) != KILN_OK ||
			plan_infer(&problem, error) != KILN_OK)
			continue;
		char *command = line_of_problem(&problem);
		util_text_add(&text, "%s%s", command ? command : "", command ? "\n" : "");
		free(command);
	}
	free(page);
	return text.text;
}

static void put_recorded(struct wire_out *out, const struct usage_log *record, const char *after,
						 bool commands)
{
	const char *last;
	char *text =
		usage_log_page(record, after, commands ? COMMANDS_PAGE_BYTES : USAGE_LOG_PAGE_BYTES, &last);
	if (commands)
		text = make_commands(text);
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
		put_recorded(&out, &session->broker->usage_log, after ? after : "",
					 wire_get_int(&message->root, "commands", 0) != 0);
	reply_send(session, &out, NULL, 0);
}
