/* process_figures.c: see process_figures.h. */
#include "process_figures.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

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
