/*
 * wire.h: builds and reads messages for both sides and the daemon's children.  Each message is one
 * msgpack map.  It knows nothing of sockets (frame.h) or of a message's meaning (protocol.h).
 *
 * Reading never trusts a length: wire_parse() walks the bytes and checks every count against them
 * (and depth against WIRE_MAX_DEPTH) before msgpack-c sees them.
 */
#ifndef KILN_CLIENT_WIRE_H
#define KILN_CLIENT_WIRE_H

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAX_DEPTH 8
#define WIRE_MAX_VALUES \
	(1u << 20) /* most values of a message; a one-byte value decodes to 24 bytes */
#define WIRE_MAX_ASKED \
	(1u << 16) /* most values of a request; other clients wait while it is decoded */

/* ---- Building.  Errors (memory, depth) stick and are reported by wire_end(). ---- */

struct wire_out {
	msgpack_sbuffer buffer;
	msgpack_packer packer;
	struct {
		size_t at; /* where the 4 count bytes are */
		uint32_t count;
		bool is_map;
	} open[WIRE_MAX_DEPTH];
	int depth;
	int error;
	bool for_people; /* strings may quote anybody, so plain.h's rule is applied to them */
};

/* Starts a message: {"t": type, "id": id, ...}.  type NULL: an anonymous map without "t" and "id".
 */
void wire_begin(struct wire_out *out, const char *type, uint64_t id);
/* Adds a member.  Inside a list pass key NULL. */
void wire_put_int(struct wire_out *out, const char *key, int64_t value);
void wire_put_uint(struct wire_out *out, const char *key, uint64_t value);
void wire_put_real(struct wire_out *out, const char *key, double value);
void wire_put_bool(struct wire_out *out, const char *key, bool value);
void wire_put_str(struct wire_out *out, const char *key,
				  const char *value); /* NULL: nothing is added */
void wire_put_bin(struct wire_out *out, const char *key, const void *data, size_t bytes);
void wire_put_ints(struct wire_out *out, const char *key, const int64_t *values, int count);
/* Add an element to a list of macros, {"n": name, "v": value}, and to one of options, {"o": text}.
 * Kernels of users have them on their way to the daemon and to its compilers. */
void wire_put_macro(struct wire_out *out, const char *name, const char *value);
void wire_put_option(struct wire_out *out, const char *option);
/* Adds a copy of a value of another message. */
void wire_put_value(struct wire_out *out, const char *key, const msgpack_object *value);
void wire_map_begin(struct wire_out *out, const char *key);
void wire_map_end(struct wire_out *out);
void wire_list_begin(struct wire_out *out, const char *key);
void wire_list_end(struct wire_out *out);
/* Ends the message: out->buffer has its data and size until wire_out_free().  KILN_OK, KILN_ENOMEM
 * or KILN_EINTERNAL. */
int wire_end(struct wire_out *out);
/* Copies the message as if it ended here, while no list or map in it is open.  Its bytes; 0: it has
 * more, or cannot be built. */
size_t wire_copy(const struct wire_out *out, void *to, size_t most);
/* Frees the bytes, at any time after wire_begin(); twice is fine. */
void wire_out_free(struct wire_out *out);

/* ---- Reading.  Values point into the parsed message and live until wire_in_free(). ---- */

struct wire_in {
	msgpack_zone *zone;
	msgpack_object root; /* always a map */
	char why[160];       /* after a failed wire_parse: one sentence */
};

/* Checks and decodes; wire_in_free() frees the values.  data must outlive in.  KILN_OK, KILN_EPROTO
 * with in->why, or KILN_ENOMEM. */
int wire_parse(struct wire_in *in, const void *data, size_t size);
/* Like wire_parse(), for a request of a program that may be hostile, which may hold at most
 * WIRE_MAX_ASKED values. */
int wire_parse_asked(struct wire_in *in, const void *data, size_t size);
void wire_in_free(struct wire_in *in);

/* Returns the member of a map, or NULL (also when map is NULL or no map). */
const msgpack_object *wire_get(const msgpack_object *map, const char *key);
/* These return a member by type, or fallback if it is absent or of another type.  Integers also
 * accept reals without a fraction. */
int64_t wire_get_int(const msgpack_object *map, const char *key, int64_t fallback);
uint64_t wire_get_uint(const msgpack_object *map, const char *key,
					   uint64_t fallback); /* negative: fallback */
double wire_get_real(const msgpack_object *map, const char *key, double fallback);
bool wire_get_bool(const msgpack_object *map, const char *key, bool fallback);
/* Returns a zero-terminated copy in the message's zone; NULL if the member is absent, no string, or
 * has a zero byte inside. */
const char *wire_get_str(struct wire_in *in, const msgpack_object *map, const char *key);
/* Returns the bytes of a binary member, which are the message's; NULL if there is none. */
const void *wire_get_bin(const msgpack_object *map, const char *key, size_t *bytes);
/* Reads up to max integers.  Returns how many there are, which may exceed max; -1 if the member is
 * absent or no list of integers. */
int wire_get_ints(const msgpack_object *map, const char *key, int64_t *values, int max);
/* Returns the number of members of a list or map; 0 if value is NULL or another kind. */
uint32_t wire_count(const msgpack_object *value);
/* Returns element i of a list; NULL if i is out of range or list is none. */
const msgpack_object *wire_at(const msgpack_object *list, uint32_t i);

/* Members that every message has. */
const char *wire_type(struct wire_in *in);  /* "t", or "" */
uint64_t wire_id(const struct wire_in *in); /* "id", or 0 */

/* Writes a value as a readable call, cut at size: submit(id=7, call=3, operands=[[1,0],[2,0]]).
 * Binary becomes <n bytes>. */
void wire_print(const msgpack_object *root, char *text, size_t size);

#endif
