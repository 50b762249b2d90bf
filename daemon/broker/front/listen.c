/* listen.c: connect; on refusal take the lock, try again, only then unlink and bind (as tmux and
 * git do).  The modes of the socket and of its directory follow the options. */
#include "listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/base/closer.h"
#include "daemon/base/util.h"

#define BACKLOG 128
#define FIRST_INHERITED 3
#define NO_GROUP ((gid_t)-1)
#define ERROR(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

/* ---- Modes ---- */

/*
 * Without guests the socket has 0600 and its directory 0700.  Guests of one group come in by that
 * group: 0660 and 0710.  A file has one group, and kilnd may give a file only to a group that it is
 * in.  All other guests come in by 0666 and 0711, and SO_PEERCRED tells guests from strangers.
 *
 * kilnd marks each directory that it makes with the sticky bit, which means nothing where nobody
 * else may write.  By this mark a later kilnd knows that the mode is its own to change; the mode of
 * any other directory is its maker's choice.
 */
#define MADE_HERE ((mode_t)S_ISVTX)
#define OTHERS_WRITE ((mode_t)(S_IWGRP | S_IWOTH))

static bool has_guests(const struct options *options)
{
	return options->allow_uids.count || options->allow_gids.count;
}

static gid_t only_group(const struct options *options)
{
	bool one = options->allow_gids.count == 1 && !options->allow_uids.count;
	return one ? options->allow_gids.ids[0] : NO_GROUP;
}

static void set_directory_mode(const char *path, const struct options *options)
{
	struct stat status;
	gid_t group = only_group(options);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
		(status.st_mode & (MADE_HERE | OTHERS_WRITE)) == MADE_HERE) {
		/* The mode closes first: the group that has the directory now may not be the named one. */
		fchmod(fd, 0700 | MADE_HERE);
		if (group != NO_GROUP && fchown(fd, (uid_t)-1, group) == 0)
			fchmod(fd, 0710 | MADE_HERE);
		else if (has_guests(options))
			fchmod(fd, 0711 | MADE_HERE);
	}
	if (fd >= 0)
		close(fd);
}

/* Opens the socket, which has 0600 until now, to guests. */
static int set_socket_mode(const char *path, const struct options *options)
{
	gid_t group = only_group(options);
	if (!has_guests(options))
		return 0;
	bool given = group != NO_GROUP && lchown(path, (uid_t)-1, group) == 0;
	return chmod(path, given ? 0660 : 0666);
}

/* Says whether the mode lets this uid or gid in; bit: S_IXOTH or S_IWOTH.  kilnd does not know
 * the groups of a uid: any may be one of them. */
static bool admits(const struct stat *status, mode_t bit, bool is_group, uint32_t id)
{
	mode_t owner = bit << 6, group = bit << 3;
	if (is_group)
		return status->st_mode & (status->st_gid == id ? group : bit);
	if (id == 0)
		return true;
	return status->st_mode & (status->st_uid == id ? owner : group | bit);
}

/* Logs the first uid or gid of the options that the mode keeps out, and returns true; false:
 * none.  An access control list may let in more than the mode tells. */
static bool keeps_out(const struct options *options, const char *path, bool is_socket)
{
	const struct options_ids *lists[] = {&options->allow_uids, &options->allow_gids};
	struct stat status;
	if (stat(path, &status) < 0 || getxattr(path, "system.posix_acl_access", NULL, 0) > 0)
		return false;
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < lists[i]->count; k++) {
			const char *kind = i ? "gid" : "uid";
			unsigned id = lists[i]->ids[k];
			if (admits(&status, is_socket ? S_IWOTH : S_IXOTH, i, id))
				continue;
			util_log(UTIL_WARN,
					 "--allow-%s %u: the %s %s (uid %u, gid %u, mode %03o) keeps %s %u out: %s",
					 kind, id, is_socket ? "inherited socket" : "directory", path,
					 (unsigned)status.st_uid, (unsigned)status.st_gid,
					 (unsigned)status.st_mode & 0777, kind, id,
					 is_socket ? "set SocketMode= and SocketGroup= in the socket unit"
							   : "let others pass it (chmod o+x), or name another place with "
								 "--socket");
			return true;
		}
	return false;
}

/* Looks from the root on, and logs the first thing that keeps guests from the socket. */
static void look_for_closed_doors(const struct listen_socket *socket)
{
	char path[PATH_MAX];
	if (!has_guests(socket->options) || !realpath(socket->path, path))
		return;
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (keeps_out(socket->options, path, false))
			return;
		*slash = '/';
	}
	if (socket->lock < 0)
		keeps_out(socket->options, path, true);
}

/* ---- Making it ---- */

/* A client can send no descriptors until its session lets it: they would be closed with the
 * connection, which may take as long as the sender likes.  Older kernels cannot refuse them. */
static void refuse_rights(int fd)
{
	int off = 0;
	setsockopt(fd, SOL_SOCKET, CLOSER_PASSRIGHTS, &off, sizeof(off));
}

static int inherited(struct listen_socket *out, char error[KERNEL_ERROR_MAX])
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	int type = 0, listening = 0, fd = FIRST_INHERITED;
	socklen_t size = sizeof(type);
	struct sockaddr_un address = {0};
	socklen_t length = sizeof(address);
	if (!pid || !count || strtol(pid, NULL, 10) != getpid())
		return KILN_ENOENT;
	if (strtol(count, NULL, 10) != 1)
		return ERROR(KILN_EINVAL, "LISTEN_FDS=%s: kilnd takes exactly one socket", count);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET ||
		getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening ||
		getsockname(fd, (struct sockaddr *)&address, &length) < 0 || address.sun_family != AF_UNIX)
		return ERROR(KILN_EINVAL,
					 "the inherited descriptor %d is no listening Unix SOCK_SEQPACKET socket; in "
					 "the unit file use ListenSequentialPacket=",
					 fd);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	refuse_rights(fd);
	out->fd = fd;
	out->lock = -1;
	snprintf(out->path, sizeof(out->path), "%.*s", (int)sizeof(address.sun_path),
			 address.sun_path[0] ? address.sun_path : "(abstract)");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return KILN_OK;
}

/* Makes the socket's directory and all above it that are not there; sets modes from below. */
static int make_directories(const char *directory, const struct options *options)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s", directory);
	if (util_make_directories(directory, 0700 | MADE_HERE) < 0)
		return -1;
	for (;;) {
		set_directory_mode(path, options);
		char *slash = strrchr(path, '/');
		if (!slash || slash == path)
			return 0;
		*slash = 0;
	}
}

static int prepare_directory(const struct listen_socket *socket, char error[KERNEL_ERROR_MAX])
{
	char directory[PATH_MAX];
	struct stat status;
	snprintf(directory, sizeof(directory), "%s", socket->path);
	char *slash = strrchr(directory, '/');
	if (!slash)
		snprintf(directory, sizeof(directory), ".");
	else if (slash == directory)
		slash[1] = 0;
	else
		*slash = 0;
	if (make_directories(directory, socket->options) < 0 || stat(directory, &status) < 0)
		return ERROR(KILN_EIO, "cannot make the socket's directory %.200s: %s", directory,
					 strerror(errno));
	bool others_write = status.st_mode & OTHERS_WRITE;
	bool sticky = status.st_mode & S_ISVTX;
	if ((status.st_uid != getuid() && status.st_uid != 0) || (others_write && !sticky))
		return ERROR(KILN_EPERM,
					 "the socket's directory %.150s belongs to uid %u with mode %03o: others could "
					 "replace the socket; name another with --socket",
					 directory, (unsigned)status.st_uid, (unsigned)status.st_mode & 0777);
	return KILN_OK;
}

/* Says whether a daemon answers; *pid is its process. */
static bool answers(const struct sockaddr_un *address, int *pid)
{
	struct ucred peer = {0};
	socklen_t length = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
	/* A daemon with a full backlog lives, too. */
	yes = yes || (fd >= 0 && errno == EAGAIN);
	*pid = 0;
	if (yes && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0)
		*pid = peer.pid;
	if (fd >= 0)
		close(fd);
	return yes;
}

static int busy(const char *path, int pid, char error[KERNEL_ERROR_MAX])
{
	return ERROR(
		KILN_EBUSY,
		"a kilnd (pid %d) already serves %.150s; stop it with `kiln --socket %.150s stop`, or name "
		"another socket with --socket",
		pid, path, path);
}

static bool is_locked_by(const char *path, int lock)
{
	struct stat held, named;
	return fstat(lock, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
		   held.st_dev == named.st_dev;
}

/* Takes the lock that a daemon holds while it starts and runs.  A lock file that was removed
 * meanwhile does not count. */
static int take_lock(struct listen_socket *out, char error[KERNEL_ERROR_MAX])
{
	for (int tries = 0; tries < 100; tries++) {
		int fd = open(out->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return ERROR(KILN_EIO, "cannot open the lock %.200s: %s", out->lock_path,
						 strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			close(fd);
			return ERROR(
				KILN_EBUSY,
				"another kilnd is starting or running at %.150s (the lock beside it is held)",
				out->path);
		}
		if (is_locked_by(out->lock_path, fd)) {
			out->lock = fd;
			return KILN_OK;
		}
		close(fd);
	}
	return ERROR(KILN_EIO, "the lock %.200s changes all the time", out->lock_path);
}

static int bind_socket(struct listen_socket *out, const struct sockaddr_un *address,
					   char error[KERNEL_ERROR_MAX])
{
	struct stat status;
	if (lstat(out->path, &status) == 0) {
		if (!S_ISSOCK(status.st_mode))
			return ERROR(KILN_EINVAL, "%.200s is there and is no socket; it was left alone",
						 out->path);
		unlink(out->path);
	}
	out->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask = umask(0177);
	bool bound =
		out->fd >= 0 && bind(out->fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
	umask(mask);
	if (bound)
		refuse_rights(out->fd);
	if (!bound || set_socket_mode(out->path, out->options) < 0 || listen(out->fd, BACKLOG) < 0 ||
		stat(out->path, &status) < 0)
		return ERROR(KILN_EIO, "cannot listen at %.200s: %s", out->path, strerror(errno));
	out->device = status.st_dev;
	out->inode = status.st_ino;
	return KILN_OK;
}

static int make_socket(struct listen_socket *out, char error[KERNEL_ERROR_MAX])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_Static_assert(sizeof(address.sun_path) >= OPTIONS_SOCKET_MAX, "a path of --socket fits");
	const char *path = out->options->socket;
	int pid = 0;
	memcpy(address.sun_path, path, strlen(path) + 1);
	snprintf(out->path, sizeof(out->path), "%s", path);
	snprintf(out->lock_path, sizeof(out->lock_path), "%s.lock", path);
	int status = prepare_directory(out, error);
	if (status != KILN_OK)
		return status;
	if (answers(&address, &pid))
		return busy(path, pid, error);
	status = take_lock(out, error);
	if (status != KILN_OK)
		return status;
	if (answers(&address, &pid))
		status = busy(path, pid, error);
	else
		status = bind_socket(out, &address, error);
	if (status != KILN_OK)
		listen_close(out);
	return status;
}

int listen_open(struct listen_socket *out, const struct options *options,
				char error[KERNEL_ERROR_MAX])
{
	*out = (struct listen_socket){.fd = -1, .lock = -1, .options = options};
	int status = inherited(out, error);
	if (status == KILN_ENOENT)
		status = make_socket(out, error);
	if (status == KILN_OK)
		look_for_closed_doors(out);
	return status;
}

/* Says whether the path still leads to the socket that we made. */
static bool has_path(const struct listen_socket *socket)
{
	struct stat status;
	return socket->inode && lstat(socket->path, &status) == 0 && status.st_dev == socket->device &&
		   status.st_ino == socket->inode;
}

bool listen_is_lost(const struct listen_socket *socket)
{
	return socket->lock >= 0 &&
		   (!has_path(socket) || !is_locked_by(socket->lock_path, socket->lock));
}

int listen_again(struct listen_socket *socket, char error[KERNEL_ERROR_MAX])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct listen_socket anew = *socket;
	int pid = 0, status = KILN_OK;
	bool locked = is_locked_by(socket->lock_path, socket->lock), bound = has_path(socket);
	memcpy(address.sun_path, socket->path, strlen(socket->path) + 1);
	status = prepare_directory(socket, error);
	if (status == KILN_OK && !locked)
		status = take_lock(&anew, error);
	if (status == KILN_OK && !bound)
		status = answers(&address, &pid) ? busy(socket->path, pid, error)
										 : bind_socket(&anew, &address, error);
	/* dup3() must not close the old socket: connections that are queued there might hold the
	 * loop. */
	int old = status == KILN_OK && !bound ? fcntl(socket->fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (status == KILN_OK && !bound && dup3(anew.fd, socket->fd, O_CLOEXEC) < 0)
		status = ERROR(KILN_EIO, "cannot listen at %.200s: %s", socket->path, strerror(errno));
	closer_put(getuid(), old);
	if (!bound && anew.fd != socket->fd && anew.fd >= 0)
		close(anew.fd);
	anew.fd = socket->fd;
	if (status != KILN_OK) {
		if (anew.lock != socket->lock)
			close(anew.lock);
		return status;
	}
	if (!locked)
		close(socket->lock);
	*socket = anew;
	look_for_closed_doors(socket);
	return KILN_OK;
}

void listen_close(struct listen_socket *socket)
{
	if (socket->lock >= 0) {
		if (has_path(socket))
			unlink(socket->path);
		if (is_locked_by(socket->lock_path, socket->lock))
			unlink(socket->lock_path);
		close(socket->lock);
	}
	/* An inherited socket serves the next daemon. */
	if (socket->inode)
		shutdown(socket->fd, SHUT_RDWR);
	closer_put(getuid(), socket->fd);
	socket->fd = socket->lock = -1;
}

void listen_notify(const char *state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	if (!path || !*path || strlen(path) >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, strlen(path));
	socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (address.sun_path[0] == '@')
		address.sun_path[0] = 0;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address,
			   length);
		close(fd);
	}
}
