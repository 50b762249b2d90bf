/*
 * photo_worker.c: one of the two clients of the photo example.  It takes strips of the picture as
 * they become ready, sends each through the daemon, and passes its number on.
 *
 * It is a client like any other: connect, alloc, prepare once, then write, submit, wait, read for
 * every strip.  It never sees the other worker; they share memory and a pipe.
 */
#include "photo.h"

#include <kiln/kiln.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REPEATS 101

struct worker {
	enum photo_role role;
	struct photo_shared *shared;
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_call *calls[2]; /* full strips; the last one, when it is lower */
};

static const char *const names[PHOTO_ROLES] = {"split", "join"};

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int complain(const struct worker *w, const char *what)
{
	fprintf(stderr, "photo %s: %s: %s\n", names[w->role], what, kiln_errmsg());
	return -1;
}

/* HWC -> CHW is the permutation (2,0,1), the way back (1,2,0). */
static int prepare(struct worker *w, uint32_t rows, kiln_call **out)
{
	static const int64_t split[3] = {2, 0, 1}, join[3] = {1, 2, 0};
	int64_t h = rows, v = w->shared->width, c = PHOTO_CHANNELS;
	kiln_tensor pixels = {.dtype = KILN_U8, .rank = 3, .contiguous = 1, .shape = {h, v, c}};
	kiln_tensor planes = {.dtype = KILN_U8, .rank = 3, .contiguous = 1, .shape = {c, h, v}};
	int splits = w->role == PHOTO_SPLIT;
	kiln_tensor tensors[2] = {splits ? pixels : planes, splits ? planes : pixels};
	kiln_attr perm = {.name = "perm", .kind = KILN_ATTR_INTS, .count = 3};
	perm.ints = splits ? split : join;
	if (kiln_prepare(w->client, "permute", tensors, 2, &perm, 1, out) < 0)
		return complain(w, "the daemon cannot prepare the permutation");
	return 0;
}

static int call(struct worker *w, kiln_call *call_)
{
	kiln_operand operands[2] = {{w->x, 0}, {w->y, 0}};
	kiln_ticket ticket;
	if (kiln_submit(call_, operands, 2, 0, &ticket) < 0)
		return complain(w, "submit");
	if (kiln_wait(w->client, ticket, PHOTO_TIMEOUT_MS) < 0)
		return complain(w, "wait");
	return 0;
}

/* Takes one strip from image role to image role + 1. */
static int work(struct worker *w, uint32_t strip)
{
	uint32_t rows = photo_strip_rows(w->shared, strip);
	size_t bytes = (size_t)rows * w->shared->width * PHOTO_CHANNELS;
	size_t offset = photo_strip_offset(w->shared, strip);
	kiln_call *prepared = w->calls[rows != PHOTO_STRIP_ROWS];
	if (kiln_write(w->x, 0, photo_image(w->shared, w->role) + offset, bytes) < 0)
		return complain(w, "write");
	if (call(w, prepared) < 0)
		return -1;
	if (kiln_read(w->y, 0, photo_image(w->shared, w->role + 1) + offset, bytes) < 0)
		return complain(w, "read");
	return 0;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Finds the value behind "name" at the start of a line of the plan. */
static void plan_line(const char *plan, const char *name, char *out, size_t size)
{
	size_t length = strlen(name);
	snprintf(out, size, "-");
	for (const char *line = plan; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0) {
			const char *value = line + length + strspn(line + length, " :\t");
			snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
			return;
		}
	}
}

static int begin(struct worker *w)
{
	kiln_connect_options options = {.size = sizeof(options), .timeout_ms = PHOTO_TIMEOUT_MS};
	struct photo_report *report = &w->shared->reports[w->role];
	uint64_t bytes = (uint64_t)PHOTO_STRIP_ROWS * w->shared->width * PHOTO_CHANNELS;
	if (kiln_connect(&options, &w->client) < 0)
		return complain(w, "connect");
	snprintf(report->device, sizeof(report->device), "%s", kiln_device(w->client));
	if (kiln_alloc(w->client, bytes, 0, "strip in", &w->x) < 0 ||
		kiln_alloc(w->client, bytes, 0, "strip out", &w->y) < 0)
		return complain(w, "alloc");
	return 0;
}

/* The calls that the strips need; the first prepare and the first call are the cold ones. */
static int get_ready(struct worker *w)
{
	struct photo_report *report = &w->shared->reports[w->role];
	uint32_t last = photo_strip_rows(w->shared, photo_strips(w->shared) - 1);
	double start = now_ms();
	if (prepare(w, PHOTO_STRIP_ROWS, &w->calls[0]) < 0)
		return -1;
	report->prepare_ms = now_ms() - start;
	if (call(w, w->calls[0]) < 0)
		return -1;
	report->cold_ms = now_ms() - start;
	snprintf(report->origin, sizeof(report->origin), "%s", kiln_call_origin(w->calls[0]));
	plan_line(kiln_call_plan(w->calls[0]), "variant", report->variant, sizeof(report->variant));
	plan_line(kiln_call_plan(w->calls[0]), "instantiation", report->instantiation,
			  sizeof(report->instantiation));
	return last == PHOTO_STRIP_ROWS ? 0 : prepare(w, last, &w->calls[1]);
}

static int measure(struct worker *w)
{
	double times[REPEATS];
	for (int i = 0; i < REPEATS; i++) {
		double start = now_ms();
		if (call(w, w->calls[0]) < 0)
			return -1;
		times[i] = now_ms() - start;
	}
	qsort(times, REPEATS, sizeof(times[0]), ascending);
	w->shared->reports[w->role].warm_ms = times[REPEATS / 2];
	return 0;
}

/* 1 and the next number, 0 at the end of the pipe, -1 after a sentence. */
static int next_number(const struct worker *w, uint32_t *number)
{
	struct pollfd ready = {.fd = PHOTO_FD_INPUT, .events = POLLIN};
	if (poll(&ready, 1, PHOTO_TIMEOUT_MS) != 1) {
		fprintf(stderr, "photo %s: nothing to do came for %d s\n", names[w->role],
				PHOTO_TIMEOUT_MS / 1000);
		return -1;
	}
	ssize_t got = read(PHOTO_FD_INPUT, number, sizeof(*number));
	if (got == 0)
		return 0;
	if (got != (ssize_t)sizeof(*number) ||
		(*number != PHOTO_GO && *number >= photo_strips(w->shared))) {
		fprintf(stderr, "photo %s: a strip's number is damaged\n", names[w->role]);
		return -1;
	}
	return 1;
}

static int work_all(struct worker *w)
{
	uint32_t strip, done = 0;
	int more = next_number(w, &strip);
	if (more > 0 && get_ready(w) < 0)
		return -1;
	while (more > 0 && (more = next_number(w, &strip)) > 0) {
		if (work(w, strip) < 0)
			return -1;
		if (write(PHOTO_FD_OUTPUT, &strip, sizeof(strip)) != (ssize_t)sizeof(strip)) {
			perror("photo: cannot pass a strip on");
			return -1;
		}
		done++;
	}
	if (more == 0 && done != photo_strips(w->shared)) {
		fprintf(stderr, "photo %s: only %u of %u strips came\n", names[w->role], done,
				photo_strips(w->shared));
		return -1;
	}
	return more;
}

int photo_worker(enum photo_role role)
{
	struct worker w = {.role = role};
	struct stat memory;
	if (fstat(PHOTO_FD_MEMORY, &memory) < 0 || memory.st_size < (off_t)sizeof(*w.shared)) {
		fprintf(stderr, "photo: the role %s is for the workers that photo starts\n", names[role]);
		return 2;
	}
	size_t bytes = (size_t)memory.st_size;
	w.shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, PHOTO_FD_MEMORY, 0);
	if (w.shared == MAP_FAILED) {
		perror("photo: cannot map the shared memory");
		return 1;
	}
	int status = begin(&w) < 0 || work_all(&w) < 0 || measure(&w) < 0;
	kiln_call_free(w.calls[1]);
	kiln_call_free(w.calls[0]);
	kiln_free(w.y);
	kiln_free(w.x);
	kiln_close(w.client);
	munmap(w.shared, bytes);
	return status;
}
