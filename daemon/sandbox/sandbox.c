/* sandbox.c: looks at this host, and takes the steps into a sandbox in their order. */
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <kiln/kiln.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN_PROC (SANDBOX_SANITIZED ? "/proc/self" : NULL)

void sandbox_look(struct sandbox_host *out)
{
	size_t used = 0;
	*out = (struct sandbox_host){.seccomp = sandbox_has_filters(),
								 .landlock = sandbox_landlock_version()};
	if (!out->seccomp)
		used = util_append(out->lacks, sizeof(out->lacks), used,
						   "seccomp filters (%s): system calls are not restricted",
#ifdef KILN_HAVE_SECCOMP
						   "the kernel has none"
#else
						   "kilnd was built without libseccomp"
#endif
		);
	if (!out->landlock)
		util_append(out->lacks, sizeof(out->lacks), used,
					"%sLandlock (the kernel is older than 5.13 or has it off): compilers can read "
					"every file of uid %u, and so can users' kernels on device cpu",
					used ? "; " : "", (unsigned)getuid());
}

/* Drops the powers that root has beyond an owner of files. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
	for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	syscall(SYS_capset, &header, none);
}

static int lack(enum sandbox_mode mode, const char *what, int why, char *error, size_t error_size)
{
	if (mode != SANDBOX_REQUIRE)
		return KILN_OK;
	return util_fail(error, error_size, KILN_ENOTSUP, "--sandbox require: no %s here: %s", what,
					 strerror(why));
}

int sandbox_enter(enum sandbox_role role, enum sandbox_mode mode, const struct sandbox_files *files,
				  char held[SANDBOX_TEXT], char *error, size_t error_size)
{
	struct sandbox_files all = files ? *files : (struct sandbox_files){0};
	int version = sandbox_landlock_version(), status = KILN_OK, failed;
	size_t used = 0;
	snprintf(held, SANDBOX_TEXT, "%s", mode == SANDBOX_OFF ? "off" : "none");
	if (mode == SANDBOX_OFF)
		return KILN_OK;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (role != SANDBOX_DRIVER)
		drop_capabilities();
	/* Nobody knows the files that a driver opens. */
	if (role != SANDBOX_DRIVER) {
		if (OWN_PROC && all.read_count < SANDBOX_READ)
			all.read[all.read_count++] = OWN_PROC;
		errno = ENOSYS;
		if (version && sandbox_landlock(version, &all) == 0)
			used = util_append(held, SANDBOX_TEXT, used, "landlock %d", version);
		else
			status = lack(mode, "Landlock", errno, error, error_size);
	}
	failed = status == KILN_OK ? sandbox_filter(role) : 0;
	if (failed)
		status = lack(mode, "seccomp filter", -failed, error, error_size);
	else if (status == KILN_OK)
		util_append(held, SANDBOX_TEXT, used, "%sseccomp", used ? ", " : "");
	return status;
}

void sandbox_give_way(int score)
{
	char text[16];
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	snprintf(text, sizeof(text), "%d", score);
	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	close(fd);
}
