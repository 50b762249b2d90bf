/*
 * layer_norm: layer norm with a residual added first and what a backward pass needs kept, prepared
 * once and called for several batches.
 *
 *   cc layer_norm.c $(pkg-config --cflags --libs kiln) -o layer_norm
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stdio.h>

enum { ROWS = 3, COLUMNS = 4, BATCHES = 2 };

/* The operands that layer_norm has, in its order; beta is left out. */
enum { X, GAMMA, BETA, RESIDUAL, Y, MEAN, RSTD, SUM, OPERANDS };

/* Plans and compiles; memory is named later, in each submit. */
static int prepare(kiln_client *client, kiln_call **call)
{
	const int64_t shape[2] = {ROWS, COLUMNS}, columns = COLUMNS, rows = ROWS;
	kiln_attr eps = kiln_attr_real("eps", 1e-5);
	kiln_tensor tensors[OPERANDS];

	tensors[X] = kiln_tensor_make(NULL, 0, KILN_F32, 2, shape);
	tensors[GAMMA] = kiln_tensor_make(NULL, 0, KILN_F32, 1, &columns);
	tensors[BETA] = kiln_tensor_none();
	tensors[RESIDUAL] = tensors[Y] = tensors[SUM] = tensors[X];
	tensors[MEAN] = tensors[RSTD] = kiln_tensor_make(NULL, 0, KILN_F32, 1, &rows);
	return kiln_prepare(client, "layer_norm", tensors, OPERANDS, &eps, 1, call);
}

/* Runs one batch; buffers[BETA] is NULL, because beta was left out. */
static int run(kiln_client *client, kiln_call *call, kiln_buffer *const buffers[OPERANDS])
{
	kiln_operand operands[OPERANDS] = {{0}};
	kiln_ticket ticket;
	int status;

	for (int i = 0; i < OPERANDS; i++)
		operands[i].buffer = buffers[i];
	status = kiln_submit(call, operands, OPERANDS, 0, &ticket);
	return status == KILN_OK ? kiln_wait(client, ticket, KILN_FOREVER) : status;
}

static int allocate(kiln_client *client, kiln_buffer *buffers[OPERANDS])
{
	static const char *const names[OPERANDS] = {"x", "gamma", NULL,   "residual",
												"y", "mean",  "rstd", "sum"};
	static const int counts[OPERANDS] = {ROWS * COLUMNS, COLUMNS, 0,    ROWS * COLUMNS,
										 ROWS * COLUMNS, ROWS,    ROWS, ROWS * COLUMNS};
	int status = KILN_OK;

	for (int i = 0; status == KILN_OK && i < OPERANDS; i++)
		if (names[i])
			status =
				kiln_alloc(client, (uint64_t)counts[i] * sizeof(float), 0, names[i], &buffers[i]);
	return status;
}

/* Rows that differ by a constant and a factor become the same. */
static int fill(kiln_buffer *const buffers[OPERANDS], int batch)
{
	float x[ROWS][COLUMNS], residual[ROWS][COLUMNS], gamma[COLUMNS];
	int status;

	for (int k = 0; k < COLUMNS; k++) {
		gamma[k] = (float)(1 + k);
		for (int i = 0; i < ROWS; i++) {
			x[i][k] = (float)((1 + i) * 100 * k);
			residual[i][k] = (float)(100 * batch);
		}
	}
	status = kiln_write(buffers[X], 0, x, sizeof(x));
	if (status == KILN_OK)
		status = kiln_write(buffers[RESIDUAL], 0, residual, sizeof(residual));
	return status == KILN_OK ? kiln_write(buffers[GAMMA], 0, gamma, sizeof(gamma)) : status;
}

static int print(kiln_buffer *const buffers[OPERANDS], int batch)
{
	float y[ROWS][COLUMNS], mean[ROWS];
	int status = kiln_read(buffers[Y], 0, y, sizeof(y));

	if (status == KILN_OK)
		status = kiln_read(buffers[MEAN], 0, mean, sizeof(mean));
	for (int i = 0; status == KILN_OK && i < ROWS; i++)
		printf("batch %d, mean %g: %.3f %.3f %.3f %.3f\n", batch, mean[i], y[i][0], y[i][1],
			   y[i][2], y[i][3]);
	return status;
}

int main(void)
{
	kiln_connect_options options = {.size = sizeof(options), .flags = KILN_CONNECT_AUTOSTART};
	kiln_buffer *buffers[OPERANDS] = {NULL};
	kiln_client *client = NULL;
	kiln_call *call = NULL;
	int status = kiln_connect(&options, &client);

	if (status == KILN_OK)
		status = allocate(client, buffers);
	if (status == KILN_OK)
		status = prepare(client, &call);
	for (int batch = 0; status == KILN_OK && batch < BATCHES; batch++) {
		status = fill(buffers, batch);
		if (status == KILN_OK)
			status = run(client, call, buffers);
		if (status == KILN_OK)
			status = print(buffers, batch);
	}
	if (status != KILN_OK)
		fprintf(stderr, "%s: %s\n", kiln_status_name(status), kiln_errmsg());

	kiln_call_free(call);
	for (int i = 0; i < OPERANDS; i++)
		kiln_free(buffers[i]);
	kiln_close(client);
	return status == KILN_OK ? 0 : 1;
}
