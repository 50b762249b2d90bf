/*
 * sink.c: cleans everything that the command prints by plain.h's rule, so that no text steers the
 * terminal, be it from a daemon of another version, a row of an old cache, or a file that somebody
 * sent.
 */
#include "sink.h"
#include "client/wire/plain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct sink {
	int fd;
	FILE *bare; /* the original stream; NULL: it is still in place */
	/* Bytes whose meaning depends on the next ones: the beginning of a character, or a '\r'. */
	char held[4];
	size_t held_bytes;
};

static struct sink out = {.fd = STDOUT_FILENO}, err = {.fd = STDERR_FILENO};

bool write_all(int fd, const void *bytes, size_t size)
{
	const char *at = bytes;

	while (size) {
		ssize_t n = write(fd, at, size);
		if (n < 0 && errno != EINTR)
			return false;
		at += n > 0 ? n : 0;
		size -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool write_plain(int fd, const char *text, size_t size)
{
	char *copy;
	bool good;

	if (plain_is(text, size, PLAIN_TEXT))
		return write_all(fd, text, size);
	copy = plain_copy(text, size, PLAIN_TEXT);
	good = copy && write_all(fd, copy, strlen(copy));
	free(copy);
	return good;
}

static ssize_t on_write(void *cookie, const char *data, size_t size)
{
	struct sink *sink = cookie;
	size_t all = sink->held_bytes + size, back = all < 3 ? all : 3, hold;
	char *text = malloc(all + 1);
	bool good;

	if (!text)
		return 0;
	memcpy(text, sink->held, sink->held_bytes);
	memcpy(text + sink->held_bytes, data, size);
	/* Bytes at the end that belong to what follows: a '\r', or the beginning of a character. */
	hold = all && text[all - 1] == '\r' ? 1 : back - (size_t)plain_cut(text + all - back, back);
	good = write_plain(sink->fd, text, all - hold);
	memcpy(sink->held, text + all - hold, hold);
	sink->held_bytes = hold;
	free(text);
	return good ? (ssize_t)size : 0;
}

static FILE *open_sink(struct sink *sink, FILE *bare, int buffering)
{
	cookie_io_functions_t functions = {.write = on_write};
	FILE *file = fopencookie(sink, "w", functions);

	if (file && setvbuf(file, NULL, buffering, 0))
		return NULL;
	if (file)
		sink->bare = bare;
	return file;
}

bool sink_begin(void)
{
	FILE *files[2] = {open_sink(&out, stdout, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF),
					  open_sink(&err, stderr, _IONBF)};

	if (!files[0] || !files[1])
		return false;
	stdout = files[0];
	stderr = files[1];
	return true;
}

bool sink_end(void)
{
	bool good = !fflush(stdout) && !ferror(stdout);

	if (out.bare)
		good = write_plain(out.fd, out.held, out.held_bytes) && !fflush(out.bare) &&
			   !ferror(out.bare) && good;
	out.held_bytes = 0;
	return good;
}

FILE *sink_bytes(void)
{
	fflush(stdout);
	return out.bare ? out.bare : stdout;
}

FILE *sink_terminal(void)
{
	return err.bare ? err.bare : stderr;
}

void sink_style(enum sink_style style)
{
	static const char *const codes[] = {"\033[0m", "\033[1m", "\033[32m", "\033[33m", "\033[31m"};
	const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

	if ((no && *no) || !terminal || !strcmp(terminal, "dumb") || !isatty(out.fd))
		return;
	fflush(stdout);
	(void)write_all(out.fd, codes[style], strlen(codes[style]));
}

int sink_columns(void)
{
	struct winsize size;

	if (!isatty(out.fd))
		return 0;
	return ioctl(out.fd, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}
