/*
 * remote_scene.c: redis-server, two daemons, and a proxy that cuts connections.
 */
#include "remote_scene.h"

#include <daemon/seal/seal.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Redis ---- */

static bool in_path(const char *program)
{
	char path[512];
	const char *at = getenv("PATH");
	while (at && *at) {
		size_t size = strcspn(at, ":");
		snprintf(path, sizeof(path), "%.*s/%s", (int)size, at, program);
		if (access(path, X_OK) == 0)
			return true;
		at += size + (at[size] == ':');
	}
	return false;
}

int remote_need_redis(void **state)
{
	(void)state;
	if (in_path("redis-server"))
		return 0;
	fputs("redis-server is not installed: nothing is tested of the second tier\n", stderr);
	exit(getenv("CI") ? 1 : 77);
}

static redisContext *redis_connect(const struct remote_scene *scene)
{
	struct timeval limit = {5, 0};
	redisContext *context = redisConnectUnixWithTimeout(scene->socket, limit);
	if (context && !context->err)
		redisSetTimeout(context, limit);
	if (context && context->err) {
		redisFree(context);
		context = NULL;
	}
	return context;
}

void redis_start(struct remote_scene *scene)
{
	pid_t parent = getpid();
	int64_t end = now_ms() + START_TIMEOUT_MS;
	redisContext *context;

	fflush(NULL);
	unlink(scene->socket);
	scene->redis = fork();
	assert_true(scene->redis >= 0);
	if (scene->redis == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			execlp("redis-server", "redis-server", "--port", "0", "--bind", "127.0.0.1",
				   "--unixsocket", scene->socket, "--unixsocketperm", "700", "--save", "",
				   "--appendonly", "no", "--logfile", "/dev/null", "--dir", scene->a.daemon->dir,
				   NULL);
		_exit(127);
	}
	while (!(context = redis_connect(scene))) {
		if (now_ms() > end)
			fail_msg("redis-server does not answer");
		pause_ms(5);
	}
	redisFree(context);
}

void redis_kill(struct remote_scene *scene)
{
	kill(scene->redis, SIGKILL);
	process_wait(scene->redis, STOP_TIMEOUT_MS);
	scene->redis = 0;
}

static redisReply *ask(const struct remote_scene *scene, const char *format, va_list arguments)
{
	redisContext *context = redis_connect(scene);
	assert_non_null(context);
	redisReply *reply = redisvCommand(context, format, arguments);
	if (!reply || reply->type == REDIS_REPLY_ERROR)
		fail_msg("redis: %s: %s", format, reply ? reply->str : context->errstr);
	redisFree(context);
	return reply;
}

char *redis_ask(const struct remote_scene *scene, const char *format, ...)
{
	va_list arguments;
	char number[24];
	va_start(arguments, format);
	redisReply *reply = ask(scene, format, arguments);
	va_end(arguments);
	snprintf(number, sizeof(number), "%lld", reply->integer);
	char *text = strdup(reply->type == REDIS_REPLY_NIL       ? "(nil)"
						: reply->type == REDIS_REPLY_INTEGER ? number
															 : reply->str);
	freeReplyObject(reply);
	return text;
}

int64_t redis_int(const struct remote_scene *scene, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	redisReply *reply = ask(scene, format, arguments);
	va_end(arguments);
	int64_t value = reply->integer;
	assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
	freeReplyObject(reply);
	return value;
}

static redisReply *ask_for(const struct remote_scene *scene, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	redisReply *reply = ask(scene, format, arguments);
	va_end(arguments);
	return reply;
}

char *redis_key(const struct remote_scene *scene, const char *prefix)
{
	redisReply *reply = ask_for(scene, "KEYS %s*", prefix);
	assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
	assert_int_equal(reply->elements, 1);
	char *key = strdup(reply->element[0]->str);
	freeReplyObject(reply);
	return key;
}

void *redis_bytes(const struct remote_scene *scene, const char *key, size_t *size)
{
	redisReply *reply = ask_for(scene, "GET %s", key);
	assert_int_equal(reply->type, REDIS_REPLY_STRING);
	void *bytes = malloc(reply->len);
	assert_non_null(bytes);
	memcpy(bytes, reply->str, reply->len);
	*size = reply->len;
	freeReplyObject(reply);
	return bytes;
}

int redis_listen(const struct remote_scene *scene)
{
	redisContext *context = redis_connect(scene);
	int port = 0;

	assert_non_null(context);
	for (int i = 0; i < 50 && !port; i++) {
		int tried = 20000 + (getpid() + i * 977) % 12000;
		redisReply *reply = redisCommand(context, "CONFIG SET port %d", tried);
		assert_non_null(reply);
		port = reply->type == REDIS_REPLY_ERROR ? 0 : tried;
		freeReplyObject(reply);
	}
	redisFree(context);
	assert_true(port > 0);
	return port;
}

/* ---- Hosts ---- */

static int host_setup(struct remote_host *host, const char *name)
{
	void *daemon;
	if (harness_setup(&daemon))
		return -1;
	host->daemon = daemon;
	snprintf(host->name, sizeof(host->name), "%s", name);
	snprintf(host->keys, sizeof(host->keys), "%s/keys", host->daemon->dir);
	snprintf(host->trusted, sizeof(host->trusted), "%s/trusted", host->daemon->dir);
	return 0;
}

int remote_setup(void **state)
{
	struct remote_scene *scene = calloc(1, sizeof(*scene));
	struct seal_key a, b;
	char error[KERNEL_ERROR_MAX];

	if (!scene || host_setup(&scene->a, "host-a") || host_setup(&scene->b, "host-b"))
		return -1;
	snprintf(scene->socket, sizeof(scene->socket), "%s/redis.sock", scene->a.daemon->dir);
	snprintf(scene->url, sizeof(scene->url), "unix:%s", scene->socket);
	if (seal_new(scene->a.keys, scene->a.name, &a, error) ||
		seal_new(scene->b.keys, scene->b.name, &b, error) ||
		seal_trust(scene->a.trusted, &a, error) || seal_trust(scene->a.trusted, &b, error) ||
		seal_trust(scene->b.trusted, &a, error) || seal_trust(scene->b.trusted, &b, error)) {
		fprintf(stderr, "remote_scene: %s\n", error);
		return -1;
	}
	redis_start(scene);
	*state = scene;
	return 0;
}

int remote_teardown(void **state)
{
	struct remote_scene *scene = *state;
	bool well = kilnd_end(scene->a.daemon);
	void *a = scene->a.daemon, *b = scene->b.daemon;

	well = kilnd_end(scene->b.daemon) && well;
	if (scene->redis) {
		kill(scene->redis, SIGKILL);
		waitpid(scene->redis, NULL, 0);
	}
	well = harness_teardown(&a) == 0 && well;
	well = harness_teardown(&b) == 0 && well;
	free(scene);
	return well ? 0 : -1;
}

void host_spawn(const struct remote_host *host, const char *url, const char *const *options)
{
	const char *all[24] = {"--remote",    url,           "--key-dir",         host->keys,
						   "--trust-dir", host->trusted, "--remote-deadline", "1000"};
	int count = 8;
	while (options && *options && count < 23)
		all[count++] = *options++;
	kilnd_start(host->daemon, all);
}

void host_start(const struct remote_host *host, const char *url, const char *const *options)
{
	int64_t end = now_ms() + START_TIMEOUT_MS;
	bool connected = false;
	host_spawn(host, url, options);
	while (!connected) {
		kiln_client *client = client_open(host->daemon);
		kiln_reply *reply = NULL;
		assert_ok(kiln_request(client, "info", NULL, 0, &reply));
		connected = !strcmp(kiln_reply_str(reply, "remote.state"), "connected");
		if (!connected && now_ms() > end)
			fail_msg("not connected: %s", kiln_reply_str(reply, "remote.reason"));
		kiln_reply_free(reply);
		kiln_close(client);
	}
}

static int ask_daemon(const struct kilnd *daemon, void *arg)
{
	struct remote_asking *asking = arg;
	char origin[16] = "", why[400] = "";
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	if (!client)
		return 1;
	status = permute_check(client, &asking->problem, 1, origin, why);
	kiln_close(client);
	if (!status && (!asking->origin || !strcmp(origin, asking->origin)))
		return 0;
	fprintf(stderr, "origin \"%s\", not \"%s\"; %s\n", origin, asking->origin, why);
	return 2;
}

pid_t host_ask(const struct remote_host *host, struct remote_asking *asking)
{
	return process_start(host->daemon, ask_daemon, asking);
}

/* ---- A proxy ---- */

static int open_socket(const char *path, bool listens)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	if (listens && (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 8)))
		return -1;
	if (!listens && connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	return fd;
}

/* Bytes from one to the other; 0: there are no more. */
static ssize_t pass_on(int from, int to)
{
	char bytes[4096];
	ssize_t size = read(from, bytes, sizeof(bytes));
	return size > 0 ? write(to, bytes, (size_t)size) : 0;
}

/* One connection in a process of its own. */
static void pass_both_ways(int client, int redis, int cut_after)
{
	struct pollfd fds[2] = {{.fd = client, .events = POLLIN}, {.fd = redis, .events = POLLIN}};
	while (cut_after > 0 && poll(fds, 2, -1) > 0) {
		ssize_t size = 1;
		if (fds[0].revents)
			size = pass_on(client, redis);
		if (size > 0 && fds[1].revents) {
			size = pass_on(redis, client);
			cut_after -= (int)size;
		}
		if (size <= 0)
			return;
	}
}

/* A process that answers who connects to this path, one after the other, while its parent lives. */
static pid_t serve(const char *path, void (*answer)(int client, const void *how), const void *how)
{
	pid_t parent = getpid(), pid;
	int listening = open_socket(path, true);

	assert_true(listening >= 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid) {
		close(listening);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	while (getppid() == parent) {
		int client = accept(listening, NULL, NULL);
		if (client >= 0)
			answer(client, how);
		close(client);
	}
	_exit(0);
}

struct proxy {
	const char *redis;
	int cut_after;
};

static void proxy_answer(int client, const void *how)
{
	const struct proxy *proxy = how;
	int redis;

	if (fork() > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	redis = open_socket(proxy->redis, false);
	if (redis >= 0)
		pass_both_ways(client, redis, proxy->cut_after);
	_exit(0);
}

pid_t proxy_start(const struct remote_scene *scene, const char *path, int cut_after)
{
	const struct proxy proxy = {scene->socket, cut_after};
	return serve(path, proxy_answer, &proxy);
}

/* ---- A Redis that says what it was not asked ---- */

static bool say(int client, const char *text)
{
	return write(client, text, strlen(text)) == (ssize_t)strlen(text);
}

struct lie {
	const char *first, *more;
};

static void lie(int client, const void *how)
{
	const struct lie *words = how;
	char bytes[256];
	bool good = true;
	for (int pings = 0; good && pings < 3; pings++)
		good = read(client, bytes, sizeof(bytes)) > 0 && say(client, "+PONG\r\n");
	good = good && say(client, words->first);
	while (good && words->more[0])
		good = say(client, words->more);
	while (good && read(client, bytes, sizeof(bytes)) > 0)
		continue;
}

pid_t liar_start(const char *path, const char *first, const char *more)
{
	const struct lie words = {first, more};
	return serve(path, lie, &words);
}
