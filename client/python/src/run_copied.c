/*
 * run_copied.c: operands of the host go to the daemon's device and back.  Device cpu shares an
 * arena with this process, so each operand is copied once in each direction, and not at all where
 * it lies in memory of kiln.empty().
 */
#include "deadlines.h"
#include "errors.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_KEPT (UINT64_C(64) << 20) /* a larger arena is given back after the call */
#define ARENA_SMALLEST (UINT64_C(1) << 20)

static void free_arena(struct connection *connection)
{
	kiln_free(connection->arena);
	connection->arena = NULL;
	connection->arena_map = NULL;
	connection->arena_bytes = 0;
}

int run_grow_arena(struct connection *connection, uint64_t bytes)
{
	uint64_t room = ARENA_SMALLEST;
	void *map = NULL;
	if (connection->arena && connection->arena_bytes >= bytes)
		return KILN_OK;
	free_arena(connection);
	while (room < bytes && room < ARENA_KEPT)
		room *= 2;
	room = room < bytes ? bytes : room;
	unsigned flags = connection->on_host ? KILN_BUFFER_SHARED : 0;
	int status = kiln_alloc(connection->client, room, flags, "operands", &connection->arena);
	if (status == KILN_OK && connection->on_host)
		status = kiln_map(connection->arena, &map);
	if (status != KILN_OK)
		return status;
	connection->arena_map = map;
	connection->arena_bytes = room;
	return KILN_OK;
}

/* Copies the elements of a strided tensor side by side. */
static char *pack(const struct view *view, int axis, const char *from, char *to, size_t size)
{
	if (axis == view->rank) {
		memcpy(to, from, size);
		return to + size;
	}
	int64_t step = view->stride[axis] * (int64_t)size;
	if (axis == view->rank - 1 && view->stride[axis] == 1) {
		memcpy(to, from, (size_t)view->shape[axis] * size);
		return to + (size_t)view->shape[axis] * size;
	}
	for (int64_t i = 0; i < view->shape[axis]; i++)
		to = pack(view, axis + 1, from + i * step, to, size);
	return to;
}

/* Copies the elements of a strided tensor, and not what lies between them, to a like one. */
static void copy_elements(const struct view *view, int axis, const char *from, char *to,
						  size_t size)
{
	int64_t step = axis < view->rank ? view->stride[axis] * (int64_t)size : 0;
	if (axis == view->rank) {
		memcpy(to, from, size);
		return;
	}
	if (axis == view->rank - 1 && view->stride[axis] == 1) {
		memcpy(to, from, (size_t)view->shape[axis] * size);
		return;
	}
	for (int64_t i = 0; i < view->shape[axis]; i++)
		copy_elements(view, axis + 1, from + i * step, to + i * step, size);
}

/* The parts of one call; all but the fields that say so without the GIL. */
struct copied {
	struct connection *connection;
	const struct problem *problem;
	const struct prepared *prepared;
	kiln_operand operands[KILN_MAX_OPERANDS];
	bool shared[KILN_MAX_OPERANDS];
};

static int copy_in(const struct copied *copied, int i)
{
	const struct connection *connection = copied->connection;
	const struct prepared_operand *is = &copied->prepared->operands[i];
	const struct view *view = &copied->problem->operands[i].view;
	size_t size = kiln_dtype_size(view->dtype);
	if (is->bytes == 0)
		return KILN_OK;
	if (connection->arena_map) {
		if (is->packed)
			pack(view, 0, view->data, connection->arena_map + is->room, size);
		else
			memcpy(connection->arena_map + is->room, view->data, is->bytes);
		return KILN_OK;
	}
	if (!is->packed)
		return kiln_write(connection->arena, is->room, view->data, is->bytes);
	char *room = malloc(is->bytes);
	if (!room)
		return KILN_ENOMEM;
	pack(view, 0, view->data, room, size);
	int status = kiln_write(connection->arena, is->room, room, is->bytes);
	free(room);
	return status;
}

static int copy_out(const struct copied *copied, int i)
{
	const struct connection *connection = copied->connection;
	const struct prepared_operand *is = &copied->prepared->operands[i];
	const struct view *view = &copied->problem->operands[i].view;
	size_t size = kiln_dtype_size(view->dtype);
	bool apart = !view_contiguous(view);
	if (is->bytes == 0)
		return KILN_OK;
	if (connection->arena_map) {
		if (apart)
			copy_elements(view, 0, connection->arena_map + is->room, view->data, size);
		else
			memcpy(view->data, connection->arena_map + is->room, is->bytes);
		return KILN_OK;
	}
	if (!apart)
		return kiln_read(connection->arena, is->room, view->data, is->bytes);
	char *room = malloc(is->bytes);
	if (!room)
		return KILN_ENOMEM;
	int status = kiln_read(connection->arena, is->room, room, is->bytes);
	if (status == KILN_OK)
		copy_elements(view, 0, room, view->data, size);
	free(room);
	return status;
}

static int begin(struct copied *copied, kiln_ticket *ticket)
{
	const struct problem *problem = copied->problem;
	struct connection *connection = copied->connection;
	int status = run_grow_arena(connection, copied->prepared->arena_bytes);

	for (int i = 0; i < problem->count && status == KILN_OK; i++) {
		const struct view *view = &problem->operands[i].view;
		uint64_t offset;
		copied->operands[i] = (kiln_operand){NULL, 0};
		copied->shared[i] = false;
		if (!copied->prepared->operands[i].there)
			continue;
		unsigned place = run_place(connection, view, problem->operands[i].role);
		if (place) {
			kiln_buffer *buffer =
				connection_shared(connection, view->data, view_span(view), &offset);
			copied->operands[i] = (kiln_operand){buffer, offset};
			copied->shared[i] = true;
			continue;
		}
		copied->operands[i] = (kiln_operand){connection->arena, copied->prepared->operands[i].room};
		if (problem->operands[i].role == ROLE_INPUT || problem->operands[i].role == ROLE_KEPT)
			status = copy_in(copied, i);
	}
	if (status != KILN_OK)
		return status;
	return kiln_submit(copied->prepared->call, copied->operands, problem->count, 0, ticket);
}

static int copy_outputs(const struct copied *copied)
{
	int status = KILN_OK;
	for (int i = 0; i < copied->problem->count && status == KILN_OK; i++) {
		enum role role = copied->problem->operands[i].role;
		bool written = role == ROLE_MADE || role == ROLE_GIVEN || role == ROLE_KEPT;
		if (written && !copied->shared[i])
			status = copy_out(copied, i);
	}
	return status;
}

void run_trim_arena(struct connection *connection)
{
	if (connection->arena_bytes > ARENA_KEPT)
		free_arena(connection);
}

/* Waits in pieces. */
int run_wait(struct connection *connection, kiln_ticket ticket)
{
	int left =
		connection->settings.timeout_ms ? connection->settings.timeout_ms : DEADLINE_COPIED_MS;
	int status;
	for (;;) {
		int piece = left != KILN_FOREVER && left < PAUSE_SIGNALS_MS ? left : PAUSE_SIGNALS_MS;
		Py_BEGIN_ALLOW_THREADS;
		status = kiln_wait(connection->client, ticket, piece);
		Py_END_ALLOW_THREADS;
		if (status != KILN_EAGAIN)
			return status;
		left -= left == KILN_FOREVER ? 0 : piece;
		if (PyErr_CheckSignals() == 0 && left != 0)
			continue;
		if (!PyErr_Occurred())
			error_raise_text(KILN_ETIMEDOUT, "the call did not finish before the deadline", NULL);
		/* The device may still write the arena, so it goes with the connection.  The daemon drops
		 * what the connection has not begun; to ask for that would wait for its answer. */
		connection_lost(connection, false);
		return RAISED_HERE;
	}
}

/* Do two tensors that are written share memory?  Parts of one tensor may lie between each other's
 * elements. */
static bool meet(const struct problem_operand *a, const struct problem_operand *b)
{
	const char *first = a->view.data, *second = b->view.data;
	uint64_t one = view_span(&a->view), other = view_span(&b->view);
	if (one == 0 || other == 0)
		return false;
	if (!view_contiguous(&a->view) || !view_contiguous(&b->view))
		return first == second;
	return first < second + other && second < first + one;
}

/* Each result is copied to its tensor: of one memory the last alone would be there. */
static int refuse_one_memory(const struct problem *problem)
{
	for (int i = 0; i < problem->count; i++) {
		const struct problem_operand *a = &problem->operands[i];
		for (int k = 0; k < i && (a->role == ROLE_GIVEN || a->role == ROLE_KEPT); k++) {
			const struct problem_operand *b = &problem->operands[k];
			if ((b->role == ROLE_GIVEN || b->role == ROLE_KEPT) && meet(a, b))
				return error_raise_value(
					"%s(): %s and %s overlap; an output may share no byte with "
					"another operand",
					problem->op, b->name, a->name);
		}
	}
	return 0;
}

int run_copied(struct problem *problem, struct connection *connection, struct prepared *prepared,
			   bool last)
{
	struct copied copied = {connection, problem, prepared, {{0}}, {false}};
	kiln_ticket ticket;
	int status;

	if (refuse_one_memory(problem) != 0)
		return RAISED;
	if (connection->busy) {
		error_raise_text(KILN_EBUSY, "the client is in use by another thread", NULL);
		return RAISED;
	}
	connection->busy = true;
	Py_BEGIN_ALLOW_THREADS;
	status = begin(&copied, &ticket);
	Py_END_ALLOW_THREADS;
	if (status == KILN_OK)
		status = run_wait(connection, ticket);
	connection->busy = false;
	if (status == RAISED_HERE)
		return RAISED;
	int failed = status;
	/* An index out of range: all is written, and the caller is told. */
	if (status == KILN_OK || status == KILN_EINDEX) {
		connection->busy = true;
		Py_BEGIN_ALLOW_THREADS;
		status = copy_outputs(&copied);
		Py_END_ALLOW_THREADS;
		connection->busy = false;
		if (failed != KILN_OK)
			return error_raise_kiln(failed);
	}
	if (status != KILN_OK)
		return run_failed(connection, status, last);
	run_trim_arena(connection);
	return KILN_OK;
}
