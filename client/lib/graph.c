/*
 * graph.c: makes one call of several prepared ones.  A graph is a call without operands, and is
 * submitted like any other.
 */
#include "call.h"
#include "client.h"
#include "error.h"
#include "link.h"
#include "submit.h"

static int check_works(kiln_client *client, const kiln_work *works, int count)
{
	if (count < 1 || count > KILN_MAX_GRAPH) {
		return error_set(KILN_EINVAL, "count is %d; a graph has 1 to %d calls", count,
						 KILN_MAX_GRAPH);
	}
	if (!works)
		return error_set(KILN_EINVAL, "works is NULL");
	for (int i = 0; i < count; i++) {
		int status = call_check_work(client, works, i);
		if (status != KILN_OK)
			return status;
		status = call_check_operands(works[i].call, works[i].operands, works[i].operand_count);
		if (status != KILN_OK)
			return call_blame(status, i);
	}
	return KILN_OK;
}

static int graph_make(kiln_client *client, const kiln_work *works, int count, kiln_call **out)
{
	struct request request;
	int64_t deadline = client_deadline(client);
	link_begin(client, &request, "graph");
	wire_list_begin(&request.out, "works");
	for (int i = 0; i < count; i++) {
		wire_map_begin(&request.out, NULL);
		wire_put_uint(&request.out, "call", works[i].call->id);
		call_put_operands(&request.out, works[i].operands, works[i].operand_count);
		wire_map_end(&request.out);
	}
	wire_list_end(&request.out);
	return call_make(client, &request, deadline, NULL, out);
}

int kiln_prepare_graph(kiln_client *client, const kiln_work *works, int count, kiln_call **out)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	if (!out)
		status = error_set(KILN_EINVAL, "out is NULL; the graph cannot be returned");
	else
		status = check_works(client, works, count);
	return client_leave(client, status == KILN_OK ? graph_make(client, works, count, out) : status);
}
