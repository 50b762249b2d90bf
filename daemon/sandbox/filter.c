/*
 * filter.c: restricts the system calls of this process.  The only file that knows libseccomp;
 * without that library there are no filters.
 *
 * Nobody knows the programs that a compiler starts (a driver, a preprocessor, an assembler, a
 * linker of any distribution), so a list forbids calls to it.  A process that runs kernels on the
 * host has a list of allowed calls, and the threads that run them a shorter one.
 */
#include "sandbox.h"

#include <errno.h>

#ifdef KILN_HAVE_SECCOMP

#include "calls.h"
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define REFUSE SCMP_ACT_ERRNO(EPERM)

static bool kernels_filtered, compiler_filtered;

bool sandbox_has_filters(void)
{
	return seccomp_api_get() >= 2;
}

/* Adds a rule for a call; 0, also where this machine or library has no such call, or a negative
 * errno. */
static int add_rule(scmp_filter_ctx filter, uint32_t action, const char *name, unsigned count,
					const struct scmp_arg_cmp *arguments)
{
	int number = seccomp_syscall_resolve_name(name);
	if (number < 0)
		return 0;
	return seccomp_rule_add_array(filter, action, number, count, arguments);
}

static int forbid(scmp_filter_ctx filter, const char *const *names, size_t count)
{
	int status = 0;
	for (size_t i = 0; i < count && status == 0; i++)
		status = add_rule(filter, REFUSE, names[i], 0, NULL);
	return status;
}

/* A filter cannot read the flags of clone3, which are in memory; without it libc uses clone. */
static int hide_clone3(scmp_filter_ctx filter)
{
	return add_rule(filter, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);
}

static int forbid_for_compiler(scmp_filter_ctx filter)
{
	static const unsigned namespaces[] = {CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
										  CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};
	int status = forbid(filter, compiler_forbidden, COUNT(compiler_forbidden));
	for (size_t i = 0; i < COUNT(namespaces) && status == 0; i++) {
		struct scmp_arg_cmp flag = SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i]);
		status = add_rule(filter, REFUSE, "clone", 1, &flag);
	}
	if (status == 0)
		status = hide_clone3(filter);
	/* Refuses prlimit64 on another process. */
	struct scmp_arg_cmp other = SCMP_A0(SCMP_CMP_NE, 0);
	return status == 0 ? add_rule(filter, REFUSE, "prlimit64", 1, &other) : status;
}

/* A GPU's driver starts no program, and talks to its daemons by Unix sockets alone. */
static int forbid_for_driver(scmp_filter_ctx filter)
{
	static const char *const others[] = {"execve", "execveat"};
	static const int families[] = {AF_INET, AF_INET6, AF_PACKET, AF_VSOCK};
	int status = forbid(filter, others, COUNT(others));
	for (size_t i = 0; i < COUNT(families) && status == 0; i++) {
		struct scmp_arg_cmp family = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i]);
		status = add_rule(filter, REFUSE, "socket", 1, &family);
	}
	if (status == 0)
		status = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	return status;
}

/* Allows signals of a process to itself: abort() and raise() send them. */
static int allow_own_signals(scmp_filter_ctx filter)
{
	struct scmp_arg_cmp own = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid());
	return add_rule(filter, SCMP_ACT_ALLOW, "tgkill", 1, &own);
}

static int allow_for_host(scmp_filter_ctx filter)
{
	/* An object is opened through /proc/self/fd. */
	const unsigned writing = (O_ACCMODE | O_CREAT | O_TRUNC | O_TMPFILE) & ~(unsigned)O_DIRECTORY;
	const unsigned thread = SANDBOX_SANITIZED ? CLONE_VM : CLONE_VM | CLONE_THREAD;
	const struct {
		const char *name;
		unsigned count;
		struct scmp_arg_cmp arguments[2];
	} rules[] = {
		{"open", 1, {SCMP_A1(SCMP_CMP_MASKED_EQ, writing, 0)}},
		{"openat", 1, {SCMP_A2(SCMP_CMP_MASKED_EQ, writing, 0)}},
		{"prlimit64", 2, {SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0)}},
		{"clone", 1, {SCMP_A0(SCMP_CMP_MASKED_EQ, thread, thread)}},
		/* A thread that runs kernels gets a filter of its own. */
		{"prctl", 1, {SCMP_A0(SCMP_CMP_EQ, PR_SET_NO_NEW_PRIVS)}},
		{.name = "seccomp"},
	};
	int status = 0;
	for (size_t i = 0; i < COUNT(host_calls) && status == 0; i++)
		status = add_rule(filter, SCMP_ACT_ALLOW, host_calls[i].name, 0, NULL);
	for (size_t i = 0; i < COUNT(rules) && status == 0; i++) {
		status =
			add_rule(filter, SCMP_ACT_ALLOW, rules[i].name, rules[i].count, rules[i].arguments);
	}
	if (status == 0)
		status = hide_clone3(filter);
	return status == 0 ? allow_own_signals(filter) : status;
}

static int load_filter(scmp_filter_ctx filter)
{
	/* A call by the numbers of another machine, such as 32 bits, ends the process. */
	int status = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	return status == 0 ? seccomp_load(filter) : status;
}

int sandbox_filter(enum sandbox_role role)
{
	scmp_filter_ctx filter = seccomp_init(role == SANDBOX_HOST ? REFUSE : SCMP_ACT_ALLOW);
	int status = 0;
	if (!filter)
		return -ENOMEM;
	if (role != SANDBOX_HOST)
		status = forbid(filter, forbidden_calls, COUNT(forbidden_calls));
	if (status == 0)
		status = role == SANDBOX_HOST     ? allow_for_host(filter)
				 : role == SANDBOX_DRIVER ? forbid_for_driver(filter)
										  : forbid_for_compiler(filter);
	if (status == 0)
		status = load_filter(filter);
	seccomp_release(filter);
	kernels_filtered = status == 0 && role == SANDBOX_HOST;
	compiler_filtered = status == 0 && role == SANDBOX_COMPILER;
	return status;
}

void sandbox_compile_alone(void)
{
	scmp_filter_ctx filter = compiler_filtered ? seccomp_init(SCMP_ACT_ALLOW) : NULL;
	if (!filter)
		return;
	/* The filter is for all threads.  Where there is none, the process stays in its sandbox. */
	if (forbid(filter, programs, COUNT(programs)) == 0) {
		seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
		load_filter(filter);
	}
	seccomp_release(filter);
}

static int allow_write(scmp_filter_ctx filter, int fd)
{
	struct scmp_arg_cmp argument = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)fd);
	return add_rule(filter, SCMP_ACT_ALLOW, "write", 1, &argument);
}

static int allow_for_kernels(scmp_filter_ctx filter, const int *event_fds, int count)
{
	int status = allow_own_signals(filter);
	for (size_t i = 0; i < COUNT(host_calls) && status == 0; i++)
		if (host_calls[i].kernel)
			status = add_rule(filter, SCMP_ACT_ALLOW, host_calls[i].name, 0, NULL);
	for (int i = 0; i < count && status == 0; i++)
		status = allow_write(filter, event_fds[i]);
	return status == 0 ? allow_write(filter, STDERR_FILENO) : status;
}

void sandbox_kernel_thread(const int *event_fds, int count)
{
	scmp_filter_ctx filter = kernels_filtered ? seccomp_init(SCMP_ACT_TRAP) : NULL;
	int status = -ENOMEM;
	if (!kernels_filtered)
		return;
	if (filter) {
		status = allow_for_kernels(filter, event_fds, count);
		if (status == 0)
			status = load_filter(filter);
		seccomp_release(filter);
	}
	if (status != 0)
		util_log(UTIL_WARN,
				 "a thread that runs kernels has no filter of its own (%d); that of its "
				 "process holds",
				 status);
}

#else

bool sandbox_has_filters(void)
{
	return false;
}

int sandbox_filter(enum sandbox_role role)
{
	(void)role;
	return -ENOSYS;
}

void sandbox_compile_alone(void)
{
}

void sandbox_kernel_thread(const int *event_fds, int count)
{
	(void)event_fds, (void)count;
}

#endif
