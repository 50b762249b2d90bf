/*
 * landlock.c: restricts the paths that this process may open.  The kernel's interface is declared
 * here: the headers of a distribution may be older than the kernel that it runs on.
 */
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

#define ASK_VERSION 1u
#define RULE_PATH_BENEATH 1

enum {
	EXECUTE = 1 << 0,
	WRITE_FILE = 1 << 1,
	READ_FILE = 1 << 2,
	READ_DIR = 1 << 3,
	REMOVE_DIR = 1 << 4,
	REMOVE_FILE = 1 << 5,
	MAKE_REG = 1 << 8,
	FIRST = (1 << 13) - 1, /* all that version 1 knows */
	REFER = 1 << 13,       /* 2 */
	TRUNCATE = 1 << 14,    /* 3 */
	IOCTL_DEV = 1 << 15,   /* 5 */
	ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV,
	NET_TCP = 3,     /* 4: bind and connect */
	SCOPE_OTHERS = 3 /* 6: abstract sockets of, and signals to, those outside */
};

struct ruleset {
	uint64_t files, net, scoped;
};

struct path_beneath {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));

int sandbox_landlock_version(void)
{
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);
	return version > 0 ? (int)version : 0;
}

static struct ruleset handled_by(int version)
{
	struct ruleset handled = {.files = FIRST};
	if (version >= 2)
		handled.files |= REFER;
	if (version >= 3)
		handled.files |= TRUNCATE;
	if (version >= 4)
		handled.net = NET_TCP;
	if (version >= 5)
		handled.files |= IOCTL_DEV;
	if (version >= 6)
		handled.scoped = SCOPE_OTHERS;
	return handled;
}

/* Lets a path be used in these ways; a path that is not there needs no rule. */
static int allow(int ruleset, const char *path, uint64_t access)
{
	struct path_beneath rule = {.fd = open(path, O_PATH | O_CLOEXEC)};
	struct stat status;
	if (rule.fd < 0)
		return 0;
	bool directory = fstat(rule.fd, &status) == 0 && S_ISDIR(status.st_mode);
	rule.allowed = directory ? access : access & ON_FILES;
	int result = (int)syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0u);
	int why = errno;
	close(rule.fd);
	errno = why;
	return result;
}

/* Lets a worker fill its directory, and remove it at its end, which is a right on the parent. */
static int allow_work(int ruleset, const char *work, uint64_t handled)
{
	char parent[1100];
	size_t length = strlen(work);
	if (allow(ruleset, work,
			  handled & (READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE)))
		return -1;
	while (length > 1 && work[length - 1] != '/')
		length--;
	snprintf(parent, sizeof(parent), "%.*s", (int)length, work);
	return allow(ruleset, parent, REMOVE_DIR);
}

static int allow_all(int ruleset, const struct sandbox_files *files, uint64_t handled)
{
	for (int i = 0; i < files->read_count; i++)
		if (allow(ruleset, files->read[i], EXECUTE | READ_FILE | READ_DIR))
			return -1;
	if (!files->work)
		return 0;
	if (allow(ruleset, "/dev/null", handled & (READ_FILE | WRITE_FILE | TRUNCATE)))
		return -1;
	return allow_work(ruleset, files->work, handled);
}

int sandbox_landlock(int version, const struct sandbox_files *files)
{
	struct ruleset handled = handled_by(version);
	size_t bytes = version >= 6   ? sizeof(handled)
				   : version >= 4 ? offsetof(struct ruleset, scoped)
								  : offsetof(struct ruleset, net);
	int ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, bytes, 0u);
	if (ruleset < 0)
		return -1;
	int result = allow_all(ruleset, files, handled.files);
	if (result == 0)
		result = (int)syscall(SYS_landlock_restrict_self, ruleset, 0u);
	int why = errno;
	close(ruleset);
	errno = why;
	return result;
}
