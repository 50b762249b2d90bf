/*
 * wire_read.c: reads members of a checked message.  It must know neither sockets nor requests.
 */
#include "wire.h"

#include <kiln/kiln.h>
#include <limits.h>
#include <string.h>

const msgpack_object *wire_get(const msgpack_object *map, const char *key)
{
	if (!map || map->type != MSGPACK_OBJECT_MAP)
		return NULL;
	size_t size = strlen(key);
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[i];
		if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == size &&
			(size == 0 || memcmp(kv->key.via.str.ptr, key, size) == 0))
			return &kv->val;
	}
	return NULL;
}

static bool as_int(const msgpack_object *value, int64_t *out)
{
	if (!value)
		return false;
	switch (value->type) {
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		*out = (int64_t)value->via.u64;
		return value->via.u64 <= INT64_MAX;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		*out = value->via.i64;
		return true;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		/* NaN fails the comparison, too; 2^63 is the first value beyond the range. */
		if (!(value->via.f64 >= -0x1p63 && value->via.f64 < 0x1p63))
			return false;
		*out = (int64_t)value->via.f64;
		return (double)*out == value->via.f64;
	default:
		return false;
	}
}

int64_t wire_get_int(const msgpack_object *map, const char *key, int64_t fallback)
{
	int64_t value;
	return as_int(wire_get(map, key), &value) ? value : fallback;
}

uint64_t wire_get_uint(const msgpack_object *map, const char *key, uint64_t fallback)
{
	const msgpack_object *value = wire_get(map, key);
	int64_t number;
	if (value && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
		return value->via.u64;
	return as_int(value, &number) && number >= 0 ? (uint64_t)number : fallback;
}

double wire_get_real(const msgpack_object *map, const char *key, double fallback)
{
	const msgpack_object *value = wire_get(map, key);
	if (!value)
		return fallback;
	switch (value->type) {
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		return value->via.f64;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		return (double)value->via.u64;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		return (double)value->via.i64;
	default:
		return fallback;
	}
}

bool wire_get_bool(const msgpack_object *map, const char *key, bool fallback)
{
	const msgpack_object *value = wire_get(map, key);
	return value && value->type == MSGPACK_OBJECT_BOOLEAN ? value->via.boolean : fallback;
}

const char *wire_get_str(struct wire_in *in, const msgpack_object *map, const char *key)
{
	const msgpack_object *value = wire_get(map, key);
	if (!value || value->type != MSGPACK_OBJECT_STR || !in->zone)
		return NULL;
	size_t size = value->via.str.size;
	if (size > 0 && memchr(value->via.str.ptr, 0, size) != NULL)
		return NULL;
	char *text = msgpack_zone_malloc_no_align(in->zone, size + 1);
	if (!text)
		return NULL;
	if (size > 0)
		memcpy(text, value->via.str.ptr, size);
	text[size] = 0;
	return text;
}

const void *wire_get_bin(const msgpack_object *map, const char *key, size_t *bytes)
{
	const msgpack_object *value = wire_get(map, key);
	*bytes = 0;
	if (!value || value->type != MSGPACK_OBJECT_BIN)
		return NULL;
	*bytes = value->via.bin.size;
	return value->via.bin.ptr;
}

int wire_get_ints(const msgpack_object *map, const char *key, int64_t *values, int max)
{
	const msgpack_object *list = wire_get(map, key);
	if (!list || list->type != MSGPACK_OBJECT_ARRAY || list->via.array.size > INT_MAX)
		return -1;
	for (uint32_t i = 0; i < list->via.array.size; i++) {
		int64_t value;
		if (!as_int(&list->via.array.ptr[i], &value))
			return -1;
		if (max > 0 && i < (uint32_t)max)
			values[i] = value;
	}
	return (int)list->via.array.size;
}

uint32_t wire_count(const msgpack_object *value)
{
	if (value && value->type == MSGPACK_OBJECT_ARRAY)
		return value->via.array.size;
	return value && value->type == MSGPACK_OBJECT_MAP ? value->via.map.size : 0;
}

const msgpack_object *wire_at(const msgpack_object *list, uint32_t i)
{
	if (!list || list->type != MSGPACK_OBJECT_ARRAY || i >= list->via.array.size)
		return NULL;
	return &list->via.array.ptr[i];
}

const char *wire_type(struct wire_in *in)
{
	const char *type = wire_get_str(in, &in->root, "t");
	return type ? type : "";
}

uint64_t wire_id(const struct wire_in *in)
{
	return wire_get_uint(&in->root, "id", 0);
}
