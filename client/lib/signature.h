/*
 * signature.h: the calls that kiln_run has prepared and keeps, by their signatures: all that a
 * kernel is chosen by (the operator, the tensors' element types, shapes, strides and alignments,
 * the attributes), and nothing of where the data lie.  Must not know what a call is.
 *
 * The table holds at most SIGNATURE_CALLS calls and SIGNATURE_BYTES of keys; the one that was used
 * longest ago makes room.  Looking one up takes no memory.
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
	/* The signature that was asked for last. */
	uint64_t hash;
	size_t words;
	uint64_t key[SIGNATURE_WORDS];
};

struct signatures *signatures_new(void); /* NULL without memory */
/* Takes NULL; the table must be empty. */
void signatures_free(struct signatures *table);
/*
 * Makes the signature of these arguments the one that the functions below are about.  False: they
 * have none, because they are wrong, and preparing them says how, or longer than is remembered.
 */
bool signature_ask(struct signatures *table, const kiln_client *client, const char *op,
				   const kiln_tensor *tensors, int tensor_count, const kiln_attr *attrs,
				   int attr_count);
/* Its call, which is then the newest; or NULL. */
struct kiln_call *signature_find(struct signatures *table);
/* Its call must be none of the table's so far, and there must be room; false without memory. */
bool signature_remember(struct signatures *table, struct kiln_call *call);
/* Whether that needs another to be forgotten before. */
bool signature_is_full(const struct signatures *table);
/* Takes the oldest out: the caller's to release; NULL: there is none. */
struct kiln_call *signature_forget_oldest(struct signatures *table);

#endif
