/*
 * gpu_faults: processes die by SIGKILL while memory is lent and calls are in flight; whoever is
 * left goes on.  The daemon must run with --test-requests.  With --memory pool the memory is lent
 * from a stream-ordered pool, otherwise as cudaMalloc gives it.
 */
#include "driver.h"
#include "runner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS 300
#define COLUMNS 500
#define BYTES (ROWS * COLUMNS * sizeof(float))

struct scene {
	const struct runner_options *options;
	kiln_client *client;
	uint64_t memory[2];     /* lent: x and y */
	kiln_buffer *buffer[2]; /* lent, or held where the device is not a GPU */
	kiln_buffer *held;
	float *x, *y;
};

static int permute(struct scene *scene, kiln_ticket *ticket)
{
	const int turned = !scene->options->copies;
	const int64_t perm[2] = {turned, !turned};
	const kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = perm, .count = 2};
	kiln_tensor tensors[2] = {{.dtype = KILN_F32, .rank = 2, .contiguous = 1},
							  {.dtype = KILN_F32, .rank = 2, .contiguous = 1}};
	kiln_operand operands[2] = {{scene->buffer[0], 0}, {scene->buffer[1], 0}};
	kiln_call *call = NULL;
	for (int i = 0; i < 2; i++) {
		tensors[i].buffer = scene->buffer[i];
		tensors[i].shape[i & turned] = ROWS;
		tensors[i].shape[1 - (i & turned)] = COLUMNS;
	}
	if (!ticket)
		return kiln_run(scene->client, "permute", tensors, 2, &attr, 1);
	int status = kiln_prepare(scene->client, "permute", tensors, 2, &attr, 1, &call);
	if (status == KILN_OK)
		status = kiln_submit(call, operands, 2, 0, ticket);
	kiln_call_free(call);
	return status;
}

static bool put(struct scene *scene, int which, const float *values)
{
	return scene->memory[which] ? gpu_put(scene->memory[which], values, BYTES)
								: kiln_write(scene->buffer[which], 0, values, BYTES) == KILN_OK;
}

static bool get(struct scene *scene, int which, float *values)
{
	return scene->memory[which] ? gpu_get(values, scene->memory[which], BYTES)
								: kiln_read(scene->buffer[which], 0, values, BYTES) == KILN_OK;
}

/* Poisons y, permutes and compares.  A device process that is only just gone may cost one call. */
static void works(struct scene *scene, const char *name)
{
	memset(scene->y, 0xff, BYTES);
	int status = put(scene, 1, scene->y) ? permute(scene, NULL) : KILN_EIO;
	if (status == KILN_EDEVICE)
		status = permute(scene, NULL);
	if (status != KILN_OK) {
		runner_fail(name, "%s", kiln_errmsg());
		return;
	}
	if (!get(scene, 1, scene->y)) {
		runner_fail(name, "y cannot be read: %s %s", gpu_error(), kiln_errmsg());
		return;
	}
	for (int i = 0; i < ROWS; i++) {
		for (int k = 0; k < COLUMNS; k++) {
			int at = scene->options->copies ? i * COLUMNS + k : k * ROWS + i;
			if (scene->x[i * COLUMNS + k] != scene->y[at]) {
				runner_fail(name, "x[%d,%d] is not where it belongs", i, k);
				return;
			}
		}
	}
	runner_pass();
}

static bool debug(struct scene *scene, const char *what, const char *name, const char *text,
				  int64_t number)
{
	kiln_reply *reply = NULL;
	kiln_attr attrs[2] = {
		{.name = "what", .kind = KILN_ATTR_STRING, .s = what},
		{.name = name, .kind = text ? KILN_ATTR_STRING : KILN_ATTR_INT, .s = text, .i = number}};
	int status = kiln_request(scene->client, "debug", attrs, 2, &reply);
	kiln_reply_free(reply);
	if (status != KILN_OK)
		runner_fail("debug request", "%s", kiln_errmsg());
	return status == KILN_OK;
}

static bool scene_open(struct scene *scene, const struct runner_options *options)
{
	char why[200];
	bool lend = strncmp(options->device, "cuda", 4) == 0;
	enum gpu_memory kind = strcmp(options->memory, "pool") == 0 ? GPU_POOL : GPU_MALLOC;
	memset(scene, 0, sizeof(*scene));
	scene->options = options;
	scene->x = malloc(BYTES);
	scene->y = malloc(BYTES);
	scene->client = runner_connect(options);
	if (!scene->client || !scene->x || !scene->y)
		return false;
	for (int i = 0; i < ROWS * COLUMNS; i++)
		scene->x[i] = (float)i + 0.5f;
	if (lend && !gpu_open(0, why)) {
		runner_fail("lending", "%s", why);
		return false;
	}
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "y" : "x";
		scene->memory[i] = lend ? gpu_alloc(BYTES, kind) : 0;
		int status =
			lend ? kiln_lend_cuda(scene->client, scene->memory[i], BYTES, name, &scene->buffer[i])
				 : kiln_alloc(scene->client, BYTES, KILN_BUFFER_SHARED, name, &scene->buffer[i]);
		if (status != KILN_OK) {
			runner_fail("lending", "%s %s", kiln_errmsg(), gpu_error());
			return false;
		}
	}
	if (kiln_alloc(scene->client, BYTES, 0, "precious", &scene->held) != KILN_OK ||
		!put(scene, 0, scene->x)) {
		runner_fail("memory", "%s %s", kiln_errmsg(), gpu_error());
		return false;
	}
	return true;
}

static void scene_close(struct scene *scene)
{
	kiln_free(scene->held);
	for (int i = 0; i < 2; i++) {
		if (kiln_free(scene->buffer[i]) != KILN_OK)
			runner_fail("freeing", "%s", kiln_errmsg());
		if (!gpu_free(scene->memory[i]))
			runner_fail("freeing", "%s", gpu_error());
	}
	kiln_close(scene->client);
	free(scene->x);
	free(scene->y);
}

/* ---- What is survived ---- */

static void executor_killed(struct scene *scene)
{
	works(scene, "before anything dies");
	if (!debug(scene, "kill", "role", "executor", 0))
		return;
	works(scene, "lent memory after the device process was killed");
	if (get(scene, 0, scene->y) && memcmp(scene->x, scene->y, BYTES) == 0)
		runner_pass();
	else
		runner_fail("x after the device process was killed", "its contents changed");
}

static void executor_killed_in_flight(struct scene *scene)
{
	const char *name = "a call in flight when the device process is killed";
	kiln_ticket ticket = 0;
	if (!debug(scene, "delay-launch", "ms", NULL, 2000))
		return;
	if (permute(scene, &ticket) != KILN_OK) {
		runner_fail(name, "%s", kiln_errmsg());
		return;
	}
	double start = runner_now_us();
	debug(scene, "kill", "role", "executor", 0);
	int status = kiln_wait(scene->client, ticket, 10000);
	double waited = runner_now_us() - start;
	if (status != KILN_EDEVICE)
		runner_fail(name, "ended in %s", kiln_status_name(status));
	else if (waited > 2e6)
		runner_fail(name, "ended after %.1f s", waited / 1e6);
	else
		runner_pass();
	if (debug(scene, "delay-launch", "ms", NULL, 0))
		works(scene, "after a call in flight was lost");
}

static void held_memory_is_reported_lost(struct scene *scene)
{
	const char *name = "held memory after the device process was killed";
	if (kiln_write(scene->held, 0, scene->x, BYTES) != KILN_OK) {
		runner_fail(name, "%s", kiln_errmsg());
		return;
	}
	if (!debug(scene, "kill", "role", "executor", 0))
		return;
	int status = kiln_read(scene->held, 0, scene->y, BYTES);
	if (status == KILN_EDEVICE)
		status = kiln_read(scene->held, 0, scene->y, BYTES);
	if (status != KILN_ELOST)
		runner_fail(name, "reading it ended in %s", kiln_status_name(status));
	else if (!strstr(kiln_errmsg(), "precious"))
		runner_fail(name, "\"%s\" does not name it", kiln_errmsg());
	else
		runner_pass();
	memset(scene->y, 0, BYTES);
	if (kiln_write(scene->held, 0, scene->x, BYTES) != KILN_OK ||
		kiln_read(scene->held, 0, scene->y, BYTES) != KILN_OK)
		runner_fail(name, "written again: %s", kiln_errmsg());
	else if (memcmp(scene->x, scene->y, BYTES) != 0)
		runner_fail(name, "written again, it reads otherwise");
	else
		runner_pass();
}

/* A process that lends memory and keeps the daemon busy with it until it is killed. */
static void victim(const struct runner_options *options, int ready)
{
	struct scene scene;
	kiln_ticket tickets[16];
	alarm(60);
	if (!scene_open(&scene, options))
		_exit(1);
	for (bool said = false;; said = true) {
		for (int i = 0; i < 16; i++)
			if (permute(&scene, &tickets[i]) != KILN_OK)
				_exit(1);
		if (!said && write(ready, "x", 1) != 1)
			_exit(1);
		for (int i = 0; i < 16; i++)
			kiln_wait(scene.client, tickets[i], 10000);
	}
}

static void reap(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	struct runner_options options;
	struct scene scene;
	int ready[2];
	char byte;
	if (!runner_options_read(argc, argv, &options) || pipe(ready) != 0)
		return 2;
	/* Forked before this process knows CUDA. */
	pid_t child = fork();
	if (child == 0) {
		close(ready[0]);
		victim(&options, ready[1]);
	}
	close(ready[1]);
	bool lends = child > 0 && read(ready[0], &byte, 1) == 1;
	bool opened = scene_open(&scene, &options);
	if (!lends)
		runner_fail("the process to be killed", "did not get to work");
	if (child > 0)
		reap(child);
	if (opened) {
		works(&scene, "after a lender was killed in the middle of its calls");
		executor_killed(&scene);
		executor_killed_in_flight(&scene);
		held_memory_is_reported_lost(&scene);
		works(&scene, "at the end");
		scene_close(&scene);
	}
	close(ready[0]);
	return opened ? runner_end(&options) : 1;
}
