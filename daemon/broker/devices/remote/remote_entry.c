/*
 * remote_entry.c: an entry of the second tier is a row of the cache as the database has it, and the
 * seal behind it.  The seal proves who made the row; the text that its key is the hash of proves
 * that it stands under its own key.
 */
#include "remote_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

#define PURPOSE "row 1"

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
