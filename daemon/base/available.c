/*
 * available.c: how much memory there is for more: of the host, and within the limits of the control
 * groups (version 2) that this process is in; and how much a process has.
 */
#include "util.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number behind a word at the beginning of a line; UINT64_MAX: there is none. */
static uint64_t number_after(const char *text, const char *word)
{
	size_t length = strlen(word);
	while (text) {
		if (strncmp(text, word, length) == 0) {
			char *end;
			unsigned long long value = strtoull(text + length, &end, 10);
			return end > text + length ? value : UINT64_MAX;
		}
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	return UINT64_MAX;
}

/* A number of a file of the group's; "max" is none. */
static uint64_t group_number(const char *directory, const char *name, const char *word)
{
	char path[PATH_MAX];
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path))
		return UINT64_MAX;
	char *text = util_read_file(path, 65536, NULL);
	uint64_t value = text ? number_after(text, word) : UINT64_MAX;
	free(text);
	return value;
}

static void note_room(void *arg, const char *directory)
{
	uint64_t *least = arg;
	uint64_t limit = group_number(directory, "memory.max", "");
	uint64_t current = group_number(directory, "memory.current", "");
	if (limit == UINT64_MAX || current == UINT64_MAX)
		return;
	/* Files that nobody has used lately go first. */
	uint64_t cached = group_number(directory, "memory.stat", "inactive_file ");
	uint64_t used = cached < current ? current - cached : cached == UINT64_MAX ? current : 0;
	uint64_t room = used < limit ? limit - used : 0;
	*least = room < *least ? room : *least;
}

uint64_t util_memory_available(const char *meminfo, const char *proc_cgroup, const char *mount)
{
	char *text = util_read_file(meminfo, 65536, NULL);
	uint64_t kib = text ? number_after(text, "MemAvailable:") : UINT64_MAX;
	uint64_t least = kib < UINT64_MAX >> 10 ? kib << 10 : UINT64_MAX;
	free(text);
	util_cgroup_walk(proc_cgroup, mount, note_room, &least);
	return least;
}

uint64_t util_resident_bytes(int pid)
{
	char path[40];
	unsigned long long pages, resident;
	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	char *text = util_read_file(path, 4096, NULL);
	bool read = text && sscanf(text, "%llu %llu", &pages, &resident) == 2;
	free(text);
	return read ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
