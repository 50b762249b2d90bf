/*
 * seal: who made these bytes, and are they still the same?  Key pairs (Ed25519, by libsodium), the
 * directory of those that are trusted, and the seal, which stands behind what was sealed.
 *
 * For kernels that come from other machines: packs (cache/pack.c) and rows of a shared tier.  Knows
 * nothing of what it seals, of sockets or of time: the caller says what time it is.
 *
 * Whoever has the secret half of a trusted key can give this daemon kernels to run: a trusted key
 * is trusted with everything that the daemon's user may do.
 *
 * Files: DIRECTORY/NAME.key, the secret half, of mode 0600, and NAME.pub, the public one, each a
 * line of text.  A directory of trusted keys holds NAME.pub files and nothing else that counts.
 */
#ifndef KILN_DAEMON_SEAL_H
#define KILN_DAEMON_SEAL_H

#include "daemon/plan/kernel.h"

#define SEAL_NAME_MAX 49 /* with its zero byte: A-Z a-z 0-9 . _ -, none of . - first */
#define SEAL_ID_HEX 17   /* 16 digits, the beginning of the hash of the public key */
#define SEAL_LINE_MAX 160

struct seal_key {
	char name[SEAL_NAME_MAX];
	char id[SEAL_ID_HEX];
	unsigned char public[32];
};

/* ---- Key pairs ---- */

struct seal_secret {
	struct seal_key key;
	unsigned char secret[64]; /* seal_forget() wipes it */
};

/* KILN_OK, or KILN_EINVAL with a sentence. */
int seal_check_name(const char *name, char error[KERNEL_ERROR_MAX]);
/* Makes a pair in a directory, which is made 0700 if missing.  KILN_OK; KILN_EINVAL for a name that
 * is none, KILN_EBUSY where there is one of that name, KILN_EIO; with a sentence. */
int seal_new(const char *directory, const char *name, struct seal_key *out,
			 char error[KERNEL_ERROR_MAX]);
/* The secret half; the process leaves no core file from then on.  name NULL: the only one there is.
 * KILN_ENOENT says how to make one, KILN_EPERM whose mode or owner lets others have it, KILN_EINVAL
 * that the file holds no key, or that without a name there are several. */
int seal_open(const char *directory, const char *name, struct seal_secret *out,
			  char error[KERNEL_ERROR_MAX]);
void seal_forget(struct seal_secret *secret);

/* Keys by their names, of a directory: those with a secret half, or the public ones.  A directory
 * that is not there has none.  What is no key is passed over with a line in the log. */
typedef void (*seal_visit)(const struct seal_key *key, void *arg);
int seal_each(const char *directory, bool secrets, seal_visit visit, void *arg,
			  char error[KERNEL_ERROR_MAX]);

/* The public half as a line of text, without its end, which goes to other hosts; and back: KILN_OK,
 * KILN_EINVAL with a sentence. */
void seal_line(const struct seal_key *key, char line[SEAL_LINE_MAX]);
int seal_read_line(const char *line, struct seal_key *out, char error[KERNEL_ERROR_MAX]);

/* ---- Trust ---- */

/* Adds a key to those that are trusted.  The same once more is fine; KILN_EBUSY: another one has
 * its name; KILN_EINVAL, KILN_EIO. */
int seal_trust(const char *directory, const struct seal_key *key, char error[KERNEL_ERROR_MAX]);
/* Removes one, by name or id, by whatever other names it is trusted, too.  KILN_ENOENT. */
int seal_distrust(const char *directory, const char *name, struct seal_key *out,
				  char error[KERNEL_ERROR_MAX]);

/* The trusted keys as they are now.  KILN_OK, also without a directory: then nobody is trusted.
 * KILN_EPERM: others may write to the directory or a file; KILN_EIO, KILN_ENOMEM. */
struct seal_ring;
int seal_ring_open(const char *directory, struct seal_ring **out, char error[KERNEL_ERROR_MAX]);
int seal_ring_count(const struct seal_ring *ring);
void seal_ring_free(struct seal_ring *ring);

/* ---- Seals ---- */

/*
 * A seal is SEAL_BYTES that say: key so-and-so sealed so many bytes with this hash, for this
 * purpose, at this time, until that one.  purpose: "pack 1", "row 1": a seal for another is none
 * for this.  It is no part of the seal and must be known.
 */
#define SEAL_BYTES 144

struct seal_content {
	uint64_t bytes;
	unsigned char digest[32]; /* by util_hash */
};
/* when, until: seconds since 1970; until 0: for ever. */
void seal_make(const struct seal_secret *secret, const char *purpose,
			   const struct seal_content *content, int64_t when, int64_t until,
			   unsigned char out[SEAL_BYTES]);

struct seal_signer {
	char name[SEAL_NAME_MAX]; /* as the directory of trusted keys calls it */
	char id[SEAL_ID_HEX];
	int64_t when, until;
};
/*
 * What bytes behind something say of it.  KILN_OK, and out is who sealed it and when; else
 * KILN_EPERM with one of the sentences "... is not sealed", "... was sealed by key ID, which is not
 * trusted here: ...", "... was altered after key NAME (ID) sealed it", "... sealed by key NAME (ID)
 * expired ...".  what: how sentences call it, "the pack k.pack".
 */
int seal_check(const struct seal_ring *ring, const char *purpose, const char *what,
			   const struct seal_content *content, const unsigned char seal[SEAL_BYTES],
			   int64_t now, struct seal_signer *out, char error[KERNEL_ERROR_MAX]);

/* The same for bytes in memory, as a record: the bytes, and the seal behind them.  *record is
 * malloc'd; false without memory.  The bytes of a record that is opened are its first *bytes. */
bool seal_record(const struct seal_secret *secret, const char *purpose, const void *bytes,
				 size_t size, int64_t when, int64_t until, void **record, size_t *record_size);
int seal_record_open(const struct seal_ring *ring, const char *purpose, const char *what,
					 const void *record, size_t record_size, int64_t now, size_t *bytes,
					 struct seal_signer *out, char error[KERNEL_ERROR_MAX]);

#endif
