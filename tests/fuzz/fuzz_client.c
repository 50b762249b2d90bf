/*
 * fuzz_client: libkiln against a daemon that answers whatever the input says, and a device process
 * that writes whatever it says into the lane.  Each call of the library comes back in time, what it
 * refuses it refuses in a sentence, and afterwards no descriptor is left.
 *
 * Steps (steps.h), one for each request of the library, [the number in brackets]; when there are no
 * more, answers are good ones:
 *   0  it is answered well
 *   1  the answer is this message, with the request's id [which descriptors go along]
 *   2  this message comes first, whatever it is, and then a good answer
 *   3  bytes, and the end
 *   4  the end
 *   5  bytes are written to the lane: the place in words of 8 bytes (two bytes); a good answer
 *   6  no answer at all
 */
#include "client/wire/lane_memory.h"
#include "steps.h"
#include "tests/unit/lib/fake_daemon.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>

#define CALL_MS 30
#define SILENT_MOST 2
#define INPUT_MS 20000 /* all calls of an input together */

const unsigned fuzz_kinds = 7, fuzz_message_kinds = 1 << 1 | 1 << 2;
const struct steps_message fuzz_messages[] = {
	{"reply", "st, err, log, proto, version, session, device, max_message"},
	{"reply", "st, buf, offset, bytes, call, origin, text, micros, params, key"},
	{"reply", "st, micros, bound, generation, alignments, extents, reports"},
	{"reply", "st, rows, server, counters, plan, object, busy, template, operands"},
	{"event", "what, st, err"},
	{NULL, NULL}};
const char *const fuzz_words[] = {"lane.lost", "reply", "event", "cpu",        "cuda:0",
								  "x",         "rows",  "name",  "plan",       "compiled",
								  "hit",       "map",   "%s%n",  "two\nlines", NULL};

static struct {
	const uint8_t *data;
	size_t size;
	int silent;
	struct fake *fake;
	_Atomic(struct lane_memory *) lane;
	int told; /* the end of the pipe that wakes the client */
	atomic_bool stop;
} scene;

/* ---- The daemon ---- */

static void send_all(const void *bytes, size_t size, const int *fds, int count)
{
	(void)frame_send_wait(scene.fake->sock, bytes, size, fds, count, CALL_MS);
}

static int new_lane(int fds[LANE_DESCRIPTORS])
{
	int pipes[2];
	fds[0] = frame_memfd("lane", sizeof(struct lane_memory));
	fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	require(fds[0] >= 0 && fds[1] >= 0 && pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0, "no lane");
	fds[2] = pipes[0];
	if (scene.told >= 0)
		close(scene.told);
	scene.told = pipes[1];
	void *at =
		mmap(NULL, sizeof(struct lane_memory), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	require(at != MAP_FAILED, "no memory");
	struct lane_memory *memory = at;
	memory->header.magic = LANE_MAGIC;
	memory->header.version = LANE_VERSION;
	memory->header.entries = LANE_ENTRIES;
	memory->header.spin_us = 20;
	return LANE_DESCRIPTORS;
}

/* The device process's, from here on; an old one is left mapped until the input ends. */
static void use_lane(int fd)
{
	static void *maps[8];
	static int count;
	if (fd < 0) {
		while (count > 0)
			munmap(maps[--count], sizeof(struct lane_memory));
		return;
	}
	void *at = mmap(NULL, sizeof(struct lane_memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	require(at != MAP_FAILED, "no memory");
	if (count == 8) {
		munmap(at, sizeof(struct lane_memory));
		return;
	}
	maps[count++] = at;
	atomic_store(&scene.lane, at);
}

static void answer_submit(uint64_t id)
{
	static const int64_t alignments[] = {4, 4}, extents[] = {64, 64};
	struct wire_out out;
	int fds[LANE_DESCRIPTORS], count = atomic_load(&scene.lane) ? 0 : new_lane(fds);
	fake_begin(&out, id, KILN_OK);
	wire_put_uint(&out, "bound", 7);
	wire_put_uint(&out, "generation", 1);
	wire_put_ints(&out, "alignments", alignments, 2);
	wire_put_ints(&out, "extents", extents, 2);
	if (wire_end(&out) == KILN_OK)
		send_all(out.buffer.data, out.buffer.size, fds, count);
	wire_out_free(&out);
	if (count)
		use_lane(fds[0]);
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

static int descriptors(unsigned number, int fds[4])
{
	switch (number % 5) {
	case 1:
		fds[0] = frame_memfd("right", 4096);
		return 1;
	case 2:
		return new_lane(fds);
	case 3:
		fds[0] = frame_sealed("short", "x", 1);
		return 1;
	case 4:
		for (int i = 0; i < 4; i++)
			fds[i] = eventfd(0, EFD_CLOEXEC);
		return 4;
	default:
		return 0;
	}
}

/* The members of the step's message under the request's id. */
static bool answer_by(const struct step *step, uint64_t id)
{
	struct wire_in in;
	struct wire_out out;
	int fds[4], count;
	if (wire_parse(&in, step->bytes, step->size) != KILN_OK) {
		wire_in_free(&in);
		return false;
	}
	wire_begin(&out, wire_type(&in), id);
	for (uint32_t i = 0; i < in.root.via.map.size; i++) {
		const msgpack_object_kv *pair = &in.root.via.map.ptr[i];
		char name[40];
		if (pair->key.type != MSGPACK_OBJECT_STR)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)pair->key.via.str.size, pair->key.via.str.ptr);
		if (strcmp(name, "t") != 0 && strcmp(name, "id") != 0)
			wire_put_value(&out, name, &pair->val);
	}
	count = descriptors(step->number, fds);
	bool sent = wire_end(&out) == KILN_OK;
	if (sent)
		send_all(out.buffer.data, out.buffer.size, fds, count);
	for (int i = 0; i < count; i++)
		close(fds[i]);
	wire_out_free(&out);
	wire_in_free(&in);
	return sent;
}

static void poke(const struct step *step)
{
	struct lane_memory *lane = atomic_load(&scene.lane);
	if (!lane || step->size < 3)
		return;
	size_t at = (step->bytes[0] | (size_t)step->bytes[1] << 8) * 8 % sizeof(*lane);
	size_t bytes = step->size - 2 < sizeof(*lane) - at ? step->size - 2 : sizeof(*lane) - at;
	memcpy((uint8_t *)lane + at, step->bytes + 2, bytes);
}

/* True: it is dealt with. */
static bool by_step(const struct step *step, struct wire_in *in)
{
	switch (step->kind % fuzz_kinds) {
	case 1:
		return answer_by(step, wire_id(in));
	case 2:
		send_all(step->bytes, step->size, NULL, 0);
		return false;
	case 3:
		(void)!send(scene.fake->sock, step->bytes, step->size, MSG_NOSIGNAL | MSG_DONTWAIT);
		fake_hang_up(scene.fake);
		return true;
	case 4:
		fake_hang_up(scene.fake);
		return true;
	case 5:
		poke(step);
		return false;
	case 6:
		return scene.silent++ < SILENT_MOST;
	default:
		return false;
	}
}

static bool special(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	struct step step;
	(void)frame;
	scene.fake = fake;
	if (step_next(&scene.data, &scene.size, &step) && by_step(&step, in))
		return true;
	if (strcmp(wire_type(in), "submit") != 0 || !wire_get_bool(&in->root, "lane", false))
		return false;
	answer_submit(wire_id(in));
	return true;
}

/* ---- The device process ---- */

static void *device_main(void *unused)
{
	struct lane_memory *lane = NULL;
	uint64_t next = 0;
	(void)unused;
	while (!atomic_load(&scene.stop)) {
		struct lane_memory *now = atomic_load(&scene.lane);
		next = now == lane ? next : 0;
		lane = now;
		if (lane && lane->entries[next % LANE_ENTRIES].sequence == (uint32_t)(next + 1)) {
			/* Status, time and sentence stay as the input has them. */
			atomic_store(&lane->cells[next % LANE_ENTRIES].done, next + 1);
			if (lane->header.waiting)
				(void)!write(scene.told, "", 1);
			next++;
		} else {
			usleep(50);
		}
	}
	return NULL;
}

/* ---- The program that uses the library ---- */

static void check(int status)
{
	require(status <= 0, "a status that is none");
	if (status < 0) /* however little the daemon had to say */
		require(kiln_errmsg()[0] && !strchr(kiln_errmsg(), '\n'), "a failure without a sentence");
}

static void read_reply(kiln_reply *reply)
{
	size_t bytes;
	require(kiln_reply_json(reply) != NULL, "a reply that is no JSON");
	(void)kiln_reply_int(reply, "server.sessions");
	(void)kiln_reply_str(reply, "rows[0].name");
	(void)kiln_reply_real(reply, "plan");
	(void)kiln_reply_bin(reply, "object", &bytes);
	for (int i = 0; i < kiln_reply_count(reply, "rows") && i < 8; i++)
		require(kiln_reply_has(reply, "rows"), "rows that are not there");
}

static void ask(kiln_client *client)
{
	static const char *const requests[] = {"info", "cache.ls"};
	for (int i = 0; i < 2; i++) {
		kiln_reply *reply = NULL;
		int status = kiln_request(client, requests[i], NULL, 0, &reply);
		check(status);
		if (status == KILN_OK)
			read_reply(reply);
		kiln_reply_free(reply);
	}
}

static void launch(kiln_client *client, kiln_buffer *x, kiln_buffer *y)
{
	const int64_t shape[2] = {4, 4}, perm[2] = {1, 0};
	kiln_tensor tensors[2] = {{.dtype = KILN_F32, .rank = 2, .shape = {4, 4}, .contiguous = 1},
							  {.dtype = KILN_F32, .rank = 2, .shape = {4, 4}, .contiguous = 1}};
	kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = perm, .count = 2};
	kiln_operand operands[2] = {{x, 0}, {y, 0}};
	kiln_call *call = NULL;
	kiln_reply *reply = NULL;
	double micros;
	(void)shape;
	int status = kiln_prepare(client, "permute", tensors, 2, &attr, 1, &call);
	check(status);
	for (int i = 0; i < 4 && status == KILN_OK; i++) {
		kiln_ticket ticket = 0;
		status = kiln_submit(call, operands, 2, 0, &ticket);
		check(status);
		if (status == KILN_OK)
			check(i % 2 ? kiln_wait(client, ticket, CALL_MS)
						: kiln_wait_time(client, ticket, CALL_MS, &micros));
		(void)kiln_dispatch(client);
	}
	kiln_call_free(call);
	status = kiln_explain(client, "permute", tensors, 2, &attr, 1, NULL, &reply);
	check(status);
	if (status == KILN_OK)
		read_reply(reply);
	kiln_reply_free(reply);
}

static void use(kiln_client *client)
{
	kiln_buffer *x = NULL, *y = NULL;
	uint8_t bytes[64] = {0};
	void *at;
	check(kiln_alloc(client, 64, 0, "x", &x));
	check(kiln_alloc(client, 4096, KILN_BUFFER_SHARED, "y", &y));
	if (x && y) {
		if (kiln_map(y, &at) == KILN_OK)
			memset(at, 1, (size_t)kiln_buffer_bytes(y));
		check(kiln_write(x, 0, bytes, sizeof(bytes)));
		launch(client, x, y);
		check(kiln_read(x, 0, bytes, sizeof(bytes)));
	}
	ask(client);
	check(kiln_free(y));
	check(kiln_free(x));
}

static int count_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;
	require(directory, "no /proc");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct timespec began, ended;
	kiln_client *client = NULL;
	pthread_t device;
	int before = count_fds();

	memset(&scene, 0, sizeof(scene));
	scene.data = data;
	scene.size = size;
	scene.told = -1;
	clock_gettime(CLOCK_MONOTONIC, &began);
	struct fake *fake = fake_start(special);
	require(pthread_create(&device, NULL, device_main, NULL) == 0, "no thread");
	int status = fake_connect(fake, CALL_MS, &client);
	check(status);
	if (status == KILN_OK)
		use(client);
	kiln_close(client);
	fake_stop(fake);
	atomic_store(&scene.stop, true);
	pthread_join(device, NULL);
	use_lane(-1);
	if (scene.told >= 0)
		close(scene.told);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	require(ended.tv_sec - began.tv_sec < INPUT_MS / 1000, "a call takes for ever");
	require(count_fds() == before, "a descriptor is left");
	return 0;
}
