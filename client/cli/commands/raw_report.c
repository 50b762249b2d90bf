/*
 * raw_report.c: the output of 'kiln run raw', for people and as JSON.
 */
#include "client/cli/check_daemon.h"
#include "client/cli/json.h"
#include "client/cli/table.h"
#include "raw.h"

#include <inttypes.h>
#include <stdio.h>

static void json_sizes(const char *name, const uint32_t sizes[3])
{
	int64_t wide[3] = {sizes[0], sizes[1], sizes[2]};

	json_ints(name, wide, 3);
}

static void json_arguments(const struct raw_run *run)
{
	json_list_begin("arguments");
	for (int i = 0; i < run->launch.arg_count; i++) {
		const struct raw_arg *arg = &run->args[i];
		json_item_begin();
		json_string("option", arg->option);
		json_string("value", arg->text);
		json_string("dtype", kiln_dtype_name(arg->access ? arg->array.dtype : arg->dtype));
		if (arg->access)
			json_ints("shape", arg->array.shape, arg->array.rank);
		if (arg->path)
			json_string("file", arg->path);
		json_item_end();
	}
	json_list_end();
}

void raw_print_json(const struct raw_run *run)
{
	json_begin();
	json_string("op", "raw");
	json_string("source", run->raw.name);
	json_string("entry", run->raw.entry);
	json_string("device", kiln_device(run->client));
	json_sizes("grid", run->launch.grid);
	json_sizes("block", run->launch.block);
	json_int("shared", run->launch.shared_bytes);
	json_arguments(run);
	json_string("origin", kiln_call_origin(run->call));
	json_string("plan", kiln_call_plan(run->call));
	json_int("bytes", (int64_t)run->bytes);
	if (run->printed[0])
		json_string("printed", run->printed);
	if (run->cut)
		json_int("printed_cut", (int64_t)run->cut);
	json_real("first_us", run->first_us);
	json_real("prepare_us", run->prepare_us);
	if (run->calls) {
		json_int("warm_calls", run->calls);
		json_real("warm_us", run->warm_us);
		json_real("warm_best_us", run->best_us);
		json_real("device_us", run->device_us);
		json_real("copy_us", run->copy_us);
		json_real("copy_device_us", run->copy_device_us);
	}
	trace_print_json(&run->trace);
	check_print_json(run->cli, run->client);
	json_end();
}

static void print_argument(const struct raw_arg *arg, int number)
{
	const struct npy *array = &arg->array;
	char name[24], shape[192], bytes[FIGURE_MAX];

	snprintf(name, sizeof(name), "argument %d", number);
	if (!arg->access) {
		print_pair(name, "%s", arg->text);
		return;
	}
	print_pair(name, "%s %s, %s, %s%s%s",
			   figure_dims(array->shape, array->rank, shape, sizeof(shape)),
			   kiln_dtype_name(array->dtype), figure_bytes(array->bytes, bytes),
			   arg->access & KILN_READ ? arg->option : "", arg->access & KILN_READ ? " " : "to ",
			   arg->access & KILN_READ ? arg->text : arg->path);
}

/* Uses the device's times where the device has a clock, else those of whole calls. */
static void print_times(const struct raw_run *run)
{
	bool clock = run->device_us > 0 && (run->copy_device_us > 0 || !(run->copy_us > 0));
	double kernel = clock ? run->device_us : run->warm_us;
	double copy = clock ? run->copy_device_us : run->copy_us;
	char a[FIGURE_MAX], b[FIGURE_MAX];

	print_pair("warm call", "%s, best %s of %" PRId64, figure_micros(run->warm_us, a),
			   figure_micros(run->best_us, b), run->calls);
	if (run->device_us > 0)
		print_pair("device time", "%s", figure_micros(run->device_us, a));
	if (copy > 0)
		print_pair("a copy", "%s for the same %s, the kernel takes %.2f times that",
				   figure_micros(copy, a), figure_bytes(run->bytes, b), kernel / copy);
}

void raw_print_report(const struct raw_run *run)
{
	const uint32_t *grid = run->launch.grid, *block = run->launch.block;
	char a[FIGURE_MAX], b[FIGURE_MAX];

	print_pair("kernel", "%s of %s", run->raw.entry, run->raw.name);
	print_pair("grid x block", "%u,%u,%u x %u,%u,%u", grid[0], grid[1], grid[2], block[0], block[1],
			   block[2]);
	if (run->launch.shared_bytes)
		print_pair("shared memory", "%u bytes", run->launch.shared_bytes);
	for (int i = 0; i < run->launch.arg_count; i++)
		print_argument(&run->args[i], i);
	print_pair("device", "%s", kiln_device(run->client));
	print_pair("origin", "%s", kiln_call_origin(run->call));
	print_pair("first call", "%s, of it %s to prepare", figure_micros(run->first_us, a),
			   figure_micros(run->prepare_us, b));
	if (run->calls)
		print_times(run);
	check_print(run->cli, run->client);
	trace_print(&run->trace);
}
