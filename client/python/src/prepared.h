/*
 * prepared.h: a connection's prepared calls, found by the signature of a call: operator, dtypes,
 * shapes, strides, attributes, and which outputs are wanted.
 */
#ifndef KILN_PYTHON_PREPARED_H
#define KILN_PYTHON_PREPARED_H

#include "extension.h"

#define KEY_WORDS 512

/* Each part says how long it is, so different calls never have one key. */
struct key {
	int count; /* beyond KEY_WORDS: the call is not kept */
	uint64_t hash;
	uint64_t words[KEY_WORDS];
};

static inline void key_put(struct key *key, uint64_t word)
{
	if (key->count < KEY_WORDS)
		key->words[key->count] = word;
	key->count++;
}

void key_put_text(struct key *key, const char *text);
void key_finish(struct key *key);

struct kind;

struct prepared_operand {
	bool there;
	bool made;      /* an output that the call makes: shape, dtype */
	int likeness;   /* enum likeness, of one that is made */
	bool packed;    /* of the host: its elements are copied one by one */
	uint64_t bytes; /* of a place, from its first element on */
	uint64_t room;  /* offset in the arena */
	kiln_dtype dtype;
	int rank;
	int64_t dims[KILN_MAX_RANK];
	PyObject *shape; /* a tuple, of one that is made */
	/* A tensor that has the output's shape and dtype and hardly any memory, where an output is made
	 * like it; of a kind and a device, which are no part of a signature. */
	PyObject *pattern;
	const struct kind *pattern_kind;
	int pattern_device;
};

struct prepared {
	struct prepared *next; /* in its bucket */
	struct prepared *newer, *older;
	int refs; /* the table, and each call that is under way */
	uint64_t hash;
	kiln_call *call;
	const kiln_client *client; /* of the call; only compared: it may be gone */
	uint64_t arena_bytes;
	int count;
	struct prepared_operand *operands;
	int words;
	uint64_t key[];
};

#define PREPARED_BUCKETS 1024
#define PREPARED_MOST 1024 /* calls of a connection; the least recently used goes first */

struct prepared_table {
	struct prepared *buckets[PREPARED_BUCKETS];
	struct prepared *newest, *oldest;
	int count;
};

/* Returns the call, with a reference for the caller, or NULL without an exception. */
struct prepared *prepared_find(struct prepared_table *table, const struct key *key);
/* Makes one of count operands, all zero, with a reference for the caller; in no table yet. */
struct prepared *prepared_new(const struct key *key, int count);
void prepared_add(struct prepared_table *table, struct prepared *prepared);
/* Takes it out of the table, if it is there. */
void prepared_remove(struct prepared_table *table, struct prepared *prepared);
void prepared_clear(struct prepared_table *table);
void prepared_unref(struct prepared *prepared);

#endif
