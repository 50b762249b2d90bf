/*
 * test_client.c: connecting, and what goes wrong with connections: nobody there, another version, a
 * daemon that is silent, dies or talks nonsense, a second thread, a fork.  Against a fake daemon.
 */
#include "fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define SAYS(part) assert_non_null(strstr(kiln_errmsg(), part))

/* ---- Connecting ---- */

static void test_hello(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = NULL;
	char expected[120];

	kiln_connect_options options = {
		.size = sizeof(options), .socket = fake->path, .device = "cuda:3"};
	assert_int_equal(kiln_connect(&options, &client), KILN_OK);
	assert_string_equal(kiln_device(client), "cpu");
	kiln_close(client);
	snprintf(expected, sizeof(expected),
			 "hello(id=1, proto=%d, oldest=%d, version=\"%s\", pid=%d, device=\"cuda:3\")",
			 PROTOCOL_VERSION, PROTOCOL_OLDEST, kiln_version(), (int)getpid());
	assert_string_equal(fake->seen[0], expected);
	fake_stop(fake);
}

static bool refuse_hello(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	fake_reply(fake, wire_id(in), KILN_ELIMIT, "there are 64 sessions already", NULL);
	fake_hang_up(fake);
	return true;
}

static void test_refused(void **state)
{
	(void)state;
	struct fake *fake = fake_start(refuse_hello);
	kiln_client *client = (kiln_client *)&state;
	assert_int_equal(fake_connect(fake, 5000, &client), KILN_ELIMIT);
	assert_string_equal(kiln_errmsg(), "there are 64 sessions already");
	assert_ptr_equal(client, &state);
	fake_stop(fake);

	fake = fake_start(NULL);
	fake->proto = 99;
	assert_int_equal(fake_connect(fake, 5000, &client), KILN_EVERSION);
	SAYS("9.9.9");
	SAYS("protocol 99");
	SAYS(fake->path);
	assert_ptr_equal(client, &state);
	fake_stop(fake);
}

static void test_nobody(void **state)
{
	(void)state;
	kiln_client *client = NULL;
	char directory[] = "/tmp/kiln-test-XXXXXX", path[64], longer[200];
	kiln_connect_options options = {.size = sizeof(options), .socket = path};

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/s", directory);
	assert_int_equal(kiln_connect(&options, &client), KILN_ECONN);
	SAYS(path);
	SAYS("kilnd --socket");

	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memcpy(address.sun_path, path, strlen(path) + 1);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(sock, 1), 0);
	assert_int_equal(kiln_connect(&options, &client), KILN_EPROTO);
	SAYS("another program");
	close(sock);
	unlink(path);
	rmdir(directory);

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	options.socket = longer;
	assert_int_equal(kiln_connect(&options, &client), KILN_EINVAL);
	SAYS("199 bytes");
	SAYS("107");
	options = (kiln_connect_options){.size = 3};
	assert_int_equal(kiln_connect(&options, &client), KILN_EINVAL);
	SAYS("options->size is 3");
	options = (kiln_connect_options){.size = sizeof(options), .flags = 64};
	assert_int_equal(kiln_connect(&options, &client), KILN_EINVAL);
	SAYS("0x40");
	options = (kiln_connect_options){.size = sizeof(options), .timeout_ms = -7};
	assert_int_equal(kiln_connect(&options, &client), KILN_EINVAL);
	SAYS("-7");
	assert_null(client);
}

/* Waits for a file that a process which is not our child writes, up to a deadline. */
static bool read_when_there(const char *path, char *text, size_t size)
{
	for (int i = 0; i < 2000; i++) {
		struct timespec pause = {.tv_nsec = 5000000};
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;
		if (fd >= 0)
			close(fd);
		if (n > 0 && text[n - 1] == '\n') {
			text[n] = 0;
			return true;
		}
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Writes a program of sh. */
static void write_program(const char *path, const char *format, ...)
{
	char text[512] = "#!/bin/sh\n";
	va_list values;
	va_start(values, format);
	vsnprintf(text + strlen(text), sizeof(text) - strlen(text), format, values);
	va_end(values);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* The sentence has the last error of the daemon that was started, and of no other one. */
static void test_reason(void **state)
{
	(void)state;
	kiln_client *client = NULL;
	char directory[] = "/tmp/kiln-test-XXXXXX", path[64], daemon[64], log[64], expected[128];
	kiln_connect_options options = {.size = sizeof(options),
									.socket = path,
									.daemon = daemon,
									.timeout_ms = 15000,
									.flags = KILN_CONNECT_AUTOSTART};

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/kiln.sock", directory);
	snprintf(daemon, sizeof(daemon), "%s/daemon", directory);
	snprintf(log, sizeof(log), "%s/kilnd.log", directory);
	write_program(daemon, "echo \"x kilnd[$$] error first\" >&2\n"
						  "echo \"x kilnd[$$] error the cache is taken\" >&2\n"
						  "echo \"x kilnd[1] error of another\" >&2\n");
	assert_int_equal(kiln_connect(&options, &client), KILN_ECONN);
	snprintf(expected, sizeof(expected), "%s ended at once: the cache is taken", path);
	SAYS(expected);
	unlink(log);
	unlink(daemon);
	rmdir(directory);
}

/* A daemon may be gone, and its number free, before the library asks the kernel for its end. */
static void test_autostart_gone(void **state)
{
	(void)state;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ESRCH),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	char directory[] = "/tmp/kiln-test-XXXXXX", path[64], log[64];
	kiln_client *client = NULL;
	kiln_connect_options options = {.size = sizeof(options),
									.socket = path,
									.daemon = "/bin/false",
									.timeout_ms = 60000,
									.flags = KILN_CONNECT_AUTOSTART};
	int status = 0;

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/s", directory);
	snprintf(log, sizeof(log), "%s/kilnd.log", directory);
	pid_t pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
			prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
			_exit(2);
		_exit(kiln_connect(&options, &client) != KILN_ECONN ||
			  !strstr(kiln_errmsg(), "ended at once"));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	unlink(log);
	rmdir(directory);
}

/* The daemon that is started gets the agreed arguments, and the library notices its end at once. */
static void test_autostart(void **state)
{
	(void)state;
	kiln_client *client = NULL;
	char directory[] = "/tmp/kiln-test-XXXXXX", path[64], daemon[64], noted[64], log[64];
	char text[512], expected[256];
	struct stat made;
	kiln_connect_options options = {.size = sizeof(options),
									.socket = path,
									.daemon = daemon,
									.timeout_ms = 15000,
									.flags = KILN_CONNECT_AUTOSTART};

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s", directory);
	options.flags = 0;
	assert_int_equal(kiln_connect(&options, &client), KILN_ECONN);
	SAYS("is no socket");
	options.flags = KILN_CONNECT_AUTOSTART;
	snprintf(path, sizeof(path), "%s/kiln/kiln.sock", directory);
	snprintf(daemon, sizeof(daemon), "%s/daemon", directory);
	snprintf(noted, sizeof(noted), "%s/noted", directory);
	snprintf(log, sizeof(log), "%s/kiln/kilnd.log", directory);
	assert_int_equal(kiln_connect(&options, &client), KILN_ECONN);
	SAYS("cannot be started");
	SAYS(daemon);

	write_program(daemon, "echo to the log >&2\necho \"$*\" >%s\nexit 3\n", noted);
	/* A name that nobody has made is wrong; the place that the library chooses is made. */
	assert_int_equal(kiln_connect(&options, &client), KILN_ENOENT);
	SAYS(path);
	SAYS("/kiln of the socket");
	assert_int_equal(stat(log, &made), -1);
	snprintf(expected, sizeof(expected), "%s/kiln", directory);
	assert_int_equal(stat(expected, &made), -1);
	unsetenv("KILN_SOCKET");
	setenv("XDG_RUNTIME_DIR", directory, 1);
	options.socket = NULL;
	assert_int_equal(kiln_connect(&options, &client), KILN_ECONN);
	SAYS(log);
	SAYS("ended at once");
	assert_true(read_when_there(noted, text, sizeof(text)));
	snprintf(expected, sizeof(expected), "--socket %s --idle-exit 600\n", path);
	assert_string_equal(text, expected);
	assert_true(read_when_there(log, text, sizeof(text)));
	assert_string_equal(text, "to the log\n");
	assert_int_equal(stat(log, &made), 0);
	assert_int_equal(made.st_mode & 0777, 0600);

	unlink(log);
	unlink(noted);
	unlink(daemon);
	snprintf(path, sizeof(path), "%s/kiln", directory);
	assert_int_equal(stat(path, &made), 0);
	assert_int_equal(made.st_mode & 0777, 0700);
	rmdir(path);
	rmdir(directory);
}

/* ---- Daemons that fail ---- */

/* Answers "info" late: after the next request has come.  Its buffer must be given back. */
static bool hold_alloc(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "alloc") == 0) {
		fake->held = wire_id(in);
		return true;
	}
	if (strcmp(wire_type(in), "info") == 0)
		fake_reply_number(fake, fake->held, "buf", 77);
	return false;
}

static void test_silent(void **state)
{
	(void)state;
	struct fake *fake = fake_start(hold_alloc);
	kiln_client *client = NULL;
	kiln_buffer *buffer = NULL;
	kiln_reply *reply = NULL;
	struct timespec begin, end;

	assert_int_equal(fake_connect(fake, 60, &client), KILN_OK);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	assert_int_equal(kiln_alloc(client, 16, 0, "x", &buffer), KILN_ETIMEDOUT);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >= 59);
	SAYS("\"alloc\"");
	SAYS("deadline");
	assert_null(buffer);
	/* The connection goes on, and what came too late is freed. */
	int status;
	while ((status = kiln_request(client, "info", NULL, 0, &reply)) == KILN_ETIMEDOUT) {
	}
	assert_int_equal(status, KILN_OK);
	kiln_reply_free(reply);
	while ((status = kiln_request(client, "ops", NULL, 0, &reply)) == KILN_ETIMEDOUT) {
	}
	assert_int_equal(status, KILN_OK);
	kiln_reply_free(reply);
	assert_int_equal(fake->count_free, 1);
	assert_int_equal(fake->last_freed, 77);
	kiln_close(client);
	fake_stop(fake);
}

/* Turns the client away as a daemon does that has read nothing yet. */
static bool turn_away(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)in, (void)frame;
	fake_reply(fake, 0, KILN_EPERM, "uid 7 may not use this kilnd of uid 8", NULL);
	fake_hang_up(fake);
	return true;
}

static void test_turned_away(void **state)
{
	(void)state;
	struct fake *fake = fake_start(turn_away);
	kiln_client *client = NULL;

	assert_int_equal(fake_connect(fake, 10000, &client), KILN_EPERM);
	assert_string_equal(kiln_errmsg(), "uid 7 may not use this kilnd of uid 8");
	assert_null(client);
	fake_stop(fake);
}

static bool die_on_third_submit(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "submit") != 0)
		return false;
	if (++fake->held == 1)
		fake_reply(fake, wire_id(in), KILN_OK, NULL, NULL);
	else if (fake->held == 3)
		fake_hang_up(fake);
	return true;
}

static void test_dead(void **state)
{
	(void)state;
	struct fake *fake = fake_start(die_on_third_submit);
	kiln_client *client = NULL;
	kiln_call *call = NULL;
	kiln_buffer *buffer = NULL;
	kiln_ticket tickets[3];

	assert_int_equal(fake_connect(fake, 10000, &client), KILN_OK);
	assert_int_equal(kiln_alloc(client, 16, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_prepare(client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kiln_submit(call, NULL, 0, 0, &tickets[i]), KILN_OK);
	/* The last one first: its end is the end of the connection. */
	assert_int_equal(kiln_wait(client, tickets[2], KILN_FOREVER), KILN_ECONN);
	SAYS(fake->path);
	SAYS("went away");
	SAYS("connect again");
	assert_int_equal(kiln_dispatch(client), 2);
	assert_int_equal(kiln_wait(client, tickets[0], 0), KILN_OK);
	assert_int_equal(kiln_wait(client, tickets[1], 0), KILN_ECONN);
	assert_int_equal(kiln_dispatch(client), KILN_ECONN);
	assert_int_equal(kiln_wait(client, tickets[1], 0), KILN_ENOENT);
	assert_int_equal(kiln_alloc(client, 1, 0, NULL, &buffer), KILN_ECONN);
	SAYS("connect again");
	assert_int_equal(kiln_submit(call, NULL, 0, 0, &tickets[0]), KILN_ECONN);
	assert_true(kiln_fd(client) >= 0);
	assert_int_equal(kiln_free(buffer), KILN_ECONN);
	kiln_call_free(call);
	kiln_close(client);
	fake_stop(fake);
}

static bool die_on_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") != 0)
		return false;
	fake_hang_up(fake);
	return true;
}

static bool nonsense_on_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") != 0)
		return false;
	(void)frame_send(fake->sock, "\xdd\xff\xff\xff\xff", 5, NULL, 0);
	return true;
}

/* About nothing that was asked: the daemon could not make out what it was. */
static bool last_word_on_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") != 0)
		return false;
	fake_reply(fake, 0, KILN_ELIMIT, "a message is too\nlarge", NULL);
	fake_hang_up(fake);
	return true;
}

static void test_ends(void **state)
{
	(void)state;
	struct fake *fake = fake_start(die_on_info);
	kiln_client *client = NULL;
	kiln_reply *reply = NULL;

	assert_int_equal(fake_connect(fake, 10000, &client), KILN_OK);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ECONN);
	SAYS("while \"info\" was in flight");
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ECONN);
	assert_null(strstr(kiln_errmsg(), "in flight"));
	kiln_close(client);
	fake_stop(fake);

	fake = fake_start(nonsense_on_info);
	assert_int_equal(fake_connect(fake, 10000, &client), KILN_OK);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_EPROTO);
	SAYS("malformed");
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ECONN);
	kiln_close(client);
	fake_stop(fake);

	fake = fake_start(last_word_on_info);
	assert_int_equal(fake_connect(fake, 10000, &client), KILN_OK);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ELIMIT);
	SAYS("ended the connection: a message is too large while \"info\" was in flight");
	kiln_close(client);
	fake_stop(fake);
	assert_null(reply);
}

/* Events that nobody knows, and replies that nobody waits for, go by. */
static bool chatter(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	struct wire_out out;
	wire_begin(&out, "event", 0);
	wire_put_str(&out, "what", "full moon");
	fake_send(fake, &out, -1);
	fake_reply(fake, wire_id(in) + 1000, KILN_OK, NULL, NULL);
	return false;
}

static void test_chatter(void **state)
{
	(void)state;
	struct fake *fake = fake_start(chatter);
	kiln_client *client = NULL;
	kiln_buffer *buffer = NULL;
	assert_int_equal(fake_connect(fake, 10000, &client), KILN_OK);
	assert_int_equal(kiln_alloc(client, 8, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	assert_int_equal(kiln_dispatch(client), 0);
	kiln_close(client);
	fake_stop(fake);
}

/* ---- Threads and processes ---- */

/* Holds the reply to "info" until the test says go. */
static bool hold_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") == 0) {
		sem_post(&fake->reached);
		(void)fake_wait(&fake->go);
	}
	return false;
}

struct inside {
	kiln_client *client;
	int status;
};

static void *ask_info(void *argument)
{
	struct inside *inside = argument;
	kiln_reply *reply = NULL;
	inside->status = kiln_request(inside->client, "info", NULL, 0, &reply);
	kiln_reply_free(reply);
	return NULL;
}

static void test_busy(void **state)
{
	(void)state;
	struct fake *fake = fake_start(hold_info);
	struct inside inside = {.status = 1};
	kiln_buffer *buffer = NULL, *second = NULL;
	kiln_call *call = NULL;
	kiln_ticket ticket = 0;
	pthread_t thread;

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &inside.client), KILN_OK);
	assert_int_equal(kiln_alloc(inside.client, 8, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_prepare(inside.client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	assert_int_equal(pthread_create(&thread, NULL, ask_info, &inside), 0);
	assert_true(fake_wait(&fake->reached)); /* the other thread is inside now */
	assert_int_equal(kiln_alloc(inside.client, 8, 0, NULL, &second), KILN_EBUSY);
	SAYS("another thread");
	assert_int_equal(kiln_submit(call, NULL, 0, 0, &ticket), KILN_EBUSY);
	assert_int_equal(kiln_wait(inside.client, 1, 0), KILN_EBUSY);
	assert_int_equal(kiln_dispatch(inside.client), KILN_EBUSY);
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_EBUSY);
	assert_int_equal(kiln_free(buffer), KILN_EBUSY);
	kiln_call_free(call); /* told to the daemon by the other thread when it leaves */
	sem_post(&fake->go);
	pthread_join(thread, NULL);
	assert_int_equal(inside.status, KILN_OK);
	/* Nothing was disturbed. */
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_OK);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	assert_int_equal(fake->count_release, 1);

	/* Closed while another thread is inside: the end comes when that one leaves. */
	assert_int_equal(kiln_alloc(inside.client, 8, 0, NULL, &buffer), KILN_OK);
	inside.status = 1;
	assert_int_equal(pthread_create(&thread, NULL, ask_info, &inside), 0);
	assert_true(fake_wait(&fake->reached));
	kiln_close(inside.client);
	sem_post(&fake->go);
	pthread_join(thread, NULL);
	assert_int_equal(inside.status, KILN_OK);
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_ECONN);
	SAYS("closed");
	assert_int_equal(kiln_free(buffer), KILN_OK);
	fake_stop(fake);
}

/* In the child; returns the number of the first check that failed, or 0. */
static int child_checks(kiln_client *client, kiln_buffer *buffer, kiln_call *call)
{
	kiln_buffer *other = NULL;
	kiln_ticket ticket;
	if (kiln_alloc(client, 8, 0, NULL, &other) != KILN_EFORK)
		return 1;
	if (strstr(kiln_errmsg(), "must connect for itself") == NULL)
		return 2;
	if (kiln_write(buffer, 0, "x", 1) != KILN_EFORK || kiln_dispatch(client) != KILN_EFORK ||
		kiln_submit(call, NULL, 0, 0, &ticket) != KILN_EFORK ||
		kiln_wait(client, 1, KILN_FOREVER) != KILN_EFORK)
		return 3;
	if (kiln_fd(client) != KILN_EFORK || kiln_events(client) != KILN_EFORK)
		return 4;
	kiln_call_free(call);
	if (kiln_free(buffer) != KILN_EFORK)
		return 5;
	kiln_close(client);
	return 0;
}

static void test_fork(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = NULL;
	kiln_buffer *buffer = NULL;
	kiln_call *call = NULL;
	int result = -1;

	assert_int_equal(fake_connect(fake, 10000, &client), KILN_OK);
	assert_int_equal(kiln_alloc(client, 8, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_prepare(client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	pid_t child = fork();
	if (child == 0)
		_exit(child_checks(client, buffer, call));
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_true(WIFEXITED(result));
	assert_int_equal(WEXITSTATUS(result), 0);
	/* The parent's connection has not noticed. */
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_OK);
	assert_int_equal(fake->count_free, 0);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	kiln_call_free(call);
	kiln_close(client);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello),   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_nobody),  cmocka_unit_test(test_autostart),
		cmocka_unit_test(test_reason),  cmocka_unit_test(test_autostart_gone),
		cmocka_unit_test(test_silent),  cmocka_unit_test(test_turned_away),
		cmocka_unit_test(test_dead),    cmocka_unit_test(test_ends),
		cmocka_unit_test(test_chatter), cmocka_unit_test(test_busy),
		cmocka_unit_test(test_fork),
	};
	unsetenv("KILN_DEVICE");
	unsetenv("KILN_DEBUG");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
