/* output.c: watches a pipe.  Its lines go the way of the daemon's own (util_log_child). */
#include "output.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deadlines.h"
#include "util.h"

#define PIECE 4096
#define SHOWN (4 * PIECE) /* bytes of a piece as plain.h's rule shows it, at most */
#define PIECES_A_TURN 16

struct output {
	uv_poll_t poll;
	uv_timer_t again; /* until there may be room for more */
	int fd;
	int open_handles;
	char piece[PIECE];
	size_t used; /* of piece */
	char tail[OUTPUT_TAIL];
	size_t kept;
};

static void on_output_closed(uv_handle_t *handle)
{
	struct output *output = handle->data;
	if (--output->open_handles > 0)
		return;
	close(output->fd);
	free(output);
}

static void output_keep(struct output *output, const char *text, size_t size)
{
	size_t most = OUTPUT_TAIL - 1;
	size_t drop = output->kept + size > most ? output->kept + size - most : 0;
	drop = drop < output->kept ? drop : output->kept;
	memmove(output->tail, output->tail + drop, output->kept - drop);
	output->kept -= drop;
	size_t skip = size > most ? size - most : 0;
	memcpy(output->tail + output->kept, text + skip, size - skip);
	output->kept += size - skip;
}

/* Passes on the whole lines of the piece, or everything, cleaned: a kernel's printf may print
 * anything. */
static void pass_on(struct output *output, bool everything)
{
	size_t size = output->used;
	while (!everything && size < PIECE && size > 0 && output->piece[size - 1] != '\n')
		size--;
	/* A line that is longer than a piece is cut before a character. */
	if (!everything && size == PIECE && output->piece[PIECE - 1] != '\n')
		size = PIECE - 3 + (size_t)plain_cut(output->piece + PIECE - 3, 3);
	char *shown = size ? plain_copy(output->piece, size, PLAIN_TEXT) : NULL;
	if (!size)
		return;
	if (shown)
		util_log_child(shown);
	free(shown);
	memmove(output->piece, output->piece + size, output->used - size);
	output->used -= size;
}

/* Reads once.  1: there may be more; 0: there is none now; -1: none will come. */
static int read_piece(struct output *output)
{
	ssize_t got = read(output->fd, output->piece + output->used, PIECE - output->used);
	if (got <= 0)
		return got < 0 ? 0 : -1;
	output_keep(output, output->piece + output->used, (size_t)got);
	output->used += (size_t)got;
	pass_on(output, false);
	return 1;
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_again(uv_timer_t *timer)
{
	struct output *output = timer->data;
	uv_poll_start(&output->poll, UV_READABLE, on_readable);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct output *output = poll->data;
	int more = status == 0 ? 1 : -1;
	(void)events;
	for (int i = 0; more > 0 && i < PIECES_A_TURN; i++) {
		if (util_log_is_full(SHOWN)) {
			uv_poll_stop(poll);
			uv_timer_start(&output->again, on_again, PAUSE_OUTPUT_MS, 0);
			return;
		}
		more = read_piece(output);
	}
	if (more < 0)
		uv_poll_stop(poll);
}

struct output *output_open(uv_loop_t *loop, int *end)
{
	int ends[2];
	struct output *output = calloc(1, sizeof(*output));
	if (!output || pipe2(ends, O_CLOEXEC) < 0) {
		free(output);
		return NULL;
	}
	/* The other end blocks: a child that writes too much has to wait. */
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	output->fd = ends[0];
	*end = ends[1];
	output->poll.data = output->again.data = output;
	output->open_handles = 2;
	uv_poll_init(loop, &output->poll, output->fd);
	uv_timer_init(loop, &output->again);
	uv_poll_start(&output->poll, UV_READABLE, on_readable);
	return output;
}

void output_drain(struct output *output)
{
	int more = 1;
	for (int i = 0; output && more > 0 && i < PIECES_A_TURN; i++)
		more = read_piece(output);
	if (output)
		pass_on(output, true);
}

void output_close(struct output *output)
{
	if (!output)
		return;
	uv_close((uv_handle_t *)&output->poll, on_output_closed);
	uv_close((uv_handle_t *)&output->again, on_output_closed);
}

void output_tail(const struct output *output, char tail[OUTPUT_TAIL])
{
	size_t size = output ? output->kept : 0;
	if (output)
		memcpy(tail, output->tail, size);
	tail[size] = 0;
}

void output_variable(const struct output *output, char variable[64])
{
	struct stat status;
	variable[0] = 0;
	if (output && util_log_is_journal() && fstat(output->fd, &status) == 0)
		snprintf(variable, 64, "JOURNAL_STREAM=%llu:%llu", (unsigned long long)status.st_dev,
				 (unsigned long long)status.st_ino);
}
