/*
 * log.c: writes one line on stderr a message, by one write(2), so that the lines of several
 * processes never mix.  A thread of its own writes, for write(2) may block at any time: others
 * write to the same pipe, and O_NONBLOCK would be theirs as well.
 */
#include "thread.h"
#include "util.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_TEXT 2048                 /* of a message */
#define LOG_LINE (2 * LOG_TEXT + 128) /* with what is before it, and each character escaped */
#define WAITING 65536
#define WRITER_STACK ((size_t)256 << 10)

static int log_fd = STDERR_FILENO; /* set before there are threads */
enum util_level util_log_level = UTIL_INFO;
enum util_log_format util_log_format = UTIL_LOG_TEXT;

/* The last lines of all threads. */
static pthread_mutex_t kept_mutex = PTHREAD_MUTEX_INITIALIZER;
static char kept[UTIL_LOG_TAIL];
static size_t kept_bytes; /* in all: the next goes to kept_bytes % UTIL_LOG_TAIL */

/* ---- Writing ---- */

/*
 *   WRITER_NONE ---util_log_begin()---> WRITER_RUNS ---util_log_end()---> WRITER_ENDS
 *        ^                                                                     |
 *        +-----------------(the thread has written all that waited)-----------+
 *
 * - NONE: there is no thread, and nothing waits; a line that stderr does not take is dropped.
 * - RUNS: the thread writes what waits.
 * - ENDS: the same, until nothing waits.
 */
enum writer_state { WRITER_NONE, WRITER_RUNS, WRITER_ENDS };

static struct {
	pthread_mutex_t mutex; /* protects the rest */
	pthread_cond_t changed;
	enum writer_state state;
	uint64_t patience_us;
	uint64_t since_us; /* of the write(2) that the thread is in; 0: it is in none */
	char waiting[WAITING];
	size_t used;      /* of waiting */
	uint64_t dropped; /* lines, since all that fitted was written */
} writer = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void writer_assert_valid(void)
{
	assert(writer.state != WRITER_NONE || (!writer.used && !writer.dropped && !writer.since_us));
	assert(writer.used <= WAITING);
}

/* Writes all of it; without stderr there is nobody to tell. */
static void log_write_all(const char *text, size_t size)
{
	struct pollfd error = {.fd = log_fd, .events = POLLOUT};
	while (size > 0) {
		ssize_t done = write(log_fd, text, size);
		if (done < 0 && errno == EAGAIN)
			poll(&error, 1, -1);
		else if (done < 0 && errno != EINTR)
			return;
		text += done > 0 ? done : 0;
		size -= done > 0 ? (size_t)done : 0;
	}
}

/* Takes the whole lines that a pipe takes at once, or a part of a line that is longer. */
static size_t log_take(char piece[PIPE_BUF])
{
	size_t size = writer.used < PIPE_BUF ? writer.used : PIPE_BUF, whole = size;
	while (whole > 0 && writer.waiting[whole - 1] != '\n')
		whole--;
	size = whole > 0 ? whole : size;
	memcpy(piece, writer.waiting, size);
	memmove(writer.waiting, writer.waiting + size, writer.used - size);
	writer.used -= size;
	return size;
}

static size_t log_line(char *line, size_t size, enum util_level level, long pid, const char *text);

static void *write_lines(void *arg)
{
	char piece[PIPE_BUF];
	pthread_mutex_lock(&writer.mutex);
	for (;;) {
		while (!writer.used && !writer.dropped && writer.state != WRITER_ENDS)
			pthread_cond_wait(&writer.changed, &writer.mutex);
		size_t size = 0;
		if (writer.used) {
			size = log_take(piece);
		} else if (writer.dropped) {
			char text[96];
			snprintf(text, sizeof(text),
					 "standard error took nothing for a while: %llu lines were dropped",
					 (unsigned long long)writer.dropped);
			size = log_line(piece, PIPE_BUF, UTIL_WARN, (long)getpid(), text);
			writer.dropped = 0;
		} else {
			break;
		}
		writer.since_us = util_now_us();
		pthread_mutex_unlock(&writer.mutex);
		log_write_all(piece, size);
		pthread_mutex_lock(&writer.mutex);
		writer.since_us = 0;
		writer_assert_valid();
	}
	writer.state = WRITER_NONE;
	pthread_cond_broadcast(&writer.changed);
	pthread_mutex_unlock(&writer.mutex);
	return arg;
}

bool util_log_begin(uint64_t patience_us)
{
	pthread_mutex_lock(&writer.mutex);
	writer.patience_us = patience_us;
	thread_condition(&writer.changed);
	bool runs = thread_start(WRITER_STACK, write_lines, NULL);
	writer.state = runs ? WRITER_RUNS : WRITER_NONE;
	pthread_mutex_unlock(&writer.mutex);
	return runs;
}

void util_log_end(unsigned milliseconds)
{
	const struct timespec end = thread_after_us((uint64_t)milliseconds * 1000);
	int status = 0;
	pthread_mutex_lock(&writer.mutex);
	if (writer.state == WRITER_RUNS) {
		writer.state = WRITER_ENDS;
		pthread_cond_broadcast(&writer.changed);
		while (writer.state == WRITER_ENDS && status == 0)
			status = pthread_cond_timedwait(&writer.changed, &writer.mutex, &end);
	}
	pthread_mutex_unlock(&writer.mutex);
}

static bool is_writable(void)
{
	struct pollfd error = {.fd = log_fd, .events = POLLOUT};
	return poll(&error, 1, 0) == 1;
}

bool util_log_is_full(size_t size)
{
	pthread_mutex_lock(&writer.mutex);
	bool full = writer.dropped || size > WAITING - writer.used;
	bool gets_on = !writer.since_us || util_now_us() - writer.since_us < writer.patience_us;
	full = writer.state == WRITER_NONE ? !is_writable() : full && gets_on;
	pthread_mutex_unlock(&writer.mutex);
	return full;
}

/* Passes on lines as they are. */
static void util_log_pass(const char *text, size_t size)
{
	pthread_mutex_lock(&writer.mutex);
	if (writer.state == WRITER_NONE) {
		/* A pipe that is writable takes PIPE_BUF bytes. */
		for (size_t done = 0; done < size && is_writable(); done += PIPE_BUF)
			(void)!write(log_fd, text + done, size - done < PIPE_BUF ? size - done : PIPE_BUF);
	} else if (writer.dropped || size > WAITING - writer.used) {
		size_t lines = 0;
		for (size_t i = 0; i < size; i++)
			lines += text[i] == '\n';
		writer.dropped += lines ? lines : 1;
	} else {
		memcpy(writer.waiting + writer.used, text, size);
		writer.used += size;
		pthread_cond_broadcast(&writer.changed);
	}
	pthread_mutex_unlock(&writer.mutex);
}

/* ---- Lines ---- */

static const struct {
	const char *name;
	int priority; /* as syslog(3) numbers them */
} levels[] = {
	[UTIL_ERROR] = {"error", 3},
	[UTIL_WARN] = {"warn", 4},
	[UTIL_INFO] = {"info", 6},
	[UTIL_DEBUG] = {"debug", 7},
};

/* $JOURNAL_STREAM names the journal's socket by device and inode; stderr may be another file since.
 */
void util_log_to(int fd)
{
	log_fd = fd;
}

bool util_log_is_journal(void)
{
	unsigned long long device, inode;
	struct stat status;
	const char *stream = getenv("JOURNAL_STREAM");
	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		   fstat(log_fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
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

/* Writes a whole line, of a text that is clean already; returns its length. */
static size_t log_line(char *line, size_t size, enum util_level level, long pid, const char *text)
{
	const char *name = levels[level].name;
	char when[32] = "";
	struct tm parts;
	time_t now = (time_t)util_wall_s();
	size_t used = 0;
	line[0] = 0;
	if (gmtime_r(&now, &parts)) {
		size_t date = strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &parts);
		util_append(when, sizeof(when), date, ".%03uZ", util_wall_part() * 1000 >> 16);
	}
	if (util_log_is_journal())
		used = util_append(line, size, used, "<%d>", levels[level].priority);
	else if (util_log_format == UTIL_LOG_TEXT)
		used = util_append(line, size, used, "%s kilnd[%ld] %s ", when, pid, name);
	if (util_log_format == UTIL_LOG_TEXT)
		return util_append(line, size, used, "%s\n", text);
	used = util_append(line, size, used,
					   "{\"time\":\"%s\",\"level\":\"%s\",\"pid\":%ld,\"message\":\"", when, name,
					   pid);
	for (; *text && used + 6 < size; text++) {
		if (*text == '"' || *text == '\\')
			line[used++] = '\\';
		line[used++] = *text == '\t' ? ' ' : *text;
	}
	return util_append(line, size, used, "\"}\n");
}

void util_log(enum util_level level, const char *format, ...)
{
	if (level > util_log_level)
		return;
	int saved = errno;
	char text[LOG_TEXT], line[LOG_LINE];
	va_list arguments;
	va_start(arguments, format);
	if (vsnprintf(text, sizeof(text), format, arguments) < 0)
		text[0] = 0;
	va_end(arguments);
	plain_clean(text, sizeof(text), PLAIN_LINE);
	size_t used = log_line(line, sizeof(line), level, (long)getpid(), text);
	util_log_pass(line, used);
	pthread_mutex_lock(&kept_mutex);
	for (size_t i = 0; i < used; i++)
		kept[kept_bytes++ % UTIL_LOG_TAIL] = line[i];
	pthread_mutex_unlock(&kept_mutex);
	errno = saved;
}

/* Reads what another process of this program put before its text, if it did: its pid and level. */
static const char *log_read(const char *text, enum util_level *level, long *pid)
{
	char name[8];
	int priority, size = 0;
	if (sscanf(text, "<%d>%n", &priority, &size) == 1 && size)
		for (enum util_level i = UTIL_ERROR; i <= UTIL_DEBUG; i++)
			*level = levels[i].priority == priority ? i : *level;
	else if (sscanf(text, "%*24[0-9T:.Z-] kilnd[%ld] %7s %n", pid, name, &size) == 2 && size)
		for (enum util_level i = UTIL_ERROR; i <= UTIL_DEBUG; i++)
			*level = !strcmp(levels[i].name, name) ? i : *level;
	return text + size;
}

void util_log_child(char *text)
{
	char line[LOG_LINE];
	if (util_log_format == UTIL_LOG_TEXT) {
		util_log_pass(text, strlen(text));
		return;
	}
	for (char *next; *text; text = next) {
		enum util_level level = UTIL_INFO;
		long pid = (long)getpid();
		size_t size = strcspn(text, "\r\n");
		next = text + size + (text[size] != 0);
		text[size < LOG_TEXT ? size : (size_t)plain_cut(text, LOG_TEXT - 1)] = 0;
		const char *said = log_read(text, &level, &pid);
		if (*said)
			util_log_pass(line, log_line(line, sizeof(line), level, pid, said));
	}
}
