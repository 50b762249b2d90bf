/*
 * fuzz_wire.c: any bytes as a message.  Whatever is accepted must read, print and encode again to
 * something that reads the same.
 */
#include "client/wire/wire.h"

#include <kiln/kiln.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that does not hold is a crash, which both libFuzzer and the replay report. */
static void require(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "fuzz_wire: %s\n", what);
		abort();
	}
}

static void check_members(struct wire_in *in)
{
	int64_t values[4];
	size_t bytes;
	(void)wire_type(in);
	(void)wire_id(in);
	const void *bin = wire_get_bin(&in->root, "b", &bytes);
	require(bin || bytes == 0, "no binary, and bytes of it");
	const char *text = wire_get_str(in, &in->root, "s");
	require(!text || strlen(text) <= UINT32_MAX, "a string without end");
	(void)wire_get_ints(&in->root, "i", values, 4);
	(void)wire_get_real(&in->root, "r", 0.0);
	if (wire_get(&in->root, "missing") == NULL)
		require(wire_get_int(&in->root, "missing", 42) == 42, "a member out of nothing");
	(void)wire_get_uint(&in->root, "u", 0);
}

static void check_again(const msgpack_object *root)
{
	struct wire_out out;
	struct wire_in again;
	char first[512], second[512];

	wire_begin(&out, NULL, 0);
	for (uint32_t i = 0; i < root->via.map.size; i++) {
		const msgpack_object_kv *kv = &root->via.map.ptr[i];
		wire_put_value(&out, "v", &kv->val);
	}
	require(wire_end(&out) == KILN_OK, "what was read cannot be built again");
	require(wire_parse(&again, out.buffer.data, out.buffer.size) == KILN_OK,
			"what was built cannot be read");
	require(wire_count(&again.root) == root->via.map.size, "members were lost");
	for (uint32_t i = 0; i < root->via.map.size; i++) {
		wire_print(&root->via.map.ptr[i].val, first, sizeof(first));
		wire_print(&again.root.via.map.ptr[i].val, second, sizeof(second));
		require(strcmp(first, second) == 0, "a value changed on its way");
	}
	wire_in_free(&again);
	wire_out_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_in in;
	char text[256];
	if (wire_parse(&in, data, size) != KILN_OK) {
		require(in.why[0] != 0, "a refusal without a reason");
		wire_in_free(&in);
		return 0;
	}
	for (size_t room = 1; room <= sizeof(text); room *= 4) {
		wire_print(&in.root, text, room);
		require(strlen(text) < room, "a line longer than its room");
	}
	check_members(&in);
	check_again(&in.root);
	wire_in_free(&in);
	return 0;
}
