/*
 * run_daemon.c: gives calls on CUDA tensors to the daemon, which launches them on memory that is
 * lent to it, in order with the stream that the tensors' library works on.  Nobody waits: a failure
 * is raised by a later call, or by synchronize().
 */
#include "cuda.h"
#include "deadlines.h"
#include "errors.h"
#include "lent.h"
#include "run.h"

/* Takes the result of the oldest call that has not ended; 0, RAISED, or 1: it has not ended. */
static int take_oldest(struct connection *connection, int timeout_ms)
{
	kiln_client *client = connection->client;
	kiln_ticket ticket = connection->tickets[connection->ticket_first];
	int status;
	Py_BEGIN_ALLOW_THREADS;
	status = kiln_wait(client, ticket, timeout_ms);
	Py_END_ALLOW_THREADS;
	if (status == KILN_EAGAIN)
		return 1;
	/* While this one waited, another thread may have closed the connection.  Where another one is
	 * inside the client, the result is still to be taken. */
	if (status != KILN_EBUSY && connection->ticket_count > 0) {
		connection->ticket_first = (connection->ticket_first + 1) % TICKETS_MOST;
		connection->ticket_count--;
	}
	if (status == KILN_OK)
		return 0;
	(void)error_raise_kiln(status);
	if (status == KILN_ECONN)
		connection_lost(connection, false);
	return RAISED;
}

/* Waits in pieces, so that Ctrl-C is heard, until at most so many calls are under way. */
static int wait_until(struct connection *connection, int most)
{
	int left = connection->settings.timeout_ms;
	left = left ? left : DEADLINE_COPIED_MS;
	while (connection->ticket_count > most) {
		int piece = left < PAUSE_SIGNALS_MS ? left : PAUSE_SIGNALS_MS;
		int status = take_oldest(connection, piece);
		if (status == RAISED || PyErr_CheckSignals() != 0)
			return RAISED;
		left -= status == 1 ? piece : 0;
		if (left == 0) {
			error_raise_text(KILN_ETIMEDOUT, "a call did not finish before the deadline", NULL);
			return RAISED;
		}
	}
	return 0;
}

PyObject *module_synchronize(PyObject *module, PyObject *connection)
{
	(void)module;
	if (!connection_check(connection)) {
		error_raise_type("synchronize() takes a Connection");
		return NULL;
	}
	if (wait_until((struct connection *)connection, 0) != 0)
		return NULL;
	Py_RETURN_NONE;
}

/* Takes what has ended, and waits where too much is under way. */
static int collect(struct connection *connection)
{
	int status = 0;
	while (connection->ticket_count > 0 && status == 0)
		status = take_oldest(connection, 0);
	return status == RAISED ? RAISED : wait_until(connection, TICKETS_MOST - 1);
}

static int raise_not_lent(const struct problem *problem, const struct problem_operand *operand)
{
	if (operand->role == ROLE_MADE)
		return error_raise_value("%s: a new tensor is not lent to the daemon: pass out=, a tensor "
								 "that kiln.lend() has lent, or use mode=\"local\"",
								 problem->op);
	return error_raise_value("%s: %s is not lent to the daemon by this thread: keep "
							 "kiln.lend(%s) while calls use it, or use mode=\"local\"",
							 problem->op, operand->name, operand->name);
}

/* An operand without elements has the place of another one.  A status of libkiln, or RAISED. */
static int find_lent(const struct problem *problem, const struct connection *connection,
					 const struct prepared *prepared, kiln_operand *operands)
{
	kiln_buffer *any = NULL;
	for (int i = 0; i < problem->count; i++) {
		const struct problem_operand *operand = &problem->operands[i];
		const struct prepared_operand *is = &prepared->operands[i];
		operands[i] = (kiln_operand){NULL, 0};
		if (!is->there || is->bytes == 0)
			continue;
		struct lent *lent = lent_find(connection, operand->view.data, is->bytes);
		if (!lent)
			return raise_not_lent(problem, operand);
		int status = lent_buffer(lent, operand->view.data, &operands[i]);
		if (status != KILN_OK)
			return status;
		any = operands[i].buffer;
	}
	for (int i = 0; i < problem->count; i++)
		if (prepared->operands[i].there && !operands[i].buffer)
			operands[i].buffer = any;
	return KILN_OK;
}

static bool has_elements(const struct prepared *prepared)
{
	for (int i = 0; i < prepared->count; i++)
		if (prepared->operands[i].there && prepared->operands[i].bytes > 0)
			return true;
	return false;
}

int run_daemon(struct problem *problem, struct connection *connection, struct prepared *prepared,
			   bool last)
{
	kiln_submit_options options = {.size = sizeof(options), .flags = KILN_SUBMIT_CUDA};
	kiln_operand operands[KILN_MAX_OPERANDS];
	kiln_ticket ticket = 0;

	if (connection->on_host)
		return error_raise_value("%s: the tensors are on CUDA and the client's device is cpu",
								 problem->op);
	if (!has_elements(prepared))
		return KILN_OK;
	if (prepared->client != connection->client && !last) {
		prepared_remove(&connection->prepared, prepared);
		return KILN_ECONN;
	}
	if (kind_stream(problem->kind, problem->device, &options.cuda_stream) != 0 ||
		collect(connection) != 0)
		return RAISED;
	int status = find_lent(problem, connection, prepared, operands);
	if (status == RAISED && PyErr_Occurred())
		return RAISED;
	if (status == KILN_OK) {
		Py_BEGIN_ALLOW_THREADS;
		bool entered = cuda_enter(problem->device);
		status = kiln_submit_with(prepared->call, operands, problem->count, &options, &ticket);
		if (entered)
			cuda_leave();
		Py_END_ALLOW_THREADS;
	}
	if (status != KILN_OK)
		return run_failed(connection, status, last);
	connection->tickets[(connection->ticket_first + connection->ticket_count++) % TICKETS_MOST] =
		ticket;
	return KILN_OK;
}
