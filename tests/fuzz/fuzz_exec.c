/*
 * fuzz_exec: the device process in this one, on a device that runs nothing (null_device.h), talked
 * to as by a broker that has lost its mind, and through lanes as by clients that never had one.
 * Whatever comes, no work touches what is not its own or is gone, every request is answered once,
 * and at the end everything that was made is freed.
 *
 * Steps (steps.h), the number in brackets:
 *   0  a message [which descriptors go along]
 *   1  a lane is opened [its stream]
 *   2  an entry is written to a lane as its client would [the lane]: its bytes
 *   3  bytes are written to a lane anywhere [the lane]: the place in words of 8 bytes (two bytes)
 *   4  work ends [how much of it]: with a status, 0 or below (one byte)
 *   5  nothing, for so many turns
 */
#include "client/wire/frame.h"
#include "client/wire/lane_memory.h"
#include "client/wire/wire.h"
#include "daemon/exec/exec.h"
#include "daemon/exec/process/executor.h"
#include "daemon/base/util.h"
#include "null_device.h"
#include "steps.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LANES 4
#define LAST_TURNS 40 /* for what is still under way */

const unsigned fuzz_kinds = 7, fuzz_message_kinds = 1u | 1u << 6;
const struct steps_message fuzz_messages[] = {
	{"load", "mod, entry, shared, object, source, instantiation"},
	{"unload", "mod"},
	{"alloc", "buf, bytes, stream"},
	{"import", "buf, kind, handle, bufid, pool, pid, span, offset, bytes, stream, origin"},
	{"share", "buf"},
	{"free", "buf"},
	{"launch",
	 "mod, stream, sub, grid, block, shared, copy, args, ops, names, granule, scratch, report, "
	 "lane, tail, follows"},
	{"copy", "buf, offset, bytes, to, stream, lane, tail"},
	{"graph", "graph, stream, parts"},
	{"graph.launch", "graph, stream, sub"},
	{"graph.free", "graph, stream"},
	{"cancel", "ticket"},
	{"end", "stream"},
	{"lane.close", "stream"},
	{"lane.bind",
	 "stream, call, of, notice, run, mod, grid, block, shared, copy, args, ops, names, scratch, "
	 "report"},
	{"lane.unbind", "stream, call"},
	{"lane.cancel", "stream, number, count"},
	{"shape", "shape"},
	{"prepare", "op, tensors, attrs"}, /* for desks; as a request there is none */
	{"ping", ""},
	{NULL, NULL}};
const char *const fuzz_words[] = {"buf",   "mod",    "stream", "ops", "args",    "parts",
								  "graph", "kernel", "x",      "ipc", "fd",      "pool",
								  "cpu",   "bytes",  "op",     "n",   "lane",    "tail",
								  "d",     "s",      "b",      "o",   "softmax", NULL};

struct lane {
	struct lane_memory *memory;
	struct lane_counts *counts;
	int told; /* the end that the client reads */
	uint64_t next;
	uint32_t asked; /* at its desk */
};

static struct scene {
	const uint8_t *data;
	size_t size;
	int sock, memory, event;
	struct lane lanes[LANES];
	int asked, answered, idle, last;
} scene;

/* ---- Messages ---- */

static void send_message(const void *bytes, size_t size, const int *fds, int fd_count)
{
	int status = frame_send(scene.sock, bytes, size, fds, fd_count);
	scene.asked += status == KILN_OK;
}

/* Every answer is a reply with a status, and a sentence where that is a failure. */
static void take_answers(void)
{
	struct frame frame;
	struct wire_in in;
	while (frame_recv(scene.sock, &frame, 1 << 20) == KILN_OK) {
		require(wire_parse(&in, frame.data, frame.size) == KILN_OK, "an answer that is none");
		if (!strcmp(wire_type(&in), "reply")) {
			int64_t status = wire_get_int(&in.root, "st", 1);
			require(status <= 0, "an answer without a status");
			if (status < 0)
				require_sentence(wire_get_str(&in, &in.root, "err"));
			scene.answered++;
		} else {
			const char *what = wire_get_str(&in, &in.root, "what");
			require(!strcmp(wire_type(&in), "ready") || what, "an event without a name");
		}
		wire_in_free(&in);
		frame_free(&frame);
	}
}

/* A message that cannot be read ends the process, and is fuzz_wire's.  A step of its own opens a
 * lane's memory. */
static void say(const struct step *step)
{
	struct wire_in in;
	int fds[3] = {scene.memory, scene.event, scene.memory};
	int count = step->number % 4;
	if (wire_parse(&in, step->bytes, step->size) == KILN_OK && wire_id(&in))
		send_message(step->bytes, step->size, fds, count);
	wire_in_free(&in);
}

static void ask_of_stream(const char *what, uint64_t stream)
{
	struct wire_out out;
	wire_begin(&out, what, 1);
	wire_put_uint(&out, "stream", stream);
	if (wire_end(&out) == KILN_OK)
		send_message(out.buffer.data, out.buffer.size, NULL, 0);
	wire_out_free(&out);
}

/* ---- Lanes ---- */

static void *map(int fd, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	require(at != MAP_FAILED, "no memory");
	return at;
}

static void open_lane(unsigned number)
{
	struct lane *lane = &scene.lanes[number % LANES];
	struct wire_out out;
	int pipes[2], fds[4];
	if (lane->memory)
		return;
	fds[0] = frame_memfd("lane", sizeof(*lane->memory));
	fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fds[3] = frame_memfd("counts", sizeof(*lane->counts));
	require(fds[0] >= 0 && fds[1] >= 0 && fds[3] >= 0 && pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0,
			"no descriptors");
	fds[2] = pipes[1];
	lane->memory = map(fds[0], sizeof(*lane->memory));
	lane->counts = map(fds[3], sizeof(*lane->counts));
	lane->counts->desk_most = LANE_DESK_CALLS;
	lane->told = pipes[0];
	lane->next = lane->asked = 0;
	lane->memory->header.magic = LANE_MAGIC;
	lane->memory->header.version = LANE_VERSION;
	lane->memory->header.entries = LANE_ENTRIES;
	wire_begin(&out, "lane.open", 1);
	wire_put_uint(&out, "stream", number % LANES + 1);
	wire_put_uint(&out, "desk", LANE_DESK + number % LANES * LANE_DESK_CALLS);
	if (wire_end(&out) == KILN_OK)
		send_message(out.buffer.data, out.buffer.size, fds, 4);
	wire_out_free(&out);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
}

static void write_entry(const struct step *step)
{
	struct lane *lane = &scene.lanes[step->number % LANES];
	struct lane_entry entry = {0};
	if (!lane->memory)
		return;
	memcpy(&entry, step->bytes, step->size < sizeof(entry) ? step->size : sizeof(entry));
	struct lane_entry *to = &lane->memory->entries[lane->next % LANE_ENTRIES];
	uint32_t before = to->sequence;
	memcpy(to, &entry, sizeof(entry));
	to->sequence = before;
	lane_publish(lane->memory, lane->next++);
}

static void lay_problem(const struct step *step)
{
	struct lane *lane = &scene.lanes[step->number % LANES];
	if (!lane->memory)
		return;
	struct lane_desk *desk = &lane->memory->desk;
	size_t bytes = step->size < sizeof(desk->problem) ? step->size : sizeof(desk->problem);
	memcpy(desk->problem, step->bytes, bytes);
	atomic_store(&desk->bytes, (uint32_t)bytes);
	lane_ask_desk(lane->memory, ++lane->asked, lane->next);
}

static void poke(const struct step *step)
{
	struct lane *lane = &scene.lanes[step->number % LANES];
	if (!lane->memory || step->size < 3)
		return;
	size_t at = (step->bytes[0] | (size_t)step->bytes[1] << 8) * 8 % sizeof(*lane->memory);
	size_t bytes = step->size - 2;
	if (bytes > sizeof(*lane->memory) - at)
		bytes = sizeof(*lane->memory) - at;
	memcpy((uint8_t *)lane->memory + at, step->bytes + 2, bytes);
}

static void close_lanes(void)
{
	for (int i = 0; i < LANES; i++) {
		struct lane *lane = &scene.lanes[i];
		if (!lane->memory)
			continue;
		/* Whatever the client did, more has not ended than was taken. */
		require(lane->counts->launched + lane->counts->failed <= lane->counts->taken,
				"more entries ended than were taken");
		munmap(lane->memory, sizeof(*lane->memory));
		munmap(lane->counts, sizeof(*lane->counts));
		close(lane->told);
		*lane = (struct lane){0};
	}
}

/* ---- Turns ---- */

static void perform(const struct step *step)
{
	switch (step->kind % fuzz_kinds) {
	case 0:
		say(step);
		break;
	case 1:
		open_lane(step->number);
		break;
	case 2:
		write_entry(step);
		break;
	case 3:
		poke(step);
		break;
	case 4:
		null_end(step->number, step->size && step->bytes[0] & 1 ? KILN_EINDEX : KILN_OK);
		break;
	case 6:
		lay_problem(step);
		break;
	default:
		scene.idle = step->number % 8;
	}
}

static void turn(void)
{
	struct step step;
	take_answers();
	if (scene.idle > 0) {
		scene.idle--;
		return;
	}
	if (scene.last == 0 && step_next(&scene.data, &scene.size, &step)) {
		perform(&step);
		return;
	}
	/* Everything ends: the sessions, what is under way, and then the broker. */
	if (scene.last++ == 0)
		for (uint64_t stream = 1; stream <= LANES; stream++)
			ask_of_stream("end", stream);
	null_end(1000, KILN_OK);
	if (scene.last == LAST_TURNS) {
		take_answers();
		shutdown(scene.sock, SHUT_WR);
	}
}

void exec_give_up_rights(const struct exec_options *options)
{
	(void)options; /* it would close what is this program's */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int pair[2];
	struct exec_options options = {.device = "cpu"};
	util_log_level = UTIL_ERROR;
	if (size < 1)
		return 0;
	require(frame_pair(pair) == KILN_OK, "no socket pair");
	scene = (struct scene){.data = data + 1, .size = size - 1, .sock = pair[0]};
	scene.memory = frame_memfd("memory", 65536);
	scene.event = eventfd(0, EFD_CLOEXEC);
	null_state = (struct null_state){.stalls = data[0] & 1, .turn = turn};
	options.sock = pair[1];
	options.quiet_patience_ms = data[0] & 1 ? 1 : 0;
	require(exec_main(&options) == 0, "the device process did not end well");
	take_answers();
	require(null_state.flights == 0, "work is left");
	require(null_state.memories == 0 && null_state.modules == 0 && null_state.graphs == 0,
			"memory, kernels or graphs are left");
	require(scene.answered == scene.asked, "requests and answers are not as many");
	close_lanes();
	close(scene.memory);
	close(scene.event);
	close(scene.sock);
	return 0;
}
