/*
 * gpu_local: calls launched in this program's own context, beside the same calls through the
 * daemon: the results must be the same bytes, also of a launch that was recorded into a graph; and
 * what such a launch costs the host, beside one of a kernel of this program's own.
 */
#include "driver.h"
#include "runner.h"

#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 9
#define EDGE 256 /* of the matrix that is timed: 64 Ki floats */
#define OFTEN 50 /* launches, more than the library makes before it keeps a graph */
#define ROUNDS 200
#define QUEUED 100 /* launches of a round */

/* An operator on tensors, of which those from outputs on are written; skew: bytes that the first
 * one's address is off, there and here, for the variant is part of the result's bits. */
struct problem {
	const char *name, *op;
	kiln_tensor tensors[MOST];
	int count, outputs;
	kiln_attr attrs[2];
	int attr_count;
	uint64_t skew;
};

/* A problem with its memory: the program's, and what the daemon holds. */
struct scene {
	const struct problem *is;
	kiln_client *client;
	kiln_call *call;
	uint64_t memory[MOST], moved[MOST], bytes[MOST];
	kiln_place places[MOST];
	kiln_buffer *held[MOST];
	uint64_t skews[MOST];
	void *host[MOST], *got[MOST];
};

static uint64_t tensor_bytes(const kiln_tensor *tensor)
{
	uint64_t bytes = kiln_dtype_size(tensor->dtype);
	for (int i = 0; i < tensor->rank; i++)
		bytes *= (uint64_t)tensor->shape[i];
	return bytes;
}

/* Small floats, or small indices. */
static void fill(void *bytes, uint64_t count, kiln_dtype dtype, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
	for (uint64_t i = 0; i < count / kiln_dtype_size(dtype); i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		uint32_t bits = (uint32_t)(state >> 40);
		if (dtype == KILN_F32)
			((float *)bytes)[i] = (float)(bits & 0xffff) / 32768 - 1;
		else if (dtype == KILN_F16)
			((uint16_t *)bytes)[i] = (uint16_t)((bits & 0x83ff) | 0x3800); /* 0.5 to 1, signed */
		else
			((int32_t *)bytes)[i] = (int32_t)(bits & 15);
	}
}

static bool give_memory(struct scene *scene)
{
	for (int i = 0; i < scene->is->count; i++) {
		const kiln_tensor *tensor = &scene->is->tensors[i];
		uint64_t skew = i == 0 ? scene->is->skew : 0;
		if (tensor->dtype == KILN_DTYPE_NONE)
			continue;
		uint64_t bytes = scene->bytes[i] = tensor_bytes(tensor);
		scene->host[i] = calloc(1, bytes + 1);
		scene->got[i] = calloc(1, bytes + 1);
		scene->memory[i] = gpu_alloc(bytes + skew + 1, GPU_MALLOC);
		if (!scene->host[i] || !scene->got[i] || !scene->memory[i] ||
			kiln_alloc(scene->client, bytes + skew, 0, NULL, &scene->held[i]) != KILN_OK)
			return false;
		scene->skews[i] = skew;
		scene->places[i] = (kiln_place){scene->memory[i] + skew, bytes};
		if (i < scene->is->outputs) {
			fill(scene->host[i], bytes, tensor->dtype, (uint64_t)i + 1);
			if (kiln_write(scene->held[i], skew, scene->host[i], bytes) != KILN_OK ||
				!gpu_put(scene->places[i].address, scene->host[i], bytes))
				return false;
		}
	}
	return true;
}

/* The operands lie elsewhere from now on. */
static bool move(struct scene *scene)
{
	for (int i = 0; i < scene->is->count; i++) {
		if (scene->memory[i] == 0)
			continue;
		scene->moved[i] = gpu_alloc(scene->bytes[i] + scene->skews[i] + 1, GPU_MALLOC);
		if (!scene->moved[i])
			return false;
		scene->places[i].address = scene->moved[i] + scene->skews[i];
		if (!gpu_put(scene->places[i].address,
					 i < scene->is->outputs ? scene->host[i] : scene->got[i], scene->bytes[i]))
			return false;
	}
	return true;
}

static void take_memory(struct scene *scene)
{
	kiln_call_free(scene->call);
	for (int i = 0; i < scene->is->count; i++) {
		kiln_free(scene->held[i]);
		gpu_free(scene->memory[i]);
		gpu_free(scene->moved[i]);
		free(scene->host[i]);
		free(scene->got[i]);
	}
}

/* Keeps the daemon's results in host. */
static bool run_there(struct scene *scene)
{
	kiln_operand operands[MOST] = {{0}};
	kiln_ticket ticket;
	for (int i = 0; i < scene->is->count; i++)
		operands[i] = (kiln_operand){scene->held[i], scene->skews[i]};
	if (kiln_submit(scene->call, operands, scene->is->count, 0, &ticket) != KILN_OK ||
		kiln_wait(scene->client, ticket, KILN_FOREVER) != KILN_OK)
		return false;
	for (int i = scene->is->outputs; i < scene->is->count; i++)
		if (scene->held[i] &&
			kiln_read(scene->held[i], 0, scene->host[i], scene->bytes[i]) != KILN_OK)
			return false;
	return true;
}

static bool launch(struct scene *scene)
{
	return kiln_launch_local(scene->call, scene->places, scene->is->count, gpu_stream()) == KILN_OK;
}

/* Compares the outputs with the daemon's, and poisons them afterwards. */
static void compare(struct scene *scene, const char *how)
{
	bool same = gpu_finish();
	for (int i = scene->is->outputs; i < scene->is->count && same; i++) {
		if (scene->memory[i] == 0)
			continue;
		same = gpu_get(scene->got[i], scene->places[i].address, scene->bytes[i]) &&
			   memcmp(scene->got[i], scene->host[i], scene->bytes[i]) == 0;
		memset(scene->got[i], 0xa5, scene->bytes[i]);
		same = gpu_put(scene->places[i].address, scene->got[i], scene->bytes[i]) && same;
	}
	if (same)
		runner_pass();
	else
		runner_fail(scene->is->name, "%s: other bytes than through the daemon, or %s", how,
					gpu_error());
}

static void recorded(struct scene *scene)
{
	void *graph = NULL;
	bool good = gpu_record() && launch(scene);
	good = gpu_recorded(&graph) && good;
	for (int i = 0; i < 3 && good; i++)
		good = gpu_replay(graph);
	if (good)
		compare(scene, "recorded into a graph");
	else
		runner_fail(scene->is->name, "recorded into a graph: %s %s", kiln_errmsg(), gpu_error());
	gpu_forget(graph);
}

static void check(kiln_client *client, const struct problem *problem)
{
	struct scene scene = {.is = problem, .client = client};
	if (!give_memory(&scene) ||
		kiln_prepare(client, problem->op, problem->tensors, problem->count, problem->attrs,
					 problem->attr_count, &scene.call) != KILN_OK ||
		!run_there(&scene)) {
		runner_fail(problem->name, "%s %s", kiln_errmsg(), gpu_error());
		take_memory(&scene);
		return;
	}
	/* The last of them are launched as a graph that the library keeps. */
	bool good = true;
	for (int i = 0; i < OFTEN && good; i++)
		good = launch(&scene);
	if (good)
		compare(&scene, "launched here");
	else
		runner_fail(problem->name, "%s", kiln_errmsg());
	if (good)
		recorded(&scene);
	if (good && move(&scene) && launch(&scene))
		compare(&scene, "launched here on other memory");
	else
		runner_fail(problem->name, "%s %s", kiln_errmsg(), gpu_error());
	take_memory(&scene);
}

/* ---- The problems ---- */

static const int64_t picture[] = {4, 3, 64, 64}, turned[] = {4, 64, 64, 3}, perm[] = {0, 2, 3, 1};
static const int64_t plain[] = {0, 1, 2, 3};
static const int64_t rows[] = {64, 1024}, long_rows[] = {16, 32768}, row[] = {1024}, each[] = {64};
static const int64_t many[] = {512, 1024}, each_of_many[] = {512}, boxes[] = {1000, 4};

static kiln_tensor tensor(kiln_dtype dtype, int rank, const int64_t *shape)
{
	return kiln_tensor_make(NULL, 0, dtype, rank, shape);
}

static void run_copies(kiln_client *client)
{
	const struct problem copy = {"permute, a plain copy",
								 "permute",
								 {tensor(KILN_F32, 4, picture), tensor(KILN_F32, 4, picture)},
								 2,
								 1,
								 {kiln_attr_ints("perm", plain, 4)},
								 1,
								 0};
	check(client, &copy);
}

static void run_kernels(kiln_client *client)
{
	const kiln_attr order = kiln_attr_ints("perm", perm, 4);
	const kiln_tensor none = kiln_tensor_none();
	const kiln_tensor x = tensor(KILN_F32, 2, rows), gamma = tensor(KILN_F32, 1, row);
	const kiln_tensor mean = tensor(KILN_F32, 1, each), large = tensor(KILN_F32, 2, many);
	const kiln_tensor mean_of_large = tensor(KILN_F32, 1, each_of_many);
	const kiln_tensor wide = tensor(KILN_F32, 2, long_rows), box = tensor(KILN_F32, 2, boxes);
	const kiln_tensor in = tensor(KILN_F16, 4, picture), out = tensor(KILN_F16, 4, turned);
	const struct problem problems[] = {
		{"permute", "permute", {in, out}, 2, 1, {order}, 1, 0},
		{"permute, an address that is off", "permute", {in, out}, 2, 1, {order}, 1, 2},
		{"softmax", "softmax", {x, x}, 2, 1, {{0}}, 0, 0},
		{"softmax, much shared memory", "softmax", {wide, wide}, 2, 1, {{0}}, 0, 0},
		{"layer_norm", "layer_norm", {x, gamma, gamma, none, x, mean, mean}, 7, 4, {{0}}, 0, 0},
		{"layer_norm, an address that is off",
		 "layer_norm",
		 {x, gamma, none, x, x},
		 5,
		 4,
		 {{0}},
		 0,
		 4},
		{"layer_norm_backward, scratch memory",
		 "layer_norm_backward",
		 {large, large, gamma, mean_of_large, mean_of_large, large, gamma, gamma},
		 8,
		 5,
		 {{0}},
		 0,
		 0},
		{"giou_loss, counters",
		 "giou_loss",
		 {box, box, none, tensor(KILN_F32, 0, NULL)},
		 4,
		 3,
		 {{0}},
		 0,
		 0},
	};
	for (size_t i = 0; i < sizeof(problems) / sizeof(*problems); i++)
		check(client, &problems[i]);
}

/* ---- Figures ---- */

/* A kernel with as many parameters, threads and bytes as the call has. */
static const char source[] =
	"extern \"C\" __global__ void direct(const float *x, float *y, long long a, long long b,\n"
	"									long long n)\n"
	"{\n"
	"	for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
	"		 i += gridDim.x * (long long)blockDim.x)\n"
	"		y[i] = x[i] + (float)(a + b);\n"
	"}\n";

static bool load_direct(kiln_client *client, struct gpu_kernel *kernel)
{
	const kiln_raw raw = {
		.size = sizeof(raw), .name = "direct.cu", .source = source, .entry = "direct"};
	kiln_reply *compiled = NULL, *object = NULL;
	size_t bytes = 0;
	bool good = kiln_compile_raw(client, &raw, NULL, &compiled) == KILN_OK;
	if (good) {
		const kiln_attr key = kiln_attr_text("key", kiln_reply_str(compiled, "key"));
		good = kiln_request(client, "cache.get", &key, 1, &object) == KILN_OK;
	}
	const void *found = good ? kiln_reply_bin(object, "object", &bytes) : NULL;
	void *cubin = found ? malloc(bytes) : NULL; /* aligned, which it is not in a reply */
	if (cubin)
		memcpy(cubin, found, bytes);
	good = cubin && gpu_load(cubin, "direct", 0, kernel);
	free(cubin);
	kiln_reply_free(object);
	kiln_reply_free(compiled);
	return good;
}

static bool read_shape(kiln_client *client, const struct problem *problem, uint32_t grid[3],
					   uint32_t block[3])
{
	kiln_reply *plan = NULL;
	char path[24];
	if (kiln_explain(client, problem->op, problem->tensors, problem->count, problem->attrs,
					 problem->attr_count, NULL, &plan) != KILN_OK)
		return false;
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "plan.grid[%d]", i);
		grid[i] = (uint32_t)kiln_reply_int(plan, path);
		snprintf(path, sizeof(path), "plan.block[%d]", i);
		block[i] = (uint32_t)kiln_reply_int(plan, path);
	}
	kiln_reply_free(plan);
	return true;
}

/* Microseconds of the host for one of QUEUED launches, here and direct; with the wait for their
 * end, if until_done. */
static bool time_round(struct scene *scene, const struct gpu_kernel *kernel, const uint32_t grid[3],
					   const uint32_t block[3], bool until_done, double micros[2])
{
	uint64_t x = scene->memory[0], y = scene->memory[1];
	long long zero = 0, n = EDGE * EDGE;
	void *arguments[] = {&x, &y, &zero, &zero, &n};
	bool good = gpu_finish();
	for (int way = 0; way < 2 && good; way++) {
		double began = runner_now_us();
		for (int i = 0; i < QUEUED && good; i++)
			good = way == 0 ? launch(scene) : gpu_launch(kernel, grid, block, 0, arguments);
		if (until_done)
			good = gpu_finish() && good;
		micros[way] = (runner_now_us() - began) / QUEUED;
		good = gpu_finish() && good;
	}
	return good;
}

static void figures(const struct runner_options *options, kiln_client *client)
{
	static const int64_t square[] = {EDGE, EDGE}, swap[] = {1, 0};
	const kiln_tensor matrix = tensor(KILN_F32, 2, square);
	const struct problem problem = {
		"timing", "permute", {matrix, matrix}, 2, 1, {kiln_attr_ints("perm", swap, 2)}, 1, 0};
	static const char *const names[2][2] = {
		{"a launch here, the host's time, median", "a direct one"},
		{"a launch here, queued to done, median", "a direct one"}};
	struct scene scene = {.is = &problem, .client = client};
	struct gpu_kernel kernel = {0};
	uint32_t grid[3], block[3];
	int rounds = options->quick ? ROUNDS / 10 : ROUNDS;
	bool good = give_memory(&scene) &&
				kiln_prepare(client, "permute", problem.tensors, 2, problem.attrs, 1,
							 &scene.call) == KILN_OK &&
				read_shape(client, &problem, grid, block) && load_direct(client, &kernel);
	for (int until_done = 0; until_done < 2 && good; until_done++) {
		double here[ROUNDS], direct[ROUNDS], micros[2] = {0};
		for (int i = 0; i < rounds && good; i++) {
			good = time_round(&scene, &kernel, grid, block, until_done, micros);
			here[i] = micros[0];
			direct[i] = micros[1];
		}
		double a = runner_percentile(here, rounds, 0.5), b = runner_percentile(direct, rounds, 0.5);
		runner_figure(options, names[until_done][0], a, "us");
		runner_figure(options, names[until_done][1], b, "us");
		runner_figure(options, "their ratio", a / b, "");
		/* The aim is 1.05; this is where something would be wrong. */
		RUNNER_CHECK("timing", a <= 1.5 * b);
	}
	if (!good)
		runner_fail("timing", "%s %s", kiln_errmsg(), gpu_error());
	gpu_unload(&kernel);
	take_memory(&scene);
}

int main(int argc, char **argv)
{
	struct runner_options options;
	char why[200];
	if (!runner_options_read(argc, argv, &options))
		return 2;
	kiln_client *client = runner_connect(&options);
	if (!client) {
		runner_fail("start", "%s", kiln_errmsg());
	} else if (!gpu_open(0, why)) {
		runner_fail("start", "%s", why);
	} else {
		run_copies(client);
		if (!options.copies) {
			run_kernels(client);
			figures(&options, client);
		}
	}
	kiln_close(client);
	return runner_end(&options);
}
