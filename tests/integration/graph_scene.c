/*
 * graph_scene: see graph_scene.h.
 */
#include "graph_scene.h"

kiln_call *chain_make(struct chain *chain)
{
	const kiln_operand first[] = {{chain->x, 0}, {chain->y, 0}};
	const kiln_operand second[] = {{chain->y, 0}, {chain->z, 0}};
	const kiln_operand third[] = {{chain->z, 0}, {chain->w, 0}};
	const kiln_work works[] = {
		{chain->there, first, 2}, {chain->back, second, 2}, {chain->there, third, 2}};
	kiln_call *graph = NULL;
	assert_ok(kiln_prepare_graph(chain->client, works, 3, &graph));
	return graph;
}

kiln_buffer *chain_buffer(kiln_client *client, const char *name)
{
	kiln_buffer *buffer;
	assert_ok(kiln_alloc(client, COUNT * 4, 0, name, &buffer));
	return buffer;
}

void chain_open(const struct kilnd *daemon, struct chain *chain)
{
	chain->client = client_open(daemon);
	chain->there = transpose_prepare(chain->client, ROWS, COLUMNS);
	chain->back = transpose_prepare(chain->client, COLUMNS, ROWS);
	chain->x = chain_buffer(chain->client, "x");
	chain->y = chain_buffer(chain->client, "y");
	chain->z = chain_buffer(chain->client, "z");
	chain->w = chain_buffer(chain->client, "w");
	chain->graph = chain_make(chain);
}

void chain_close(struct chain *chain)
{
	kiln_call_free(chain->there);
	kiln_call_free(chain->back);
	kiln_free(chain->x);
	kiln_free(chain->y);
	kiln_free(chain->z);
	kiln_free(chain->w);
	kiln_call_free(chain->graph); /* after what it names */
	kiln_close(chain->client);
}

void assert_matrix(kiln_buffer *buffer, float first)
{
	float data[COUNT];
	assert_ok(kiln_read(buffer, 0, data, sizeof(data)));
	for (int i = 0; i < COUNT; i++)
		if (data[i] != first + (float)i)
			fail_msg("element %d is %g and not %g", i, (double)data[i], (double)first + i);
}

void assert_matrix_transposed(kiln_buffer *buffer, float first)
{
	float data[COUNT];
	assert_ok(kiln_read(buffer, 0, data, sizeof(data)));
	for (int i = 0; i < COUNT; i++)
		if (data[i % COLUMNS * ROWS + i / COLUMNS] != first + (float)i)
			fail_msg("element %d is %g and not %g", i,
					 (double)data[i % COLUMNS * ROWS + i / COLUMNS], (double)first + i);
}

void assert_chain_ran(struct chain *chain, float first)
{
	assert_matrix_transposed(chain->y, first);
	assert_matrix(chain->z, first);
	assert_matrix_transposed(chain->w, first);
}

int chain_submit(struct chain *chain, kiln_ticket *ticket)
{
	return kiln_submit(chain->graph, NULL, 0, 0, ticket);
}

int chain_run(struct chain *chain)
{
	kiln_ticket ticket;
	int status = chain_submit(chain, &ticket);
	return status == KILN_OK ? kiln_wait(chain->client, ticket, CALL_TIMEOUT_MS) : status;
}

int64_t chain_lane_launches(struct chain *chain)
{
	return info_int(chain->client, "counters.lane_launches");
}
