/*
 * cpu_work: makes works, and writes why one failed.  cpu_work.h draws the states of a work.
 */
#include "cpu_work.h"
#include "daemon/base/util.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct cpu_work *cpu_work_new(uint64_t ticket, size_t data_bytes, char error[KERNEL_ERROR_MAX])
{
	struct cpu_work *work = calloc(1, sizeof(*work) + data_bytes);
	if (!work) {
		util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a launch's record");
		return NULL;
	}
	work->ticket = ticket;
	work->data_bytes = data_bytes;
	atomic_flag_clear(&work->failing);
	return work;
}

bool cpu_work_fail_at(struct cpu_work *work, int status, const char *sentence, const char *fault)
{
	if (atomic_flag_test_and_set(&work->failing))
		return false;
	snprintf(work->error, sizeof(work->error), "%s", sentence);
	work->fault = fault;
	atomic_store(&work->status, status);
	return true;
}

bool cpu_work_fail(struct cpu_work *work, int status, const char *sentence)
{
	return cpu_work_fail_at(work, status, sentence, NULL);
}

void cpu_stream_assert_valid(const struct cpu_stream *stream)
{
#ifndef NDEBUG
	assert(!stream->head == !stream->tail);
	for (const struct cpu_work *work = stream->head; work; work = work->next) {
		assert(work->stream == stream);
		assert(work->state == CPU_WORK_QUEUED ||
			   (work == stream->head && work->state == CPU_WORK_STARTED));
		assert(work->next || work == stream->tail);
	}
#else
	(void)stream;
#endif
}
