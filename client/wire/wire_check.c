/*
 * wire_check.c: checks and decodes messages.  It must know neither sockets nor requests.
 *
 * msgpack-c trusts counts: an array header of five bytes makes it ask for 128 GB.  So scan() walks
 * every message once, for bounds alone, before msgpack-c decodes it.
 */
#include "wire.h"

#include <kiln/kiln.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The values or bytes that follow a first byte. */
struct head {
	size_t skip;     /* bytes of the head after its first byte, plus the body */
	uint64_t values; /* that follow inside */
	bool container;
};

static uint64_t big_endian(const uint8_t *p, size_t bytes)
{
	uint64_t value = 0;
	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | p[i];
	return value;
}

/* Returns how many bytes follow a scalar's first byte; -1 for other values. */
static int scalar_bytes(uint8_t b)
{
	if (b <= 0x7f || b >= 0xe0 || b == 0xc0 || b == 0xc2 || b == 0xc3)
		return 0;
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

/* Returns the bytes of the length field of a string, binary or container of variable length; 0 for
 * others. */
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

/* Reads the head at p, where left is at least 1.  Returns NULL, or a sentence about what is wrong.
 */
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
		if (left - 1 < field)
			return "it ends inside a length";
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
	if (head->skip > left - 1)
		return "it ends inside a value";
	return head->values > left - 1 - head->skip ? "a count is larger than the message" : NULL;
}

/* Walks a message of at most so many values.  Returns NULL, or a sentence about what is wrong at
 * *at. */
static const char *scan(const uint8_t *data, size_t size, uint64_t most, size_t *at)
{
	uint64_t open[WIRE_MAX_DEPTH]; /* values still to come, from the outermost inwards */
	size_t depth = 0;
	uint64_t seen = 0;

	*at = 0;
	if (size == 0)
		return "it is empty";
	if (!((data[0] & 0xf0) == 0x80 || data[0] == 0xde || data[0] == 0xdf))
		return "it is no map";
	for (;;) {
		struct head head;
		if (*at == size)
			return "it ends before its last value";
		const char *wrong = read_head(data + *at, size - *at, &head);
		if (wrong)
			return wrong;
		if (++seen > most)
			return "it holds too many values";
		if (head.container && depth == WIRE_MAX_DEPTH)
			return "it is nested too deeply";
		*at += 1 + head.skip;
		if (head.container)
			open[depth++] = head.values;
		while (depth > 0 && open[depth - 1] == 0)
			depth--;
		if (depth == 0)
			return *at == size ? NULL : "bytes follow its end";
		open[depth - 1]--;
	}
}

static int parse(struct wire_in *in, const void *data, size_t size, uint64_t most)
{
	size_t at, used = 0;
	memset(in, 0, sizeof(*in));
	in->root.type = MSGPACK_OBJECT_NIL;
	const char *wrong = scan(data, size, most, &at);
	if (wrong) {
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

int wire_parse(struct wire_in *in, const void *data, size_t size)
{
	return parse(in, data, size, WIRE_MAX_VALUES);
}

int wire_parse_asked(struct wire_in *in, const void *data, size_t size)
{
	return parse(in, data, size, WIRE_MAX_ASKED);
}

void wire_in_free(struct wire_in *in)
{
	if (in->zone)
		msgpack_zone_free(in->zone);
	in->zone = NULL;
	in->root.type = MSGPACK_OBJECT_NIL;
}
