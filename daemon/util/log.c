/*
 * log.c: one line on stderr a message, written by one write(2) so that the lines of several
 * processes never mix.
 */
#include "util.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LINE 2048

enum util_level util_log_level = UTIL_INFO;

/* The last lines; those of all threads. */
static pthread_mutex_t kept_mutex = PTHREAD_MUTEX_INITIALIZER;
static char kept[UTIL_LOG_TAIL];
static size_t kept_bytes; /* in all: the next goes to kept_bytes % UTIL_LOG_TAIL */

static const struct {
	const char *name;
	int priority; /* as syslog(3) numbers them */
} levels[] = {
	[UTIL_ERROR] = {"error", 3},
	[UTIL_WARN] = {"warn", 4},
	[UTIL_INFO] = {"info", 6},
	[UTIL_DEBUG] = {"debug", 7},
};

/* $JOURNAL_STREAM names the journal's end by device and inode; stderr may have been sent elsewhere
 * since. */
bool util_log_is_journal(void)
{
	unsigned long long device, inode;
	struct stat status;
	const char *stream = getenv("JOURNAL_STREAM");
	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		   fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

static void keep(const char *line, size_t size)
{
	pthread_mutex_lock(&kept_mutex);
	for (size_t i = 0; i < size; i++)
		kept[kept_bytes++ % UTIL_LOG_TAIL] = line[i];
	pthread_mutex_unlock(&kept_mutex);
}

void util_log_tail(char tail[UTIL_LOG_TAIL])
{
	pthread_mutex_lock(&kept_mutex);
	size_t from = kept_bytes >= UTIL_LOG_TAIL ? kept_bytes - UTIL_LOG_TAIL + 1 : 0;
	bool cut = from > 0;
	for (; cut && from < kept_bytes && kept[from % UTIL_LOG_TAIL] != '\n'; from++)
		;
	from += cut && from < kept_bytes;
	size_t size = 0;
	for (; from < kept_bytes; from++)
		tail[size++] = kept[from % UTIL_LOG_TAIL];
	tail[size] = 0;
	pthread_mutex_unlock(&kept_mutex);
}

void util_log(enum util_level level, const char *format, ...)
{
	if (level > util_log_level) {
		return;
	}
	int saved = errno;
	char line[LOG_LINE];
	size_t used;
	if (util_log_is_journal()) {
		used = util_append(line, sizeof line - 1, 0, "<%d>", levels[level].priority);
	} else {
		used = util_append(line, sizeof line - 1, 0, "kilnd[%ld] %s ", (long)getpid(),
						   levels[level].name);
	}
	va_list arguments;
	va_start(arguments, format);
	errno = saved; /* for %m */
	int size = vsnprintf(line + used, sizeof line - 1 - used, format, arguments);
	va_end(arguments);
	line[used] = size > 0 ? line[used] : 0;
	used += plain_clean(line + used, sizeof line - 1 - used, PLAIN_LINE);
	line[used++] = '\n';
	/* Nobody is left to tell when stderr is gone, and whoever does not read a pipe is not waited
	 * for. */
	struct pollfd reader = {.fd = STDERR_FILENO, .events = POLLOUT};
	if (poll(&reader, 1, 0) == 1) {
		(void)!write(STDERR_FILENO, line, used);
	}
	keep(line, used);
	errno = saved;
}
