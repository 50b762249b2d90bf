/*
 * directory.c: checks that the directory of the cache is ours alone and on a disk of this host, and
 * locks it for one process.  Knows nothing of the database's content.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Types of statfs(2), some of which are in no header.  SQLite's locks and shared memory are not
 * reliable on these file systems. */
static const struct {
	unsigned long type;
	const char *name;
} remote[] = {
	{0x6969, "NFS"},
	{0x517b, "SMB"},
	{0xff534d42, "CIFS"},
	{0xfe534d42, "SMB"},
	{0x65735546, "FUSE"},
	{0x01021997, "9P"},
	{0x00c36400, "Ceph"},
	{0x0bd00bd0, "Lustre"},
	{0x5346414f, "AFS"},
	{0x6b414653, "AFS"},
	{0x73757245, "Coda"},
	{0x564c, "NCP"},
	{0x47504653, "GPFS"},
	{0x19830326, "BeeGFS"},
	{0xaad7aaea, "PanFS"},
	{0x7461636f, "OCFS2"},
	{0x01161970, "GFS2"},
	{0x786f4256, "VirtualBox shared folder"},
	{0xbacbacbc, "VMware shared folder"},
	{0xbeefdead, "SNFS"},
};

const char *cache_place_remote_name(unsigned long type)
{
	for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
		if (remote[i].type == (type & 0xffffffffu))
			return remote[i].name;
	return NULL;
}

static int check_directory(const struct cache_place *place, char error[KERNEL_ERROR_MAX])
{
	struct stat status;
	struct statfs system;
	if (fstat(place->directory_fd, &status) < 0 || fstatfs(place->directory_fd, &system) < 0) {
		return FAIL(KILN_EIO, "the cache directory %.150s cannot be examined: %s", place->directory,
					strerror(errno));
	}
	if (status.st_uid != geteuid()) {
		return FAIL(KILN_EPERM,
					"the cache directory %.150s belongs to uid %lu, not to uid %lu: choose another "
					"with --cache-dir",
					place->directory, (unsigned long)status.st_uid, (unsigned long)geteuid());
	}
	if (status.st_mode & (S_IWGRP | S_IWOTH)) {
		return FAIL(KILN_EPERM,
					"the cache directory %.150s can be written by others (mode %04o): chmod go-w "
					"it, or choose another with --cache-dir",
					place->directory, (unsigned)status.st_mode & 07777);
	}
	const char *name = cache_place_remote_name((unsigned long)system.f_type);
	if (name) {
		return FAIL(KILN_ENOTSUP,
					"the cache directory %.150s is on %s, and the cache must be on a local disk: "
					"choose another with --cache-dir",
					place->directory, name);
	}
	return KILN_OK;
}

static int say_owner(const struct cache_place *place, char error[KERNEL_ERROR_MAX])
{
	char text[24] = "";
	ssize_t got = pread(place->lock_fd, text, sizeof(text) - 1, 0);
	text[got > 0 ? got : 0] = 0;
	long pid = strtol(text, NULL, 10);
	char owner[48] = "another process";
	if (pid > 0)
		snprintf(owner, sizeof(owner), "the process with pid %ld", pid);
	return FAIL(KILN_EBUSY,
				"the cache directory %.150s is in use by %s: a cache has one daemon; stop "
				"that one, or choose another with --cache-dir or KILN_CACHE_DIR",
				place->directory, owner);
}

/* Whether the file that is locked still has its name: the last owner removes it at the end. */
static bool lock_is_current(const struct cache_place *place)
{
	struct stat held, named;
	return fstat(place->lock_fd, &held) == 0 &&
		   fstatat(place->directory_fd, "lock", &named, AT_SYMLINK_NOFOLLOW) == 0 &&
		   held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

bool cache_place_is_current(const struct cache_place *place)
{
	struct stat held, named;
	return place->directory_fd >= 0 && fstat(place->directory_fd, &held) == 0 &&
		   stat(place->directory, &named) == 0 && held.st_dev == named.st_dev &&
		   held.st_ino == named.st_ino && lock_is_current(place);
}

/* Whether an error may pass by itself: the directory is well chosen all the same. */
static bool may_pass(int number)
{
	return number == ENOSPC || number == EDQUOT || number == EROFS || number == EIO ||
		   number == EMFILE || number == ENFILE;
}

static int take_lock(struct cache_place *place, char error[KERNEL_ERROR_MAX])
{
	struct stat status;
	char text[24];
	for (;;) {
		place->lock_fd =
			openat(place->directory_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (place->lock_fd < 0) {
			place->passing = may_pass(errno);
			return FAIL(KILN_EIO,
						"the lock of the cache, %.150s/lock, cannot be made: %s; choose another "
						"directory with --cache-dir",
						place->directory, strerror(errno));
		}
		if (flock(place->lock_fd, LOCK_EX | LOCK_NB) < 0)
			return say_owner(place, error);
		if (lock_is_current(place))
			break;
		close(place->lock_fd);
	}
	place->unclean = fstat(place->lock_fd, &status) == 0 && status.st_size > 0;
	int size = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	/* The lock holds on a full disk too; say_owner() then has no pid to name. */
	if (ftruncate(place->lock_fd, 0) == 0)
		(void)!pwrite(place->lock_fd, text, (size_t)size, 0);
	return KILN_OK;
}

int cache_place_open(const char *directory, struct cache_place *out, char error[KERNEL_ERROR_MAX])
{
	*out = (struct cache_place){.directory_fd = -1, .lock_fd = -1};
	if (util_make_directories(directory, 0700) < 0 || !realpath(directory, out->directory)) {
		out->passing = may_pass(errno);
		return FAIL(
			KILN_EIO,
			"the cache directory %.150s cannot be made: %s; choose another with --cache-dir",
			directory, strerror(errno));
	}
	out->directory_fd = open(out->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (out->directory_fd < 0) {
		out->passing = may_pass(errno);
		return FAIL(KILN_EIO, "the cache directory %.150s cannot be opened: %s", out->directory,
					strerror(errno));
	}
	int status = check_directory(out, error);
	if (status == KILN_OK)
		status = take_lock(out, error);
	if (status != KILN_OK) {
		if (out->lock_fd >= 0) {
			close(out->lock_fd);
			out->lock_fd = -1;
		}
		cache_place_close(out);
	}
	return status;
}

void cache_place_lock_again(struct cache_place *place)
{
	struct cache_place other = *place;
	char ignored[KERNEL_ERROR_MAX];
	other.lock_fd = -1;
	if (take_lock(&other, ignored) == KILN_OK) {
		util_log(UTIL_WARN, "cache: the lock %s/lock was removed; it was made anew",
				 place->directory);
		close(place->lock_fd);
		place->lock_fd = other.lock_fd;
	} else if (other.lock_fd >= 0) {
		close(other.lock_fd);
	}
}

void cache_place_forget_log(const struct cache_place *place)
{
	unlinkat(place->directory_fd, "kiln.db-wal", 0);
}

void cache_place_close(struct cache_place *place)
{
	if (place->lock_fd >= 0) {
		if (!place->unclean && lock_is_current(place))
			unlinkat(place->directory_fd, "lock", 0);
		close(place->lock_fd);
	}
	if (place->directory_fd >= 0)
		close(place->directory_fd);
	place->lock_fd = place->directory_fd = -1;
}

uint64_t cache_place_disk_bytes(const struct cache_place *place)
{
	static const char *const names[] = {"kiln.db", "kiln.db-wal", "kiln.db-shm"};
	uint64_t total = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct stat status;
		if (fstatat(place->directory_fd, names[i], &status, AT_SYMLINK_NOFOLLOW) == 0)
			total += (uint64_t)status.st_size;
	}
	return total;
}
