/*
 * tier_scene: see tier_scene.h.
 */
#include "tier_scene.h"

#include <stdio.h>

struct permute cube_problem(int64_t side)
{
	return (struct permute){
		.dtype = KILN_F32, .rank = 3, .shape = {side, side, side}, .perm = {1, 2, 0}};
}

kiln_client *lazy_client(struct kilnd *daemon)
{
	kilnd_start(daemon, OPTIONS("--specialize", "lazy"));
	return client_open(daemon);
}

void lazy_finish(struct kilnd *daemon, kiln_client *client)
{
	kiln_close(client);
	kilnd_stop(daemon);
}

void cube_open(kiln_client *client, struct cube *cube)
{
	struct permute problem = cube_problem(SIDE);
	kiln_attr perm = perm_attr(&problem);

	*cube = (struct cube){.client = client};
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_alloc(client, sizeof(cube->start), 0, NULL, &cube->buffers[i]));
	for (int i = 0; i < CUBE; i++)
		cube->start[i] = (float)i;
	assert_ok(kiln_write(cube->buffers[0], 0, cube->start, sizeof(cube->start)));
	kiln_tensor tensors[2] = {permute_input(&problem, cube->buffers[0]),
							  permute_output(&problem, cube->buffers[1])};
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &cube->call));
}

void cube_close(struct cube *cube)
{
	kiln_call_free(cube->call);
	for (int i = 0; i < 2; i++)
		kiln_free(cube->buffers[i]);
}

kiln_client *lazy_with_cube(struct kilnd *daemon, struct cube *cube)
{
	kiln_client *client = lazy_client(daemon);
	cube_open(client, cube);
	return client;
}

void cube_finish(struct kilnd *daemon, struct cube *cube)
{
	cube_close(cube);
	lazy_finish(daemon, cube->client);
}

void cube_turn(struct cube *cube, int turns)
{
	kiln_ticket tickets[BATCH];

	for (int i = 0; i < turns; i++, cube->turns++) {
		const kiln_operand operands[2] = {{cube->buffers[cube->turns % 2], 0},
										  {cube->buffers[(cube->turns + 1) % 2], 0}};
		assert_ok(kiln_submit(cube->call, operands, 2, 0, &tickets[i]));
	}
	for (int i = 0; i < turns; i++)
		assert_ok(kiln_wait(cube->client, tickets[i], CALL_TIMEOUT_MS));
}

void assert_turned(const struct cube *cube)
{
	static float now[CUBE];
	int count = cube->turns % 3;

	assert_ok(kiln_read(cube->buffers[cube->turns % 2], 0, now, sizeof(now)));
	for (int i = 0; i < CUBE; i++) {
		int at[3] = {i / SIDE / SIDE, i / SIDE % SIDE, i % SIDE};
		/* Axis k of the result is axis (k + count) % 3 of the start. */
		int from[3];
		for (int k = 0; k < 3; k++)
			from[(k + count) % 3] = at[k];
		assert_true(now[i] == cube->start[(from[0] * SIDE + from[1]) * SIDE + from[2]]);
	}
}

int turn_once(kiln_client *client, kiln_buffer *const buffers[2], int64_t side)
{
	struct permute problem = cube_problem(side);
	kiln_attr perm = perm_attr(&problem);
	kiln_tensor tensors[2] = {permute_input(&problem, buffers[0]),
							  permute_output(&problem, buffers[1])};
	return kiln_run(client, "permute", tensors, 2, &perm, 1);
}

void assert_turned_once(kiln_buffer *buffer, int side)
{
	static float now[CUBE];
	assert_ok(kiln_read(buffer, 0, now, sizeof(float) * (size_t)(side * side * side)));
	for (int i = 0; i < side * side * side; i++) {
		int at[3] = {i / side / side, i / side % side, i % side};
		assert_true(now[i] == (float)((at[2] * side + at[0]) * side + at[1]));
	}
}

int64_t tier_counter(kiln_client *client, const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "counters.%s", name);
	return info_int(client, path);
}
