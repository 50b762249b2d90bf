/*
 * seal.c: makes and checks seals.  Knows no files.
 *
 * A seal: 8 bytes of magic, a version, the key's id, when, until, the number of bytes and their
 * hash, and the signature; numbers are little endian.  The signature is over the hash of the
 * purpose and of all bytes before the signature, so no two purposes share one.
 */
#include "daemon/base/bytes.h"
#include "internal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEAL_MAGIC "KILNSEAL"
#define SEAL_VERSION 1
#define SEAL_DOMAIN "kiln seal 1\n"

enum {
	AT_MAGIC = 0,
	AT_VERSION = 8,
	AT_ID = 16,
	AT_WHEN = AT_ID + SEAL_ID_BYTES,
	AT_UNTIL = AT_WHEN + 8,
	AT_BYTES = AT_UNTIL + 8,
	AT_DIGEST = AT_BYTES + 8,
	AT_SIGNATURE = AT_DIGEST + 32,
	END = AT_SIGNATURE + 64,
};

_Static_assert(END == SEAL_BYTES, "a seal has its size");
_Static_assert(crypto_sign_BYTES == 64 && crypto_sign_PUBLICKEYBYTES == 32 &&
				   crypto_sign_SECRETKEYBYTES == 64,
			   "keys and signatures have the sizes of Ed25519");

/* Computes the digest that is signed. */
static void digest_of(const char *purpose, const unsigned char *seal, unsigned char digest[32])
{
	struct util_hash hash;
	util_hash_begin(&hash);
	util_hash_add(&hash, SEAL_DOMAIN, strlen(SEAL_DOMAIN));
	/* The zero byte ends the purpose. */
	util_hash_add(&hash, purpose, strlen(purpose) + 1);
	util_hash_add(&hash, seal, AT_SIGNATURE);
	util_hash_end(&hash, digest);
}

void seal_make(const struct seal_secret *secret, const char *purpose,
			   const struct seal_content *content, int64_t when, int64_t until,
			   unsigned char out[SEAL_BYTES])
{
	unsigned char digest[32];
	memcpy(out + AT_MAGIC, SEAL_MAGIC, 8);
	util_put_u64(out + AT_VERSION, SEAL_VERSION);
	seal_id_bytes(secret->key.public, out + AT_ID);
	util_put_u64(out + AT_WHEN, (uint64_t)when);
	util_put_u64(out + AT_UNTIL, (uint64_t)until);
	util_put_u64(out + AT_BYTES, content->bytes);
	memcpy(out + AT_DIGEST, content->digest, 32);
	digest_of(purpose, out, digest);
	crypto_sign_detached(out + AT_SIGNATURE, NULL, digest, sizeof(digest), secret->secret);
}

static int refuse_expired(const struct seal_key *key, const char *what, int64_t until,
						  char error[KERNEL_ERROR_MAX])
{
	time_t end = (time_t)until;
	struct tm parts;
	char date[32] = "long ago";
	if (gmtime_r(&end, &parts))
		strftime(date, sizeof(date), "on %Y-%m-%d", &parts);
	return FAIL(KILN_EPERM, "%.120s, sealed by key %s (%s), expired %s: it must be made anew", what,
				key->name, key->id, date);
}

int seal_check(const struct seal_ring *ring, const char *purpose, const char *what,
			   const struct seal_content *content, const unsigned char seal[SEAL_BYTES],
			   int64_t now, struct seal_signer *out, char error[KERNEL_ERROR_MAX])
{
	unsigned char digest[32];
	char id[SEAL_ID_HEX];
	if (memcmp(seal + AT_MAGIC, SEAL_MAGIC, 8) != 0 ||
		util_get_u64(seal + AT_VERSION) != SEAL_VERSION) {
		return FAIL(KILN_EPERM, "%.120s is not sealed: it does not end in a seal of version %d",
					what, SEAL_VERSION);
	}
	util_hex(seal + AT_ID, SEAL_ID_BYTES, id);
	const struct seal_key *key = NULL;
	for (int i = 0; i < ring->count && !key; i++)
		key = strcmp(ring->keys[i].id, id) == 0 ? &ring->keys[i] : NULL;
	if (!key) {
		return FAIL(KILN_EPERM,
					"%.120s was sealed by key %s, which is not trusted here: `kiln key trust` "
					"takes its public half",
					what, id);
	}
	digest_of(purpose, seal, digest);
	if (crypto_sign_verify_detached(seal + AT_SIGNATURE, digest, sizeof(digest), key->public) !=
			0 ||
		util_get_u64(seal + AT_BYTES) != content->bytes ||
		memcmp(seal + AT_DIGEST, content->digest, 32) != 0)
		return FAIL(
			KILN_EPERM,
			"%.120s was altered after key %s (%s) sealed it, or is not what it is taken for", what,
			key->name, key->id);
	out->when = (int64_t)util_get_u64(seal + AT_WHEN);
	out->until = (int64_t)util_get_u64(seal + AT_UNTIL);
	if (out->until && out->until < now)
		return refuse_expired(key, what, out->until, error);
	memcpy(out->name, key->name, sizeof(out->name));
	memcpy(out->id, key->id, sizeof(out->id));
	return KILN_OK;
}

/* ---- Records ---- */

bool seal_record(const struct seal_secret *secret, const char *purpose, const void *bytes,
				 size_t size, int64_t when, int64_t until, void **record, size_t *record_size)
{
	struct seal_content content = {.bytes = size};
	unsigned char *out = size <= SIZE_MAX - SEAL_BYTES ? malloc(size + SEAL_BYTES) : NULL;
	if (!out)
		return false;
	util_hash_bytes(bytes, size, content.digest);
	if (size)
		memcpy(out, bytes, size);
	seal_make(secret, purpose, &content, when, until, out + size);
	*record = out;
	*record_size = size + SEAL_BYTES;
	return true;
}

int seal_record_open(const struct seal_ring *ring, const char *purpose, const char *what,
					 const void *record, size_t record_size, int64_t now, size_t *bytes,
					 struct seal_signer *out, char error[KERNEL_ERROR_MAX])
{
	struct seal_content content;
	if (record_size < SEAL_BYTES) {
		return FAIL(KILN_EPERM, "%.120s is not sealed: its %zu bytes are fewer than a seal has",
					what, record_size);
	}
	size_t size = record_size - SEAL_BYTES;
	content.bytes = size;
	util_hash_bytes(record, size, content.digest);
	int status = seal_check(ring, purpose, what, &content, (const unsigned char *)record + size,
							now, out, error);
	*bytes = status == KILN_OK ? size : 0;
	return status;
}
