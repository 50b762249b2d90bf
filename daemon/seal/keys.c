/*
 * keys.c: makes and reads keys as files.  A file is one line of text, so that people can look at a
 * public half, mail it and compare it.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUBLIC_WORDS "kiln-public-key 1 "
#define SECRET_WORDS "kiln-secret-key 1 "
#define SECRET_HEX 128
#define PUBLIC_HEX 64

void seal_id_bytes(const unsigned char public[32], unsigned char id[SEAL_ID_BYTES])
{
	unsigned char digest[32];
	util_hash_bytes(public, 32, digest);
	memcpy(id, digest, SEAL_ID_BYTES);
}

static void set_id(struct seal_key *key)
{
	unsigned char id[SEAL_ID_BYTES];
	seal_id_bytes(key->public, id);
	util_hex(id, sizeof(id), key->id);
}

bool seal_is_name(const char *name)
{
	size_t size = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
	return size > 0 && size < SEAL_NAME_MAX && !name[size] && name[0] != '.' && name[0] != '-';
}

int seal_check_name(const char *name, char error[KERNEL_ERROR_MAX])
{
	if (seal_is_name(name))
		return KILN_OK;
	return FAIL(KILN_EINVAL,
				"\"%.*s\" is no name of a key: 1 to %d of letters, digits, '.', '_' and '-', and "
				"neither '.' nor '-' first",
				PLAIN_CUT(name, 80), SEAL_NAME_MAX - 1);
}

int seal_path_of(const char *directory, const char *name, const char *ending, char path[PATH_MAX],
				 char error[KERNEL_ERROR_MAX])
{
	int size = snprintf(path, PATH_MAX, "%s/%s%s", directory, name, ending);
	return size < PATH_MAX ? KILN_OK : FAIL(KILN_EINVAL, "%.200s is too long a path", directory);
}

/* Reads so many digits as bytes, and moves *at behind them. */
static bool take_hex(const char **at, size_t digits, unsigned char *out)
{
	size_t bytes;
	const char *end;
	if (strspn(*at, "0123456789abcdef") != digits ||
		sodium_hex2bin(out, digits / 2, *at, digits, NULL, &bytes, &end) != 0 ||
		bytes != digits / 2)
		return false;
	*at += digits;
	return true;
}

void seal_line(const struct seal_key *key, char line[SEAL_LINE_MAX])
{
	char hex[PUBLIC_HEX + 1];
	util_hex(key->public, sizeof(key->public), hex);
	snprintf(line, SEAL_LINE_MAX, PUBLIC_WORDS "%s %s", hex, key->name);
}

int seal_read_line(const char *line, struct seal_key *out, char error[KERNEL_ERROR_MAX])
{
	const char *at = line;
	size_t size = strlen(PUBLIC_WORDS);
	struct seal_key key = {.name = ""};
	bool good = strncmp(at, PUBLIC_WORDS, size) == 0;
	at += good ? size : 0;
	good = good && take_hex(&at, PUBLIC_HEX, key.public) && *at++ == ' ';
	size = good ? strcspn(at, "\n") : 0;
	if (!good || size >= sizeof(key.name) || (at[size] && at[size + 1])) {
		return FAIL(KILN_EINVAL,
					"\"%.*s\" is no public key: it is a line \"" PUBLIC_WORDS
					"<%d digits> <name>\"",
					(int)(strcspn(line, "\n") < 60 ? strcspn(line, "\n") : 60), line, PUBLIC_HEX);
	}
	memcpy(key.name, at, size);
	int status = seal_check_name(key.name, error);
	if (status == KILN_OK) {
		set_id(&key);
		*out = key;
	}
	return status;
}

/* ---- Files ---- */

int seal_write_file(const char *path, const char *line, unsigned mode, char error[KERNEL_ERROR_MAX])
{
	char temporary[PATH_MAX + 16];
	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	int fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return FAIL(KILN_EIO, "%.200s: %s", temporary, strerror(errno));
	size_t size = strlen(line);
	bool good = fchmod(fd, (mode_t)mode) == 0 && write(fd, line, size) == (ssize_t)size &&
				write(fd, "\n", 1) == 1 && fsync(fd) == 0;
	int saved = errno;
	close(fd);
	/* link() lets one of two processes win that make the same key at once. */
	if (good && link(temporary, path) != 0) {
		good = false;
		saved = errno;
	}
	unlink(temporary);
	if (good)
		return KILN_OK;
	return saved == EEXIST ? FAIL(KILN_EBUSY, "there is a key %.200s already", path)
						   : FAIL(KILN_EIO, "%.200s: %s", path, strerror(saved));
}

/* Checks a file's owner and mode: a user who can write to it decides whose kernels run here, and
 * one who can read a secret can sign.  others: the bits that the mode must not have. */
static int seal_check_mode(const char *path, unsigned others, char error[KERNEL_ERROR_MAX])
{
	struct stat status;
	if (stat(path, &status) != 0)
		return FAIL(errno == ENOENT ? KILN_ENOENT : KILN_EIO, "%.200s: %s", path, strerror(errno));
	if (status.st_uid != geteuid() && status.st_uid != 0) {
		return FAIL(KILN_EPERM, "%.200s belongs to uid %u: keys must be one's own", path,
					(unsigned)status.st_uid);
	}
	if (status.st_mode & others) {
		return FAIL(KILN_EPERM, "%.200s has mode %03o, which lets others %s it: chmod go-%s it",
					path, (unsigned)status.st_mode & 0777, others & 044 ? "read" : "write to",
					others & 044 ? "rwx" : "w");
	}
	return KILN_OK;
}

/* Checks one of the directories above a directory of keys. */
static int check_parent(const char *path, const char *directory, char error[KERNEL_ERROR_MAX])
{
	struct stat status;
	if (stat(path, &status) != 0)
		return FAIL(KILN_EIO, "%.200s: %s", path, strerror(errno));
	bool others_write = status.st_mode & (S_IWGRP | S_IWOTH);
	bool sticky = status.st_mode & S_ISVTX;
	if ((status.st_uid == geteuid() || status.st_uid == 0) && (!others_write || sticky))
		return KILN_OK;
	return FAIL(KILN_EPERM,
				"%.100s, which %.100s lies in, belongs to uid %u with mode %03o: others could put "
				"other keys there; chmod go-w it, or keep keys elsewhere",
				path, directory, (unsigned)status.st_uid, (unsigned)status.st_mode & 0777);
}

int seal_check_place(const char *directory, char error[KERNEL_ERROR_MAX])
{
	char path[PATH_MAX], *slash;
	int status = seal_check_mode(directory, 022, error);
	if (status == KILN_OK && !realpath(directory, path))
		status = FAIL(KILN_EIO, "%.200s: %s", directory, strerror(errno));
	while (status == KILN_OK && (slash = strrchr(path, '/')) && slash[1]) {
		slash[slash == path] = 0; /* "/" keeps its one */
		status = check_parent(path, directory, error);
	}
	return status;
}

int seal_make_directory(const char *directory, char error[KERNEL_ERROR_MAX])
{
	if (util_make_directories(directory, 0700) == 0)
		return KILN_OK;
	return FAIL(KILN_EIO, "%.200s cannot be made: %s", directory, strerror(errno));
}

int seal_read_secret(const char *path, const char *name, struct seal_secret *out,
					 char error[KERNEL_ERROR_MAX])
{
	struct seal_secret secret = {.key.name = ""};
	size_t words = strlen(SECRET_WORDS);
	int status = seal_check_mode(path, 077, error);
	if (status != KILN_OK)
		return status;
	util_keep_secrets();
	char *text = util_read_file(path, 4096, NULL);
	if (!text)
		return FAIL(KILN_EIO, "%.200s: %s", path, strerror(errno));
	const char *at = text + words;
	bool good = strncmp(text, SECRET_WORDS, words) == 0 &&
				take_hex(&at, SECRET_HEX, secret.secret) && *at == '\n' && !at[1];
	sodium_memzero(text, strlen(text));
	free(text);
	if (!good) {
		seal_forget(&secret);
		return FAIL(KILN_EINVAL, "%.200s holds no secret key: `kiln key new` makes one", path);
	}
	crypto_sign_ed25519_sk_to_pk(secret.key.public, secret.secret);
	snprintf(secret.key.name, sizeof(secret.key.name), "%s", name);
	set_id(&secret.key);
	*out = secret;
	seal_forget(&secret);
	return KILN_OK;
}

int seal_read_public(const char *path, const char *name, struct seal_key *out,
					 char error[KERNEL_ERROR_MAX])
{
	struct seal_key key;
	int status = seal_check_mode(path, 022, error);
	if (status != KILN_OK)
		return status;
	char *text = util_read_file(path, 4096, NULL);
	if (!text)
		return FAIL(KILN_EIO, "%.200s: %s", path, strerror(errno));
	status = seal_read_line(text, &key, error);
	free(text);
	if (status == KILN_OK) {
		/* The key's name here may differ from the name that its owner gave it. */
		snprintf(key.name, sizeof(key.name), "%s", name);
		*out = key;
	}
	return status;
}

/* ---- Pairs ---- */

void seal_forget(struct seal_secret *secret)
{
	sodium_memzero(secret, sizeof(*secret));
}

static int write_pair(const char *directory, const struct seal_secret *secret,
					  char error[KERNEL_ERROR_MAX])
{
	char private[PATH_MAX], public[PATH_MAX], line[SEAL_LINE_MAX], hex[SECRET_HEX + 1];
	char text[sizeof(SECRET_WORDS) + SECRET_HEX];
	int status = seal_path_of(directory, secret->key.name, ".key", private, error);
	if (status == KILN_OK)
		status = seal_path_of(directory, secret->key.name, ".pub", public, error);
	if (status != KILN_OK)
		return status;
	util_hex(secret->secret, sizeof(secret->secret), hex);
	snprintf(text, sizeof(text), SECRET_WORDS "%s", hex);
	status = seal_write_file(private, text, 0600, error);
	sodium_memzero(hex, sizeof(hex));
	sodium_memzero(text, sizeof(text));
	if (status != KILN_OK)
		return status;
	seal_line(&secret->key, line);
	status = seal_write_file(public, line, 0644, error);
	if (status != KILN_OK)
		unlink(private);
	return status;
}

int seal_new(const char *directory, const char *name, struct seal_key *out,
			 char error[KERNEL_ERROR_MAX])
{
	struct seal_secret secret = {.key.name = ""};
	int status = seal_check_name(name, error);
	if (status == KILN_OK)
		status = seal_make_directory(directory, error);
	if (status == KILN_OK)
		status = seal_check_place(directory, error);
	if (status != KILN_OK)
		return status;
	if (sodium_init() < 0)
		return FAIL(KILN_EIO, "libsodium does not start, so there are no random numbers for a key");
	snprintf(secret.key.name, sizeof(secret.key.name), "%s", name);
	util_keep_secrets();
	crypto_sign_keypair(secret.key.public, secret.secret);
	set_id(&secret.key);
	status = write_pair(directory, &secret, error);
	if (status == KILN_OK)
		*out = secret.key;
	seal_forget(&secret);
	return status;
}
