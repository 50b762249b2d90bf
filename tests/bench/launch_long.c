/*
 * launch_long.c: two ways to launch a kernel of some 20 us on 16 blocks, which leaves most of the
 * GPU to others: as a client of Kiln, and by oneself.  It is Kiln's kernel in both.
 */
#include "launch.h"

#include <kiln/ops.h>

#include <stdlib.h>

#define LONG_ROWS 16
#define LONG_COLUMNS 8192
#define LONG_BYTES (LONG_ROWS * LONG_COLUMNS * sizeof(float))

/* Each row's only element of weight is its first: all sums are that, as way_right() has it. */
static bool fill(kiln_buffer *buffer)
{
	float *rows = malloc(LONG_BYTES);
	for (int i = 0; rows && i < LONG_ROWS * LONG_COLUMNS; i++)
		rows[i] = i % LONG_COLUMNS == 0 ? 2 : -1e30F;
	bool filled = rows && !kiln_write(buffer, 0, rows, LONG_BYTES);
	free(rows);
	return filled;
}

static bool prepare(const struct bench *bench, struct service *service)
{
	const int64_t shape[] = {LONG_ROWS, LONG_COLUMNS};
	kiln_tensor tensors[2];
	for (int i = 0; i < 2; i++)
		tensors[i] = kiln_tensor_make(NULL, 0, KILN_F32, 2, shape);
	service->client = runner_connect(&bench->options);
	return service->client &&
		   !kiln_prepare(service->client, "logcumsumexp", tensors, 2, NULL, 0, &service->call);
}

static bool open_client(const struct bench *bench, struct way *way)
{
	struct service *service = &way->service;
	if (!prepare(bench, service))
		return false;
	for (int i = 0; i < 2; i++)
		if (kiln_alloc(service->client, LONG_BYTES, 0, i ? "y" : "x", &service->operands[i].buffer))
			return false;
	return fill(service->operands[0].buffer);
}

static bool one_of_client(struct way *way)
{
	struct service *service = &way->service;
	kiln_ticket ticket;
	return !kiln_submit(service->call, service->operands, 2, 0, &ticket) &&
		   !kiln_wait(service->client, ticket, LAUNCH_DEADLINE_MS);
}

/* One in a process. */
static uint64_t own[2];

static bool open_own(const struct bench *bench, struct way *way)
{
	static char sentence[200];
	way->why = sentence;
	if (!gpu_open(bench->ordinal, sentence))
		return false;
	way->why = NULL;
	for (int i = 0; i < 2; i++)
		if (!(own[i] = gpu_alloc(LONG_BYTES, GPU_MALLOC)) || !gpu_set(own[i], 0, LONG_BYTES))
			return false;
	return gpu_finish() && prepare(bench, &way->service);
}

static bool one_of_own(struct way *way)
{
	const kiln_place places[] = {{own[0], LONG_BYTES}, {own[1], LONG_BYTES}};
	return !kiln_launch_local(way->service.call, places, 2, gpu_stream()) && way_finish(way);
}

const struct way_kind way_long = {
	.name = "long", .open = open_client, .one = one_of_client, .many = one_of_client};
const struct way_kind way_own_long = {
	.name = "long, direct", .own = true, .open = open_own, .one = one_of_own, .many = one_of_own};
const struct way_kind way_own_long_word = {.name = "long, direct, memory operation",
										   .own = true,
										   .word = true,
										   .open = open_own,
										   .one = one_of_own,
										   .many = one_of_own};
