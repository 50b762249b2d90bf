/*
 * fuzz_broker: the broker in this process, with children that are none (fake_children.h), talked to
 * by up to three clients.  Each request is answered once, a refusal is a sentence, the equations
 * between the daemon's figures hold after all of it, and nothing is left behind.
 *
 * Steps (steps.h), the number in brackets:
 *   0  a request [client; which descriptors go along]
 *   1  children speak [how often; 255: until nothing is left to be answered]
 *   2  a child says this, whatever it is [which]
 *   3  the next answers of children are failures [how many]
 *   4  a child dies [which]
 *   5  a client goes, or shuts a direction of its socket [client; what]
 *   6  bytes on a client's socket that are no frame, or one [client]
 */
#include "daemon/broker/front/server.c"

#include "client/wire/protocol.h"
#include "daemon/broker/front/commands/command.h"
#include "fake_children.h"
#include "steps.h"
#include "words.h"

#include <ftw.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define CLIENTS 3
#define NONSENSE_MOST 3 /* of children: each costs a restart, which takes longer each time */
#define SETTLE_US 8000000

const unsigned fuzz_kinds = 7, fuzz_message_kinds = 1 | 1 << 2;
const struct steps_message fuzz_messages[] = {
#define MESSAGE_ROW(name, flags, arguments, reply) {name, arguments ", tail, follows"},
	PROTOCOL_REQUESTS(MESSAGE_ROW)
#undef MESSAGE_ROW
	/* Messages of children: */
	{"reply", "st, err, us, params, span, offset, inflight, blocks, accesses"},
	{"event", "what, err, stream, bytes, begun, done, held, ticket"},
	{"result", "st, err, entry, source, log, object, regs, shared, spill, local, us"},
	{"ready", "st, err, name, model, uuid, memory, devices, target, max_threads, grid, mps, warp, "
			  "nvrtc, host"},
	{NULL, NULL}};
const char *const fuzz_words[] = {"op",
								  "tensors",
								  "attrs",
								  "d",
								  "s",
								  "t",
								  "b",
								  "o",
								  "n",
								  "v",
								  "c",
								  "name",
								  "entry",
								  "bytes",
								  "headers",
								  "macros",
								  "options",
								  "y[i] = x[i]",
								  "x,y",
								  "cpu",
								  "sm_90",
								  "sm_80",
								  "cuda:0",
								  "ipc",
								  "fd",
								  "pool",
								  "used",
								  "size",
								  "hits",
								  "generic",
								  "progress",
								  "fault",
								  "lane",
								  "quiet",
								  "scratch",
								  "requests",
								  "operators",
								  "sessions",
								  "flights",
								  "all",
								  "corrupt",
								  "expire",
								  "children",
								  "fail-compile",
								  "kernel",
								  "-std=c++17",
								  "a.cuh",
								  FUZZ_OPERATOR,
								  FUZZ_ATTRIBUTE,
								  FUZZ_VALUE,
								  FUZZ_OPERAND,
								  FUZZ_DTYPE,
								  NULL};

struct client {
	int sock;
	bool closed;
	int asked, answered;
};

static struct broker broker;
static struct client clients[CLIENTS];
static char directory[64];
static int memory, event, nonsense;

/* ---- The broker ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status, (void)kind, (void)place;
	return remove(path);
}

static void remove_directory(void)
{
	nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void set_options(struct options *options)
{
	static char paths[4][96], *argv[32] = {(char *)"kilnd"};
	static const char *const others[] = {
		"--device=cpu",      "--workers=2",       "--test-requests",   "--max-queued=256K",
		"--max-inflight=48", "--max-buffers=32",  "--max-calls=32",    "--max-message=1M",
		"--max-bytes=64M",   "--cache-bytes=16M", "--log-level=error", "--test-max-graph-calls=64",
		"--max-own=2"};
	static const char *const names[] = {"socket", "cache-dir", "key-dir", "trust-dir"};
	char error[KERNEL_ERROR_MAX];
	int argc = 1;
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		argv[argc++] = (char *)others[i];
	for (int i = 0; i < 4; i++) {
		snprintf(paths[i], sizeof(paths[i]), "--%s=%s/%s", names[i], directory, names[i]);
		argv[argc++] = paths[i];
	}
	int status = options_parse(argc, argv, options, error);
	if (status != KILN_OK)
		fprintf(stderr, "%s\n", error);
	require(status == KILN_OK, "options that are wrong");
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	signal(SIGPIPE, SIG_IGN);
	/* The cache is written at every input: in memory, where there is such a place. */
	snprintf(directory, sizeof(directory), "%s/kiln-fuzz-XXXXXX",
			 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	require(mkdtemp(directory) != NULL, "no directory");
	atexit(remove_directory);
	/* Also the texts of users' kernels, which are blank. */
	static char blanks[65536];
	memset(blanks, ' ', sizeof(blanks));
	memory = frame_memfd("memory", sizeof(blanks));
	require(pwrite(memory, blanks, sizeof(blanks), 0) == sizeof(blanks), "no memory");
	event = eventfd(0, EFD_CLOEXEC);
	return 0;
}

static void start_broker(void)
{
	static struct options options;
	char error[KERNEL_ERROR_MAX] = "";
	if (memory == 0)
		LLVMFuzzerInitialize(NULL, NULL); /* the replay has nobody who calls it */
	memset(&broker, 0, sizeof(broker));
	set_options(&options);
	require(server_begin(&broker, &options), "no event loop");
	require(open_broker(&broker, error) == KILN_OK, error);
}

static void stop_broker(void)
{
	uint64_t until = util_now_us() + SETTLE_US;
	drain_begin(&broker, "the input ends");
	while (uv_run(&broker.loop, UV_RUN_NOWAIT)) {
		children_speak(1000);
		/* Instead of waiting for its clock. */
		if (!drain_is_done(&broker))
			drain_look(&broker);
		require(util_now_us() < until, "the broker does not come to its end");
	}
	require(!broker.sessions && broker.session_count == 0 && broker.silent_count == 0 &&
				broker.kept_count == 0,
			"a session is left");
	require(!broker.lookups, "a compile is left");
	require(uv_loop_alive(&broker.loop) == 0, "a handle is left");
	free_broker(&broker);
	children_reset();
}

static void check_figures(void)
{
	struct wire_out out;
	struct wire_in in;
	wire_begin(&out, NULL, 0);
	command_put_counters(&out, &broker);
	require(wire_end(&out) == KILN_OK &&
				wire_parse(&in, out.buffer.data, out.buffer.size) == KILN_OK,
			"figures that cannot be read");
	const msgpack_object *rows = wire_get(&in.root, "identities");
	for (uint32_t i = 0; i < wire_count(rows); i++)
		if (!wire_get_bool(wire_at(rows, i), "holds", false)) {
			char text[400];
			wire_print(wire_at(rows, i), text, sizeof(text));
			fprintf(stderr, "%s\n", text);
			require(false, "figures do not add up");
		}
	wire_in_free(&in);
	wire_out_free(&out);
}

/* ---- Clients ---- */

static struct client *client_of(unsigned number)
{
	struct client *client = &clients[number % CLIENTS];
	int pair[2];
	if (client->sock < 0 && !client->closed) {
		require(frame_pair(pair) == KILN_OK, "no socket pair");
		client->sock = pair[0];
		session_open(&broker, pair[1]);
	}
	return client;
}

static void hang_up(struct client *client)
{
	if (client->sock >= 0)
		close(client->sock);
	client->sock = -1;
	client->closed = true;
}

/* With $KILN_FUZZ_SHOW, for who looks at one input. */
static void show(const char *arrow, const struct client *client, const msgpack_object *root)
{
	char text[2000];
	if (!getenv("KILN_FUZZ_SHOW"))
		return;
	wire_print(root, text, sizeof(text));
	fprintf(stderr, "%d %s %s\n", (int)(client - clients), arrow, text);
}

static void check_reply(struct client *client, struct wire_in *in)
{
	show("<-", client, &in->root);
	bool reply = !strcmp(wire_type(in), "reply");
	int64_t status = wire_get_int(&in->root, "st", 1);
	require(reply || !strcmp(wire_type(in), "event"), "neither a reply nor an event");
	require(!reply || status <= 0, "a reply without a status");
	if (reply && status < 0)
		require_sentence(wire_get_str(in, &in->root, "err"));
	client->answered += reply && wire_id(in) > 0;
}

static void take_replies(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		struct client *client = &clients[i];
		struct frame frame;
		int status = KILN_ECONN;
		while (client->sock >= 0 &&
			   (status = frame_recv(client->sock, &frame, 1 << 28)) == KILN_OK) {
			struct wire_in in;
			require(wire_parse(&in, frame.data, frame.size) == KILN_OK, "a reply that is none");
			check_reply(client, &in);
			wire_in_free(&in);
			frame_free(&frame);
		}
		if (client->sock >= 0 && status == KILN_ECONN)
			hang_up(client);
	}
}

static bool is_stop(struct wire_in *in)
{
	const char *what = wire_get_str(in, &in->root, "what");
	return !strcmp(wire_type(in), "stop") ||
		   (!strcmp(wire_type(in), "debug") && what && !strncmp(what, "delay", 5));
}

static void ask(const struct step *step)
{
	struct client *client = client_of(step->number & 3);
	struct wire_in in;
	int fds[4] = {memory, event, memory, memory};
	if (client->sock < 0)
		return;
	/* The broker tells a sender that its message is no request, and lets it go. */
	bool request = wire_parse(&in, step->bytes, step->size) == KILN_OK && wire_id(&in);
	bool skip = request && is_stop(&in);
	if (request)
		show("->", client, &in.root);
	wire_in_free(&in);
	if (!skip &&
		frame_send(client->sock, step->bytes, step->size, fds, (step->number >> 2) % 5) == KILN_OK)
		client->asked += request;
}

static void leave(const struct step *step)
{
	struct client *client = &clients[(step->number & 3) % CLIENTS];
	int what = (step->number >> 2) % 4;
	if (client->sock < 0)
		return;
	if (what < 2)
		hang_up(client);
	else {
		shutdown(client->sock, what == 2 ? SHUT_RD : SHUT_WR);
		client->closed = true;
	}
}

static void send_bytes(const struct step *step)
{
	struct client *client = client_of(step->number & 3);
	if (client->sock >= 0 && step->size > 0) {
		(void)!send(client->sock, step->bytes, step->size, MSG_NOSIGNAL | MSG_DONTWAIT);
		client->closed = true; /* whoever does that is let go, unless it was a frame by chance */
	}
}

/* ---- Steps ---- */

static void turn(void)
{
	uv_run(&broker.loop, UV_RUN_NOWAIT);
	take_replies();
}

static bool quiet(void)
{
	for (const struct session *session = broker.sessions; session; session = session->next)
		if (session->work_count || session->request_count || peer_is_ending(session->peer))
			return false;
	return !job_busy(&broker) && !store_busy(&broker);
}

/* All that was asked for is answered. */
static void settle(void)
{
	uint64_t until = util_now_us() + SETTLE_US;
	int still = 0;
	while (still < 3) {
		bool spoke = children_speak(1000);
		turn();
		still = !spoke && quiet() ? still + 1 : 0;
		if (!spoke && still == 0)
			usleep(50);
		if (util_now_us() >= until) {
			for (const struct session *session = broker.sessions; session; session = session->next)
				fprintf(stderr, "session %llu: %d works, %d requests%s\n",
						(unsigned long long)session->id, session->work_count,
						session->request_count, peer_is_ending(session->peer) ? ", ends" : "");
			fprintf(stderr, "jobs %d, store %d\n", job_busy(&broker), store_busy(&broker));
			require(false, "an answer never comes");
		}
	}
	for (int i = 0; i < CLIENTS; i++)
		if (clients[i].sock >= 0 && !clients[i].closed)
			require(clients[i].asked == clients[i].answered,
					"requests and answers are not as many");
}

static void perform(const struct step *step)
{
	switch (step->kind % fuzz_kinds) {
	case 0:
		ask(step);
		break;
	case 1:
		if (step->number == 255)
			settle();
		else
			children_speak(1 + step->number % 16);
		break;
	case 2:
		if (nonsense++ < NONSENSE_MOST)
			children_say(step->number, step->bytes, step->size);
		break;
	case 3:
		children_fail(step->number % 8);
		break;
	case 4:
		if (nonsense++ < NONSENSE_MOST)
			children_die(step->number);
		break;
	case 5:
		leave(step);
		break;
	default:
		send_bytes(step);
	}
	turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct step step;
	start_broker();
	nonsense = 0;
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = (struct client){.sock = -1};
	children_speak(1000);
	turn();
	for (int i = 0; i < STEPS_MOST && step_next(&data, &size, &step); i++)
		perform(&step);
	settle();
	check_figures();
	for (int i = 0; i < CLIENTS; i++)
		hang_up(&clients[i]);
	settle();
	check_figures();
	stop_broker();
	return 0;
}
