/* slow_files.c: a TCP connection that nobody reads, and the smallest server of a FUSE file. */
#include "slow_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINGER_SECONDS 600
#define SERVER_SECONDS 120 /* at the most: a test that fails leaves a file open that waits for it */
#define FILE_NODE 2

/* ---- Sockets ---- */

bool slow_socket_open(struct slow_socket *slow)
{
	const struct linger linger = {1, LINGER_SECONDS};
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof(address);
	char data[4096] = {0};
	int small = 2048, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	slow->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	slow->peer = -1;
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0 &&
		getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
		connect(slow->fd, (struct sockaddr *)&address, size) == 0)
		slow->peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	close(listener);
	while (slow->peer >= 0 && send(slow->fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	if (slow->peer >= 0 && errno == EAGAIN &&
		setsockopt(slow->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0)
		return true;
	perror("a socket that lingers");
	return false;
}

void slow_socket_end(struct slow_socket *slow)
{
	/* With data unread this resets the connection. */
	close(slow->peer);
	slow->peer = -1;
}

/* ---- FUSE ---- */

static void answer(int device, uint64_t unique, int error, const void *data, size_t size)
{
	char message[512];
	const struct fuse_out_header header = {(uint32_t)(sizeof(header) + size), -error, unique};

	memcpy(message, &header, sizeof(header));
	if (size)
		memcpy(message + sizeof(header), data, size);
	(void)!write(device, message, sizeof(header) + size);
}

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node, .size = 4096, .mode = node == FILE_NODE ? 0100666 : 040755, .nlink = 1};
}

static void serve(int device)
{
	static char buffer[1 << 17];
	struct fuse_in_header in;

	while (read(device, buffer, sizeof(buffer)) >= (ssize_t)sizeof(in)) {
		memcpy(&in, buffer, sizeof(in));
		struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096};
		struct fuse_entry_out entry = {
			.nodeid = FILE_NODE, .entry_valid = 3600, .attr = attributes(FILE_NODE)};
		struct fuse_attr_out attr = {.attr = attributes(in.nodeid)};
		struct fuse_open_out open = {.fh = 1};
		switch (in.opcode) {
		case FUSE_INIT:
			answer(device, in.unique, 0, &init, sizeof(init));
			break;
		case FUSE_LOOKUP:
			answer(device, in.unique, 0, &entry, sizeof(entry));
			break;
		case FUSE_GETATTR:
			/* Asked again each time, for the answer is valid for no time. */
			answer(device, in.unique, 0, &attr, sizeof(attr));
			break;
		case FUSE_OPEN:
			answer(device, in.unique, 0, &open, sizeof(open));
			break;
		case FUSE_FLUSH:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break; /* never */
		default:
			answer(device, in.unique, ENOSYS, NULL, 0);
		}
	}
}

static bool unmounted(const struct slow_file *slow, const char *what)
{
	fprintf(stderr, "SKIPPED: no FUSE file here: %s: %s\n", what, strerror(errno));
	rmdir(slow->dir);
	return false;
}

bool slow_file_open(struct slow_file *slow, const char *inside)
{
	char options[128], path[160];
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	snprintf(slow->dir, sizeof(slow->dir), "%s/fuse", inside);
	mkdir(slow->dir, 0755);
	if (device < 0)
		return unmounted(slow, "/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other",
			 device, (unsigned)getuid(), (unsigned)getgid());
	if (mount("fuse", slow->dir, "fuse", MS_NODEV | MS_NOSUID, options) != 0) {
		close(device);
		return unmounted(slow, "mount");
	}
	slow->server = fork();
	if (slow->server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(SERVER_SECONDS);
		serve(device);
		_exit(0);
	}
	close(device);
	snprintf(path, sizeof(path), "%s/file", slow->dir);
	slow->fd = open(path, O_RDWR | O_CLOEXEC);
	if (slow->fd >= 0)
		return true;
	slow_file_end(slow);
	return unmounted(slow, path);
}

void slow_file_end(struct slow_file *slow)
{
	kill(slow->server, SIGKILL);
	waitpid(slow->server, NULL, 0);
	if (slow->fd >= 0)
		close(slow->fd);
	umount2(slow->dir, MNT_DETACH);
	rmdir(slow->dir);
}
