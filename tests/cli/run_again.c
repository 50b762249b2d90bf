/*
 * run_again: an operator run again and again with kiln_run, as a program does that keeps no call:
 * `run_again N` connects, runs each of three signatures a few times, says "begin", runs them N
 * times in turn, says "end", and then how long each of these took.
 */
#include <kiln/ops.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS 4
#define COLUMNS 6
#define BYTES ((uint64_t)ROWS * COLUMNS * 4)

static int run(kiln_client *client, kiln_buffer *x, kiln_buffer *y, int i)
{
	static const int64_t perm[] = {1, 0}, shape[] = {ROWS, COLUMNS}, turned[] = {COLUMNS, ROWS};
	kiln_tensor in = kiln_tensor_make(x, 0, KILN_F32, 2, shape);
	if (i % 3 == 0)
		return kiln_softmax(client, in, kiln_tensor_make(y, 0, KILN_F32, 2, shape), 1, 1.0);
	/* The offset of 4 bytes gives y another alignment than 0 has. */
	uint64_t offset = i % 3 == 1 ? 0 : 4;
	return kiln_permute(client, in, kiln_tensor_make(y, offset, KILN_F32, 2, turned), perm);
}

static int run_all(kiln_client *client, kiln_buffer *x, kiln_buffer *y, int n)
{
	int status = KILN_OK;
	for (int i = 0; i < n && status == KILN_OK; i++)
		status = run(client, x, y, i);
	return status;
}

/* One write, which is easily found among the system calls. */
static bool say(const char *word)
{
	return write(STDOUT_FILENO, word, strlen(word)) > 0;
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	int n = argc == 2 ? (int)strtol(argv[1], NULL, 10) : 0, status;
	kiln_client *client = NULL;
	kiln_buffer *x = NULL, *y = NULL;
	double start, end;
	if (n <= 0) {
		fputs("usage: run_again N\n", stderr);
		return 2;
	}
	if ((status = kiln_connect(NULL, &client)) ||
		(status = kiln_alloc(client, BYTES, 0, "x", &x)) ||
		(status = kiln_alloc(client, BYTES + 4, 0, "y", &y)) ||
		(status = run_all(client, x, y, 12)))
		goto done;
	if (!say("begin\n"))
		goto done;
	start = now_us();
	status = run_all(client, x, y, n);
	end = now_us();
	if (!say("end\n"))
		goto done;
	printf("%d runs, %.2f us each\n", n, (end - start) / n);
done:
	if (status)
		fprintf(stderr, "run_again: %s\n", kiln_errmsg());
	kiln_free(x);
	kiln_free(y);
	kiln_close(client);
	return status != KILN_OK;
}
