/*
 * gpu_raw: kernels of one's own on the device: templates, values, dynamic shared memory, launches
 * that do not fit, kernels that fault and that do not end; and memory that two device processes
 * use, held by the daemon and, on a GPU, lent.
 */
#include "driver.h"
#include "runner.h"

#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (1 << 20)
#define BYTES (COUNT * sizeof(float))
#define THREADS 256
#define TIMED 200

static const char source[] =
	"#include <stdint.h>\n"
	"template <class T, int N> __global__ void scale(T *x, T by, int64_t n)\n"
	"{\n"
	"	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
	"	if (i < n)\n"
	"		x[i] = x[i] * by + (T)N;\n"
	"}\n"
	"__global__ void reverse(float *x)\n"
	"{\n"
	"	extern __shared__ float part[];\n"
	"	unsigned last = blockDim.x - 1;\n"
	"	part[threadIdx.x] = x[threadIdx.x];\n"
	"	__syncthreads();\n"
	"	x[threadIdx.x] = part[last - threadIdx.x];\n"
	"}\n"
	"__global__ void __launch_bounds__(128) small(float *x) { x[threadIdx.x] += 1; }\n"
	"__global__ void beyond(float *x) { x[(int64_t)1 << 40] = 1; }\n"
	"__global__ void endless(volatile float *x)\n"
	"{\n"
	"	while (x[0] != -12345)\n"
	"		;\n"
	"}\n";

struct scene {
	const struct runner_options *options;
	kiln_client *client;
	float *values;
};

static kiln_call *prepare(const struct scene *scene, const char *entry)
{
	kiln_raw raw = {.size = sizeof(raw), .name = "gpu_raw.cu", .source = source, .entry = entry};
	kiln_call *call = NULL;
	if (kiln_prepare_raw(scene->client, &raw, &call) != KILN_OK)
		runner_fail(entry, "%s\n%s", kiln_errmsg(), kiln_errlog());
	return call;
}

static int launch(const struct scene *scene, kiln_call *call, kiln_launch *how,
				  const kiln_raw_arg *args, int count, double *micros)
{
	kiln_ticket ticket;
	how->size = sizeof(*how);
	how->args = args;
	how->arg_count = count;
	int status = kiln_submit_raw(call, how, 0, &ticket);
	return status == KILN_OK ? kiln_wait_time(scene->client, ticket, KILN_FOREVER, micros) : status;
}

/* A launch must end in this status, with a sentence that says this word. */
static void expect(const char *name, int status, int wanted, const char *word)
{
	if (status != wanted || (wanted != KILN_OK && !strstr(kiln_errmsg(), word)))
		runner_fail(name, "%s, not %s with \"%s\": %s", kiln_status_name(status),
					kiln_status_name(wanted), word, status == KILN_OK ? "" : kiln_errmsg());
	else
		runner_pass();
}

static void scales(const struct scene *scene, const char *name, kiln_buffer *buffer, float first)
{
	kiln_call *call = prepare(scene, "scale<float, 3>");
	const float by = 2;
	const int64_t n = COUNT;
	const kiln_raw_arg args[] = {kiln_raw_memory(buffer, 0, KILN_READ | KILN_WRITE),
								 kiln_raw_value(&by, sizeof(by)), kiln_raw_value(&n, sizeof(n))};
	kiln_launch how = {.grid = {(COUNT + THREADS - 1) / THREADS}, .block = {THREADS}};
	if (!call)
		return;
	expect(name, launch(scene, call, &how, args, 3, NULL), KILN_OK, "");
	int status = kiln_read(buffer, 0, scene->values, BYTES);
	if (status != KILN_OK) {
		runner_fail(name, "%s", kiln_errmsg());
	} else {
		int wrong = 0;
		for (int i = 0; i < COUNT; i++)
			wrong += scene->values[i] != first * 2 + 3;
		RUNNER_CHECK(name, wrong == 0);
	}
	kiln_call_free(call);
}

static void fill(const struct scene *scene, kiln_buffer *buffer, float value)
{
	for (int i = 0; i < COUNT; i++)
		scene->values[i] = value;
	if (kiln_write(buffer, 0, scene->values, BYTES) != KILN_OK)
		runner_fail("writing", "%s", kiln_errmsg());
}

static void shared_memory(const struct scene *scene, kiln_buffer *buffer)
{
	kiln_call *call = prepare(scene, "reverse");
	const kiln_raw_arg args[] = {kiln_raw_memory(buffer, 0, KILN_READ | KILN_WRITE)};
	/* More than a block gets without asking. */
	kiln_launch how = {.block = {THREADS}, .shared_bytes = 100000};
	if (!call)
		return;
	for (int i = 0; i < THREADS; i++)
		scene->values[i] = (float)i;
	int status = kiln_write(buffer, 0, scene->values, THREADS * sizeof(float));
	if (status == KILN_OK)
		status = launch(scene, call, &how, args, 1, NULL);
	if (status == KILN_OK)
		status = kiln_read(buffer, 0, scene->values, THREADS * sizeof(float));
	expect("dynamic shared memory", status, KILN_OK, "");
	RUNNER_CHECK("dynamic shared memory",
				 scene->values[0] == THREADS - 1 && scene->values[THREADS - 1] == 0);
	kiln_call_free(call);
}

static void refusals(const struct scene *scene, kiln_buffer *buffer)
{
	const float one = 1;
	const kiln_raw_arg args[] = {kiln_raw_memory(buffer, 0, 0), kiln_raw_value(&one, sizeof(one))};
	kiln_call *call = prepare(scene, "small");
	kiln_launch how = {.block = {32}};
	uint32_t bytes[2];
	if (!call)
		return;
	RUNNER_CHECK("parameters", kiln_call_params(call, bytes, 2) == 1 && bytes[0] == 8);
	expect("an argument too many", launch(scene, call, &how, args, 2, NULL), KILN_EINVAL,
		   "takes 1 arguments and was given 2");
	expect("an argument too small", launch(scene, call, &how, args + 1, 1, NULL), KILN_EINVAL,
		   "argument 0 of the kernel has 8 bytes and was given 4");
	how.block[0] = 129;
	if (strncmp(scene->options->device, "cuda", 4) == 0)
		expect("beyond __launch_bounds__", launch(scene, call, &how, args, 1, NULL), KILN_EINVAL,
			   "more than the 128 that the kernel can have");
	kiln_call_free(call);
}

static void faults(const struct scene *scene, const char *entry, int timeout_ms, int wanted,
				   kiln_buffer *buffer)
{
	kiln_call *call = prepare(scene, entry);
	const kiln_raw_arg args[] = {kiln_raw_memory(buffer, 0, 0)};
	kiln_launch how = {.timeout_ms = timeout_ms};
	char name[64];
	if (!call)
		return;
	snprintf(name, sizeof(name), "kernel %s of gpu_raw.cu", entry);
	double began = runner_now_us();
	expect(name, launch(scene, call, &how, args, 1, NULL), wanted, name);
	printf("%s ended after %.0f ms\n", name, (runner_now_us() - began) / 1000);
	kiln_call_free(call);
}

static void figures(const struct scene *scene, kiln_buffer *buffer)
{
	kiln_call *call = prepare(scene, "scale<float, 0>");
	const float by = 1;
	const int64_t n = COUNT;
	const kiln_raw_arg args[] = {kiln_raw_memory(buffer, 0, KILN_READ | KILN_WRITE),
								 kiln_raw_value(&by, sizeof(by)), kiln_raw_value(&n, sizeof(n))};
	kiln_launch how = {.grid = {(COUNT + THREADS - 1) / THREADS}, .block = {THREADS}};
	double calls[TIMED], device = 0;
	int count = scene->options->quick ? TIMED / 10 : TIMED;
	for (int i = 0; call && i < count; i++) {
		double began = runner_now_us(), micros = 0;
		if (launch(scene, call, &how, args, 3, &micros) != KILN_OK) {
			runner_fail("timing", "%s", kiln_errmsg());
			break;
		}
		calls[i] = runner_now_us() - began;
		device += micros;
	}
	if (call) {
		runner_figure(scene->options, "a launch of one's own kernel, median",
					  runner_percentile(calls, count, 0.5), "us");
		runner_figure(scene->options, "the same on the device, mean", device / count, "us");
	}
	kiln_call_free(call);
}

static void run_all(struct scene *scene)
{
	kiln_buffer *held = NULL, *other = NULL, *lent = NULL;
	uint64_t memory = 0;
	char why[200];
	if (kiln_alloc(scene->client, BYTES, 0, "held", &held) != KILN_OK ||
		kiln_alloc(scene->client, BYTES, 0, "other", &other) != KILN_OK) {
		runner_fail("memory", "%s", kiln_errmsg());
		return;
	}
	if (strncmp(scene->options->device, "cuda", 4) == 0) {
		if (!gpu_open(0, why))
			runner_fail("lending", "%s", why);
		else if (!(memory = gpu_alloc(BYTES, GPU_MALLOC)) ||
				 kiln_lend_cuda(scene->client, memory, BYTES, "lent", &lent) != KILN_OK)
			runner_fail("lending", "%s %s", kiln_errmsg(), gpu_error());
	}
	double began = runner_now_us();
	fill(scene, held, 1);
	scales(scene, "held memory", held, 1);
	printf("the first kernel of one's own took %.0f ms\n", (runner_now_us() - began) / 1000);
	if (lent) {
		fill(scene, lent, 4);
		scales(scene, "lent memory", lent, 4);
	}
	figures(scene, held);
	shared_memory(scene, other);
	refusals(scene, other);
	/* Held and lent memory is there and usable after each of these. */
	faults(scene, "beyond", 0, KILN_EDEVICE, other);
	scales(scene, "held memory after a fault", held, 5);
	faults(scene, "endless", 300, KILN_ETIMEDOUT, other);
	scales(scene, "held memory after a kernel without end", held, 13);
	if (lent)
		scales(scene, "lent memory after both", lent, 11);
	kiln_buffer *all[] = {held, other, lent};
	for (int i = 0; i < 3; i++)
		if (kiln_free(all[i]) != KILN_OK)
			runner_fail("freeing", "%s", kiln_errmsg());
	if (memory && !gpu_free(memory))
		runner_fail("freeing", "%s", gpu_error());
}

int main(int argc, char **argv)
{
	struct runner_options options;
	struct scene scene = {.options = &options};
	if (!runner_options_read(argc, argv, &options))
		return 2;
	scene.client = runner_connect(&options);
	scene.values = malloc(BYTES);
	if (scene.client && scene.values)
		run_all(&scene);
	else
		runner_fail("start", "%s", kiln_errmsg());
	kiln_close(scene.client);
	free(scene.values);
	return runner_end(&options);
}
