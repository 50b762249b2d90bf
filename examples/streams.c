/*
 * streams: three matrices, each softmaxed down its columns: two calls with one ticket, on a stream
 * for each matrix.
 *
 *   cc streams.c $(pkg-config --cflags --libs kiln) -o streams
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stdio.h>

enum { MATRICES = 3, ROWS = 2, COLUMNS = 3 };

struct calls {
	kiln_call *turn, *softmax;
};

struct matrix {
	kiln_buffer *x, *turned, *y;
};

static int prepare(kiln_client *client, struct calls *calls)
{
	const int64_t shape[2] = {ROWS, COLUMNS}, turned[2] = {COLUMNS, ROWS}, order[2] = {1, 0};
	kiln_tensor x = kiln_tensor_make(NULL, 0, KILN_F32, 2, shape);
	kiln_tensor t = kiln_tensor_make(NULL, 0, KILN_F32, 2, turned);
	const kiln_tensor there[2] = {x, t}, same[2] = {t, t};
	kiln_attr perm = kiln_attr_ints("perm", order, 2), axis = kiln_attr_int("axis", -1);
	int status = kiln_prepare(client, "permute", there, 2, &perm, 1, &calls->turn);

	if (status == KILN_OK)
		status = kiln_prepare(client, "softmax", same, 2, &axis, 1, &calls->softmax);
	return status;
}

static int fill(kiln_client *client, struct matrix *matrix, float first)
{
	float in[ROWS * COLUMNS];
	int status = kiln_alloc(client, sizeof(in), 0, "x", &matrix->x);

	for (int i = 0; i < ROWS * COLUMNS; i++)
		in[i] = first + (float)(i * i) / 10;
	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(in), 0, "turned", &matrix->turned);
	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(in), 0, "y", &matrix->y);
	return status == KILN_OK ? kiln_write(matrix->x, 0, in, sizeof(in)) : status;
}

/* The second call reads what the first writes, and is not run if that fails. */
static int submit(const struct calls *calls, const struct matrix *matrix, unsigned stream,
				  kiln_ticket *ticket)
{
	const kiln_operand turn[2] = {{matrix->x, 0}, {matrix->turned, 0}};
	const kiln_operand softmax[2] = {{matrix->turned, 0}, {matrix->y, 0}};
	const kiln_work works[2] = {{calls->turn, turn, 2}, {calls->softmax, softmax, 2}};
	kiln_submit_options options = {.size = sizeof(options), .stream = stream};

	return kiln_submit_many(works, 2, &options, ticket);
}

/* Each matrix has its own stream, so none waits for another. */
static int run(kiln_client *client, const struct calls *calls, const struct matrix *matrices)
{
	kiln_ticket tickets[MATRICES];
	int status = KILN_OK;

	for (unsigned i = 0; i < MATRICES && status == KILN_OK; i++)
		status = submit(calls, &matrices[i], i, &tickets[i]);
	for (int i = 0; i < MATRICES && status == KILN_OK; i++)
		status = kiln_wait(client, tickets[i], KILN_FOREVER);
	return status;
}

static int print(const struct matrix *matrix, int number)
{
	float y[COLUMNS][ROWS];
	int status = kiln_read(matrix->y, 0, y, sizeof(y));

	if (status == KILN_OK)
		printf("%d: %.4f %.4f / %.4f %.4f / %.4f %.4f\n", number, y[0][0], y[0][1], y[1][0],
			   y[1][1], y[2][0], y[2][1]);
	return status;
}

int main(void)
{
	kiln_connect_options options = {.size = sizeof(options), .flags = KILN_CONNECT_AUTOSTART};
	kiln_client *client = NULL;
	struct calls calls = {NULL, NULL};
	struct matrix matrices[MATRICES] = {{NULL, NULL, NULL}};
	int status = kiln_connect(&options, &client);

	if (status == KILN_OK)
		status = prepare(client, &calls);
	for (int i = 0; i < MATRICES && status == KILN_OK; i++)
		status = fill(client, &matrices[i], (float)i);
	if (status == KILN_OK)
		status = run(client, &calls, matrices);
	for (int i = 0; i < MATRICES && status == KILN_OK; i++)
		status = print(&matrices[i], i);
	if (status != KILN_OK)
		fprintf(stderr, "%s: %s\n", kiln_status_name(status), kiln_errmsg());

	for (int i = 0; i < MATRICES; i++) {
		kiln_free(matrices[i].x);
		kiln_free(matrices[i].turned);
		kiln_free(matrices[i].y);
	}
	kiln_call_free(calls.turn);
	kiln_call_free(calls.softmax);
	kiln_close(client);
	return status == KILN_OK ? 0 : 1;
}
