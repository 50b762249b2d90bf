/*
 * reply.c: a structured answer, read by path or as one JSON text.  It must not know of connections.
 */
#include "reply.h"
#include "error.h"
#include "link.h"
#include "client/wire/plain.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kiln_reply {
	struct answer answer;
	char *json;
};

int reply_make(struct answer *answer, kiln_reply **out)
{
	kiln_reply *reply = calloc(1, sizeof(*reply));
	if (!reply) {
		answer_free(answer);
		return error_set(KILN_ENOMEM, "no memory for a reply");
	}
	reply->answer = *answer;
	*out = reply;
	return KILN_OK;
}

void kiln_reply_free(kiln_reply *reply)
{
	if (!reply)
		return;
	answer_free(&reply->answer);
	free(reply->json);
	free(reply);
}

/* ---- Paths ---- */

static msgpack_object *member(const msgpack_object *map, const char *key, size_t size)
{
	for (uint32_t i = 0; map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++) {
		msgpack_object_kv *kv = &map->via.map.ptr[i];
		if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == size &&
			memcmp(kv->key.via.str.ptr, key, size) == 0)
			return &kv->val;
	}
	return NULL;
}

/* Reads "[12]" at *path and moves *path behind it; NULL if there is no such element. */
static msgpack_object *element(const msgpack_object *list, const char **path)
{
	uint64_t index = 0;
	const char *p = *path + 1;
	const char *digits = p;
	while (*p >= '0' && *p <= '9' && index <= UINT32_MAX)
		index = index * 10 + (uint64_t)(*p++ - '0');
	if (p == digits || *p != ']' || list->type != MSGPACK_OBJECT_ARRAY ||
		index >= list->via.array.size)
		return NULL;
	*path = p + 1;
	return &list->via.array.ptr[index];
}

static msgpack_object *reply_find(const kiln_reply *reply, const char *path)
{
	if (!reply || !path)
		return NULL;
	/* The reply owns the decoded message, so it may annotate it; see kiln_reply_str(). */
	msgpack_object *at = (msgpack_object *)(uintptr_t)&reply->answer.in.root;
	while (at && *path != 0) {
		if (*path == '[') {
			at = element(at, &path);
		} else {
			path += *path == '.';
			size_t n = strcspn(path, ".[");
			at = n > 0 ? member(at, path, n) : NULL;
			path += n;
		}
	}
	return at;
}

/* Reads a value as the member of a map of one, so that the codec's rules for numbers hold. */
static msgpack_object alone(msgpack_object *value, msgpack_object_kv *kv)
{
	msgpack_object map = {.type = MSGPACK_OBJECT_MAP};
	kv->key.type = MSGPACK_OBJECT_STR;
	kv->key.via.str.ptr = "v";
	kv->key.via.str.size = 1;
	kv->val = *value;
	map.via.map.size = 1;
	map.via.map.ptr = kv;
	return map;
}

int64_t kiln_reply_int(const kiln_reply *reply, const char *path)
{
	msgpack_object *value = reply_find(reply, path);
	msgpack_object_kv kv;
	if (!value)
		return 0;
	if (value->type == MSGPACK_OBJECT_BOOLEAN)
		return value->via.boolean ? 1 : 0;
	msgpack_object map = alone(value, &kv);
	return wire_get_int(&map, "v", 0);
}

double kiln_reply_real(const kiln_reply *reply, const char *path)
{
	msgpack_object *value = reply_find(reply, path);
	msgpack_object_kv kv;
	if (!value)
		return 0.0;
	msgpack_object map = alone(value, &kv);
	return wire_get_real(&map, "v", 0.0);
}

const char *kiln_reply_str(const kiln_reply *reply, const char *path)
{
	msgpack_object *value = reply_find(reply, path);
	if (!value || value->type != MSGPACK_OBJECT_STR)
		return "";
	/* A string of the message lacks a zero byte.  The first reading puts a zero-terminated copy in
	 * the value's place. */
	const struct frame *frame = &reply->answer.frame;
	const char *begin = (const char *)frame->data, *text = value->via.str.ptr;
	size_t size = value->via.str.size;
	if (text < begin || text >= begin + frame->size)
		return size > 0 ? text : "";
	if (size == 0 || memchr(text, 0, size) != NULL)
		return "";
	char *copy = msgpack_zone_malloc_no_align(reply->answer.in.zone, size + 1);
	if (!copy)
		return "";
	memcpy(copy, text, size);
	copy[size] = 0;
	value->via.str.ptr = copy;
	return copy;
}

const void *kiln_reply_bin(const kiln_reply *reply, const char *path, size_t *bytes)
{
	msgpack_object *value = reply_find(reply, path);
	bool bin = value && value->type == MSGPACK_OBJECT_BIN;
	if (bytes)
		*bytes = bin ? value->via.bin.size : 0;
	return bin ? value->via.bin.ptr : NULL;
}

int kiln_reply_count(const kiln_reply *reply, const char *path)
{
	uint32_t count = wire_count(reply_find(reply, path));
	return count > INT32_MAX ? INT32_MAX : (int)count;
}

int kiln_reply_has(const kiln_reply *reply, const char *path)
{
	return reply_find(reply, path) != NULL;
}

/* ---- JSON ---- */

struct json {
	char *text;
	size_t size, capacity;
	bool failed;
};

static void put(struct json *json, const char *bytes, size_t size)
{
	if (json->failed)
		return;
	if (json->capacity - json->size <= size) {
		size_t capacity = (json->size + size + 1) * 2;
		char *text = realloc(json->text, capacity);
		if (!text) {
			json->failed = true;
			return;
		}
		json->text = text;
		json->capacity = capacity;
	}
	memcpy(json->text + json->size, bytes, size);
	json->size += size;
	json->text[json->size] = 0;
}

static void putf(struct json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void putf(struct json *json, const char *format, ...)
{
	char text[64];
	va_list list;
	va_start(list, format);
	int n = vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (n > 0)
		put(json, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* Writes a character that JSON forbids, or that a reader should see, as an escape. */
static void put_escaped(struct json *json, uint32_t code)
{
	if (code < 0x10000) {
		putf(json, "\\u%04x", (unsigned)code);
	} else {
		putf(json, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((code - 0x10000) >> 10)),
			 (unsigned)(0xdc00 + ((code - 0x10000) & 0x3ff)));
	}
}

static void put_string(struct json *json, const char *text, size_t size)
{
	put(json, "\"", 1);
	for (size_t i = 0; i < size;) {
		uint32_t code;
		size_t n = plain_next(text + i, size - i, &code);
		if (code >= PLAIN_CUT_OFF) {
			put(json, "\xef\xbf\xbd", 3); /* the replacement character */
			n = 1;
		} else if (code == '"' || code == '\\') {
			putf(json, "\\%c", (int)code);
		} else if (code == '\n') {
			put(json, "\\n", 2);
		} else if (code == '\t') {
			put(json, "\\t", 2);
		} else if (plain_hides(code)) {
			put_escaped(json, code);
		} else {
			put(json, text + i, n);
		}
		i += n;
	}
	put(json, "\"", 1);
}

static void put_real(struct json *json, double value)
{
	if (!isfinite(value)) {
		put(json, "null", 4); /* JSON has no word for it */
		return;
	}
	for (int digits = 15; digits <= 17; digits += 2) {
		char text[40];
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (digits == 17 || strtod(text, NULL) == value) {
			put(json, text, strlen(text));
			return;
		}
	}
}

static bool is_envelope(const msgpack_object *key)
{
	static const char *const names[] = {"t", "id", "st"};
	for (size_t i = 0; key->type == MSGPACK_OBJECT_STR && i < sizeof(names) / sizeof(names[0]);
		 i++) {
		size_t n = strlen(names[i]);
		if (key->via.str.size == n && memcmp(key->via.str.ptr, names[i], n) == 0)
			return true;
	}
	return false;
}

static void put_value(struct json *json, const msgpack_object *value, int depth);

static void put_map(struct json *json, const msgpack_object *map, int depth)
{
	bool first = true;
	put(json, "{", 1);
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[i];
		if (kv->key.type != MSGPACK_OBJECT_STR || (depth == 0 && is_envelope(&kv->key)))
			continue;
		put(json, ", ", first ? 0 : 2);
		first = false;
		put_string(json, kv->key.via.str.ptr, kv->key.via.str.size);
		put(json, ": ", 2);
		put_value(json, &kv->val, depth + 1);
	}
	put(json, "}", 1);
}

static void put_value(struct json *json, const msgpack_object *value, int depth)
{
	switch (value->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		putf(json, "%s", value->via.boolean ? "true" : "false");
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		putf(json, "%llu", (unsigned long long)value->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		putf(json, "%lld", (long long)value->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		put_real(json, value->via.f64);
		break;
	case MSGPACK_OBJECT_STR:
		put_string(json, value->via.str.ptr, value->via.str.size);
		break;
	case MSGPACK_OBJECT_BIN:
		putf(json, "{\"bytes\": %u}", (unsigned)value->via.bin.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		put(json, "[", 1);
		for (uint32_t i = 0; i < value->via.array.size; i++) {
			put(json, ", ", i > 0 ? 2 : 0);
			put_value(json, &value->via.array.ptr[i], depth + 1);
		}
		put(json, "]", 1);
		break;
	case MSGPACK_OBJECT_MAP:
		put_map(json, value, depth);
		break;
	default:
		put(json, "null", 4);
		break;
	}
}

const char *kiln_reply_json(kiln_reply *reply)
{
	if (!reply)
		return "";
	if (!reply->json) {
		struct json json = {0};
		put_value(&json, &reply->answer.in.root, 0);
		if (json.failed) {
			free(json.text);
			return "";
		}
		reply->json = json.text;
	}
	return reply->json;
}
