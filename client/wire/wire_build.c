/*
 * wire_build.c: builds messages.  It must know neither sockets nor requests.
 */
#include "wire.h"
#include "plain.h"

#include <kiln/kiln.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void stick(struct wire_out *out, int error)
{
	if (out->error == KILN_OK)
		out->error = error;
}

/* Takes the result of a msgpack_pack_* call. */
static void packed(struct wire_out *out, int result)
{
	if (result != 0)
		stick(out, KILN_ENOMEM);
}

static void pack_text(struct wire_out *out, const char *text)
{
	size_t size = strlen(text);
	if (size > UINT32_MAX) {
		stick(out, KILN_EINTERNAL);
		return;
	}
	if (!out->for_people || plain_is(text, size, PLAIN_TEXT)) {
		packed(out, msgpack_pack_str_with_body(&out->packer, text, size));
		return;
	}
	char *copy = plain_copy(text, size, PLAIN_TEXT);
	packed(out, !copy ? -1 : msgpack_pack_str_with_body(&out->packer, copy, strlen(copy)));
	free(copy);
}

/* Counts a member and writes its key; false when nothing may follow. */
static bool member(struct wire_out *out, const char *key)
{
	if (out->error != KILN_OK)
		return false;
	if (out->depth == 0 || out->open[out->depth - 1].is_map != (key != NULL) ||
		out->open[out->depth - 1].count == UINT32_MAX) {
		stick(out, KILN_EINTERNAL);
		return false;
	}
	out->open[out->depth - 1].count++;
	if (key)
		pack_text(out, key);
	return out->error == KILN_OK;
}

/* Writes a number and its bytes, the highest first. */
static void pack_bytes(struct wire_out *out, unsigned char mark, uint64_t value, int bytes)
{
	char packet[9] = {(char)mark};
	for (int i = 0; i < bytes; i++)
		packet[1 + i] = (char)(value >> (8 * (bytes - 1 - i)));
	packed(out, msgpack_sbuffer_write(&out->buffer, packet, (size_t)bytes + 1));
}

/* The shortest form, as msgpack_pack_uint64() chooses it, whose calls cost more than the bytes. */
static void pack_uint(struct wire_out *out, uint64_t value)
{
	if (value < 128)
		pack_bytes(out, (unsigned char)value, 0, 0);
	else if (value <= UINT8_MAX)
		pack_bytes(out, 0xcc, value, 1);
	else if (value <= UINT16_MAX)
		pack_bytes(out, 0xcd, value, 2);
	else if (value <= UINT32_MAX)
		pack_bytes(out, 0xce, value, 4);
	else
		pack_bytes(out, 0xcf, value, 8);
}

static void pack_int(struct wire_out *out, int64_t value)
{
	if (value >= 0)
		pack_uint(out, (uint64_t)value);
	else
		packed(out, msgpack_pack_int64(&out->packer, value));
}

/* Opens a container with a count that close_container() fills in. */
static void open_container(struct wire_out *out, bool is_map)
{
	const char head[5] = {(char)(is_map ? 0xdf : 0xdd), 0, 0, 0, 0};
	if (out->depth == WIRE_MAX_DEPTH) {
		stick(out, KILN_EINTERNAL);
		return;
	}
	out->open[out->depth].at = out->buffer.size + 1;
	out->open[out->depth].count = 0;
	out->open[out->depth].is_map = is_map;
	packed(out, msgpack_sbuffer_write(&out->buffer, head, sizeof(head)));
	out->depth++;
}

static void put_count(char *at, uint32_t count)
{
	for (int i = 0; i < 4; i++)
		at[i] = (char)(count >> (24 - 8 * i));
}

static void close_container(struct wire_out *out, bool is_map)
{
	if (out->error != KILN_OK)
		return;
	if (out->depth == 0 || out->open[out->depth - 1].is_map != is_map) {
		stick(out, KILN_EINTERNAL);
		return;
	}
	out->depth--;
	put_count(out->buffer.data + out->open[out->depth].at, out->open[out->depth].count);
}

void wire_begin(struct wire_out *out, const char *type, uint64_t id)
{
	memset(out, 0, sizeof(*out));
	msgpack_sbuffer_init(&out->buffer);
	msgpack_packer_init(&out->packer, &out->buffer, msgpack_sbuffer_write);
	open_container(out, true);
	if (type) {
		wire_put_str(out, "t", type);
		wire_put_uint(out, "id", id);
	}
}

void wire_put_int(struct wire_out *out, const char *key, int64_t value)
{
	if (member(out, key))
		pack_int(out, value);
}

void wire_put_uint(struct wire_out *out, const char *key, uint64_t value)
{
	if (member(out, key))
		pack_uint(out, value);
}

void wire_put_real(struct wire_out *out, const char *key, double value)
{
	if (member(out, key))
		packed(out, msgpack_pack_double(&out->packer, value));
}

void wire_put_bool(struct wire_out *out, const char *key, bool value)
{
	if (member(out, key))
		packed(out, value ? msgpack_pack_true(&out->packer) : msgpack_pack_false(&out->packer));
}

void wire_put_str(struct wire_out *out, const char *key, const char *value)
{
	if (value && member(out, key))
		pack_text(out, value);
}

void wire_put_bin(struct wire_out *out, const char *key, const void *data, size_t bytes)
{
	if (bytes > UINT32_MAX) {
		stick(out, KILN_EINTERNAL);
	} else if (member(out, key)) {
		packed(out, msgpack_pack_bin(&out->packer, bytes));
		if (bytes > 0)
			packed(out, msgpack_pack_bin_body(&out->packer, data, bytes));
	}
}

void wire_put_ints(struct wire_out *out, const char *key, const int64_t *values, int count)
{
	if (count < 0) {
		stick(out, KILN_EINTERNAL);
	} else if (member(out, key)) {
		packed(out, msgpack_pack_array(&out->packer, (size_t)count));
		for (int i = 0; i < count; i++)
			pack_int(out, values[i]);
	}
}

/* Returns how deep a value nests: 0 for a scalar.  Stops where it is too deep anyway. */
static int value_depth(const msgpack_object *value, int room)
{
	int deepest = 0;
	if (room < 0 || (value->type != MSGPACK_OBJECT_ARRAY && value->type != MSGPACK_OBJECT_MAP))
		return 0;
	for (uint32_t i = 0; i < wire_count(value); i++) {
		const msgpack_object *inner = value->type == MSGPACK_OBJECT_MAP ? &value->via.map.ptr[i].val
																		: &value->via.array.ptr[i];
		int depth = value_depth(inner, room - 1);
		deepest = depth > deepest ? depth : deepest;
	}
	return deepest + 1;
}

void wire_put_value(struct wire_out *out, const char *key, const msgpack_object *value)
{
	if (!member(out, key))
		return;
	if (out->depth + value_depth(value, WIRE_MAX_DEPTH) > WIRE_MAX_DEPTH) {
		stick(out, KILN_EINTERNAL);
		return;
	}
	packed(out, msgpack_pack_object(&out->packer, *value));
}

static void container_begin(struct wire_out *out, const char *key, bool is_map)
{
	if (member(out, key))
		open_container(out, is_map);
}

void wire_map_begin(struct wire_out *out, const char *key)
{
	container_begin(out, key, true);
}

void wire_map_end(struct wire_out *out)
{
	close_container(out, true);
}

void wire_list_begin(struct wire_out *out, const char *key)
{
	container_begin(out, key, false);
}

void wire_list_end(struct wire_out *out)
{
	close_container(out, false);
}

void wire_put_macro(struct wire_out *out, const char *name, const char *value)
{
	wire_map_begin(out, NULL);
	wire_put_str(out, "n", name);
	wire_put_str(out, "v", value);
	wire_map_end(out);
}

void wire_put_option(struct wire_out *out, const char *option)
{
	wire_map_begin(out, NULL);
	wire_put_str(out, "o", option);
	wire_map_end(out);
}

int wire_end(struct wire_out *out)
{
	if (out->error == KILN_OK && out->depth != 1)
		stick(out, KILN_EINTERNAL);
	close_container(out, true);
	return out->error;
}

size_t wire_copy(const struct wire_out *out, void *to, size_t most)
{
	if (out->error != KILN_OK || out->depth != 1 || out->buffer.size > most)
		return 0;
	memcpy(to, out->buffer.data, out->buffer.size);
	put_count((char *)to + out->open[0].at, out->open[0].count);
	return out->buffer.size;
}

void wire_out_free(struct wire_out *out)
{
	msgpack_sbuffer_destroy(&out->buffer);
	msgpack_sbuffer_init(&out->buffer);
	out->depth = 0;
}
