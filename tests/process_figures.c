/* process_figures.c: see process_figures.h. */
#include "process_figures.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int count_fds(pid_t pid)
{
	char path[64];
	int count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return -1;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2; /* "." and ".." */
}

/* The digits of each number become one sign. */
static void leave_numbers_out(const char *path, char name[48])
{
	size_t used = 0;
	for (; *path && used < 47; path++)
		if (!isdigit((unsigned char)*path))
			name[used++] = *path;
		else if (used == 0 || name[used - 1] != '#')
			name[used++] = '#';
	name[used] = 0;
}

static void count_kind(struct fd_kinds *out, const char *name)
{
	int i = 0;
	while (i < out->count && i < FD_KINDS_MOST - 1 && strcmp(out->kinds[i].name, name) != 0)
		i++;
	if (i == out->count) {
		snprintf(out->kinds[i].name, sizeof(out->kinds[i].name), "%s",
				 i < FD_KINDS_MOST - 1 ? name : "others");
		out->kinds[i].count = 0;
		out->count++;
	}
	out->kinds[i].count++;
}

void count_fd_kinds(pid_t pid, struct fd_kinds *out)
{
	char path[64], target[256], name[48];
	struct dirent *entry;
	DIR *dir;

	out->count = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		ssize_t got = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		if (got <= 0)
			continue;
		target[got] = 0;
		leave_numbers_out(target, name);
		count_kind(out, name);
	}
	if (dir)
		closedir(dir);
}

int count_shared_maps(pid_t pid)
{
	char path[64], line[512], permissions[8];
	int shared = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		/* Each device process leaves its broker a trail of its calls there. */
		shared += sscanf(line, "%*s %7s", permissions) == 1 && permissions[3] == 's' &&
				  !strstr(line, "kiln-trail");
	if (file)
		fclose(file);
	return shared;
}

int64_t resident_kib(pid_t pid)
{
	char path[64], line[256];
	long long kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "r");
	while (file && kib < 0 && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmRSS: %lld", &kib) != 1)
			kib = -1;
	if (file)
		fclose(file);
	return kib;
}
