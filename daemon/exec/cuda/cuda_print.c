/*
 * cuda_print: keeps what kernels print in a memfd, which takes it without waiting for anybody.  The
 * driver holds at most its FIFO (1 MiB) for each wait, so the memfd stays small.  Only a process
 * that serves one session does this: who printed is clear then.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_module.h"
#include "cuda_print.h"
#include "cuda_work.h"
#include "daemon/base/util.h"
#include "daemon/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASSERTION_MOST 200

/* The names of the driver's functions stand in the object's table of symbols. */
bool cuda_prints(const void *object, size_t bytes)
{
	static const char print[] = "vprintf", assertion[] = "__assertfail";
	return memmem(object, bytes, print, sizeof(print)) ||
		   memmem(object, bytes, assertion, sizeof(assertion));
}

int cuda_keep_printed(struct device *device, char error[KERNEL_ERROR_MAX])
{
	int fd = memfd_create("kiln-printed", MFD_CLOEXEC),
		log = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	/* Appending, because the file is emptied while libc's streams stay open. */
	bool kept =
		fd >= 0 && log >= 0 && fcntl(fd, F_SETFL, O_APPEND) == 0 && dup2(fd, STDOUT_FILENO) >= 0;
	/* Sanitizers report to standard error. */
	if (kept && !SANDBOX_SANITIZED) {
		util_log_to(log);
		kept = dup2(fd, STDERR_FILENO) >= 0;
	} else if (log >= 0) {
		close(log);
	}
	if (!kept) {
		if (fd >= 0)
			close(fd);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "%s cannot keep what kernels print: %s",
						 device->name, strerror(errno));
	}
	device->printed = fd;
	return KILN_OK;
}

size_t cuda_printed(struct device *device, char text[DEVICE_PRINTED_MOST], uint64_t *cut)
{
	struct stat status;
	*cut = 0;
	if (device->printed <= 0)
		return 0;
	fflush(stdout);
	if (fstat(device->printed, &status) != 0 || status.st_size == 0)
		return 0;
	ssize_t size = pread(device->printed, text, DEVICE_PRINTED_MOST, 0);
	if (size < 0)
		size = 0;
	*cut = (uint64_t)(status.st_size - size);
	if (ftruncate(device->printed, 0) != 0)
		util_log(UTIL_WARN, "what kernels have printed cannot be let go: %s", strerror(errno));
	return (size_t)size;
}

/* Waits only where nothing is left to wait for: what a later work of the stream holds back comes
 * with the end of that work. */
void cuda_print_flush(struct device *device, const struct cuda_stream *stream,
					  const struct cuda_work *work)
{
	if (device->printed > 0 && work->kind == CUDA_WORK_KERNEL && work->module->prints)
		device->unflushed = true;
	if (!device->unflushed || stream->running.head)
		return;
	device->unflushed = false;
	device->cu.cuStreamSynchronize(stream->stream);
}

/* The driver has told a broken context's kernels' last words when it says that it is broken. */
void cuda_print_assertion(struct device *device)
{
	static const char mark[] = "Assertion `";
	char text[DEVICE_PRINTED_MOST + 1];
	if (device->printed <= 0)
		return;
	for (struct cuda_stream *s = device->active; s; s = s->active_next)
		if (s->running.head && s->running.head->kind == CUDA_WORK_KERNEL &&
			s->running.head->module->prints)
			device->cu.cuStreamSynchronize(s->stream);
	fflush(stdout);
	ssize_t size = pread(device->printed, text, sizeof(text) - 1, 0);
	text[size > 0 ? size : 0] = 0;
	char *line = strstr(text, mark);
	if (!line)
		return;
	while (line > text && line[-1] != '\n')
		line--;
	size_t length = strcspn(line, "\n"), used = strlen(device->broken_why);
	util_append(device->broken_why, sizeof(device->broken_why), used, "; %.*s",
				(int)(length < ASSERTION_MOST ? length : ASSERTION_MOST), line);
}

#endif
