/*
 * stranger.c: a program of somebody who has only what was installed.  Valid C11 and valid C++17.
 * With a socket as argument it turns a matrix through the daemon there and checks every element;
 * without one it only asks the library its version.
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stdio.h>
#include <string.h>

enum { ROWS = 37, COLUMNS = 53 };

static int turn(kiln_client *client)
{
	static int in[ROWS][COLUMNS], out[COLUMNS][ROWS];
	const int64_t perm[2] = {1, 0};
	kiln_tensor tensors[2];
	kiln_attr attr;
	int status, i, j;

	memset(tensors, 0, sizeof(tensors));
	memset(&attr, 0, sizeof(attr));
	for (i = 0; i < 2; i++) {
		tensors[i].dtype = KILN_I32;
		tensors[i].rank = 2;
		tensors[i].contiguous = 1;
		tensors[i].shape[i] = ROWS;
		tensors[i].shape[1 - i] = COLUMNS;
	}
	attr.name = "perm";
	attr.kind = KILN_ATTR_INTS;
	attr.ints = perm;
	attr.count = 2;
	for (i = 0; i < ROWS; i++)
		for (j = 0; j < COLUMNS; j++)
			in[i][j] = i * 1000 + j;
	status = kiln_alloc(client, sizeof(in), 0, "in", &tensors[0].buffer);
	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(out), 0, "out", &tensors[1].buffer);
	if (status == KILN_OK)
		status = kiln_write(tensors[0].buffer, 0, in, sizeof(in));
	if (status == KILN_OK)
		status = kiln_run(client, "permute", tensors, 2, &attr, 1);
	if (status == KILN_OK)
		status = kiln_read(tensors[1].buffer, 0, out, sizeof(out));
	kiln_free(tensors[1].buffer);
	kiln_free(tensors[0].buffer);
	for (i = 0; i < COLUMNS && status == KILN_OK; i++) {
		for (j = 0; j < ROWS; j++) {
			if (out[i][j] != j * 1000 + i) {
				fprintf(stderr, "element %d,%d is %d\n", i, j, out[i][j]);
				return 1;
			}
		}
	}
	if (status != KILN_OK)
		fprintf(stderr, "%s: %s\n", kiln_status_name(status), kiln_errmsg());
	return status != KILN_OK;
}

int main(int argc, char **argv)
{
	kiln_connect_options options;
	kiln_client *client = NULL;
	int bad;

	if (strcmp(kiln_version(), KILN_VERSION_STRING) != 0) {
		fprintf(stderr, "header %s, library %s\n", KILN_VERSION_STRING, kiln_version());
		return 1;
	}
	if (argc < 2)
		return 0;
	memset(&options, 0, sizeof(options));
	options.size = sizeof(options);
	options.socket = argv[1];
	if (kiln_connect(&options, &client) != KILN_OK) {
		fprintf(stderr, "%s\n", kiln_errmsg());
		return 1;
	}
	bad = turn(client);
	kiln_close(client);
	return bad;
}
