/*
 * gpu_first: a program that never used CUDA gets its first permuted tensor from a warm daemon.
 * The time begins before kiln_connect and ends with the result in this process's memory.
 *
 * Run by itself it starts copies of itself, a fresh process each, and prints their times.
 */
#include "driver.h"
#include "runner.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS 512
#define COLUMNS 768

extern char **environ;

static bool transposes(const float *x, const float *y)
{
	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < COLUMNS; k++)
			if (x[i * COLUMNS + k] != y[k * ROWS + i])
				return false;
	return true;
}

static bool first_tensor(kiln_client *client, const float *x, float *y)
{
	const int64_t perm[2] = {1, 0};
	const uint64_t bytes = ROWS * COLUMNS * sizeof(float);
	kiln_tensor tensors[2] = {{.dtype = KILN_F32, .rank = 2, .contiguous = 1},
							  {.dtype = KILN_F32, .rank = 2, .contiguous = 1}};
	const kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = perm, .count = 2};
	bool good = kiln_alloc(client, bytes, 0, "x", &tensors[0].buffer) == KILN_OK &&
				kiln_alloc(client, bytes, 0, "y", &tensors[1].buffer) == KILN_OK;
	tensors[0].shape[0] = tensors[1].shape[1] = ROWS;
	tensors[0].shape[1] = tensors[1].shape[0] = COLUMNS;
	good = good && kiln_write(tensors[0].buffer, 0, x, bytes) == KILN_OK &&
		   kiln_run(client, "permute", tensors, 2, &attr, 1) == KILN_OK &&
		   kiln_read(tensors[1].buffer, 0, y, bytes) == KILN_OK;
	kiln_free(tensors[0].buffer);
	kiln_free(tensors[1].buffer);
	return good;
}

/* One process's life: prints the microseconds, or a sentence. */
static int be_the_client(const struct runner_options *options)
{
	float *x = malloc(ROWS * COLUMNS * sizeof(*x)), *y = malloc(ROWS * COLUMNS * sizeof(*y));
	if (!x || !y)
		return 1;
	for (int i = 0; i < ROWS * COLUMNS; i++)
		x[i] = (float)i * 0.25f;
	memset(y, 0xff, ROWS * COLUMNS * sizeof(*y));
	double start = runner_now_us();
	kiln_client *client = runner_connect(options);
	bool good = client && first_tensor(client, x, y);
	double end = runner_now_us();
	if (client && !good)
		printf("%s\n", kiln_errmsg());
	else if (good && !transposes(x, y))
		printf("the result is wrong\n");
	else if (good && gpu_driver_is_mapped())
		printf("libcuda is mapped into a client that asked for no CUDA\n");
	else if (good)
		printf("%.1f\n", end - start);
	kiln_close(client);
	free(x);
	free(y);
	return 0;
}

/* The time that a fresh process needed; negative: it failed, and text says why. */
static double spawn_client(char **argv, char text[300])
{
	int out[2], status = 0;
	pid_t pid;
	posix_spawn_file_actions_t actions;
	if (pipe(out) != 0)
		return -1;
	setenv("KILN_GPU_FIRST", "1", 1);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	posix_spawn_file_actions_addclose(&actions, out[0]);
	bool spawned = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ) == 0;
	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	FILE *answer = fdopen(out[0], "r");
	text[0] = 0;
	if (answer && fgets(text, 300, answer))
		text[strcspn(text, "\n")] = 0;
	if (answer)
		fclose(answer);
	if (!spawned || waitpid(pid, &status, 0) != pid || status != 0)
		return -1;
	char *end;
	double micros = strtod(text, &end);
	return end != text && !*end ? micros : -1;
}

int main(int argc, char **argv)
{
	struct runner_options options;
	char text[300];
	if (!runner_options_read(argc, argv, &options))
		return 2;
	if (getenv("KILN_GPU_FIRST"))
		return be_the_client(&options);
	int count = options.count ? options.count : 20;
	double *times = calloc((size_t)count, sizeof(*times));
	double first = spawn_client(argv, text);
	int measured = 0;
	if (first < 0)
		runner_fail("first tensor, cold kernel", "%s", text);
	for (int i = 0; i < count && times && first >= 0; i++) {
		double micros = spawn_client(argv, text);
		if (micros < 0) {
			runner_fail("first tensor of a fresh process", "%s", text);
		} else {
			times[measured++] = micros;
			runner_pass();
		}
	}
	if (measured > 0) {
		runner_figure(&options, "first tensor, fresh process, kernel cold", first / 1e3, "ms");
		runner_figure(&options, "first tensor, fresh process, kernel warm, median",
					  runner_percentile(times, measured, 0.5) / 1e3, "ms");
		runner_figure(&options, "first tensor, fresh process, kernel warm, worst",
					  runner_percentile(times, measured, 1.0) / 1e3, "ms");
	}
	free(times);
	return runner_end(&options);
}
