/*
 * wire.c: builds, checks and reads messages.  Must know neither sockets nor requests.
 *
 * The decoder below trusts counts: an array header of five bytes makes it ask for 128 GB.  So
 * every message is walked once with nothing but bounds in mind before it is decoded.
 */
#include "client/wire.h"

#include <kiln/kiln.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Building ---- */

static void stick(struct wire_out *out, int error)
{
	if (out->error == KILN_OK) {
		out->error = error;
	}
}

/* Takes the result of a msgpack_pack_* call. */
static void packed(struct wire_out *out, int result)
{
	if (result != 0) {
		stick(out, KILN_ENOMEM);
	}
}

static void pack_text(struct wire_out *out, const char *text)
{
	size_t size = strlen(text);
	if (size > UINT32_MAX) {
		stick(out, KILN_EINTERNAL);
		return;
	}
	packed(out, msgpack_pack_str_with_body(&out->packer, text, size));
}

/* Counts a member and writes its key; false when nothing may follow. */
static bool member(struct wire_out *out, const char *key)
{
	if (out->error != KILN_OK) {
		return false;
	}
	if (out->depth == 0 || out->open[out->depth - 1].is_map != (key != NULL) ||
		out->open[out->depth - 1].count == UINT32_MAX) {
		stick(out, KILN_EINTERNAL);
		return false;
	}
	out->open[out->depth - 1].count++;
	if (key != NULL) {
		pack_text(out, key);
	}
	return out->error == KILN_OK;
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

static void close_container(struct wire_out *out, bool is_map)
{
	if (out->error != KILN_OK) {
		return;
	}
	if (out->depth == 0 || out->open[out->depth - 1].is_map != is_map) {
		stick(out, KILN_EINTERNAL);
		return;
	}
	out->depth--;
	uint32_t count = out->open[out->depth].count;
	char *at = out->buffer.data + out->open[out->depth].at;
	for (int i = 0; i < 4; i++) {
		at[i] = (char)(count >> (24 - 8 * i));
	}
}

void wire_begin(struct wire_out *out, const char *type, uint64_t id)
{
	memset(out, 0, sizeof(*out));
	msgpack_sbuffer_init(&out->buffer);
	msgpack_packer_init(&out->packer, &out->buffer, msgpack_sbuffer_write);
	open_container(out, true);
	if (type != NULL) {
		wire_put_str(out, "t", type);
		wire_put_uint(out, "id", id);
	}
}

void wire_put_int(struct wire_out *out, const char *key, int64_t value)
{
	if (member(out, key)) {
		packed(out, msgpack_pack_int64(&out->packer, value));
	}
}

void wire_put_uint(struct wire_out *out, const char *key, uint64_t value)
{
	if (member(out, key)) {
		packed(out, msgpack_pack_uint64(&out->packer, value));
	}
}

void wire_put_real(struct wire_out *out, const char *key, double value)
{
	if (member(out, key)) {
		packed(out, msgpack_pack_double(&out->packer, value));
	}
}

void wire_put_bool(struct wire_out *out, const char *key, bool value)
{
	if (member(out, key)) {
		packed(out, value ? msgpack_pack_true(&out->packer) : msgpack_pack_false(&out->packer));
	}
}

void wire_put_str(struct wire_out *out, const char *key, const char *value)
{
	if (value != NULL && member(out, key)) {
		pack_text(out, value);
	}
}

void wire_put_bin(struct wire_out *out, const char *key, const void *data, size_t bytes)
{
	if (bytes > UINT32_MAX) {
		stick(out, KILN_EINTERNAL);
	} else if (member(out, key)) {
		packed(out, msgpack_pack_bin(&out->packer, bytes));
		if (bytes > 0) {
			packed(out, msgpack_pack_bin_body(&out->packer, data, bytes));
		}
	}
}

void wire_put_ints(struct wire_out *out, const char *key, const int64_t *values, int count)
{
	if (count < 0) {
		stick(out, KILN_EINTERNAL);
	} else if (member(out, key)) {
		packed(out, msgpack_pack_array(&out->packer, (size_t)count));
		for (int i = 0; i < count; i++) {
			packed(out, msgpack_pack_int64(&out->packer, values[i]));
		}
	}
}

/* How deep a value nests: 0 for a scalar; stops counting where it is too deep anyway. */
static int value_depth(const msgpack_object *value, int room)
{
	int deepest = 0;
	if (room < 0 || (value->type != MSGPACK_OBJECT_ARRAY && value->type != MSGPACK_OBJECT_MAP)) {
		return 0;
	}
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
	if (!member(out, key)) {
		return;
	}
	if (out->depth + value_depth(value, WIRE_MAX_DEPTH) > WIRE_MAX_DEPTH) {
		stick(out, KILN_EINTERNAL);
		return;
	}
	packed(out, msgpack_pack_object(&out->packer, *value));
}

static void container_begin(struct wire_out *out, const char *key, bool is_map)
{
	if (member(out, key)) {
		open_container(out, is_map);
	}
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

int wire_end(struct wire_out *out)
{
	if (out->error == KILN_OK && out->depth != 1) {
		stick(out, KILN_EINTERNAL);
	}
	close_container(out, true);
	return out->error;
}

void wire_out_free(struct wire_out *out)
{
	msgpack_sbuffer_destroy(&out->buffer);
	msgpack_sbuffer_init(&out->buffer);
	out->depth = 0;
}

/* ---- Checking ---- */

/* What follows a first byte: a body of raw bytes, or a number of values. */
struct head {
	size_t skip;     /* bytes of the head after its first byte, plus the body */
	uint64_t values; /* that follow inside */
	bool container;
};

static uint64_t big_endian(const uint8_t *p, size_t bytes)
{
	uint64_t value = 0;
	for (size_t i = 0; i < bytes; i++) {
		value = value << 8 | p[i];
	}
	return value;
}

/* Bytes that a scalar's head is followed by; -1 for what is no scalar. */
static int scalar_bytes(uint8_t b)
{
	if (b <= 0x7f || b >= 0xe0 || b == 0xc0 || b == 0xc2 || b == 0xc3) {
		return 0;
	}
	switch (b) {
	case 0xcc: /* uint8 .. uint64 */
	case 0xd0: /* int8 .. int64 */
		return 1;
	case 0xcd:
	case 0xd1:
		return 2;
	case 0xce:
	case 0xd2:
	case 0xca: /* float */
		return 4;
	case 0xcf:
	case 0xd3:
	case 0xcb: /* double */
		return 8;
	default:
		return -1;
	}
}

/* Bytes of the length field of a string, binary or container of variable length; 0 for others. */
static size_t length_bytes(uint8_t b)
{
	switch (b) {
	case 0xc4:
	case 0xd9:
		return 1;
	case 0xc5:
	case 0xda:
	case 0xdc:
	case 0xde:
		return 2;
	case 0xc6:
	case 0xdb:
	case 0xdd:
	case 0xdf:
		return 4;
	default:
		return 0;
	}
}

/* Reads the head at p (left bytes, at least one).  NULL, or what is wrong with it. */
static const char *read_head(const uint8_t *p, size_t left, struct head *head)
{
	uint8_t b = p[0];
	int scalar = scalar_bytes(b);
	size_t field = length_bytes(b);

	*head = (struct head){0};
	if (scalar >= 0) {
		head->skip = (size_t)scalar;
	} else if (b >= 0xa0 && b <= 0xbf) {
		head->skip = b & 0x1fu;
	} else if (b >= 0x80 && b <= 0x9f) {
		head->container = true;
		head->values = (uint64_t)(b & 0x0fu) * (b < 0x90 ? 2 : 1);
	} else if (field > 0) {
		if (left - 1 < field) {
			return "it ends inside a length";
		}
		uint64_t length = big_endian(p + 1, field);
		head->skip = field;
		if (b >= 0xdc) {
			head->container = true;
			head->values = length * (b >= 0xde ? 2 : 1);
		} else if (length > left - 1 - field) {
			return "a string or binary is longer than the message";
		} else {
			head->skip += (size_t)length;
		}
	} else {
		return "it holds a value of a kind that is never used";
	}
	if (head->skip > left - 1) {
		return "it ends inside a value";
	}
	return head->values > left - 1 - head->skip ? "a count is larger than the message" : NULL;
}

/* Walks a message.  NULL, or what is wrong with it, where at *at. */
static const char *scan(const uint8_t *data, size_t size, size_t *at)
{
	uint64_t open[WIRE_MAX_DEPTH]; /* values still to come, from the outermost inwards */
	size_t depth = 0;
	uint64_t seen = 0;

	*at = 0;
	if (size == 0) {
		return "it is empty";
	}
	if (!((data[0] & 0xf0) == 0x80 || data[0] == 0xde || data[0] == 0xdf)) {
		return "it is no map";
	}
	for (;;) {
		struct head head;
		if (*at == size) {
			return "it ends before its last value";
		}
		const char *wrong = read_head(data + *at, size - *at, &head);
		if (wrong != NULL) {
			return wrong;
		}
		if (++seen > WIRE_MAX_VALUES) {
			return "it holds too many values";
		}
		if (head.container && depth == WIRE_MAX_DEPTH) {
			return "it is nested too deeply";
		}
		*at += 1 + head.skip;
		if (head.container) {
			open[depth++] = head.values;
		}
		while (depth > 0 && open[depth - 1] == 0) {
			depth--;
		}
		if (depth == 0) {
			return *at == size ? NULL : "bytes follow its end";
		}
		open[depth - 1]--;
	}
}

int wire_parse(struct wire_in *in, const void *data, size_t size)
{
	size_t at, used = 0;
	memset(in, 0, sizeof(*in));
	in->root.type = MSGPACK_OBJECT_NIL;
	const char *wrong = scan(data, size, &at);
	if (wrong != NULL) {
		snprintf(in->why, sizeof(in->why), "a message of %zu bytes is malformed at byte %zu: %s",
				 size, at, wrong);
		return KILN_EPROTO;
	}
	msgpack_unpacked unpacked;
	msgpack_unpacked_init(&unpacked);
	msgpack_unpack_return got = msgpack_unpack_next(&unpacked, data, size, &used);
	if (got != MSGPACK_UNPACK_SUCCESS || unpacked.data.type != MSGPACK_OBJECT_MAP) {
		msgpack_unpacked_destroy(&unpacked);
		bool memory = got == MSGPACK_UNPACK_NOMEM_ERROR;
		snprintf(in->why, sizeof(in->why), "a message of %zu bytes could not be decoded%s", size,
				 memory ? ": out of memory" : "");
		return memory ? KILN_ENOMEM : KILN_EPROTO;
	}
	in->root = unpacked.data;
	in->zone = msgpack_unpacked_release_zone(&unpacked);
	return KILN_OK;
}

void wire_in_free(struct wire_in *in)
{
	if (in->zone != NULL) {
		msgpack_zone_free(in->zone);
	}
	in->zone = NULL;
	in->root.type = MSGPACK_OBJECT_NIL;
}

/* ---- Reading ---- */

const msgpack_object *wire_get(const msgpack_object *map, const char *key)
{
	if (map == NULL || map->type != MSGPACK_OBJECT_MAP) {
		return NULL;
	}
	size_t size = strlen(key);
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[i];
		if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == size &&
			(size == 0 || memcmp(kv->key.via.str.ptr, key, size) == 0)) {
			return &kv->val;
		}
	}
	return NULL;
}

static bool as_int(const msgpack_object *value, int64_t *out)
{
	if (value == NULL) {
		return false;
	}
	switch (value->type) {
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		*out = (int64_t)value->via.u64;
		return value->via.u64 <= INT64_MAX;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		*out = value->via.i64;
		return true;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		/* The comparison also keeps NaN out; 2^63 is the first value beyond the range. */
		if (!(value->via.f64 >= -0x1p63 && value->via.f64 < 0x1p63)) {
			return false;
		}
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
	if (value != NULL && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
		return value->via.u64;
	}
	return as_int(value, &number) && number >= 0 ? (uint64_t)number : fallback;
}

double wire_get_real(const msgpack_object *map, const char *key, double fallback)
{
	const msgpack_object *value = wire_get(map, key);
	if (value == NULL) {
		return fallback;
	}
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
	return value != NULL && value->type == MSGPACK_OBJECT_BOOLEAN ? value->via.boolean : fallback;
}

const char *wire_get_str(struct wire_in *in, const msgpack_object *map, const char *key)
{
	const msgpack_object *value = wire_get(map, key);
	if (value == NULL || value->type != MSGPACK_OBJECT_STR || in->zone == NULL) {
		return NULL;
	}
	size_t size = value->via.str.size;
	if (size > 0 && memchr(value->via.str.ptr, 0, size) != NULL) {
		return NULL;
	}
	char *text = msgpack_zone_malloc_no_align(in->zone, size + 1);
	if (text == NULL) {
		return NULL;
	}
	if (size > 0) {
		memcpy(text, value->via.str.ptr, size);
	}
	text[size] = 0;
	return text;
}

const void *wire_get_bin(const msgpack_object *map, const char *key, size_t *bytes)
{
	const msgpack_object *value = wire_get(map, key);
	*bytes = 0;
	if (value == NULL || value->type != MSGPACK_OBJECT_BIN) {
		return NULL;
	}
	*bytes = value->via.bin.size;
	return value->via.bin.ptr;
}

int wire_get_ints(const msgpack_object *map, const char *key, int64_t *values, int max)
{
	const msgpack_object *list = wire_get(map, key);
	if (list == NULL || list->type != MSGPACK_OBJECT_ARRAY || list->via.array.size > INT_MAX) {
		return -1;
	}
	for (uint32_t i = 0; i < list->via.array.size; i++) {
		int64_t value;
		if (!as_int(&list->via.array.ptr[i], &value)) {
			return -1;
		}
		if (max > 0 && i < (uint32_t)max) {
			values[i] = value;
		}
	}
	return (int)list->via.array.size;
}

uint32_t wire_count(const msgpack_object *value)
{
	if (value != NULL && value->type == MSGPACK_OBJECT_ARRAY) {
		return value->via.array.size;
	}
	return value != NULL && value->type == MSGPACK_OBJECT_MAP ? value->via.map.size : 0;
}

const msgpack_object *wire_at(const msgpack_object *list, uint32_t i)
{
	if (list == NULL || list->type != MSGPACK_OBJECT_ARRAY || i >= list->via.array.size) {
		return NULL;
	}
	return &list->via.array.ptr[i];
}

const char *wire_type(struct wire_in *in)
{
	const char *type = wire_get_str(in, &in->root, "t");
	return type != NULL ? type : "";
}

uint64_t wire_id(const struct wire_in *in)
{
	return wire_get_uint(&in->root, "id", 0);
}

/* ---- Printing ---- */

struct print {
	char *text;
	size_t size, used;
};

static void add(struct print *print, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct print *print, const char *format, ...)
{
	size_t room = print->size - print->used;
	va_list list;
	va_start(list, format);
	int n = vsnprintf(print->text + print->used, room, format, list);
	va_end(list);
	if (n > 0) {
		print->used += (size_t)n < room ? (size_t)n : room - 1;
	}
}

/* True when there is no room left: what follows would be cut anyway. */
static bool full(const struct print *print)
{
	return print->used + 1 >= print->size;
}

static void print_text(struct print *print, const msgpack_object_str *text, bool quoted)
{
	const char *quote = quoted ? "\"" : "";
	add(print, "%s", quote);
	for (uint32_t i = 0; i < text->size && !full(print); i++) {
		unsigned char c = (unsigned char)text->ptr[i];
		if (c == '\n') {
			add(print, "\\n");
		} else if (quoted && (c == '"' || c == '\\')) {
			add(print, "\\%c", c);
		} else if (c < 0x20 || c == 0x7f) {
			add(print, "\\x%02x", c);
		} else {
			add(print, "%c", c);
		}
	}
	add(print, "%s", quote);
}

static void print_value(struct print *print, const msgpack_object *value, int depth);

/* Members "key=value", without those already shown by the caller. */
static void print_members(struct print *print, const msgpack_object *map, int depth)
{
	bool first = true;
	for (uint32_t i = 0; i < map->via.map.size && !full(print); i++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[i];
		bool text = kv->key.type == MSGPACK_OBJECT_STR;
		if (depth == 0 && text && kv->key.via.str.size == 1 && kv->key.via.str.ptr[0] == 't') {
			continue;
		}
		add(print, "%s", first ? "" : ", ");
		first = false;
		if (text) {
			print_text(print, &kv->key.via.str, false);
		} else {
			print_value(print, &kv->key, depth + 1);
		}
		add(print, "=");
		print_value(print, &kv->val, depth + 1);
	}
}

static void print_value(struct print *print, const msgpack_object *value, int depth)
{
	if (full(print) || depth > WIRE_MAX_DEPTH) {
		return;
	}
	switch (value->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		add(print, "%s", value->via.boolean ? "true" : "false");
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		add(print, "%llu", (unsigned long long)value->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		add(print, "%lld", (long long)value->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		add(print, "%g", value->via.f64);
		break;
	case MSGPACK_OBJECT_STR:
		print_text(print, &value->via.str, true);
		break;
	case MSGPACK_OBJECT_BIN:
		add(print, "<%u bytes>", (unsigned)value->via.bin.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		add(print, "[");
		for (uint32_t i = 0; i < value->via.array.size && !full(print); i++) {
			add(print, "%s", i > 0 ? "," : "");
			print_value(print, &value->via.array.ptr[i], depth + 1);
		}
		add(print, "]");
		break;
	case MSGPACK_OBJECT_MAP:
		add(print, "{");
		print_members(print, value, depth);
		add(print, "}");
		break;
	default:
		add(print, "nil");
		break;
	}
}

void wire_print(const msgpack_object *root, char *text, size_t size)
{
	struct print print = {text, size, 0};
	if (size == 0) {
		return;
	}
	text[0] = 0;
	if (root->type != MSGPACK_OBJECT_MAP) {
		print_value(&print, root, 0);
		return;
	}
	const msgpack_object *type = wire_get(root, "t");
	if (type != NULL && type->type == MSGPACK_OBJECT_STR) {
		print_text(&print, &type->via.str, false);
	}
	add(&print, "(");
	print_members(&print, root, 0);
	add(&print, ")");
}
