/*
 * calls.c: what the kiln command does not ask for: lent memory, calls that follow others, graphs,
 * kernels of one's own, and requests by name.  Its only use is to be recorded (record.sh).
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIDE 8
#define BYTES (SIDE * SIDE * 4)

static void must(int status, const char *what)
{
	if (status != KILN_OK) {
		fprintf(stderr, "%s: %s: %s\n", what, kiln_status_name(status), kiln_errmsg());
		exit(1);
	}
}

static void ask(kiln_client *client, const char *request, const kiln_attr *args, int count)
{
	kiln_reply *reply = NULL;
	int status = kiln_request(client, request, args, count, &reply);
	if (status != KILN_OK)
		fprintf(stderr, "%s: %s\n", request, kiln_errmsg()); /* is recorded, too */
	kiln_reply_free(reply);
}

static kiln_buffer *lend(kiln_client *client)
{
	kiln_buffer *buffer;
	int fd = memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, 4096) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
		exit(1);
	must(kiln_lend_fd(client, fd, 0, BYTES, "lent", &buffer), "lend");
	close(fd);
	return buffer;
}

static void call_and_graph(kiln_client *client)
{
	const int64_t shape[2] = {SIDE, SIDE}, axes[2] = {1, 0};
	const kiln_attr perm = kiln_attr_ints("perm", axes, 2);
	kiln_buffer *x = lend(client), *y;
	kiln_call *call, *graph;
	kiln_ticket first, second;
	must(kiln_alloc(client, BYTES, KILN_BUFFER_SHARED, "y", &y), "alloc");
	const kiln_tensor tensors[2] = {kiln_tensor_make(x, 0, KILN_F32, 2, shape),
									kiln_tensor_make(y, 0, KILN_F32, 2, shape)};
	const kiln_operand operands[2] = {{x, 0}, {y, 0}};
	const kiln_submit_options options = {.size = sizeof(options), .stream = 3};
	must(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call), "prepare");
	must(kiln_submit(call, operands, 2, 0, &first), "submit");
	must(kiln_submit(call, operands, 2, first, &second), "submit after");
	must(kiln_wait(client, second, KILN_FOREVER), "wait");
	must(kiln_wait(client, first, KILN_FOREVER), "wait");
	must(kiln_submit_with(call, operands, 2, &options, &first), "submit on a stream");
	must(kiln_wait(client, first, KILN_FOREVER), "wait");
	const kiln_work work = {call, operands, 2};
	must(kiln_prepare_graph(client, &work, 1, &graph), "graph");
	must(kiln_submit(graph, NULL, 0, 0, &first), "submit a graph");
	must(kiln_wait(client, first, KILN_FOREVER), "wait");
	must(kiln_run(client, "permute", tensors, 2, &perm, 1), "run");
	kiln_call_free(graph);
	kiln_call_free(call);
	must(kiln_free(y), "free");
	must(kiln_free(x), "free");
}

static void tune(kiln_client *client)
{
	const kiln_attr row[] = {
		{.name = "op", .kind = KILN_ATTR_STRING, .s = "permute"},
		{.name = "model", .kind = KILN_ATTR_STRING, .s = "a model"},
		{.name = "target", .kind = KILN_ATTR_STRING, .s = "sm_90"},
		{.name = "signature", .kind = KILN_ATTR_STRING, .s = "permute_tile<u32>"},
		{.name = "choice", .kind = KILN_ATTR_STRING, .s = "tile=32"},
		{.name = "micros", .kind = KILN_ATTR_REAL, .f = 1.5},
		{.name = "own_micros", .kind = KILN_ATTR_REAL, .f = 2.5},
		{.name = "candidates", .kind = KILN_ATTR_INT, .i = 4},
		{.name = "when", .kind = KILN_ATTR_INT, .i = 1700000000},
	};
	ask(client, "tuned.put", row, sizeof(row) / sizeof(row[0]));
	ask(client, "tuned.ls", NULL, 0);
	ask(client, "tuned.rm", &row[1], 3);
}

int main(void)
{
	const kiln_connect_options options = {.size = sizeof(options),
										  .device = "cpu",
										  .on_miss = "warn",
										  .flags = KILN_CONNECT_BACKGROUND};
	kiln_client *client;
	must(kiln_connect(&options, &client), "connect");
	call_and_graph(client);
	tune(client);
	kiln_close(client);
	return 0;
}
