/*
 * wire_print.c: prints a message as a readable call, for debugging.
 */
#include "wire.h"
#include "plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct print {
	char *text;
	size_t size, used;
};

static void wire_print_add(struct print *print, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void wire_print_add(struct print *print, const char *format, ...)
{
	size_t room = print->size - print->used;
	va_list list;
	va_start(list, format);
	int n = vsnprintf(print->text + print->used, room, format, list);
	va_end(list);
	if (n > 0)
		print->used += (size_t)n < room ? (size_t)n : room - 1;
}

/* True: anything more would be cut. */
static bool full(const struct print *print)
{
	return print->used + 1 >= print->size;
}

static void print_text(struct print *print, const msgpack_object_str *text, bool quoted)
{
	const char *quote = quoted ? "\"" : "";
	wire_print_add(print, "%s", quote);
	for (uint32_t i = 0; i < text->size && !full(print);) {
		char c = text->ptr[i], shown[PLAIN_SHOWN];
		i += (uint32_t)plain_show(text->ptr + i, text->size - i, PLAIN_TEXT, shown);
		if (c == '\n')
			wire_print_add(print, "\\n");
		else if (quoted && (c == '"' || c == '\\'))
			wire_print_add(print, "\\%c", c);
		else if (c == '\t' || c == '\r')
			wire_print_add(print, "\\x%02x", c);
		else
			wire_print_add(print, "%s", shown);
	}
	wire_print_add(print, "%s", quote);
}

static void print_value(struct print *print, const msgpack_object *value, int depth);

/* Prints members "key=value", without the type of the whole message, which the caller has printed.
 */
static void print_members(struct print *print, const msgpack_object *map, int depth)
{
	bool first = true;
	for (uint32_t i = 0; i < map->via.map.size && !full(print); i++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[i];
		bool text = kv->key.type == MSGPACK_OBJECT_STR;
		if (depth == 0 && text && kv->key.via.str.size == 1 && kv->key.via.str.ptr[0] == 't')
			continue;
		wire_print_add(print, "%s", first ? "" : ", ");
		first = false;
		if (text)
			print_text(print, &kv->key.via.str, false);
		else
			print_value(print, &kv->key, depth + 1);
		wire_print_add(print, "=");
		print_value(print, &kv->val, depth + 1);
	}
}

static void print_value(struct print *print, const msgpack_object *value, int depth)
{
	if (full(print) || depth > WIRE_MAX_DEPTH)
		return;
	switch (value->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		wire_print_add(print, "%s", value->via.boolean ? "true" : "false");
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		wire_print_add(print, "%llu", (unsigned long long)value->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		wire_print_add(print, "%lld", (long long)value->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		wire_print_add(print, "%g", value->via.f64);
		break;
	case MSGPACK_OBJECT_STR:
		print_text(print, &value->via.str, true);
		break;
	case MSGPACK_OBJECT_BIN:
		wire_print_add(print, "<%u bytes>", (unsigned)value->via.bin.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		wire_print_add(print, "[");
		for (uint32_t i = 0; i < value->via.array.size && !full(print); i++) {
			wire_print_add(print, "%s", i > 0 ? "," : "");
			print_value(print, &value->via.array.ptr[i], depth + 1);
		}
		wire_print_add(print, "]");
		break;
	case MSGPACK_OBJECT_MAP:
		wire_print_add(print, "{");
		print_members(print, value, depth);
		wire_print_add(print, "}");
		break;
	default:
		wire_print_add(print, "nil");
		break;
	}
}

void wire_print(const msgpack_object *root, char *text, size_t size)
{
	struct print print = {text, size, 0};
	if (size == 0)
		return;
	text[0] = 0;
	if (root->type != MSGPACK_OBJECT_MAP) {
		print_value(&print, root, 0);
		return;
	}
	const msgpack_object *type = wire_get(root, "t");
	if (type && type->type == MSGPACK_OBJECT_STR)
		print_text(&print, &type->via.str, false);
	wire_print_add(&print, "(");
	print_members(&print, root, 0);
	wire_print_add(&print, ")");
}
