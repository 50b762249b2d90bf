/*
 * fault_file.c: keeps reports as files, whose names sort by time.  The first report makes the
 * directory, but never the cache's directory above it, which somebody may have removed on purpose.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/util.h"
#include "daemon/plan/kernel.h"
#include "fault.h"

#define ENDING ".txt"
#define COUNT_DIGITS 10
#define HEAD_BYTES 2048 /* of a report; the count stands there */
#define FAIL(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

struct listing {
	char ids[FAULT_KEPT * 2][FAULT_ID_MAX];
	int count;
};

void fault_directory(const char *cache, char path[PATH_MAX])
{
	path[0] = 0;
	if (strlen(cache) + sizeof "/faults" <= PATH_MAX)
		snprintf(path, PATH_MAX, "%.4000s/faults", cache);
}

bool fault_is_id(const char *id)
{
	static const char form[] = "dddddddd-dddddd-xxxx";
	if (strlen(id) != sizeof(form) - 1)
		return false;
	for (size_t i = 0; id[i]; i++) {
		const char *set = form[i] == 'd' ? "0123456789" : form[i] == 'x' ? "0123456789abcdef" : "-";
		if (!strchr(set, id[i]))
			return false;
	}
	return true;
}

static void fault_file_path_of(const char *directory, const char *id, const char *ending,
							   char path[PATH_MAX + 64])
{
	snprintf(path, PATH_MAX + 64, "%s/%s%s", directory, id, ending);
}

static int newest_first(const void *a, const void *b)
{
	return strcmp(b, a);
}

/* Lists reports, the newest first, as many as there is room for. */
static int list(const char *directory, struct listing *out, char *error)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	out->count = 0;
	if (fd < 0 && errno == ENOENT)
		return KILN_OK;
	if (!dir && fd >= 0)
		close(fd);
	if (!dir)
		return FAIL(KILN_EIO, "the reports in %.150s cannot be listed: %s", directory,
					strerror(errno));
	while ((entry = readdir(dir)) && out->count < FAULT_KEPT * 2) {
		char id[FAULT_ID_MAX] = "";
		size_t size = strlen(entry->d_name);
		if (size != FAULT_ID_MAX - 4 + strlen(ENDING))
			continue;
		memcpy(id, entry->d_name, size - strlen(ENDING));
		if (fault_is_id(id) && !strcmp(entry->d_name + size - strlen(ENDING), ENDING))
			memcpy(out->ids[out->count++], id, sizeof(id));
	}
	closedir(dir);
	qsort(out->ids, (size_t)out->count, sizeof(*out->ids), newest_first);
	return KILN_OK;
}

static void remove_oldest(const char *directory)
{
	struct listing listing;
	char path[PATH_MAX + 64], ignored[KERNEL_ERROR_MAX];
	if (list(directory, &listing, ignored) != KILN_OK)
		return;
	for (int i = FAULT_KEPT; i < listing.count; i++) {
		fault_file_path_of(directory, listing.ids[i], ENDING, path);
		unlink(path);
	}
}

static bool fault_file_write_all(int fd, const char *text, size_t size)
{
	while (size > 0) {
		ssize_t put = write(fd, text, size);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		text += put;
		size -= (size_t)put;
	}
	return true;
}

/* Makes the directory.  One that is there must be ours, and no link to another's. */
static bool have_directory(const char *directory)
{
	struct stat status;
	if (mkdir(directory, 0700) == 0)
		return true;
	if (errno != EEXIST || lstat(directory, &status) < 0)
		return false;
	errno = S_ISDIR(status.st_mode) ? EPERM : ENOTDIR;
	return S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
		   !(status.st_mode & (S_IWGRP | S_IWOTH));
}

int fault_file_write(const char *directory, const char *id, const char *text, char *error)
{
	char path[PATH_MAX + 64], temporary[PATH_MAX + 64];
	fault_file_path_of(directory, id, ENDING, path);
	fault_file_path_of(directory, "new", ".part", temporary);
	if (!have_directory(directory))
		return FAIL(KILN_EIO, "the directory of reports, %.150s, cannot be used: %s", directory,
					strerror(errno));
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	bool good = fd >= 0 && fault_file_write_all(fd, text, strlen(text));
	int saved = errno;
	if (fd >= 0)
		good = close(fd) == 0 && good;
	if (good && rename(temporary, path) != 0) {
		good = false;
		saved = errno;
	}
	if (!good) {
		unlink(temporary);
		return FAIL(KILN_EIO, "report %s cannot be written to %.150s: %s", id, directory,
					strerror(saved));
	}
	remove_oldest(directory);
	return KILN_OK;
}

/* Overwrites count and date in place: the new texts are as long as the old. */
int fault_file_count(const char *directory, const char *id, uint64_t times, int64_t when,
					 char *error)
{
	char path[PATH_MAX + 64], head[HEAD_BYTES + 1] = "", number[COUNT_DIGITS + 1], date[32];
	time_t time = (time_t)when;
	struct tm parts = {0};
	fault_file_path_of(directory, id, ENDING, path);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? KILN_OK : FAIL(KILN_EIO, "report %s: %s", id, strerror(errno));
	gmtime_r(&time, &parts);
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S UTC", &parts);
	snprintf(number, sizeof(number), "%-10llu",
			 (unsigned long long)(times < 9999999999 ? times : 9999999999));
	bool good = pread(fd, head, HEAD_BYTES, 0) > 0;
	const char *at = strstr(head, "\ntimes          "), *last = strstr(head, "\nlast           ");
	if (good && at && last)
		good = pwrite(fd, number, strlen(number), at + 16 - head) > 0 &&
			   pwrite(fd, date, strlen(date), last + 16 - head) > 0;
	int saved = errno;
	close(fd);
	return good ? KILN_OK : FAIL(KILN_EIO, "report %s: %s", id, strerror(saved));
}

int fault_file_read(const char *directory, const char *id, char found[FAULT_ID_MAX], char **text,
					char *error)
{
	char path[PATH_MAX + 64];
	struct listing listing = {.count = 0};
	int status = *id ? KILN_OK : list(directory, &listing, error);
	if (status != KILN_OK)
		return status;
	if (*id && !fault_is_id(id))
		return FAIL(
			KILN_EINVAL,
			"\"%.*s\" is no report, such as 20261122-101112-7f3a: `kiln faults ls` lists them",
			PLAIN_CUT(id, 40));
	if (!*id && !listing.count)
		return FAIL(KILN_ENOENT, "there is no report: nothing has gone wrong that leaves one");
	snprintf(found, FAULT_ID_MAX, "%s", *id ? id : listing.ids[0]);
	fault_file_path_of(directory, found, ENDING, path);
	*text = util_read_file(path, 4 * FAULT_TEXT_MOST, NULL);
	if (*text)
		return KILN_OK;
	return errno == ENOENT
			   ? FAIL(
					 KILN_ENOENT,
					 "there is no report %s: it made room for newer ones, or could not be written, "
					 "as the log then says",
					 found)
			   : FAIL(KILN_EIO, "report %s: %s", found, strerror(errno));
}

int fault_file_each(const char *directory, fault_visit visit, void *arg, char *error)
{
	struct listing listing;
	int status = list(directory, &listing, error);
	for (int i = 0; status == KILN_OK && i < listing.count; i++) {
		char path[PATH_MAX + 64];
		fault_file_path_of(directory, listing.ids[i], ENDING, path);
		char *text = util_read_file(path, 4 * FAULT_TEXT_MOST, NULL);
		if (text)
			visit(arg, listing.ids[i], text);
		free(text);
	}
	return status;
}

void fault_value(const char *text, const char *name, char *value, size_t size)
{
	size_t length = strlen(name);
	*value = 0;
	/* The first part ends with an empty line. */
	for (const char *line = text, *next; *line && *line != '\n'; line = next) {
		next = line + strcspn(line, "\n");
		next += *next == '\n';
		if (strncmp(line, name, length) != 0 || line[length] != ' ')
			continue;
		line += length + strspn(line + length, " ");
		size_t end = strcspn(line, "\n");
		while (end > 0 && line[end - 1] == ' ')
			end--;
		snprintf(value, size, "%.*s", (int)end, line);
		return;
	}
}
