/*
 * fuzz_redis: a Redis that says anything, at any time, in pieces of any size, or hangs up: the
 * connection of the second tier to it (link.c, guard.c, hiredis), on a loop of its own.  Every
 * command is answered once, none after the connection has ended, what is handed on can be read, and
 * in the end nothing is left.  A first step that ends the connection says which login it begins
 * with.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/broker/devices/remote/remote_link.h"
#include "steps.h"

#define ASKS 64
#define TURNS 4
#define END_TURNS 1000
#define FLOOD_BYTES ((size_t)64 << 10)
#define FLOOD_TURNS 400

/* Say these bytes; ask something; answer well; let time pass; hang up; end; say very much. */
enum { SAY, ASK, ANSWER, TURN, HANG_UP, END, FLOOD, KINDS };
const unsigned fuzz_kinds = KINDS, fuzz_message_kinds = 0;
const struct steps_message fuzz_messages[] = {{"GET", "key"}, {NULL, NULL}};
const char *const fuzz_words[] = {"+OK\r\n",
								  "+PONG\r\n",
								  "-ERR no\r\n",
								  ":1\r\n",
								  ":-9223372036854775808\r\n",
								  "$-1\r\n",
								  "$0\r\n\r\n",
								  "$5\r\nabcde\r\n",
								  "$9437184\r\n",
								  "$9223372036854775807\r\n",
								  "*-1\r\n",
								  "*0\r\n",
								  "*2\r\n",
								  "*2147483648\r\n",
								  ",3.5\r\n",
								  "#t\r\n",
								  "_\r\n",
								  "%1\r\n",
								  "~1\r\n",
								  ">1\r\n",
								  "\r\n",
								  "\n",
								  NULL};

struct scene {
	uv_loop_t loop;
	struct remote_link *link; /* NULL: closed */
	int peer;                 /* the Redis's end; -1: none */
	int ready, lost;
	bool closed, flooded;
	int asked, answers[ASKS];
	uint64_t read; /* so that a sanitizer sees what is handed on */
};

static struct scene scene;
static int listener = -1;
static char place[64];

/* ---- The owner ---- */

static void on_ready(void *owner, uint64_t micros)
{
	struct scene *of = owner;
	(void)micros;
	require(!of->closed && !of->lost && ++of->ready == 1, "it is ready twice, or when it is lost");
}

static void on_lost(void *owner, const char *why)
{
	struct scene *of = owner;
	struct remote_link *link = of->link;
	require(!of->closed && ++of->lost == 1, "it is lost twice, or when it is closed");
	require_sentence(why);
	of->link = NULL;
	of->closed = true;
	remote_link_close(link);
}

static void on_answer(void *arg, const struct remote_reply *reply)
{
	int *answers = arg;
	require(++*answers == 1, "a command is answered twice");
	if (reply->kind == REMOTE_BYTES)
		for (size_t i = 0; i < reply->size; i++)
			scene.read += (unsigned char)reply->bytes[i];
	else if (reply->kind == REMOTE_ERROR)
		scene.read += strlen(reply->bytes);
	else
		require(reply->kind == REMOTE_LOST || reply->kind == REMOTE_NIL ||
					reply->kind == REMOTE_NUMBER,
				"an answer of no kind");
	require(reply->size <= REMOTE_REPLY_MOST, "an answer of more bytes than one has");
	require(!scene.closed || reply->kind == REMOTE_LOST, "an answer when it is closed");
}

/* ---- Both ends ---- */

static void hear(struct scene *of)
{
	char bytes[4096];
	if (of->peer < 0 && listener >= 0)
		of->peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (of->peer >= 0 && read(of->peer, bytes, sizeof(bytes)) > 0)
		;
}

static void turn(struct scene *of, int times)
{
	for (int i = 0; i < times; i++) {
		uv_run(&of->loop, UV_RUN_NOWAIT);
		hear(of);
	}
}

static void say(struct scene *of, const void *bytes, size_t size)
{
	if (of->peer >= 0 && size)
		(void)!send(of->peer, bytes, size, MSG_NOSIGNAL);
	turn(of, TURNS);
}

static void flood(struct scene *of)
{
	static char much[FLOOD_BYTES];
	of->flooded = true;
	memset(much, 'a', sizeof(much));
	say(of, "$99999999\r\n", 11);
	for (int i = 0; i < FLOOD_TURNS && of->peer >= 0 && !of->closed; i++)
		say(of, much, sizeof(much));
}

static void ask(struct scene *of, const struct step *step)
{
	struct remote_command command = {0};
	int *answers = &of->answers[of->asked];
	if (!of->link || of->asked == ASKS)
		return;
	remote_word(&command, step->number & 1 ? "GET" : "SET");
	remote_word_bytes(&command, step->bytes, step->size);
	if (step->number & 2)
		remote_word(&command, "PX");
	*answers = 0;
	if (remote_link_send(of->link, &command, on_answer, answers))
		of->asked++;
}

/* As a Redis answers that is one. */
static void answer(struct scene *of, const struct step *step)
{
	char text[64];
	switch (step->number % 6) {
	case 0:
		say(of, "+OK\r\n", 5);
		break;
	case 1:
		say(of, "$-1\r\n", 5);
		break;
	case 2:
		say(of, ":1\r\n", 4);
		break;
	case 3:
		say(of, "-ERR it is wrong\r\n", 18);
		break;
	case 4:
		say(of, "+PONG\r\n+PONG\r\n+PONG\r\n", 21);
		break;
	default:
		snprintf(text, sizeof(text), "$%zu\r\n", step->size);
		say(of, text, strlen(text));
		say(of, step->bytes, step->size);
		say(of, "\r\n", 2);
	}
}

static void hang_up(struct scene *of, unsigned how)
{
	if (of->peer < 0)
		return;
	if (how & 1) {
		shutdown(of->peer, SHUT_WR);
	} else {
		close(of->peer);
		of->peer = -1;
	}
	turn(of, TURNS);
}

static void end(struct scene *of)
{
	struct remote_link *link = of->link;
	of->link = NULL;
	of->closed = true;
	remote_link_close(link);
}

static void take(struct scene *of, const struct step *step)
{
	switch (step->kind % fuzz_kinds) {
	case SAY:
		say(of, step->bytes, step->size);
		break;
	case ASK:
		ask(of, step);
		break;
	case ANSWER:
		answer(of, step);
		break;
	case TURN:
		turn(of, step->number % 16);
		break;
	case HANG_UP:
		hang_up(of, step->number);
		break;
	case END:
		end(of);
		break;
	default:
		/* It takes a while: seldom, and once. */
		if (step->number == 255 && !of->flooded)
			flood(of);
	}
}

/* ---- The input ---- */

static void remove_place(void)
{
	char path[96];
	snprintf(path, sizeof(path), "%s/redis", place);
	unlink(path);
	rmdir(place);
}

static void open_place(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (listener >= 0)
		return;
	snprintf(place, sizeof(place), "/tmp/kiln-fuzz-redis-XXXXXX");
	require(mkdtemp(place) != NULL, "no place for a socket");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/redis", place);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	require(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
				listen(listener, 4) == 0,
			"no socket");
	atexit(remove_place);
}

static struct remote_url url_of(uint8_t which)
{
	struct remote_url url = {.is_path = true, .database = which & 1 ? 3 : 0};
	snprintf(url.host, sizeof(url.host), "%s/redis", place);
	if (which & 2)
		snprintf(url.password, sizeof(url.password), "sword fish");
	if (which & 4)
		snprintf(url.user, sizeof(url.user), "me");
	return url;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct remote_link_events events = {on_ready, on_lost};
	struct step step;
	open_place();
	scene = (struct scene){.peer = -1};
	const uint8_t *first = data;
	size_t left = size;
	bool login = step_next(&first, &left, &step) && step.kind % fuzz_kinds == END;
	const struct remote_url url = url_of(login ? step.number : 0);
	require(uv_loop_init(&scene.loop) == 0, "no loop");
	scene.link = remote_link_open(&scene.loop, &url, &events, &scene);
	require(scene.link, "no memory");
	turn(&scene, TURNS);
	if (login)
		step_next(&data, &size, &step);
	for (int i = 0; i < STEPS_MOST && step_next(&data, &size, &step); i++)
		take(&scene, &step);
	if (!scene.closed)
		end(&scene);
	for (int i = 0; i < END_TURNS && uv_run(&scene.loop, UV_RUN_NOWAIT); i++)
		hear(&scene);
	require(uv_loop_close(&scene.loop) == 0, "something is left on the loop");
	for (int i = 0; i < scene.asked; i++)
		require(scene.answers[i] == 1, "a command was never answered");
	hear(&scene);
	if (scene.peer >= 0)
		close(scene.peer);
	return 0;
}
