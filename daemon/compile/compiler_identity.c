/*
 * compiler_identity: who a compiler is, by the content of its files; and a cheap stamp that tells
 * whether the files are still those that were hashed.
 */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void add_number(struct util_hash *hash, uint64_t number)
{
	util_hash_add(hash, &number, sizeof(number));
}

bool identity_stamp(const char *const *paths, int count, char stamp[96])
{
	unsigned char digest[32];
	struct util_hash hash;

	util_hash_begin(&hash);
	for (int i = 0; i < count; i++) {
		struct stat st;

		if (stat(paths[i], &st) != 0)
			return false;
		util_hash_add(&hash, paths[i], strlen(paths[i]) + 1);
		add_number(&hash, (uint64_t)st.st_dev);
		add_number(&hash, (uint64_t)st.st_ino);
		add_number(&hash, (uint64_t)st.st_size);
		add_number(&hash, (uint64_t)st.st_mtim.tv_sec);
		add_number(&hash, (uint64_t)st.st_mtim.tv_nsec);
		add_number(&hash, (uint64_t)st.st_ctim.tv_sec);
		add_number(&hash, (uint64_t)st.st_ctim.tv_nsec);
	}
	util_hash_end(&hash, digest);
	util_hex(digest, 16, stamp);
	return true;
}

static bool hash_files(const char *const *paths, int count, const char *extra,
					   char hex[KERNEL_KEY_HEX])
{
	unsigned char digest[32];
	struct util_hash hash;

	util_hash_begin(&hash);
	for (int i = 0; i < count; i++) {
		if (!util_hash_file(paths[i], digest))
			return false;
		util_hash_add(&hash, digest, sizeof(digest));
	}
	util_hash_add(&hash, extra, strlen(extra));
	util_hash_end(&hash, digest);
	util_hex(digest, sizeof(digest), hex);
	return true;
}

static const char *known_id(const char *variable, const char *stamp)
{
	const char *value = getenv(variable);
	size_t size = strlen(stamp);

	if (!value || size == 0 || strncmp(value, stamp, size) != 0 || value[size] != ':')
		return NULL;
	value += size + 1;
	return value[0] && strlen(value) < sizeof((struct compile_toolchain *)0)->id ? value : NULL;
}

int identity_find(const char *variable, const char *const *paths, int count, const char *extra,
				  struct compile_toolchain *out, char hex[KERNEL_KEY_HEX])
{
	const char *known;

	if (!identity_stamp(paths, count, out->stamp))
		return util_fail(out->reason, sizeof(out->reason), KILN_ENOTSUP, "cannot look at %.200s",
						 paths[0]);
	known = known_id(variable, out->stamp);
	if (known)
		snprintf(out->id, sizeof(out->id), "%s", known);
	else if (!hash_files(paths, count, extra, hex))
		return util_fail(out->reason, sizeof(out->reason), KILN_ENOTSUP, "cannot read %.200s",
						 paths[0]);
	return KILN_OK;
}
