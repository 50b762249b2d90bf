/*
 * softmax: rows of scores become probabilities; then again, with rows that end early.
 *
 *   cc softmax.c $(pkg-config --cflags --libs kiln) -o softmax
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stdio.h>

enum { ROWS = 2, COLUMNS = 4 };

/* Goes along the last axis, over the scores as they are. */
static int plain(kiln_client *client, kiln_buffer *scores, kiln_buffer *result)
{
	const int64_t shape[2] = {ROWS, COLUMNS};
	kiln_tensor x = kiln_tensor_make(scores, 0, KILN_F32, 2, shape);
	kiln_tensor y = kiln_tensor_make(result, 0, KILN_F32, 2, shape);

	return kiln_softmax(client, x, y, -1, 1.0);
}

/* Takes the first elements of each row, as many as its length says; the rest of y is 0.  lengths
 * has one int32 a row. */
static int masked(kiln_client *client, kiln_buffer *scores, kiln_buffer *lengths,
				  kiln_buffer *result)
{
	const int64_t shape[2] = {ROWS, COLUMNS};
	kiln_tensor x = kiln_tensor_make(scores, 0, KILN_F32, 2, shape);
	kiln_tensor mask = kiln_tensor_make(lengths, 0, KILN_I32, 1, shape);
	kiln_tensor y = kiln_tensor_make(result, 0, KILN_F32, 2, shape);
	kiln_mask_options options = kiln_mask_make("lengths");

	options.scale = 0.5; /* of the scores */
	return kiln_masked_softmax(client, x, mask, y, &options);
}

static int print(const char *name, kiln_buffer *result)
{
	float y[ROWS][COLUMNS];
	int status = kiln_read(result, 0, y, sizeof(y));

	for (int i = 0; status == KILN_OK && i < ROWS; i++)
		printf("%s: %.4f %.4f %.4f %.4f\n", name, y[i][0], y[i][1], y[i][2], y[i][3]);
	return status;
}

int main(void)
{
	const float in[ROWS][COLUMNS] = {{1, 2, 3, 4}, {4, 2, 3, 1}};
	const int32_t ends[ROWS] = {4, 2};
	kiln_connect_options options = {.size = sizeof(options), .flags = KILN_CONNECT_AUTOSTART};
	kiln_client *client = NULL;
	kiln_buffer *scores = NULL, *lengths = NULL, *result = NULL;
	int status = kiln_connect(&options, &client);

	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(in), 0, "scores", &scores);
	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(ends), 0, "lengths", &lengths);
	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(in), 0, "result", &result);
	if (status == KILN_OK)
		status = kiln_write(scores, 0, in, sizeof(in));
	if (status == KILN_OK)
		status = kiln_write(lengths, 0, ends, sizeof(ends));
	if (status == KILN_OK)
		status = plain(client, scores, result);
	if (status == KILN_OK)
		status = print("plain", result);
	if (status == KILN_OK)
		status = masked(client, scores, lengths, result);
	if (status == KILN_OK)
		status = print("masked", result);
	if (status != KILN_OK)
		fprintf(stderr, "%s: %s\n", kiln_status_name(status), kiln_errmsg());

	kiln_free(result);
	kiln_free(lengths);
	kiln_free(scores);
	kiln_close(client);
	return status == KILN_OK ? 0 : 1;
}
