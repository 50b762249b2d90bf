/*
 * stay: a client that stays: it turns a matrix over and over, checks every element, and writes how
 * often after each turn, until there is a file of the name that it is given.
 *
 *   cc stay.c $(pkg-config --cflags --libs kiln) -o stay && ./stay STOP-FILE COUNT-FILE
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int turn(kiln_client *client, kiln_buffer *a, kiln_buffer *b, int round)
{
	const int64_t shape[2] = {2, 3}, turned[2] = {3, 2}, perm[2] = {1, 0};
	float in[2][3], out[3][2];
	int status;

	for (int i = 0; i < 6; i++)
		in[i / 3][i % 3] = (float)(round + i);
	status = kiln_write(a, 0, in, sizeof(in));
	if (status == KILN_OK)
		status = kiln_permute(client, kiln_tensor_make(a, 0, KILN_F32, 2, shape),
							  kiln_tensor_make(b, 0, KILN_F32, 2, turned), perm);
	if (status == KILN_OK)
		status = kiln_read(b, 0, out, sizeof(out));
	for (int i = 0; status == KILN_OK && i < 6; i++)
		if (in[i / 3][i % 3] != out[i % 3][i / 3])
			status = KILN_EIO;
	return status;
}

int main(int argc, char **argv)
{
	kiln_client *client = NULL;
	kiln_buffer *a = NULL, *b = NULL;
	int status = argc == 3 ? kiln_connect(NULL, &client) : KILN_EINVAL;

	if (status == KILN_OK)
		status = kiln_alloc(client, 24, 0, "a", &a);
	if (status == KILN_OK)
		status = kiln_alloc(client, 24, 0, "b", &b);
	for (int round = 1; status == KILN_OK && access(argv[1], F_OK) != 0; round++) {
		status = turn(client, a, b, round);
		FILE *file = status == KILN_OK ? fopen(argv[2], "w") : NULL;
		if (file) {
			fprintf(file, "%d\n", round);
			fclose(file);
		}
		usleep(10000);
	}
	if (status != KILN_OK)
		fprintf(stderr, "stay: %s: %s\n", kiln_status_name(status), kiln_errmsg());
	kiln_free(b);
	kiln_free(a);
	kiln_close(client);
	return status == KILN_OK ? 0 : 1;
}
