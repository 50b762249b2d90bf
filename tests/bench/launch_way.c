/*
 * launch_way.c: the ways to launch the kernel, a row each, and what each needs.
 */
#include "launch.h"

#include <kiln/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A program that has CUDA itself: one in a process ---- */

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
	return gpu_finish() && gpu_get(first, direct.y, sizeof(*first));
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

bool way_finish(const struct way *way)
{
	return way->kind->word ? gpu_finish_by_word() : gpu_finish();
}

static bool one_direct(struct way *way)
{
	return direct_launch() && way_finish(way);
}

static bool many_direct(struct way *way)
{
	for (int i = 0; i < LAUNCH_DEPTH; i++)
		if (!direct_launch())
			return false;
	return way_finish(way);
}

/* The same queue, recorded once as a CUDA graph of one's own. */
static void *recorded;

static bool open_recorded(const struct bench *bench, struct way *way)
{
	if (!open_direct(bench, way))
		return false;
	if (recorded)
		return true;
	if (!gpu_record())
		return false;
	for (int i = 0; i < LAUNCH_DEPTH; i++)
		if (!direct_launch())
			return false;
	return gpu_recorded(&recorded);
}

static bool many_recorded(struct way *way)
{
	(void)way;
	return gpu_replay(recorded) && gpu_finish();
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
	return !kiln_write(service->operands[0].buffer, 0, ones, sizeof(ones)) &&
		   !kiln_prepare(service->client, "map", tensors, 2, attrs, 2, &service->call);
}

void service_close(struct service *service)
{
	kiln_call_free(service->call);
	kiln_free(service->operands[0].buffer);
	kiln_free(service->operands[1].buffer);
	kiln_close(service->client);
	*service = (struct service){0};
}

/* One client for all ways that have a lane: the device process is to look at one. */
static struct service shared;
static int sharers;

static bool open_ring(const struct bench *bench, struct way *way)
{
	if (!shared.client && !open_service(bench, "on", &shared)) {
		service_close(&shared);
		return false;
	}
	sharers++;
	way->service = shared;
	return true;
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

/* One completion for all of them. */
static void put_works(const struct service *service, kiln_work works[LAUNCH_DEPTH])
{
	for (int i = 0; i < LAUNCH_DEPTH; i++)
		works[i] = (kiln_work){service->call, service->operands, 2};
}

static bool many_in_a_batch(struct way *way)
{
	struct service *service = &way->service;
	kiln_work works[LAUNCH_DEPTH];
	kiln_ticket ticket;
	put_works(service, works);
	return !kiln_submit_many(works, LAUNCH_DEPTH, NULL, &ticket) &&
		   !kiln_wait(service->client, ticket, LAUNCH_DEADLINE_MS);
}

static bool open_graph(const struct bench *bench, struct way *way)
{
	kiln_work works[LAUNCH_DEPTH];
	if (!open_ring(bench, way))
		return false;
	put_works(&way->service, works);
	return !kiln_prepare_graph(way->service.client, works, LAUNCH_DEPTH, &way->graph);
}

static bool many_in_a_graph(struct way *way)
{
	kiln_ticket ticket;
	return !kiln_submit(way->graph, NULL, 0, 0, &ticket) &&
		   !kiln_wait(way->service.client, ticket, LAUNCH_DEADLINE_MS);
}

/* ---- A client that has CUDA, too ---- */

static bool open_with_gpu(const struct bench *bench, struct way *way)
{
	return open_direct(bench, way) && open_ring(bench, way);
}

/* Between what the program has on its own stream: nobody waits but for that. */
static bool submit_in_stream(struct way *way, kiln_ticket *ticket)
{
	const kiln_submit_options options = {
		.size = sizeof(options), .flags = KILN_SUBMIT_CUDA, .cuda_stream = gpu_stream()};
	return !kiln_submit_with(way->service.call, way->service.operands, 2, &options, ticket);
}

static bool many_in_a_stream_batch(struct way *way)
{
	struct service *service = &way->service;
	const kiln_submit_options options = {
		.size = sizeof(options), .flags = KILN_SUBMIT_CUDA, .cuda_stream = gpu_stream()};
	kiln_work works[LAUNCH_DEPTH];
	kiln_ticket ticket;
	put_works(service, works);
	return !kiln_submit_many(works, LAUNCH_DEPTH, &options, &ticket) && gpu_finish() &&
		   !kiln_wait(service->client, ticket, LAUNCH_DEADLINE_MS);
}

/* The ticket of the launch before is given back: it ended long ago. */
static bool one_in_stream(struct way *way)
{
	kiln_ticket before = way->ticket;
	return submit_in_stream(way, &way->ticket) && gpu_finish() &&
		   (!before || !kiln_wait(way->service.client, before, LAUNCH_DEADLINE_MS));
}

static bool many_in_stream(struct way *way)
{
	kiln_ticket tickets[LAUNCH_DEPTH];
	for (int i = 0; i < LAUNCH_DEPTH; i++)
		if (!submit_in_stream(way, &tickets[i]))
			return false;
	if (!gpu_finish())
		return false;
	for (int i = LAUNCH_DEPTH - 1; i >= 0; i--)
		if (kiln_wait(way->service.client, tickets[i], LAUNCH_DEADLINE_MS))
			return false;
	return true;
}

static bool launch_locally(struct way *way)
{
	const kiln_place places[] = {{direct.x, LAUNCH_BYTES}, {direct.y, LAUNCH_BYTES}};
	return !kiln_launch_local(way->service.call, places, 2, gpu_stream());
}

static bool one_locally(struct way *way)
{
	return launch_locally(way) && gpu_finish();
}

static bool many_locally(struct way *way)
{
	for (int i = 0; i < LAUNCH_DEPTH; i++)
		if (!launch_locally(way))
			return false;
	return gpu_finish();
}

/* Its results are not in the daemon's memory, so they are looked at here. */
static bool open_locally(const struct bench *bench, struct way *way)
{
	float first = 0;
	if (!open_with_gpu(bench, way) || !gpu_set(direct.y, 0, LAUNCH_BYTES) || !one_locally(way) ||
		!one_submitted(way))
		return false;
	if (direct_get(&first) && (first == 1 || bench->options.copies))
		return true;
	way->why = "the results are wrong";
	return false;
}

/* ---- All of them ---- */

const struct way_kind way_direct = {
	.name = "direct", .own = true, .open = open_direct, .one = one_direct, .many = many_direct};
const struct way_kind way_direct_word = {.name = "direct, memory operation",
										 .own = true,
										 .word = true,
										 .open = open_direct,
										 .one = one_direct,
										 .many = many_direct};
const struct way_kind way_ring = {.name = "ring",
								  .open = open_ring,
								  .one = one_submitted,
								  .many = many_submitted,
								  .one_most = 1.0,
								  .many_most = 1.1};
static const struct way_kind way_socket = {
	.name = "socket", .open = open_socket, .one = one_submitted, .many = many_submitted};

static const struct way_kind way_recorded = {
	.name = "direct graph", .own = true, .open = open_recorded, .many = many_recorded};
static const struct way_kind way_batch = {
	.name = "batch", .open = open_ring, .many = many_in_a_batch};
static const struct way_kind way_graph = {
	.name = "graph", .open = open_graph, .many = many_in_a_graph};
static const struct way_kind way_stream = {.name = "stream-ordered",
										   .own = true,
										   .open = open_with_gpu,
										   .one = one_in_stream,
										   .many = many_in_stream,
										   .one_most = 2.0};
static const struct way_kind way_stream_batch = {.name = "stream-ordered batch",
												 .own = true,
												 .open = open_with_gpu,
												 .many = many_in_a_stream_batch};
static const struct way_kind way_local = {.name = "local",
										  .own = true,
										  .open = open_locally,
										  .one = one_locally,
										  .many = many_locally,
										  .one_most = 1.05,
										  .many_most = 1.05};

const struct way_kind *const way_kinds[] = {
	&way_direct, &way_direct_word, &way_recorded,     &way_ring,  &way_socket, &way_batch,
	&way_graph,  &way_stream,      &way_stream_batch, &way_local, NULL};

const char *way_why(const struct way *way)
{
	static char both[600];
	if (way->why)
		return way->why;
	snprintf(both, sizeof(both), "%s%s%s", kiln_errmsg(),
			 *kiln_errmsg() && *gpu_error() ? "; " : "", gpu_error());
	return both;
}

bool way_right(const struct bench *bench, const struct way *way)
{
	float y[64];
	if (!way->service.operands[1].buffer || bench->options.copies)
		return true;
	if (kiln_read(way->service.operands[1].buffer, 0, y, sizeof(y)))
		return false;
	for (int i = 0; i < 64; i++)
		if (y[i] != 2)
			return false;
	return true;
}

void way_close(struct way *way)
{
	bool is_shared = way->service.client && way->service.client == shared.client;
	if (way->ticket)
		kiln_wait(way->service.client, way->ticket, LAUNCH_DEADLINE_MS);
	way->ticket = 0;
	kiln_call_free(way->graph);
	way->graph = NULL;
	if (is_shared && --sharers == 0)
		service_close(&shared);
	else if (!is_shared)
		service_close(&way->service);
	way->service = (struct service){0};
}
