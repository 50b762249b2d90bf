/* hash.c: BLAKE2b with 32 bytes, and bytes as hexadecimal digits. */
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <unistd.h>

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(struct util_hash),
			   "struct util_hash must hold libsodium's state");
_Static_assert(_Alignof(crypto_generichash_state) <= _Alignof(struct util_hash),
			   "struct util_hash must be aligned as libsodium's state is");

static pthread_once_t sodium_once = PTHREAD_ONCE_INIT;

/* Lets libsodium choose its fastest code; if that fails, hashes are the same and slower. */
static void start_sodium(void)
{
	(void)!sodium_init();
}

static crypto_generichash_state *state(struct util_hash *hash)
{
	return (crypto_generichash_state *)(void *)hash->state;
}

void util_hash_begin(struct util_hash *hash)
{
	pthread_once(&sodium_once, start_sodium);
	crypto_generichash_init(state(hash), NULL, 0, 32);
}

void util_hash_add(struct util_hash *hash, const void *bytes, size_t size)
{
	if (size)
		crypto_generichash_update(state(hash), bytes, size);
}

void util_hash_end(struct util_hash *hash, unsigned char digest[32])
{
	crypto_generichash_final(state(hash), digest, 32);
}

void util_hex(const unsigned char *bytes, size_t size, char *hex)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < size; i++) {
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	hex[2 * size] = 0;
}

void util_hash_bytes(const void *bytes, size_t size, unsigned char digest[32])
{
	struct util_hash hash;
	util_hash_begin(&hash);
	util_hash_add(&hash, bytes, size);
	util_hash_end(&hash, digest);
}

void util_hash_hex(const void *bytes, size_t size, char hex[UTIL_HASH_HEX])
{
	unsigned char digest[32];
	util_hash_bytes(bytes, size, digest);
	util_hex(digest, sizeof(digest), hex);
}

bool util_hash_file(const char *path, unsigned char digest[32])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	struct util_hash hash;
	unsigned char buffer[16384];
	ssize_t got;
	util_hash_begin(&hash);
	for (;;) {
		got = read(fd, buffer, sizeof(buffer));
		if (got > 0)
			util_hash_add(&hash, buffer, (size_t)got);
		else if (got == 0 || errno != EINTR)
			break;
	}
	int saved = errno;
	close(fd);
	errno = saved;
	if (got < 0)
		return false;
	util_hash_end(&hash, digest);
	return true;
}
