/*
 * local_raw.c: launches kernels of the program's own in the program's own context, on its own
 * stream.  The daemon gives the compiled kernel once; grid, block and arguments are the caller's.
 */
#include "call.h"
#include "client.h"
#include "error.h"
#include "local_launch.h"

#include <stdlib.h>
#include <string.h>

/* ---- What is refused before the driver is asked ---- */

static int check_raw_launch(const kiln_call *call, const kiln_launch *launch)
{
	if (!call->raw) {
		return error_set(KILN_EINVAL, "the call was prepared with kiln_prepare(): it is launched "
									  "with kiln_launch_local()");
	}
	int status = local_check_device(call, "a kernel", "kiln_submit_raw");
	if (status != KILN_OK)
		return status;
	if (!launch || launch->size < sizeof(*launch)) {
		return error_set(KILN_EINVAL,
						 "launch is %s; its size must be set to sizeof(kiln_launch), which is %zu",
						 launch == NULL ? "NULL" : "of another size", sizeof(*launch));
	}
	if (launch->arg_count < 0 || launch->arg_count > KILN_MAX_RAW_ARGS ||
		(launch->arg_count > 0 && !launch->args)) {
		return error_set(KILN_EINVAL, "the launch has %d arguments; there must be 0 to %d, in args",
						 launch->arg_count, KILN_MAX_RAW_ARGS);
	}
	if (launch->timeout_ms != 0) {
		return error_set(
			KILN_EINVAL,
			"the launch has timeout_ms %d; nobody can end a launch in the caller's own "
			"context, so it must be 0",
			launch->timeout_ms);
	}
	return error_if_newer(launch, sizeof(*launch), "kiln_launch");
}

/* The parameters of the kernel: as the driver said, or the device process that has it. */
static int64_t parameter_bytes(const kiln_call *call, const struct local_way *way, int i)
{
	return way->param_count >= 0 ? (int64_t)way->params[i] : call->params[i];
}

/* Points values at the arguments, after comparing them with the kernel's parameters. */
static int place_values(const kiln_call *call, const struct local_way *way,
						const kiln_launch *launch, void *values[KILN_MAX_RAW_ARGS])
{
	int known = way->param_count >= 0 ? way->param_count : call->param_count;
	if (known >= 0 && launch->arg_count != known) {
		return error_set(KILN_EINVAL, "the kernel takes %d arguments and was given %d", known,
						 launch->arg_count);
	}
	for (int i = 0; i < launch->arg_count; i++) {
		const kiln_raw_arg *arg = &launch->args[i];
		if (arg->buffer || !arg->value || arg->bytes == 0 || arg->bytes > KILN_MAX_RAW_BYTES) {
			return error_set(KILN_EINVAL,
							 "argument %d has %s; in the caller's own context an argument is a "
							 "value of 1 to %d bytes, a pointer an address of 8",
							 i, arg->buffer ? "a buffer" : "no such value", KILN_MAX_RAW_BYTES);
		}
		if (known >= 0 && (int64_t)arg->bytes != parameter_bytes(call, way, i)) {
			return error_set(
				KILN_EINVAL, "argument %d of the kernel has %lld bytes and was given %llu", i,
				(long long)parameter_bytes(call, way, i), (unsigned long long)arg->bytes);
		}
		memcpy(&values[i], &arg->value, sizeof(values[i])); /* the driver only reads it */
	}
	return KILN_OK;
}

/* ---- Launching ---- */

/* A kernel of the program's own has one way, whatever the addresses are. */
static int find_raw_way(kiln_call *call, struct local_way **out)
{
	if (!call->local)
		call->local = calloc(1, sizeof(*call->local));
	if (!call->local)
		return error_set(KILN_ENOMEM, "no memory for a launch");
	int status = call->local->all ? KILN_OK : local_ask(call, 0, &call->local->all);
	*out = call->local->all;
	return status;
}

static int launch_raw(kiln_call *call, const kiln_launch *launch, void *stream)
{
	void *values[KILN_MAX_RAW_ARGS];
	struct local_context current;
	struct local_use *use = NULL;
	struct local_way *way = NULL;
	int status = check_raw_launch(call, launch);
	if (status == KILN_OK)
		status = local_current(&current);
	if (status == KILN_OK)
		status = find_raw_way(call, &way);
	if (status == KILN_OK)
		status = local_load(way, &current, &use);
	if (status == KILN_OK)
		status = place_values(call, way, launch, values);
	return status == KILN_OK ? local_start_raw(use, launch, values, stream) : status;
}

int kiln_launch_local_raw(kiln_call *call, const kiln_launch *launch, void *cuda_stream)
{
	if (!call)
		return error_set(KILN_EINVAL, "call is NULL; it must come from kiln_prepare_raw()");
	int status = client_enter(call->client);
	if (status != KILN_OK)
		return status;
	return client_leave(call->client, launch_raw(call, launch, cuda_stream));
}
