/*
 * replay.c: runs every file of the corpus directories named through a fuzz target, as an ordinary
 * program.  Used where there is no libFuzzer.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SAMPLE_MAX ((size_t)16 << 20)

/* 0, or 1 with a line on stderr. */
static int run_file(const char *path)
{
	struct stat found;
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	int failed = 1;

	if (!file || fstat(fileno(file), &found) != 0 || (uint64_t)found.st_size > SAMPLE_MAX) {
		fprintf(stderr, "replay: %s cannot be read or is over %zu bytes\n", path, SAMPLE_MAX);
		goto out;
	}
	/* Exactly as large as the sample, so that a sanitizer sees a read behind it. */
	size_t size = (size_t)found.st_size;
	data = malloc(size > 0 ? size : 1);
	if (!data || fread(data, 1, size, file) != size) {
		fprintf(stderr, "replay: %s cannot be read\n", path);
		goto out;
	}
	/* Before, so that the last line names the sample when the target crashes. */
	printf("%s\n", path);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, size);
	failed = 0;
out:
	free(data);
	if (file)
		fclose(file);
	return failed;
}

static int run_directory(const char *path, int *count)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	int failed = 0;
	if (!directory) {
		fprintf(stderr, "replay: %s is no directory that can be read\n", path);
		return 1;
	}
	while ((entry = readdir(directory)) != NULL) {
		char name[4096];
		if (entry->d_name[0] != '.') {
			snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
			failed += run_file(name);
			++*count;
		}
	}
	closedir(directory);
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0, count = 0;
	if (argc < 2) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY...\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++)
		failed += run_directory(argv[i], &count);
	printf("%d samples\n", count);
	/* An empty corpus tests nothing, so it is a failure. */
	return failed == 0 && count > 0 ? 0 : 1;
}
