/*
 * cpus.c: how many CPUs this process may use: what the scheduler allows, and what the quota of its
 * control groups (version 2) is worth.
 */
#include "util.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

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

/* CPUs that "QUOTA PERIOD" is worth, rounded up; INT_MAX for "max PERIOD" and for what is neither.
 */
static int quota_cpus(const char *directory)
{
	char path[PATH_MAX];
	if ((size_t)snprintf(path, sizeof(path), "%s/cpu.max", directory) >= sizeof(path))
		return INT_MAX;
	char *text = util_read_file(path, 256, NULL);
	if (!text)
		return INT_MAX;
	unsigned long long quota, period;
	int cpus = INT_MAX;
	if (sscanf(text, "%llu %llu", &quota, &period) == 2 && period > 0 && quota > 0) {
		unsigned long long whole = quota / period + (quota % period != 0);
		cpus = whole < INT_MAX ? (int)whole : INT_MAX;
	}
	free(text);
	return cpus;
}

void util_cgroup_walk(const char *proc_cgroup, const char *mount, util_cgroup_visit visit,
					  void *arg)
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
			visit(arg, path);
			char *slash = strrchr(path + root, '/');
			if (!slash)
				break;
			*slash = 0;
		}
	}
	free(groups);
}

static void note_quota(void *arg, const char *directory)
{
	int *least = arg, cpus = quota_cpus(directory);
	*least = cpus < *least ? cpus : *least;
}

int util_cgroup_cpus(const char *proc_cgroup, const char *mount)
{
	int least = INT_MAX;
	util_cgroup_walk(proc_cgroup, mount, note_quota, &least);
	return least;
}

int util_cpu_count(void)
{
	int allowed = affinity_cpus();
	int quota = util_cgroup_cpus(UTIL_OWN_CGROUP, UTIL_CGROUP_MOUNT);
	return quota < allowed ? quota : allowed;
}
