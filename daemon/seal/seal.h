/*
 * seal: proves the maker of bytes, and that they are unchanged, for kernels of other machines:
 * packs (cache/pack.h) and entries of the second tier.  It has key pairs (Ed25519, by libsodium),
 * the directory of trusted keys, and the seal, which stands behind the sealed bytes.  Knows nothing
 * of their content, of sockets or of time: the caller says what time it is.
 *
 * The owner of a trusted key's secret half can give this daemon kernels to run: a trusted key is
 * trusted with everything that the daemon's user may do.
 *
 * Any thread may call these functions.  Those that return an int return KILN_OK, or a status with a
 * sentence in error.
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
	unsigned char secret[64]; /* its holder calls seal_forget() */
};

/* Checks the name of a key: KILN_OK, KILN_EINVAL. */
int seal_check_name(const char *name, char error[KERNEL_ERROR_MAX]);
/* Makes a pair in a directory, which is made 0700 if missing; out becomes its public half.
 * KILN_EINVAL: the name is none; KILN_EBUSY: there is a key of that name; KILN_EIO. */
int seal_new(const char *directory, const char *name, struct seal_key *out,
			 char error[KERNEL_ERROR_MAX]);
/* Reads a secret half, and keeps the process from leaving core files; the caller calls
 * seal_forget().  name NULL: the only key there is.  KILN_ENOENT; KILN_EPERM: a mode or an owner
 * lets others have it; KILN_EINVAL: the file holds no key, or there are several and no name. */
int seal_open(const char *directory, const char *name, struct seal_secret *out,
			  char error[KERNEL_ERROR_MAX]);
/* Wipes the secret. */
void seal_forget(struct seal_secret *secret);

/* Visits the keys of a directory by name: those with a secret half, or the public ones.  A missing
 * directory has none.  A file that holds no key is passed over with a line in the log. */
typedef void (*seal_visit)(const struct seal_key *key, void *arg);
int seal_each(const char *directory, bool secrets, seal_visit visit, void *arg,
			  char error[KERNEL_ERROR_MAX]);

/* Writes the public half as a line of text, without its end, for other hosts; and reads it:
 * KILN_OK, KILN_EINVAL. */
void seal_line(const struct seal_key *key, char line[SEAL_LINE_MAX]);
int seal_read_line(const char *line, struct seal_key *out, char error[KERNEL_ERROR_MAX]);

/* ---- Trust ---- */

/* Adds a key to the trusted ones, where it may be already.  KILN_EBUSY: another key has its name;
 * KILN_EINVAL, KILN_EPERM, KILN_EIO. */
int seal_trust(const char *directory, const struct seal_key *key, char error[KERNEL_ERROR_MAX]);
/* Removes a trusted key, found by name or id, under all its names; out becomes the
 * key.  KILN_ENOENT. */
int seal_distrust(const char *directory, const char *name, struct seal_key *out,
				  char error[KERNEL_ERROR_MAX]);

/* Reads the trusted keys as they are now; the caller frees the ring.  A missing directory makes an
 * empty ring.  KILN_EPERM: others may write to the directory; KILN_EIO, KILN_ENOMEM. */
struct seal_ring;
int seal_ring_open(const char *directory, struct seal_ring **out, char error[KERNEL_ERROR_MAX]);
int seal_ring_count(const struct seal_ring *ring);
void seal_ring_free(struct seal_ring *ring);

/* ---- Seals ---- */

/*
 * A seal is SEAL_BYTES that say: this key sealed so many bytes with this hash, for this purpose, at
 * this time, until that one.  The seal does not contain the purpose ("kiln pack 1"): the checker
 * knows it, and a seal for another purpose does not fit.
 */
#define SEAL_BYTES 144

struct seal_content {
	uint64_t bytes;
	unsigned char digest[32]; /* by util_hash */
};
/* Makes a seal.  when, until: seconds since 1970; until 0: for ever. */
void seal_make(const struct seal_secret *secret, const char *purpose,
			   const struct seal_content *content, int64_t when, int64_t until,
			   unsigned char out[SEAL_BYTES]);

struct seal_signer {
	char name[SEAL_NAME_MAX]; /* as the directory of trusted keys calls it */
	char id[SEAL_ID_HEX];
	int64_t when, until;
};
/*
 * Checks the seal of a content; out becomes its signer.  KILN_EPERM with one of the sentences "...
 * is not sealed", "... was sealed by key ID, which is not trusted here: ...", "... was altered
 * after key NAME (ID) sealed it", "... sealed by key NAME (ID) expired ...".  what: the content's
 * name in the sentence, "the pack k.pack".
 */
int seal_check(const struct seal_ring *ring, const char *purpose, const char *what,
			   const struct seal_content *content, const unsigned char seal[SEAL_BYTES],
			   int64_t now, struct seal_signer *out, char error[KERNEL_ERROR_MAX]);

/* Makes a record of bytes in memory: the bytes, and their seal behind them.  The caller frees
 * *record; false without memory.  seal_record_open() checks one: its first *bytes are the content.
 * */
bool seal_record(const struct seal_secret *secret, const char *purpose, const void *bytes,
				 size_t size, int64_t when, int64_t until, void **record, size_t *record_size);
int seal_record_open(const struct seal_ring *ring, const char *purpose, const char *what,
					 const void *record, size_t record_size, int64_t now, size_t *bytes,
					 struct seal_signer *out, char error[KERNEL_ERROR_MAX]);

#endif
