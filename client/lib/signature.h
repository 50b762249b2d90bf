/*
 * signature.h: the calls that kiln_run() keeps, by signature: everything that a kernel is chosen by
 * (the operator; the tensors' element types, shapes, strides and alignments; the attributes), and
 * nothing about where the data lie.  It must not know what a call is.
 *
 * The table holds at most SIGNATURE_CALLS calls and SIGNATURE_BYTES of keys.  The call that was
 * used longest ago makes room.  A look-up takes no memory.
 */
#ifndef KILN_CLIENT_SIGNATURE_H
#define KILN_CLIENT_SIGNATURE_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIGNATURE_CALLS 256
#define SIGNATURE_BYTES ((size_t)1 << 20)
#define SIGNATURE_WORDS 1024 /* of a key: more than any the daemon takes */
#define SIGNATURE_BUCKETS 512

struct kiln_call;
struct remembered;

struct signatures {
	struct remembered *buckets[SIGNATURE_BUCKETS];
	struct remembered *newest, *oldest; /* by use */
	size_t count, bytes;
	/* The current signature. */
	uint64_t hash;
	size_t words;
	uint64_t key[SIGNATURE_WORDS];
};

struct signatures *signatures_new(void); /* NULL without memory */
/* Takes NULL; the table must be empty. */
void signatures_free(struct signatures *table);
/*
 * Makes the signature of these arguments current, for the functions below.  False: there is none,
 * because the arguments are wrong (preparing them says how) or the key is too long.
 */
bool signature_ask(struct signatures *table, const kiln_client *client, const char *op,
				   const kiln_tensor *tensors, int tensor_count, const kiln_attr *attrs,
				   int attr_count);
/* The call of the current signature, which becomes the newest; or NULL. */
struct kiln_call *signature_find(struct signatures *table);
/* Adds the call for the current signature, which has none so far; there must be room.  False
 * without memory. */
bool signature_remember(struct signatures *table, struct kiln_call *call);
/* Whether adding one more needs a call to be forgotten first. */
bool signature_is_full(const struct signatures *table);
/* Removes the call that signature_find() has found, which is the caller's to release. */
void signature_forget_newest(struct signatures *table);
/* Removes the oldest call, which is the caller's to release; NULL: there is none. */
struct kiln_call *signature_forget_oldest(struct signatures *table);

#endif
