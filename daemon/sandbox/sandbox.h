/*
 * sandbox: what a child process of the broker gives up for good before it touches what a user
 * wrote: files (Landlock), system calls (seccomp), privileges.  One call a process, and one more
 * for each thread that runs kernels on the host.  Knows nothing of compilers and devices.
 */
#ifndef KILN_DAEMON_SANDBOX_SANDBOX_H
#define KILN_DAEMON_SANDBOX_SANDBOX_H

#include "daemon/base/util.h"

/* A sanitizer's run-time library makes system calls on its own process that no other code may. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANDBOX_SANITIZED 1
#endif
#endif
#ifndef SANDBOX_SANITIZED
#define SANDBOX_SANITIZED 0
#endif

/* AUTO: whatever this host has.  REQUIRE: all of it, or nothing is started. */
enum sandbox_mode { SANDBOX_OFF, SANDBOX_AUTO, SANDBOX_REQUIRE };

enum sandbox_role {
	SANDBOX_COMPILER, /* and the programs that it starts */
	SANDBOX_HOST,     /* kernels are native code of this process: only what is listed is allowed */
	SANDBOX_DRIVER,   /* kernels are a GPU's, but a vendor's library is here: only what it surely
						 does not need is forbidden */
};

#define SANDBOX_TEXT 64
#define SANDBOX_READ 48

/* The kinds of enforcement that this host and this build have. */
struct sandbox_host {
	bool seccomp;
	int landlock;    /* version of its interface; 0: there is none */
	char lacks[256]; /* what is missing, and what for want of it is possible; "": nothing */
};
void sandbox_look(struct sandbox_host *out);

/* The paths that a process may open; descriptors that are open stay so. */
struct sandbox_files {
	const char *read[SANDBOX_READ]; /* to be read and executed, directories with all below them */
	int read_count;
	const char *work; /* a directory whose files may be made, written and removed; NULL: none */
};

/*
 * Enters the sandbox of a role.  All threads that are to be in it are made afterwards, but for
 * DRIVER, where those that exist are taken in.  held says what holds: "seccomp, landlock 7", "none"
 * or "off".  KILN_OK, or, with REQUIRE only, KILN_ENOTSUP with a sentence.
 */
int sandbox_enter(enum sandbox_role role, enum sandbox_mode mode, const struct sandbox_files *files,
				  char held[SANDBOX_TEXT], char *error, size_t error_size);

/* A compiler calls this: from here on it starts no program and opens no file.  Fine outside a
 * sandbox. */
void sandbox_compile_alone(void);

/*
 * In a process of role HOST, on a thread that runs kernels: from here on every system call that is
 * not listed for it is signal SIGSYS.  event_fd: what the thread may write to, besides standard
 * error.  Does nothing outside a sandbox.
 */
void sandbox_kernel_thread(int event_fd);
/* Names what a kernel tried: "opens a file".  Async-signal-safe. */
const char *sandbox_deed(int system_call);

/* A number for /proc/self/oom_score_adj: who goes first when memory runs out.  Best effort. */
void sandbox_give_way(int score);

/* Only the files of this room use these. */
int sandbox_landlock_version(void);
/* 0, or -1 with errno. */
int sandbox_landlock(int version, const struct sandbox_files *files);
bool sandbox_has_filters(void);
/* 0, or a negative errno. */
int sandbox_filter(enum sandbox_role role);

#endif
