/* step_look.c: questions, upkeep of the cache, and the command line. */
#include "client.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool ask(struct me *me, const char *request, const kiln_attr *args, int count,
				kiln_reply **reply)
{
	*reply = NULL;
	return me_ok(me, kiln_request(me->client, request, args, count, reply), request);
}

static kiln_attr text_attr(const char *name, const char *value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_STRING, .s = value};
}

static kiln_attr int_attr(const char *name, int64_t value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_INT, .i = value};
}

/* ---- Questions ---- */

static void explain(struct me *me)
{
	struct cases_case c;
	kiln_tensor tensors[CASES_MAX_OPERANDS];
	kiln_attr attrs[CASES_MAX_ATTRS];
	kiln_reply *reply = NULL;

	cases_random(me->soak->options.seed, (uint64_t)me_pick(me, 4096), &c);
	cases_tensors(&c, tensors);
	cases_attrs(&c, attrs);
	me_doing(me, "explain: %.100s", c.name);
	if (me_ok(me,
			  kiln_explain(me->client, c.op->name, tensors, c.operand_count, attrs, c.attr_count,
						   me_chance(me, 2) ? "sm_90" : NULL, &reply),
			  "explaining") &&
		!*kiln_reply_str(reply, "text"))
		me_fail(me, "the plan has no text");
	kiln_reply_free(reply);
}

static void record(struct me *me)
{
	kiln_attr next = int_attr("next", 0);
	bool more = true;
	for (int page = 0; page < 100 && more; page++) {
		kiln_reply *reply;
		if (!ask(me, "record", &next, 1, &reply))
			return;
		more = kiln_reply_int(reply, "more") != 0;
		next.i = kiln_reply_int(reply, "next");
		kiln_reply_free(reply);
	}
}

void step_look(struct me *me)
{
	static const char *const requests[] = {"info",         "devices",  "ops",
										   "cache.failed", "tuned.ls", "key.ls"};
	kiln_attr limit = int_attr("limit", 20), section = text_attr("section", "limits");
	kiln_reply *reply = NULL;
	int64_t what = me_pick(me, 12);

	me_count(me, SOAK_COUNT_looks, 1);
	if (what < 5)
		explain(me);
	else if (what == 5)
		record(me);
	else if (what == 6)
		ask(me, "cache.ls", &limit, 1, &reply);
	else if (what == 7)
		ask(me, "info", &section, 1, &reply);
	else
		ask(me, requests[me_pick(me, sizeof(requests) / sizeof(requests[0]))], NULL, 0, &reply);
	kiln_reply_free(reply);
}

/* ---- Upkeep ---- */

static void verify(struct me *me)
{
	char key[80] = "";
	bool more = true;
	while (more) {
		kiln_attr next = text_attr("next", key);
		kiln_reply *reply;
		if (!ask(me, "cache.verify", &next, 1, &reply))
			return;
		if (kiln_reply_int(reply, "bad"))
			me_fail(me, "the cache does not verify: %.400s", kiln_reply_json(reply));
		more = kiln_reply_int(reply, "more") != 0;
		snprintf(key, sizeof(key), "%s", kiln_reply_str(reply, "next"));
		kiln_reply_free(reply);
	}
}

/* trim or clear: piece after piece. */
static void remove_rows(struct me *me, const char *request, const kiln_attr *how)
{
	int64_t next = 0;
	bool more = true;
	while (more) {
		kiln_attr args[2] = {int_attr("next", next)};
		kiln_reply *reply;
		if (how)
			args[1] = *how;
		if (!ask(me, request, args, how ? 2 : 1, &reply))
			return;
		more = kiln_reply_int(reply, "more") != 0;
		next = kiln_reply_int(reply, "next");
		kiln_reply_free(reply);
	}
}

/* Others trim meanwhile: a row may be gone. */
static void one_row(struct me *me)
{
	static const char *const requests[] = {"cache.show", "cache.get", "cache.pin", "cache.show"};
	kiln_attr limit = int_attr("limit", 50);
	kiln_reply *reply, *answer = NULL;
	char path[32], key[80];
	bool pinned = false;

	if (!ask(me, "cache.ls", &limit, 1, &reply))
		return;
	int rows = kiln_reply_count(reply, "rows");
	snprintf(path, sizeof(path), "rows[%d].key", rows ? (int)me_pick(me, rows) : 0);
	snprintf(key, sizeof(key), "%s", kiln_reply_str(reply, path));
	kiln_reply_free(reply);
	for (int i = 0; i < 4 && rows; i++) {
		const kiln_attr arg = text_attr("key", key);
		int status = kiln_request(me->client, requests[i], &arg, 1, &answer);
		if (status != KILN_ENOENT && !me_ok(me, status, requests[i]))
			break;
		pinned = pinned || (status == KILN_OK && i == 2);
		kiln_reply_free(answer);
		answer = NULL;
	}
	if (pinned) {
		/* Pins are not counted: another client that picked the same row may have unpinned it. */
		const kiln_attr arg = text_attr("key", key);
		int status = kiln_request(me->client, "cache.unpin", &arg, 1, &answer);
		if (status != KILN_ENOENT)
			me_ok(me, status, "cache.unpin");
		kiln_reply_free(answer);
	}
}

void step_upkeep(struct me *me)
{
	kiln_attr bytes = int_attr("bytes", (1 + me_pick(me, 16)) << 20);
	int64_t what = me_pick(me, 16);

	me_count(me, SOAK_COUNT_looks, 1);
	if (what < 5)
		verify(me);
	else if (what < 9)
		remove_rows(me, "cache.trim", &bytes);
	else if (what == 9)
		remove_rows(me, "cache.clear", NULL);
	else
		one_row(me);
}

/* ---- The command line ---- */

#define WORDS_MOST 8
#define COMMAND_MS 60000

static const char *const commands[][WORDS_MOST] = {
	{"status"},
	{"status", "--json"},
	{"devices"},
	{"ops", "--json"},
	{"record"},
	{"cache", "ls"},
	{"cache", "verify"},
	{"cache", "table"},
	{"cache", "trim", "24MiB"},
	{"top", "--once"},
	{"explain", "softmax", "--shape", "7x333", "--why"},
	{"run", "permute", "--shape", "17x33", "--perm", "1,0"},
};

/* The wait status, or -1 after a failure. */
static int run_command(struct me *me, const char *const *words, const char *output)
{
	const char *argv[WORDS_MOST + 6] = {me->soak->kiln, "--socket", me->soak->socket, "--device",
										me->soak->options.device};
	posix_spawn_file_actions_t actions;
	int64_t until = soak_now_ms() + COMMAND_MS;
	int status = 0, count = 5;
	pid_t pid, got = 0;

	for (int i = 0; i < WORDS_MOST && words[i]; i++)
		argv[count++] = words[i];
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	if (posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ) != 0) {
		me_fail(me, "%s cannot be started", argv[0]);
		pid = 0;
	}
	posix_spawn_file_actions_destroy(&actions);
	while (pid && (got = waitpid(pid, &status, WNOHANG)) == 0 && soak_now_ms() < until) {
		me_beat(me);
		soak_pause_ms(5);
	}
	if (pid && got == 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		me_fail(me, "the command has not ended after %d ms", COMMAND_MS);
		return -1;
	}
	return pid ? status : -1;
}

void step_command(struct me *me)
{
	int64_t what = me_pick(me, sizeof(commands) / sizeof(commands[0]));
	const unsigned any = SOAK_ROLE(SOAK_DAEMON) | SOAK_DEVICES | SOAK_ROLE(SOAK_WORKER);
	char output[160], text[4096] = "";

	if (!me->soak->kiln[0])
		return;
	snprintf(output, sizeof(output), "%s/command.%d", me->soak->directory, me->number);
	me_doing(me, "kiln %s %s", commands[what][0], commands[what][1] ? commands[what][1] : "");
	me_count(me, SOAK_COUNT_commands, 1);
	int status = run_command(me, commands[what], output);
	FILE *file = fopen(output, "r");
	size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	if (file)
		fclose(file);
	text[size] = 0;
	if (strstr(text, "contradiction"))
		me_fail(me, "figures contradict each other: %.500s", text);
	if (status > 0 && soak_deaths_since(me->soak, any, me->step_ms - 10000) == 0)
		me_fail(me, "it ended with wait status %#x: %.400s", (unsigned)status, text);
	unlink(output);
	me_beat(me);
}
