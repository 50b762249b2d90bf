/*
 * aside.c: keeps databases that were damaged or not ours for people who want to look at them: few,
 * and bounded in bytes.  Knows nothing of their content.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "kiln.db.bad-"
#define LOOK_MOST 64 /* databases that one look lists */
#define NUMBER_MOST 1000000000

static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
#define SUFFIXES (sizeof(suffixes) / sizeof(suffixes[0]))

/* Returns the number in the name of a database; 0 for any other file, such as its log. */
static int number_of(const char *name)
{
	size_t prefix = strlen(PREFIX), digits;
	if (strncmp(name, PREFIX, prefix) != 0)
		return 0;
	digits = strspn(name + prefix, "0123456789");
	return digits && digits < 10 && !name[prefix + digits] ? (int)strtol(name + prefix, NULL, 10)
														   : 0;
}

static int by_number(const void *a, const void *b)
{
	int left = *(const int *)a, right = *(const int *)b;
	return left < right ? -1 : left > right;
}

/* Lists their numbers, rising; returns how many. */
static int list_aside(const struct cache_place *place, int numbers[LOOK_MOST])
{
	int fd = openat(place->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
	if (!directory) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	for (struct dirent *entry; count < LOOK_MOST && (entry = readdir(directory));)
		if (number_of(entry->d_name))
			numbers[count++] = number_of(entry->d_name);
	closedir(directory);
	qsort(numbers, (size_t)count, sizeof(*numbers), by_number);
	return count;
}

int cache_place_set_aside(const struct cache_place *place, char moved[32],
						  char error[KERNEL_ERROR_MAX])
{
	int numbers[LOOK_MOST];
	int count = list_aside(place, numbers);
	int number = count && numbers[count - 1] < NUMBER_MOST - 1 ? numbers[count - 1] + 1 : 1;
	snprintf(moved, 32, PREFIX "%d", number);
	for (size_t i = 0; i < SUFFIXES; i++) {
		char from[32], to[64];
		snprintf(from, sizeof(from), "kiln.db%s", suffixes[i]);
		snprintf(to, sizeof(to), "%s%s", moved, suffixes[i]);
		unlinkat(place->directory_fd, to, 0);
		if (renameat(place->directory_fd, from, place->directory_fd, to) < 0 && errno != ENOENT) {
			return FAIL(KILN_EIO, "%.150s/%s is damaged and cannot be renamed to %s: %s",
						place->directory, from, to, strerror(errno));
		}
	}
	return KILN_OK;
}

static uint64_t bytes_of(const struct cache_place *place, int number)
{
	uint64_t total = 0;
	for (size_t i = 0; i < SUFFIXES; i++) {
		char name[64];
		struct stat status;
		snprintf(name, sizeof(name), PREFIX "%d%s", number, suffixes[i]);
		if (fstatat(place->directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
			total += (uint64_t)status.st_size;
	}
	return total;
}

/* Removes a database, or an empty directory that stood in its place. */
static bool remove_one(const struct cache_place *place, int number)
{
	bool removed = true;
	for (size_t i = 0; i < SUFFIXES; i++) {
		char name[64];
		snprintf(name, sizeof(name), PREFIX "%d%s", number, suffixes[i]);
		if (unlinkat(place->directory_fd, name, 0) < 0 && errno != ENOENT &&
			unlinkat(place->directory_fd, name, AT_REMOVEDIR) < 0)
			removed = false;
	}
	return removed;
}

struct cache_aside cache_place_bound_aside(const struct cache_place *place, uint64_t most_bytes)
{
	int numbers[LOOK_MOST];
	struct cache_aside left = {0};
	int count = list_aside(place, numbers);
	for (int i = count - 1; i >= 0; i--) {
		uint64_t bytes = bytes_of(place, numbers[i]);
		bool first = i == count - 1;
		bool fits = left.count < DB_ASIDE && (!most_bytes || left.bytes + bytes <= most_bytes);
		if (!first && !fits && remove_one(place, numbers[i])) {
			util_log(UTIL_INFO, "cache: %s/" PREFIX "%d, which was set aside before, was removed",
					 place->directory, numbers[i]);
			continue;
		}
		left.count++;
		left.bytes += bytes;
	}
	return left;
}
