/*
 * sandbox: a child process of the broker gives up files (Landlock), system calls (seccomp) and
 * privileges for good, before it touches a user's code.  It makes one call, and one more on each
 * thread that runs kernels on the host.  Knows nothing of compilers and devices.
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

/* AUTO enforces whatever this host can.  REQUIRE enforces all of it, or starts no child. */
enum sandbox_mode { SANDBOX_OFF, SANDBOX_AUTO, SANDBOX_REQUIRE };

enum sandbox_role {
	SANDBOX_COMPILER, /* and the programs that it starts */
	SANDBOX_HOST,     /* kernels are native code of this process: a list allows calls */
	SANDBOX_DRIVER,   /* kernels run on a GPU, by a vendor's library: a list forbids calls that the
						 library surely does not need */
};

#define SANDBOX_TEXT 64
#define SANDBOX_READ 48

/* The kinds of enforcement that this host and this build have. */
struct sandbox_host {
	bool seccomp;
	int landlock;    /* version of its interface; 0: there is none */
	char lacks[256]; /* the missing kinds, and the holes that they leave; "": none */
};
void sandbox_look(struct sandbox_host *out);

/* The paths that a process may open; open descriptors stay open. */
struct sandbox_files {
	const char *read[SANDBOX_READ]; /* to be read and executed, directories with all below them */
	int read_count;
	const char *work; /* a directory whose files may be made, written and removed; NULL: none */
};

/*
 * Enters the sandbox of a role.  The calling thread and those that it starts later are in it; in
 * the role DRIVER all threads are.  held becomes the enforcement that holds: "landlock 7, seccomp",
 * "none" or "off".  KILN_OK, or, with REQUIRE only, KILN_ENOTSUP with a sentence.
 */
int sandbox_enter(enum sandbox_role role, enum sandbox_mode mode, const struct sandbox_files *files,
				  char held[SANDBOX_TEXT], char *error, size_t error_size);

/* Keeps a compiler's process from starting programs and opening files from here on.  Does nothing
 * outside a sandbox. */
void sandbox_compile_alone(void);

/* Restricts the calling thread of a process of role HOST, which runs kernels: a system call that is
 * not listed for it raises SIGSYS.  It may write to event_fds and to standard error.  Does nothing
 * outside a sandbox. */
void sandbox_kernel_thread(const int *event_fds, int count);
/* Returns words for the system call of a kernel: "opens a file".  Async-signal-safe. */
const char *sandbox_deed(int system_call);

/* Writes /proc/self/oom_score_adj, if it can: the process with the highest score goes first when
 * memory runs out. */
void sandbox_give_way(int score);

/* ---- For the files of this room alone ---- */

int sandbox_landlock_version(void);
/* Restricts the paths of this process.  0, or -1 with errno. */
int sandbox_landlock(int version, const struct sandbox_files *files);
bool sandbox_has_filters(void);
/* Restricts the system calls of this process.  0, or a negative errno. */
int sandbox_filter(enum sandbox_role role);

#endif
