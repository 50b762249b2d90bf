/*
 * run_local.c: launches on the stream that the tensors' library works on.  The hot path: places are
 * filled in, and one function of libkiln launches.
 */
#include "cuda.h"
#include "errors.h"
#include "run.h"

int run_local(struct problem *problem, struct connection *connection, struct prepared *prepared,
			  bool last)
{
	kiln_place places[KILN_MAX_OPERANDS];
	void *stream;
	int status;

	if (connection->on_host)
		return error_raise_value("%s: the tensors are on CUDA and the client's device is cpu",
								 problem->op);
	if (kind_stream(problem->kind, problem->device, &stream) != 0)
		return RAISED;
	for (int i = 0; i < problem->count; i++) {
		bool there = prepared->operands[i].there;
		places[i].address = there ? (uint64_t)(uintptr_t)problem->operands[i].view.data : 0;
		places[i].bytes = there ? prepared->operands[i].bytes : 0;
	}
	Py_BEGIN_ALLOW_THREADS;
	bool entered = cuda_enter(problem->device);
	status = kiln_launch_local(prepared->call, places, problem->count, stream);
	if (entered)
		cuda_leave();
	Py_END_ALLOW_THREADS;
	return status == KILN_OK ? KILN_OK : run_failed_local(connection, prepared, status, last);
}

int run_failed_local(struct connection *connection, struct prepared *prepared, int status,
					 bool last)
{
	/* The call is of an earlier client, whose daemon is gone or in which a compile still waits. */
	if (prepared->client != connection->client && !last &&
		(status == KILN_ECONN || status == KILN_EBUSY)) {
		prepared_remove(&connection->prepared, prepared);
		return KILN_ECONN;
	}
	return run_failed(connection, status, last);
}
