/*
 * launch_way.c: the ways to launch the kernel, a row each, and what each needs.
 */
#include "launch.h"

#include <kiln/ops.h>

#include <stdlib.h>
#include <string.h>

/* ---- A program that has CUDA itself; it has one GPU, so there is one of these in a process ---- */

static struct {
	struct gpu_kernel kernel;
	uint64_t x, y;
	bool open;
} direct;

bool direct_open(const void *cubin)
{
	if (direct.open)
		return true;
	direct.x = gpu_alloc(LAUNCH_BYTES, GPU_MALLOC);
	direct.y = gpu_alloc(LAUNCH_BYTES, GPU_MALLOC);
	direct.open = direct.x && direct.y && gpu_set(direct.x, 0, LAUNCH_BYTES) &&
				  gpu_load(cubin, "add", 0, &direct.kernel) && gpu_finish();
	return direct.open;
}

bool direct_launch(void)
{
	static const uint32_t grid[3] = {LAUNCH_ELEMENTS / 1024, 1, 1}, block[3] = {256, 1, 1};
	void *arguments[] = {&direct.x, &direct.y};
	return gpu_launch(&direct.kernel, grid, block, 0, arguments);
}

bool direct_get(float *first)
{
	return gpu_finish() && gpu_get(first, direct.y, sizeof *first);
}

static bool open_direct(const struct bench *bench, struct way *way)
{
	static char sentence[200];
	way->why = sentence;
	if (!direct.open && !gpu_open(bench->ordinal, sentence))
		return false;
	way->why = NULL;
	return direct_open(bench->cubin);
}

static bool one_direct(struct way *way)
{
	(void)way;
	return direct_launch() && gpu_finish();
}

static bool many_direct(struct way *way)
{
	(void)way;
	for (int i = 0; i < LAUNCH_DEPTH; i++)
		if (!direct_launch())
			return false;
	return gpu_finish();
}

/* ---- A client ---- */

void service_describe(kiln_tensor tensors[2], kiln_attr attrs[2])
{
	const int64_t shape[] = {LAUNCH_ELEMENTS};
	attrs[0] = (kiln_attr){.name = "statement", .kind = KILN_ATTR_STRING, .s = "y[i] = x[i] + 1"};
	attrs[1] = (kiln_attr){.name = "names", .kind = KILN_ATTR_STRING, .s = "x,y"};
	for (int i = 0; i < 2; i++)
		tensors[i] = kiln_tensor_make(NULL, 0, KILN_F32, 1, shape);
}

static bool open_service(const struct bench *bench, const char *lane, struct service *service)
{
	kiln_tensor tensors[2];
	kiln_attr attrs[2];
	float ones[64];
	service_describe(tensors, attrs);
	setenv("KILN_LANE", lane, 1);
	service->client = runner_connect(&bench->options);
	unsetenv("KILN_LANE");
	if (!service->client)
		return false;
	for (int i = 0; i < 2; i++)
		if (kiln_alloc(service->client, LAUNCH_BYTES, 0, i ? "y" : "x",
					   &service->operands[i].buffer))
			return false;
	for (int i = 0; i < 64; i++)
		ones[i] = 1;
	return !kiln_write(service->operands[0].buffer, 0, ones, sizeof ones) &&
		   !kiln_prepare(service->client, "map", tensors, 2, attrs, 2, &service->call);
}

static bool open_ring(const struct bench *bench, struct way *way)
{
	return open_service(bench, "on", &way->service);
}

static bool open_socket(const struct bench *bench, struct way *way)
{
	return open_service(bench, "off", &way->service);
}

static bool one_submitted(struct way *way)
{
	struct service *service = &way->service;
	kiln_ticket ticket;
	return !kiln_submit(service->call, service->operands, 2, 0, &ticket) &&
		   !kiln_wait(service->client, ticket, LAUNCH_DEADLINE_MS);
}

static bool many_submitted(struct way *way)
{
	struct service *service = &way->service;
	kiln_ticket tickets[LAUNCH_DEPTH];
	for (int i = 0; i < LAUNCH_DEPTH; i++)
		if (kiln_submit(service->call, service->operands, 2, 0, &tickets[i]))
			return false;
	for (int i = LAUNCH_DEPTH - 1; i >= 0; i--)
		if (kiln_wait(service->client, tickets[i], LAUNCH_DEADLINE_MS))
			return false;
	return true;
}

/* ---- All of them ---- */

const struct way_kind way_direct = {
	.name = "direct", .own = true, .open = open_direct, .one = one_direct, .many = many_direct};
const struct way_kind way_ring = {.name = "ring",
								  .open = open_ring,
								  .one = one_submitted,
								  .many = many_submitted,
								  .one_most = 1.0,
								  .many_most = 1.1};
static const struct way_kind way_socket = {
	.name = "socket", .open = open_socket, .one = one_submitted, .many = many_submitted};

const struct way_kind *const way_kinds[] = {&way_direct, &way_ring, &way_socket, NULL};

const char *way_why(const struct way *way)
{
	return way->why ? way->why : way->kind->own ? gpu_error() : kiln_errmsg();
}

bool way_right(const struct bench *bench, const struct way *way)
{
	float y[64];
	if (!way->service.client || bench->options.copies)
		return true;
	if (kiln_read(way->service.operands[1].buffer, 0, y, sizeof y))
		return false;
	for (int i = 0; i < 64; i++)
		if (y[i] != 2)
			return false;
	return true;
}

void way_close(struct way *way)
{
	struct service *service = &way->service;
	if (!service->client)
		return;
	kiln_call_free(service->call);
	kiln_free(service->operands[0].buffer);
	kiln_free(service->operands[1].buffer);
	kiln_close(service->client);
	*service = (struct service){0};
}
