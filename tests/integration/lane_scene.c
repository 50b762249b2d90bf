/*
 * lane_scene.c: clients of lanes, and their memory.
 */
#include "lane_scene.h"

#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void both_ways(struct kilnd *daemon, void (*body)(struct kilnd *daemon, bool lane))
{
	for (int lane = 1; lane >= 0; lane--) {
		if (!lane)
			setenv("KILN_LANE", "off", 1);
		kilnd_start(daemon, NULL);
		body(daemon, lane);
		kilnd_stop(daemon);
		unsetenv("KILN_LANE");
	}
}

kiln_call *transpose_prepare(kiln_client *client, int64_t rows, int64_t columns)
{
	struct permute problem = transpose(rows, columns);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	return call;
}

void pair_open(const struct kilnd *daemon, struct pair *pair)
{
	pair_open_on(client_open(daemon), pair);
}

void pair_open_on(kiln_client *client, struct pair *pair)
{
	pair->client = client;
	pair->there = transpose_prepare(pair->client, ROWS, COLUMNS);
	pair->back = transpose_prepare(pair->client, COLUMNS, ROWS);
	assert_ok(kiln_alloc(pair->client, COUNT * 4, 0, "x", &pair->x));
	assert_ok(kiln_alloc(pair->client, COUNT * 4, 0, "y", &pair->y));
}

void pair_close(struct pair *pair)
{
	kiln_call_free(pair->there);
	kiln_call_free(pair->back);
	kiln_free(pair->x);
	kiln_free(pair->y);
	kiln_close(pair->client);
}

kiln_work pair_work(const struct pair *pair, bool back, kiln_operand operands[2])
{
	operands[0] = (kiln_operand){back ? pair->y : pair->x, 0};
	operands[1] = (kiln_operand){back ? pair->x : pair->y, 0};
	return (kiln_work){back ? pair->back : pair->there, operands, 2};
}

int pair_submit(struct pair *pair, bool back, kiln_ticket after, kiln_ticket *ticket)
{
	kiln_operand operands[2];
	kiln_work work = pair_work(pair, back, operands);
	return kiln_submit(work.call, operands, 2, after, ticket);
}

int pair_submit_on(struct pair *pair, bool back, unsigned stream, kiln_ticket after,
				   kiln_ticket *ticket)
{
	kiln_operand operands[2];
	kiln_work work = pair_work(pair, back, operands);
	kiln_submit_options options = {.size = sizeof(options), .stream = stream, .after = after};
	return kiln_submit_with(work.call, operands, 2, &options, ticket);
}

void pair_run(struct pair *pair, bool back)
{
	kiln_ticket ticket;
	assert_ok(pair_submit(pair, back, 0, &ticket));
	assert_ok(kiln_wait(pair->client, ticket, CALL_TIMEOUT_MS));
}

void pair_warm(struct pair *pair)
{
	matrix_put(pair->x, 0);
	pair_run(pair, false);
	pair_run(pair, true);
	pair_run(pair, false);
}

void matrix_put(kiln_buffer *buffer, float first)
{
	float data[COUNT];
	for (int i = 0; i < COUNT; i++)
		data[i] = first + (float)i;
	assert_ok(kiln_write(buffer, 0, data, sizeof(data)));
}

void assert_transposed(struct pair *pair, float first)
{
	float data[COUNT];
	assert_ok(kiln_read(pair->y, 0, data, sizeof(data)));
	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < COLUMNS; k++)
			if (data[k * ROWS + i] != first + (float)(i * COLUMNS + k))
				fail_msg("element %d,%d is %g and not %g", k, i, (double)data[k * ROWS + i],
						 (double)first + i * COLUMNS + k);
}

int64_t lane_launches(struct pair *pair)
{
	return info_int(pair->client, "counters.lane_launches");
}

/* ---- A call that may fail ---- */

void gather_open(kiln_client *client, struct gather *gather)
{
	const int64_t src[] = {GATHER_ROWS, GATHER_FROM}, dst[] = {GATHER_ROWS, GATHER_TO};
	float data[GATHER_ROWS * GATHER_FROM];
	kiln_tensor tensors[3];
	kiln_ticket ticket;
	*gather = (struct gather){.client = client};
	assert_ok(kiln_alloc(client, sizeof(data), 0, "src", &gather->src));
	assert_ok(kiln_alloc(client, GATHER_ROWS * GATHER_TO * 4, 0, "idx", &gather->idx));
	assert_ok(kiln_alloc(client, GATHER_ROWS * GATHER_TO * 4, 0, "dst", &gather->dst));
	for (int i = 0; i < GATHER_ROWS * GATHER_FROM; i++)
		data[i] = (float)i;
	assert_ok(kiln_write(gather->src, 0, data, sizeof(data)));
	gather_spoil(gather, false);
	tensors[0] = kiln_tensor_make(NULL, 0, KILN_F32, 2, src);
	tensors[1] = kiln_tensor_make(NULL, 0, KILN_I32, 2, dst);
	tensors[2] = kiln_tensor_make(NULL, 0, KILN_F32, 2, dst);
	assert_ok(kiln_prepare(client, "gather", tensors, 3, NULL, 0, &gather->call));
	gather_submit_on(gather, 0, 0, &ticket);
	assert_ok(kiln_wait(client, ticket, CALL_TIMEOUT_MS));
}

void gather_close(struct gather *gather)
{
	kiln_call_free(gather->call);
	kiln_free(gather->src);
	kiln_free(gather->idx);
	kiln_free(gather->dst);
}

void gather_spoil(struct gather *gather, bool bad)
{
	int32_t indices[GATHER_ROWS * GATHER_TO] = {0};
	indices[5] = bad ? GATHER_FROM : 0;
	assert_ok(kiln_write(gather->idx, 0, indices, sizeof(indices)));
}

kiln_work gather_work(const struct gather *gather, kiln_operand operands[3])
{
	operands[0] = (kiln_operand){gather->src, 0};
	operands[1] = (kiln_operand){gather->idx, 0};
	operands[2] = (kiln_operand){gather->dst, 0};
	return (kiln_work){gather->call, operands, 3};
}

void gather_submit_on(struct gather *gather, unsigned stream, kiln_ticket after,
					  kiln_ticket *ticket)
{
	kiln_operand operands[3];
	kiln_work work = gather_work(gather, operands);
	kiln_submit_options options = {.size = sizeof(options), .stream = stream, .after = after};
	assert_ok(kiln_submit_with(work.call, operands, 3, &options, ticket));
}

/* ---- The memory ---- */

struct lane_memory *lane_find(const struct lane_memory *known)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	struct lane_memory *found = NULL;
	char line[512];
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		struct lane_memory *lane = (struct lane_memory *)strtoull(line, NULL, 16); /* NOLINT */
		if (strstr(line, "memfd:kiln-lane") && lane != known)
			found = lane;
	}
	fclose(maps);
	assert_non_null(found);
	return found;
}

struct lane_entry lane_last_entry(const struct lane_memory *lane)
{
	return lane->entries[(atomic_load(&lane->header.tail) - 1) % LANE_ENTRIES];
}

void lane_ring(void)
{
	const uint64_t one = 1;
	for (int fd = 3; fd < 256; fd++) {
		char path[32], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "[eventfd]"))
			assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	}
}

uint64_t lane_post(struct lane_memory *lane, struct lane_entry entry)
{
	uint64_t number = atomic_load(&lane->header.tail);
	entry.sequence = atomic_load(&lane->entries[number % LANE_ENTRIES].sequence);
	lane->entries[number % LANE_ENTRIES] = entry;
	lane_publish(lane, number);
	lane_ring();
	return number;
}

const struct lane_cell *lane_await(struct lane_memory *lane, uint64_t number)
{
	const struct lane_cell *cell = &lane->cells[number % LANE_ENTRIES];
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (atomic_load(&cell->done) != number + 1) {
		assert_true(now_ms() < end);
		pause_ms(1);
	}
	return cell;
}

void assert_entry_ends(struct lane_memory *lane, struct lane_entry entry, int status,
					   const char *word)
{
	const struct lane_cell *cell = lane_await(lane, lane_post(lane, entry));
	assert_int_equal(cell->status, status);
	if (status && !strstr(cell->error, word))
		fail_msg("\"%s\" is not in \"%s\"", word, cell->error);
}
