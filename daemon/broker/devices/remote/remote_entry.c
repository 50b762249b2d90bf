/*
 * remote_entry.c: an entry of the second tier is a row of the cache as the database has it, and the
 * seal behind it.  The seal proves who made the row; the text that its key is the hash of proves
 * that it stands under its own key.  A winner of tuning is one as packs have it, and a seal; it
 * names its class.
 */
#include "remote_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

#define PURPOSE "row 1"
#define PURPOSE_WINNER "winner 1"
#define CLOCKS_DIFFER_S 86400 /* a winner of a later day than this would never be replaced */

int remote_entry_make(const struct seal_secret *secret, const struct cache_row *row, int64_t now,
					  uint64_t seconds, void **entry, size_t *bytes)
{
	void *blob;
	size_t size;
	int status = cache_row_encode(row, &blob, &size);
	if (status != KILN_OK)
		return status;
	if (size > REMOTE_ENTRY_MOST - SEAL_BYTES) {
		free(blob);
		return KILN_ELIMIT;
	}
	bool made = seal_record(secret, PURPOSE, blob, size, now, seconds ? now + (int64_t)seconds : 0,
							entry, bytes);
	free(blob);
	return made ? KILN_OK : KILN_ENOMEM;
}

static bool is_key_of(const char *key, const char *text)
{
	unsigned char digest[32];
	char hex[KERNEL_KEY_HEX];
	struct util_hash hash;
	util_hash_begin(&hash);
	util_hash_add(&hash, text, strlen(text));
	util_hash_end(&hash, digest);
	util_hex(digest, sizeof(digest), hex);
	return !strcmp(hex, key);
}

int remote_entry_open(const struct seal_ring *trusted, const char *key, const char *target,
					  const void *entry, size_t bytes, int64_t now, struct cache_row *out,
					  char error[KERNEL_ERROR_MAX])
{
	char what[64];
	struct seal_signer signer;
	struct cache_row row;
	size_t size;
	snprintf(what, sizeof(what), "the entry of kernel %.12s", key);
	int status = seal_record_open(trusted, PURPOSE, what, entry, bytes, now, &size, &signer, error);
	if (status == KILN_OK)
		status = cache_row_decode(entry, size, &row, error);
	if (status != KILN_OK)
		return status;
	const char *why = NULL;
	if (strcmp(row.key, key) != 0)
		why = "it is another kernel's";
	else if (!is_key_of(key, row.key_text))
		why = "its text is not the one that the key is the hash of";
	else if (strcmp(row.target, target) != 0)
		why = "it is for another target";
	if (!why) {
		*out = row;
		return KILN_OK;
	}
	cache_row_free(&row);
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "%s, sealed by key %s (%s): %s", what,
					 signer.name, signer.id, why);
}

/* ---- Winners ---- */

/* The seal is for ever, since looks keep a winner there for as long as anybody uses it. */
int remote_winner_make(const struct seal_secret *secret, const struct cache_tuned *row, int64_t now,
					   void **entry, size_t *bytes)
{
	unsigned char plain[PACK_WINNER_MOST];
	size_t size = pack_winner_encode(row, plain);
	return seal_record(secret, PURPOSE_WINNER, plain, size, now, 0, entry, bytes) ? KILN_OK
																				  : KILN_ENOMEM;
}

int remote_winner_open(const struct seal_ring *trusted, const struct cache_tuned *place,
					   const void *entry, size_t bytes, int64_t now, struct cache_tuned *out,
					   char error[KERNEL_ERROR_MAX])
{
	char what[64];
	struct seal_signer signer;
	size_t size;
	snprintf(what, sizeof(what), "a winner of tuning of %.20s", place->op);
	int status =
		seal_record_open(trusted, PURPOSE_WINNER, what, entry, bytes, now, &size, &signer, error);
	if (status != KILN_OK)
		return status;
	const char *why = NULL;
	if (!pack_winner_decode(entry, size, out))
		why = "it is damaged";
	else if (strcmp(out->op, place->op) != 0 || strcmp(out->model, place->model) != 0 ||
			 strcmp(out->target, place->target) != 0 ||
			 strcmp(out->signature, place->signature) != 0)
		why = "it is another class's";
	else if (out->when > now + CLOCKS_DIFFER_S)
		why = "it was tuned in the future";
	if (!why)
		return KILN_OK;
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "%s, sealed by key %s (%s): %s", what,
					 signer.name, signer.id, why);
}
