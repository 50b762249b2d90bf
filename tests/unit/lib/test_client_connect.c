/*
 * test_client_connect.c: connecting: what is said, nobody there, another version, refusals, a
 * daemon that is started.  Against a fake daemon, and programs in place of one.
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
	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_ELIMIT);
	assert_string_equal(kiln_errmsg(), "there are 64 sessions already");
	assert_ptr_equal(client, &state);
	fake_stop(fake);

	fake = fake_start(NULL);
	fake->proto = 99;
	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_EVERSION);
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
	for (int i = 0; i < 12000; i++) {
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

static kiln_connect_options autostart(const char *socket, const char *daemon)
{
	return (kiln_connect_options){.size = sizeof(kiln_connect_options),
								  .socket = socket,
								  .daemon = daemon,
								  .timeout_ms = 60000,
								  .flags = KILN_CONNECT_AUTOSTART};
}

/* The sentence has the last error of the daemon that was started, and of no other one. */
static void test_reason(void **state)
{
	(void)state;
	kiln_client *client = NULL;
	char directory[] = "/tmp/kiln-test-XXXXXX", path[64] = "", daemon[64] = "", log[64];
	char expected[128];
	kiln_connect_options options = autostart(path, daemon);

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
	char directory[] = "/tmp/kiln-test-XXXXXX", path[64] = "", log[64];
	kiln_client *client = NULL;
	kiln_connect_options options = autostart(path, "/bin/false");
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
	char directory[] = "/tmp/kiln-test-XXXXXX", path[64] = "", daemon[64] = "";
	char noted[64], log[64], text[512], expected[256];
	struct stat made;
	kiln_connect_options options = autostart(path, daemon);

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

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_EPERM);
	assert_string_equal(kiln_errmsg(), "uid 7 may not use this kilnd of uid 8");
	assert_null(client);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello),          cmocka_unit_test(test_refused),
		cmocka_unit_test(test_nobody),         cmocka_unit_test(test_reason),
		cmocka_unit_test(test_autostart_gone), cmocka_unit_test(test_autostart),
		cmocka_unit_test(test_turned_away),
	};
	unsetenv("KILN_DEVICE");
	unsetenv("KILN_DEBUG");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
