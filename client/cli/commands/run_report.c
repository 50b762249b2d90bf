/*
 * run_report.c: the output of 'kiln run' for a call with right results, for people and as JSON.
 */
#include "client/cli/check_daemon.h"
#include "client/cli/files.h"
#include "client/cli/json.h"
#include "client/cli/problem.h"
#include "client/cli/table.h"
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Writes an attribute under its name. */
static void json_attribute(const struct run *run, const kiln_attr *attr)
{
	if (attr->kind == KILN_ATTR_INTS)
		json_ints(attr->name, run->problem.perm, attr->count);
	else if (attr->kind == KILN_ATTR_REAL)
		json_number(attr->name, attr->f);
	else if (attr->kind == KILN_ATTR_STRING)
		json_string(attr->name, attr->s);
	else
		json_int(attr->name, attr->i);
}

/* The path of the operand's file; NULL: there is none. */
static const char *run_report_path_of(const struct run *run, int operand)
{
	const char *name = run->check.operands[operand].name;
	const struct file *file = files_in(run->problem.files, name);

	file = file ? file : files_out(run->problem.files, name);
	return file ? file->path : NULL;
}

static void json_operands(const struct run *run)
{
	json_list_begin("operands");
	for (int i = 0; i < run->check.count; i++) {
		const struct check_operand *operand = &run->check.operands[i];
		if (!run_has(run, i))
			continue;
		json_item_begin();
		json_string("name", operand->name);
		json_string("dtype", kiln_dtype_name(operand->tensor.dtype));
		json_ints("shape", operand->tensor.shape, operand->tensor.rank);
		json_int("written", operand->written);
		if (run_report_path_of(run, i))
			json_string("file", run_report_path_of(run, i));
		json_item_end();
	}
	json_list_end();
}

void run_print_json(const struct run *run)
{
	const kiln_tensor *x = &run->problem.tensors[0];

	json_begin();
	json_string("op", run->problem.op);
	json_string("device", kiln_device(run->client));
	json_string("dtype", kiln_dtype_name(x->dtype));
	json_ints("shape", x->shape, x->rank);
	json_ints("stride", x->stride, x->rank);
	json_int("offset", (int64_t)x->offset);
	for (int i = 0; i < run->problem.attr_count; i++)
		json_attribute(run, &run->problem.attrs[i]);
	json_operands(run);
	json_int("seed", run->seed);
	json_int("elements", run->check.operands[0].elements);
	json_string("origin", kiln_call_origin(run->call));
	json_string("plan", kiln_call_plan(run->call));
	json_real("first_us", run->first_us);
	json_real("prepare_us", run->prepare_us);
	json_real("warm_us", run->warm_us);
	json_real("warm_best_us", run->best_us);
	json_real("device_us", run->device_us);
	json_int("warm_calls", run->warm_calls);
	json_int("verified", run->check.verified);
	json_number("largest_error", run->check.worst);
	json_int("kernel_changed", run->kernel_changed);
	trace_print_json(&run->trace);
	check_print_json(run->cli, run->client);
	json_end();
}

/* "6000 elements, every bit"; "6000 elements of y, mean, largest error 0.41 of what is allowed" */
static void print_verified(const struct run *run)
{
	char written[128] = "", error[80] = "every bit";
	int count = 0;

	for (int i = 0; i < run->check.count; i++)
		if (run_has(run, i) && run->check.operands[i].written) {
			size_t used = strlen(written);
			snprintf(written + used, sizeof(written) - used, "%s%s", count++ ? ", " : " of ",
					 run->check.operands[i].name);
		}
	if (!run->check.exact)
		snprintf(error, sizeof(error), "largest error %.2g of what is allowed", run->check.worst);
	print_pair("verified", "%" PRId64 " element%s%s, %s", run->check.verified,
			   run->check.verified == 1 ? "" : "s", count > 1 ? written : "", error);
}

static void print_files(const struct run *run)
{
	char shape[192];

	for (int i = 0; i < run->check.count; i++) {
		const struct check_operand *operand = &run->check.operands[i];
		const kiln_tensor *tensor = &operand->tensor;
		if (run_report_path_of(run, i))
			print_pair(operand->written ? "to file" : "from file", "%s %s %s, %s", operand->name,
					   figure_dims(tensor->shape, tensor->rank, shape, sizeof(shape)),
					   kiln_dtype_name(tensor->dtype), run_report_path_of(run, i));
	}
}

/* Takes the bytes that a call reads and writes from its plan. */
static void print_speed(const struct run *run)
{
	const struct cli_problem *problem = &run->problem;
	char figure[FIGURE_MAX];
	kiln_reply *reply;
	double bytes;

	if (kiln_explain(run->client, problem->op, problem->tensors, problem->tensor_count,
					 problem->attrs, problem->attr_count, NULL, &reply))
		return;
	bytes = kiln_reply_real(reply, "plan.bytes_moved");
	kiln_reply_free(reply);
	if (run->warm_us > 0)
		print_pair("moved", "%.2f GB/s", bytes / run->warm_us / 1e3);
	if (run->device_us > 0)
		print_pair("device time", "%s, %.2f GB/s", figure_micros(run->device_us, figure),
				   bytes / run->device_us / 1e3);
}

void run_print_report(const struct run *run, bool timed)
{
	const struct check_operand *first = &run->check.operands[0];
	const kiln_tensor *x = &first->tensor;
	uint64_t bytes = (uint64_t)first->elements * kiln_dtype_size(x->dtype);
	char a[FIGURE_MAX], b[FIGURE_MAX], shape[192];

	print_text(kiln_call_plan(run->call));
	print_pair("device", "%s", kiln_device(run->client));
	print_pair("data", "%s %s, seed %" PRId64 ", %s",
			   figure_dims(x->shape, x->rank, shape, sizeof(shape)), kiln_dtype_name(x->dtype),
			   run->seed, figure_bytes(bytes, a));
	print_files(run);
	print_pair("origin", "%s", kiln_call_origin(run->call));
	print_verified(run);
	if (run->any_order)
		print_pair("later calls", "other bits, verified, too: sums in another order");
	if (run->kernel_changed)
		print_pair("later calls", "other bits, verified, too: another kernel took over");
	print_pair("first call", "%s, of it %s to prepare", figure_micros(run->first_us, a),
			   figure_micros(run->prepare_us, b));
	print_pair("warm call", "%s, best %s of %" PRId64, figure_micros(run->warm_us, a),
			   figure_micros(run->best_us, b), run->warm_calls);
	check_print(run->cli, run->client);
	if (timed)
		print_speed(run);
	trace_print(&run->trace);
}
