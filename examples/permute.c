/*
 * permute: the smallest whole program: a 2x3 matrix goes to the daemon, comes back transposed.
 *
 *   cc permute.c $(pkg-config --cflags --libs kiln) -o permute
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stdio.h>

int main(void)
{
	const float in[2][3] = {{1, 2, 3}, {4, 5, 6}};
	float out[3][2] = {{0}};
	const int64_t shape[2] = {2, 3}, turned[2] = {3, 2}, perm[2] = {1, 0};
	kiln_connect_options options = {.size = sizeof(options), .flags = KILN_CONNECT_AUTOSTART};
	kiln_client *client = NULL;
	kiln_buffer *a = NULL, *b = NULL;
	int status = kiln_connect(&options, &client);

	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(in), 0, "a", &a);
	if (status == KILN_OK)
		status = kiln_alloc(client, sizeof(out), 0, "b", &b);
	if (status == KILN_OK)
		status = kiln_write(a, 0, in, sizeof(in));
	if (status == KILN_OK)
		status = kiln_permute(client, kiln_tensor_make(a, 0, KILN_F32, 2, shape),
							  kiln_tensor_make(b, 0, KILN_F32, 2, turned), perm);
	if (status == KILN_OK)
		status = kiln_read(b, 0, out, sizeof(out));
	if (status == KILN_OK)
		printf("%s: %g %g / %g %g / %g %g\n", kiln_device(client), out[0][0], out[0][1], out[1][0],
			   out[1][1], out[2][0], out[2][1]);
	else
		fprintf(stderr, "%s: %s\n", kiln_status_name(status), kiln_errmsg());

	kiln_free(b);
	kiln_free(a);
	kiln_close(client);
	return status == KILN_OK ? 0 : 1;
}
