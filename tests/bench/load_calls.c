/* load_calls.c: a session, and the kernels that all of the benchmark uses. */
#include "load.h"

#include <kiln/ops.h>

#include <string.h>

#define SETTLE 4 /* launches until one goes as all later ones */

void load_problem(int number, kiln_buffer *const buffers[2], kiln_tensor tensors[2])
{
	const int64_t shape[2] = {1, LOAD_COLUMNS + number};
	for (int i = 0; i < 2; i++)
		tensors[i] = kiln_tensor_make(buffers ? buffers[i] : NULL, 0, KILN_F32, 2, shape);
}

bool seat_open(struct seat *seat, const char *socket, const char *device)
{
	kiln_connect_options options = {
		.size = sizeof(options), .socket = socket, .device = device, .timeout_ms = LOAD_WAIT_MS};
	memset(seat, 0, sizeof(*seat));
	return kiln_connect(&options, &seat->client) == KILN_OK;
}

bool seat_settle(struct seat *seat)
{
	kiln_tensor tensors[2];
	bool good = true;
	for (int i = 0; good && i < 2; i++)
		good = !kiln_alloc(seat->client, LOAD_COLUMNS * 4, 0, NULL, &seat->buffers[i]);
	load_problem(0, seat->buffers, tensors);
	good = good && !kiln_prepare(seat->client, "softmax", tensors, 2, NULL, 0, &seat->call);
	for (int i = 0; good && i < SETTLE; i++)
		good = seat_launch(seat) >= 0;
	return good;
}

bool seat_submit(struct seat *seat, kiln_ticket *ticket)
{
	const kiln_operand operands[2] = {{.buffer = seat->buffers[0]}, {.buffer = seat->buffers[1]}};
	return !kiln_submit(seat->call, operands, 2, 0, ticket);
}

double seat_launch(struct seat *seat)
{
	kiln_ticket ticket;
	double began = runner_now_us();
	if (!seat_submit(seat, &ticket) || kiln_wait(seat->client, ticket, LOAD_WAIT_MS))
		return -1;
	return runner_now_us() - began;
}

void seat_close(struct seat *seat)
{
	kiln_call_free(seat->call);
	for (int i = 0; i < 2; i++)
		kiln_free(seat->buffers[i]);
	kiln_close(seat->client);
	memset(seat, 0, sizeof(*seat));
}
