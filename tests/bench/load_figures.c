/* load_figures.c: how times are shown, and what the system says of processes. */
#include "load.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void load_times(const struct runner_options *options, const char *what, double *times, int count)
{
	double p50 = runner_percentile(times, count, 0.5), p99 = runner_percentile(times, count, 0.99);
	double worst = runner_percentile(times, count, 1);
	printf("  %-52s %12.2f us, p99 %.1f, worst %.1f\n", what, p50, p99, worst);
	FILE *json = options->json ? fopen(options->json, "a") : NULL;
	if (!json)
		return;
	fprintf(json,
			"{\"program\": \"%s\", \"figure\": \"%s\", \"p50_us\": %.2f, \"p99_us\": %.2f, "
			"\"worst_us\": %.2f, \"times\": %d}\n",
			options->program, what, p50, p99, worst, count);
	fclose(json);
}

static double member_kib(pid_t pid, const char *name)
{
	char path[64], line[160];
	double value = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtod(line + strlen(name), NULL);
	if (file)
		fclose(file);
	return value;
}

double load_resident(pid_t pid)
{
	return 1024 * (member_kib(pid, "RssAnon:") + member_kib(pid, "RssShmem:"));
}

int load_descriptors(pid_t pid)
{
	char path[64];
	int count = -2; /* . and .. */
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *directory = opendir(path);
	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count;
}

static bool is_device_process(pid_t pid)
{
	char path[64], words[4096];
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	FILE *file = fopen(path, "r");
	size_t size = file ? fread(words, 1, sizeof(words) - 1, file) : 0;
	if (file)
		fclose(file);
	words[size] = 0;
	for (size_t at = 0; at < size; at += strlen(words + at) + 1)
		if (strcmp(words + at, "executor") == 0 || strcmp(words + at, "--role=executor") == 0)
			return true;
	return false;
}

pid_t load_device_process(pid_t daemon)
{
	char path[96];
	int child;
	pid_t found = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
	FILE *file = fopen(path, "r");
	while (file && !found && fscanf(file, "%d", &child) == 1)
		if (is_device_process(child))
			found = child;
	if (file)
		fclose(file);
	return found;
}
