/*
 * ring.c: directories of keys: finds a secret, and adds, lists and removes trusted keys.  A key is
 * trusted if its public half is a file there; the file's name is the key's name here.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Takes the name of a key from that of its file.  False: it has another ending, or no such name. */
static bool key_file_name(const char *file, const char *ending, char name[SEAL_NAME_MAX])
{
	size_t size = strlen(file), end = strlen(ending);
	if (size <= end || strcmp(file + size - end, ending) != 0 || size - end >= SEAL_NAME_MAX)
		return false;
	memcpy(name, file, size - end);
	name[size - end] = 0;
	return seal_is_name(name);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct seal_key *)a)->name, ((const struct seal_key *)b)->name);
}

static int add_to_ring(struct seal_ring *ring, const struct seal_key *key)
{
	if (ring->count == ring->capacity) {
		int capacity = ring->capacity ? 2 * ring->capacity : 8;
		struct seal_key *grown = realloc(ring->keys, (size_t)capacity * sizeof(*grown));
		if (!grown)
			return KILN_ENOMEM;
		ring->keys = grown;
		ring->capacity = capacity;
	}
	ring->keys[ring->count++] = *key;
	return KILN_OK;
}

static int read_key(const char *directory, const char *name, bool secrets, struct seal_key *out,
					char error[KERNEL_ERROR_MAX])
{
	struct seal_secret secret;
	char path[PATH_MAX];
	int status = seal_path_of(directory, name, secrets ? ".key" : ".pub", path, error);
	if (status == KILN_OK && !secrets)
		return seal_read_public(path, name, out, error);
	if (status == KILN_OK)
		status = seal_read_secret(path, name, &secret, error);
	if (status == KILN_OK) {
		*out = secret.key;
		seal_forget(&secret);
	}
	return status;
}

static int read_directory(DIR *dir, const char *directory, bool secrets, struct seal_ring *ring,
						  char error[KERNEL_ERROR_MAX])
{
	struct dirent *entry;
	char why[KERNEL_ERROR_MAX];
	while ((entry = readdir(dir))) {
		char name[SEAL_NAME_MAX];
		struct seal_key key;
		if (!key_file_name(entry->d_name, secrets ? ".key" : ".pub", name))
			continue;
		if (ring->count == SEAL_MOST_KEYS)
			return FAIL(KILN_ELIMIT, "%.200s has more than %d keys", directory, SEAL_MOST_KEYS);
		if (read_key(directory, name, secrets, &key, why) != KILN_OK) {
			util_log(UTIL_WARN, "a key is passed over: %s", why);
			memcpy(ring->passed, why, sizeof(ring->passed));
		} else if (add_to_ring(ring, &key) != KILN_OK) {
			return FAIL(KILN_ENOMEM, "out of memory for the keys of %.200s", directory);
		}
	}
	return KILN_OK;
}

static int open_ring(const char *directory, bool secrets, struct seal_ring **out,
					 char error[KERNEL_ERROR_MAX])
{
	struct seal_ring *ring = calloc(1, sizeof(*ring));
	DIR *dir = ring ? opendir(directory) : NULL;
	int status = KILN_OK;
	if (!ring)
		return FAIL(KILN_ENOMEM, "out of memory for keys");
	if (dir)
		status = seal_check_place(directory, error);
	else if (errno != ENOENT)
		status = FAIL(KILN_EIO, "%.200s: %s", directory, strerror(errno));
	if (dir && status == KILN_OK)
		status = read_directory(dir, directory, secrets, ring, error);
	if (dir)
		closedir(dir);
	if (status != KILN_OK) {
		seal_ring_free(ring);
		return status;
	}
	if (ring->count)
		qsort(ring->keys, (size_t)ring->count, sizeof(*ring->keys), by_name);
	*out = ring;
	return KILN_OK;
}

int seal_each(const char *directory, bool secrets, seal_visit visit, void *arg,
			  char error[KERNEL_ERROR_MAX])
{
	struct seal_ring *ring;
	int status = open_ring(directory, secrets, &ring, error);
	if (status != KILN_OK)
		return status;
	for (int i = 0; i < ring->count; i++)
		visit(&ring->keys[i], arg);
	seal_ring_free(ring);
	return KILN_OK;
}

int seal_ring_open(const char *directory, struct seal_ring **out, char error[KERNEL_ERROR_MAX])
{
	return open_ring(directory, false, out, error);
}

int seal_ring_count(const struct seal_ring *ring)
{
	return ring->count;
}

void seal_ring_free(struct seal_ring *ring)
{
	if (ring) {
		free(ring->keys);
		free(ring);
	}
}

/* ---- One of them ---- */

static int only_one(const char *directory, char name[SEAL_NAME_MAX], char error[KERNEL_ERROR_MAX])
{
	struct seal_ring *ring;
	int status = open_ring(directory, true, &ring, error);
	if (status != KILN_OK)
		return status;
	if (ring->count == 1) {
		memcpy(name, ring->keys[0].name, SEAL_NAME_MAX);
	} else if (!ring->count && ring->passed[0]) {
		status =
			FAIL(KILN_EPERM, "there is no secret key but one that is not used: %s", ring->passed);
	} else if (ring->count) {
		status = FAIL(KILN_EINVAL,
					  "there are %d secret keys in %.150s (%s, %s, ...): say which one is meant",
					  ring->count, directory, ring->keys[0].name, ring->keys[1].name);
	} else {
		status = FAIL(KILN_ENOENT,
					  "there is no secret key in %.200s: `kiln key new NAME` makes one", directory);
	}
	seal_ring_free(ring);
	return status;
}

int seal_open(const char *directory, const char *name, struct seal_secret *out,
			  char error[KERNEL_ERROR_MAX])
{
	char only[SEAL_NAME_MAX], path[PATH_MAX];
	int status = name ? seal_check_name(name, error) : only_one(directory, only, error);
	bool named = name != NULL;
	name = named ? name : only;
	if (status == KILN_OK && named && access(directory, F_OK) == 0)
		status = seal_check_place(directory, error);
	if (status == KILN_OK)
		status = seal_path_of(directory, name, ".key", path, error);
	if (status == KILN_OK)
		status = seal_read_secret(path, name, out, error);
	if (status == KILN_ENOENT && named) {
		return FAIL(KILN_ENOENT, "there is no secret key %s in %.150s: `kiln key new %s` makes one",
					name, directory, name);
	}
	return status;
}

int seal_trust(const char *directory, const struct seal_key *key, char error[KERNEL_ERROR_MAX])
{
	char path[PATH_MAX], line[SEAL_LINE_MAX];
	struct seal_key there;
	int status = seal_check_name(key->name, error);
	if (status == KILN_OK)
		status = seal_make_directory(directory, error);
	if (status == KILN_OK)
		status = seal_check_place(directory, error);
	if (status == KILN_OK)
		status = seal_path_of(directory, key->name, ".pub", path, error);
	if (status != KILN_OK)
		return status;
	if (seal_read_public(path, key->name, &there, error) == KILN_OK) {
		return memcmp(there.public, key->public, sizeof(there.public)) == 0
				   ? KILN_OK
				   : FAIL(KILN_EBUSY,
						  "another key, %s, is trusted by the name of %s: `kiln key distrust %s` "
						  "first, or give this one another name",
						  there.id, key->name, key->name);
	}
	seal_line(key, line);
	return seal_write_file(path, line, 0644, error);
}

int seal_distrust(const char *directory, const char *name, struct seal_key *out,
				  char error[KERNEL_ERROR_MAX])
{
	char path[PATH_MAX];
	struct seal_ring *ring;
	int status = open_ring(directory, false, &ring, error);
	const struct seal_key *found = NULL;
	if (status != KILN_OK)
		return status;
	for (int i = 0; i < ring->count && !found; i++)
		if (strcmp(ring->keys[i].name, name) == 0 || strcmp(ring->keys[i].id, name) == 0)
			found = &ring->keys[i];
	if (!found) {
		status = FAIL(KILN_ENOENT, "no key that is trusted has the name or id \"%.*s\"",
					  PLAIN_CUT(name, 60));
	} else {
		*out = *found;
	}
	/* The key may have other names, by which it would stay trusted. */
	for (int i = 0; found && status == KILN_OK && i < ring->count; i++) {
		if (memcmp(ring->keys[i].public, found->public, sizeof(found->public)) != 0)
			continue;
		status = seal_path_of(directory, ring->keys[i].name, ".pub", path, error);
		if (status == KILN_OK && unlink(path) != 0)
			status = FAIL(KILN_EIO, "%.200s: %s", path, strerror(errno));
	}
	seal_ring_free(ring);
	return status;
}
