/*
 * test_sandbox: what a process can still do in the sandbox of each role.  Each test enters it in a
 * process of its own, whose exit status says at which line something was otherwise.
 */
#include "daemon/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <kiln/kiln.h>

static struct sandbox_host host;
static char directory[64], inside[96], outside[96], error[256], held[SANDBOX_TEXT];

static int make_files(void **state)
{
	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/kiln-sandbox-XXXXXX");
	if (!mkdtemp(directory))
		return -1;
	snprintf(inside, sizeof(inside), "%s/inside", directory);
	snprintf(outside, sizeof(outside), "%s/outside", directory);
	int fd = open(outside, O_WRONLY | O_CREAT, 0600);
	sandbox_look(&host);
	return fd < 0 || close(fd) || mkdir(inside, 0700) ? -1 : 0;
}

static int remove_files(void **state)
{
	(void)state;
	unlink(outside);
	return rmdir(inside) | rmdir(directory);
}

/* In the child: what does not hold ends it with the number of the line. */
#define holds(what)                                  \
	do {                                             \
		if (!(what)) {                               \
			dprintf(2, "%d: %s\n", __LINE__, #what); \
			_exit(1);                                \
		}                                            \
	} while (0)
#define fails(what, why) holds((errno = 0, (what)) < 0 && errno == (why))

/* Runs body in a process of its own; its wait status. */
static int in_child(void (*body)(void))
{
	int status = 0;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(300);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void skip_without(bool there, const char *what)
{
	if (there)
		return;
	print_message("this host lacks %s\n", what);
	skip();
}

static long number_of(const char *path, int flags)
{
	long fd = open(path, flags, 0600);
	if (fd >= 0)
		close((int)fd);
	return fd;
}

/* ---- A compiler ---- */

static void compile_inside(void)
{
	const struct sandbox_files files = {
		.read = {"/usr", "/lib", "/lib64", "/bin"}, .read_count = 4, .work = inside};
	char file[128], made[128];
	struct stat status;
	snprintf(file, sizeof(file), "%s/file", inside);
	snprintf(made, sizeof(made), "%s/made", directory);
	holds(sandbox_enter(SANDBOX_COMPILER, SANDBOX_AUTO, &files, held, error, sizeof(error)) ==
		  KILN_OK);
	holds(number_of(file, O_RDWR | O_CREAT | O_TRUNC) >= 0);
	holds(unlink(file) == 0);
	holds(number_of("/dev/null", O_RDWR) >= 0);
	holds(stat("/usr/bin/env", &status) == 0);
	/* Programs run, and live in it as well. */
	holds(system("exec /bin/true") == 0);
	if (host.landlock) {
		fails(number_of(outside, O_RDONLY), EACCES);
		fails(number_of("/etc/passwd", O_RDONLY), EACCES);
		fails(number_of(made, O_WRONLY | O_CREAT), EACCES);
		fails(rename(outside, made), EACCES);
		fails(unlink(outside), EACCES);
		holds(system("exec /bin/cat /etc/passwd 2>/dev/null") != 0);
	}
	if (host.landlock >= 6 && getppid() != 1)
		fails(syscall(SYS_tgkill, getppid(), getppid(), 0), EPERM);
	if (!host.seccomp)
		return;
	fails(socket(AF_INET, SOCK_STREAM, 0), EPERM);
	fails(socket(AF_UNIX, SOCK_STREAM, 0), EPERM);
	fails(kill(getppid(), 0), EPERM);
	fails(setpgid(0, 0), EPERM);
	fails(chmod(outside, 0777), EPERM);
	fails(syscall(SYS_unshare, 0x10000000), EPERM);
	fails(syscall(SYS_clone3, NULL, 0), ENOSYS);
	fails(syscall(SYS_io_uring_setup, 1, NULL), EPERM);
	/* And no more programs. */
	sandbox_compile_alone();
	fails(number_of(file, O_RDWR | O_CREAT), EPERM);
	fails(execl("/bin/true", "true", (char *)NULL), EPERM);
}

static void a_compiler_keeps_to_its_files(void **state)
{
	(void)state;
	assert_int_equal(in_child(compile_inside), 0);
}

/* ---- Kernels on the host ---- */

static void host_inside(void)
{
	char path[32];
	holds(sandbox_enter(SANDBOX_HOST, SANDBOX_AUTO, NULL, held, error, sizeof(error)) == KILN_OK);
	int fd = memfd_create("object", MFD_CLOEXEC);
	holds(fd >= 0);
	/* As an object is loaded. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	holds(number_of(path, O_RDONLY) >= 0);
	if (host.landlock) {
		fails(number_of(outside, O_RDONLY), EACCES);
		fails(number_of("/proc/1/environ", O_RDONLY), EACCES);
	}
	if (!host.seccomp)
		return;
	fails(number_of(outside, O_WRONLY), EPERM);
	fails(number_of(outside, O_RDONLY | O_TRUNC), EPERM);
	fails(number_of(path, O_RDWR), EPERM);
	fails(socket(AF_UNIX, SOCK_STREAM, 0), EPERM);
	fails(execl("/bin/true", "true", (char *)NULL), EPERM);
	fails(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0), EPERM);
	fails(kill(getppid(), 0), EPERM);
	fails(syscall(SYS_tgkill, getppid(), getppid(), 0), EPERM);
	holds(raise(0) == 0);
	fails(unlink(outside), EPERM);
	fails(mkdir(inside, 0700), EPERM);
}

static void a_host_of_kernels_opens_nothing(void **state)
{
	(void)state;
	assert_int_equal(in_child(host_inside), 0);
}

static int deed_pipe;
static const long deeds[] = {SYS_openat, SYS_socket, SYS_execve, SYS_getppid, SYS_kill};

static void on_sigsys(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	/* Nothing else may be done here: _exit() of the coverage build would write files. */
	syscall(SYS_exit_group, info->si_syscall == SYS_write ? 77 : 100 + (info->si_syscall & 0x7f));
}

static void *kernel(void *argument)
{
	const long *deed = argument;
	struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
	sigaction(SIGSYS, &action, NULL);
	sandbox_kernel_thread(&deed_pipe, 1);
	free(malloc(1 << 20));
	holds(write(deed_pipe, "x", 1) == 1);
	syscall(*deed, -1, "/etc/passwd", 0);
	return NULL;
}

static const long *deed;

static void kernel_inside(void)
{
	pthread_t thread;
	deed_pipe = memfd_create("event", MFD_CLOEXEC);
	holds(sandbox_enter(SANDBOX_HOST, SANDBOX_AUTO, NULL, held, error, sizeof(error)) == KILN_OK);
	holds(pthread_create(&thread, NULL, kernel, (void *)deed) == 0);
	holds(pthread_join(thread, NULL) == 0);
}

/* Whatever is not listed for a thread that runs kernels is a signal. */
static void a_kernel_is_caught_in_the_act(void **state)
{
	const long other = SYS_write;
	(void)state;
	skip_without(host.seccomp, "seccomp");
	for (size_t i = 0; i < sizeof(deeds) / sizeof(*deeds); i++) {
		deed = &deeds[i];
		assert_int_equal(in_child(kernel_inside), (100 + (deeds[i] & 0x7f)) << 8);
	}
	/* To another descriptor than its own. */
	deed = &other;
	assert_int_equal(in_child(kernel_inside), 77 << 8);
	assert_string_equal(sandbox_deed(SYS_openat), "opens a file");
	assert_string_equal(sandbox_deed(SYS_getppid), "makes a system call");
}

/* ---- A driver ---- */

static pthread_barrier_t entered;

static void *driver_thread(void *argument)
{
	(void)argument;
	pthread_barrier_wait(&entered);
	fails(socket(AF_INET, SOCK_STREAM, 0), EPERM);
	fails(execl("/bin/true", "true", (char *)NULL), EPERM);
	holds(close(socket(AF_UNIX, SOCK_STREAM, 0)) == 0);
	holds(number_of(outside, O_RDWR) >= 0);
	return NULL;
}

static void drive_inside(void)
{
	pthread_t thread;
	pthread_barrier_init(&entered, NULL, 2);
	holds(pthread_create(&thread, NULL, driver_thread, NULL) == 0);
	holds(sandbox_enter(SANDBOX_DRIVER, SANDBOX_AUTO, NULL, held, error, sizeof(error)) == KILN_OK);
	holds(strcmp(held, "seccomp") == 0);
	pthread_barrier_wait(&entered);
	holds(pthread_join(thread, NULL) == 0);
}

/* Threads that a driver had before are in it, too. */
static void a_driver_starts_nothing(void **state)
{
	(void)state;
	skip_without(host.seccomp, "seccomp");
	assert_int_equal(in_child(drive_inside), 0);
}

/* ---- Modes ---- */

static void off_inside(void)
{
	holds(sandbox_enter(SANDBOX_HOST, SANDBOX_OFF, NULL, held, error, sizeof(error)) == KILN_OK);
	holds(strcmp(held, "off") == 0);
	holds(number_of(outside, O_RDWR) >= 0);
	holds(close(socket(AF_UNIX, SOCK_STREAM, 0)) == 0);
	sandbox_kernel_thread(&(int){1}, 1);
	sandbox_compile_alone();
	holds(number_of(outside, O_RDWR) >= 0);
	holds(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
}

static void require_inside(void)
{
	bool all = host.landlock && host.seccomp;
	int status = sandbox_enter(SANDBOX_HOST, SANDBOX_REQUIRE, NULL, held, error, sizeof(error));
	holds(status == (all ? KILN_OK : KILN_ENOTSUP));
	holds(all || strstr(error, "--sandbox require: no "));
	holds(!all || (strstr(held, "landlock ") && strstr(held, ", seccomp")));
}

static void modes_are_kept(void **state)
{
	(void)state;
	assert_int_equal(in_child(off_inside), 0);
	assert_int_equal(in_child(require_inside), 0);
	assert_int_equal(host.lacks[0] != 0, !host.landlock || !host.seccomp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_compiler_keeps_to_its_files),
		cmocka_unit_test(a_host_of_kernels_opens_nothing),
		cmocka_unit_test(a_kernel_is_caught_in_the_act),
		cmocka_unit_test(a_driver_starts_nothing),
		cmocka_unit_test(modes_are_kept),
	};
	return cmocka_run_group_tests(tests, make_files, remove_files);
}
