/* fake_children.c: see fake_children.h. */
#include "fake_children.h"

#include "daemon/base/child.h"
#include "daemon/compile/compile.h"
#include "daemon/exec/trail.h"
#include "fuzz.h"

#include <fcntl.h>
#include <kiln/kiln.h>
#include <unistd.h>

/* Something that a child is about to say, with a descriptor or (-1) without. */
struct saying {
	struct saying *next;
	size_t size;
	int fd;
	uint8_t bytes[];
};

struct child {
	struct child_events events;
	void *owner;
	bool compiler, abandoned, killed, gone;
	int pid;
	struct saying *first, **last;
	struct child *next;
};

static struct child *children;
static int alive, failures, last_pid;

/* ---- What they say ---- */

static void add(struct child *child, const void *bytes, size_t size, int fd)
{
	struct saying *saying = malloc(sizeof(*saying) + size);
	require(saying, "no memory");
	*saying = (struct saying){.size = size, .fd = fd};
	memcpy(saying->bytes, bytes, size);
	*child->last = saying;
	child->last = &saying->next;
}

static void add_message(struct child *child, struct wire_out *out, int fd)
{
	require(wire_end(out) == KILN_OK, "a message that cannot be built");
	add(child, out->buffer.data, out->buffer.size, fd);
	wire_out_free(out);
}

static void say_ready(struct child *child)
{
	struct wire_out out;
	if (child->compiler) {
		struct compile_toolchains both = {
			.nvrtc = {.id = "nvrtc 13.0 0123", .targets = "sm_80 sm_90"},
			.host = {.id = "4567 g++ 12"}};
		compile_ready_write(&out, &both);
	} else {
		wire_begin(&out, "ready", 0);
		wire_put_int(&out, "st", KILN_OK);
		wire_put_str(&out, "name", "cpu");
		wire_put_str(&out, "model", "nothing");
		wire_put_str(&out, "target", "cpu");
		wire_put_uint(&out, "memory", 1 << 30);
		wire_put_uint(&out, "max_threads", 1024);
		wire_put_uint(&out, "shared_default", 49152);
		wire_put_uint(&out, "shared_optin", 49152);
		wire_put_uint(&out, "mps", 2);
		wire_put_uint(&out, "warp", 32);
		wire_put_ints(&out, "grid", (int64_t[]){1 << 30, 65535, 65535}, 3);
	}
	add_message(child, &out, -1);
}

static bool fails(void)
{
	return failures > 0 && failures-- > 0;
}

static void answer_job(struct child *child, struct wire_in *in)
{
	struct compile_job_room *room = calloc(1, sizeof(*room));
	struct compile_job job;
	struct wire_out out;
	uint64_t id = 0;
	require(room && compile_job_read(in, &id, &job, room) == KILN_OK, "a job that cannot be read");
	struct compile_result result = {.registers = 8, .shared_bytes = 0, .micros = 5};
	if (fails()) {
		result.status = KILN_ECOMPILE;
		result.log = (char *)"user.cu(1): error: it is wrong";
		snprintf(result.error, sizeof(result.error), "it is wrong");
	} else {
		result.entry = (char *)"kernel";
		result.source = (char *)"int unit;\n";
		result.log = (char *)"";
		result.object = (char *)"\177ELF..";
		result.object_bytes = 6;
	}
	compile_result_write(&out, id, &result);
	add_message(child, &out, -1);
	free(room);
}

static void answer_request(struct child *child, struct wire_in *in)
{
	struct wire_out out;
	int fd = -1;
	bool failed = fails();
	wire_begin(&out, "reply", wire_id(in));
	wire_put_int(&out, "st", failed ? KILN_EDEVICE : KILN_OK);
	if (failed) {
		wire_put_str(&out, "err", "the device says no");
	} else if (!strcmp(wire_type(in), "share")) {
		fd = frame_memfd("shared", 4096);
		wire_put_uint(&out, "span", 4096);
		wire_put_uint(&out, "offset", 0);
	} else if (!strcmp(wire_type(in), "load")) {
		wire_put_ints(&out, "params", (int64_t[]){8, 8, 4, 4}, 4);
	}
	wire_put_uint(&out, "us", 3);
	add_message(child, &out, fd);
}

/* Leaves such notes of calls as a broken device process may: some are almost right. */
static void scribble(int fd, unsigned seed)
{
	static struct trail trail;
	if (fd < 0)
		return;
	for (uint64_t i = 0; i < TRAIL_CALLS; i++) {
		struct trail_call *call = &trail.calls[i];
		seed = seed * 1103515245 + 12345;
		call->number = seed & 0x10000 ? i + 1 : UINT64_MAX - i;
		call->name = seed >> 20 & 31;
		call->stream = seed >> 25 & 3;
		call->began_us = seed & 0x20000 ? 1 : UINT64_MAX;
		call->ended_us = seed & 0x40000 ? 0 : seed & 0x80000 ? 2 : UINT64_MAX;
		call->status = (int64_t)((uint64_t)seed << 32);
	}
	trail.begun = seed & 0x100000 ? TRAIL_CALLS : UINT64_MAX;
	trail.culprit = 7;
	(void)!pwrite(fd, &trail, sizeof(trail), 0);
}

/* ---- child.h ---- */

struct child *child_start(uv_loop_t *loop, const struct child_program *program,
						  const struct child_events *events, void *owner, char *error,
						  size_t error_size)
{
	struct child *child = calloc(1, sizeof(*child));
	(void)loop, (void)error, (void)error_size;
	require(child, "no memory");
	*child = (struct child){.events = *events, .owner = owner, .pid = ++last_pid, .next = children};
	child->compiler = !strcmp(program->arguments[0], "--role=compiler");
	child->last = &child->first;
	children = child;
	alive++;
	scribble(program->trail, (unsigned)last_pid);
	say_ready(child);
	return child;
}

int child_send(struct child *child, const struct wire_out *message, const int *fds, int fd_count)
{
	struct wire_in in;
	if (message->error)
		return message->error;
	if (child->killed)
		return KILN_ECONN;
	require(wire_parse(&in, message->buffer.data, message->buffer.size) == KILN_OK,
			"the broker says what cannot be read");
	for (int i = 0; i < fd_count; i++)
		require(fcntl(fds[i], F_GETFD) >= 0, "a descriptor that is closed");
	if (child->compiler)
		answer_job(child, &in);
	else
		answer_request(child, &in);
	wire_in_free(&in);
	return KILN_OK;
}

void child_kill(struct child *child)
{
	child->killed = true;
}

void child_condemn(struct child *child, const char *why)
{
	(void)why;
	child_kill(child);
}

void child_abandon(struct child *child)
{
	child->abandoned = true;
}

void child_dismiss(struct child *child, uint64_t patience_ms)
{
	(void)patience_ms;
	child->abandoned = true;
}

void child_expect_end(struct child *child, uint64_t patience_ms)
{
	(void)patience_ms;
	child_kill(child);
}

void child_spare(int count, uint64_t deadline_ms)
{
	(void)count, (void)deadline_ms;
}

int child_pid(const struct child *child)
{
	return child->pid;
}

void child_tail(const struct child *child, char tail[OUTPUT_TAIL])
{
	(void)child;
	tail[0] = 0;
}

int child_count(void)
{
	return alive;
}

/* ---- Their turn ---- */

static void drop(struct child *child)
{
	struct child **link = &children;
	while (*link != child)
		link = &(*link)->next;
	*link = child->next;
	while (child->first) {
		struct saying *next = child->first->next;
		if (child->first->fd >= 0)
			close(child->first->fd);
		free(child->first);
		child->first = next;
	}
	free(child);
	alive--;
}

static void say_first(struct child *child)
{
	struct saying *saying = child->first;
	struct frame frame = {.data = saying->bytes, .size = saying->size};
	struct wire_in in;
	child->first = saying->next;
	if (!child->first)
		child->last = &child->first;
	if (saying->fd >= 0)
		frame.fds[frame.fd_count++] = saying->fd;
	if (wire_parse(&in, saying->bytes, saying->size) == KILN_OK) {
		child->events.message(child->owner, &in, &frame);
		wire_in_free(&in);
	} else {
		wire_in_free(&in);
		child_kill(child);
	}
	for (int i = 0; i < frame.fd_count; i++)
		if (frame.fds[i] >= 0)
			close(frame.fds[i]);
	free(saying);
}

/* One that has something to say, or is to go; the oldest of them. */
static struct child *find_busy(void)
{
	struct child *found = NULL;
	for (struct child *child = children; child; child = child->next)
		if (child->first || child->killed || child->abandoned)
			found = child;
	return found;
}

bool children_speak(int times)
{
	bool any = false;
	struct child *child;
	for (; times > 0 && (child = find_busy()); times--) {
		any = true;
		if (child->abandoned) {
			drop(child);
		} else if (child->killed) {
			child->events.gone(child->owner, 0, 9, "was killed by signal 9 (Killed)");
			drop(child);
		} else {
			say_first(child);
		}
	}
	return any;
}

void children_fail(int count)
{
	failures = count;
}

static struct child *by_number(unsigned number)
{
	struct child *child = children;
	for (number = alive ? number % (unsigned)alive : 0; child && number > 0; number--)
		child = child->next;
	return child;
}

void children_say(unsigned number, const uint8_t *bytes, size_t size)
{
	struct child *child = by_number(number);
	if (child)
		add(child, bytes, size, -1);
}

void children_die(unsigned number)
{
	struct child *child = by_number(number);
	if (child)
		child_kill(child);
}

void children_reset(void)
{
	require(!children && alive == 0, "a child is left");
	failures = 0;
}
