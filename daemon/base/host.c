/*
 * host.c: what the host, and the control groups (version 2) of this process, leave to it: CPUs and
 * memory; and how much memory a process has.
 */
#include "util.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Control groups ---- */

typedef void (*visit_group)(const char *directory, void *arg);

/* Visits the directory of the group that proc_cgroup names below the mount, and all above it, the
 * mount last. */
static void walk_groups(const char *proc_cgroup, const char *mount, visit_group visit, void *arg)
{
	char *groups = util_read_file(proc_cgroup, 65536, NULL);
	char *line = groups;
	while (line && strncmp(line, "0::/", 4) != 0) {
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	char path[PATH_MAX];
	size_t root = strlen(mount);
	if (line && root + strcspn(line, "\n") < sizeof(path)) {
		size_t length = strcspn(line + 3, "\n");
		memcpy(path, mount, root);
		memcpy(path + root, line + 3, length);
		path[root + length] = 0;
		for (;;) {
			visit(path, arg);
			char *slash = strrchr(path + root, '/');
			if (!slash)
				break;
			*slash = 0;
		}
	}
	free(groups);
}

/* Reads a file of a group; NULL: there is none.  The caller frees it. */
static char *read_group_file(const char *directory, const char *name)
{
	char path[PATH_MAX];
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path))
		return NULL;
	return util_read_file(path, 65536, NULL);
}

/* ---- CPUs ---- */

static int affinity_cpus(void)
{
	/* The kernel refuses a set smaller than its own. */
	for (int most = 1024; most <= 1 << 20; most *= 4) {
		cpu_set_t *set = CPU_ALLOC((size_t)most);
		if (!set)
			return 1;
		size_t size = CPU_ALLOC_SIZE((size_t)most);
		int result = sched_getaffinity(0, size, set);
		int error = errno;
		int count = result == 0 ? CPU_COUNT_S(size, set) : 0;
		CPU_FREE(set);
		if (result == 0)
			return count > 0 ? count : 1;
		if (error != EINVAL)
			return 1;
	}
	return 1;
}

/* Lowers *arg to the CPUs that the group's "QUOTA PERIOD" is worth, rounded up; "max PERIOD" is no
 * quota. */
static void note_quota(const char *directory, void *arg)
{
	int *least = arg;
	unsigned long long quota, period;
	char *text = read_group_file(directory, "cpu.max");
	if (text && sscanf(text, "%llu %llu", &quota, &period) == 2 && period > 0 && quota > 0) {
		unsigned long long whole = quota / period + (quota % period != 0);
		*least = whole < (unsigned)*least ? (int)whole : *least;
	}
	free(text);
}

int util_cgroup_cpus(const char *proc_cgroup, const char *mount)
{
	int least = INT_MAX;
	walk_groups(proc_cgroup, mount, note_quota, &least);
	return least;
}

int util_cpu_count(void)
{
	int allowed = affinity_cpus();
	int quota = util_cgroup_cpus(UTIL_OWN_CGROUP, UTIL_CGROUP_MOUNT);
	return quota < allowed ? quota : allowed;
}

/* ---- Memory ---- */

/* Returns the number behind a word at the beginning of a line; UINT64_MAX: there is none. */
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

/* Returns a number of a file of the group; UINT64_MAX: there is none, or it is "max". */
static uint64_t group_number(const char *directory, const char *name, const char *word)
{
	char *text = read_group_file(directory, name);
	uint64_t value = text ? number_after(text, word) : UINT64_MAX;
	free(text);
	return value;
}

/* Lowers *arg to the bytes that the group leaves. */
static void note_room(const char *directory, void *arg)
{
	uint64_t *least = arg;
	uint64_t limit = group_number(directory, "memory.max", "");
	uint64_t current = group_number(directory, "memory.current", "");
	if (limit == UINT64_MAX || current == UINT64_MAX)
		return;
	/* The system takes back files that were not used lately before it refuses memory. */
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
	walk_groups(proc_cgroup, mount, note_room, &least);
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
