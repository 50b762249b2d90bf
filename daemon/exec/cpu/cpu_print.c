/*
 * cpu_print: printf of kernels.  A thread formats into its own stack, and copies the text to what
 * the device keeps until the executor takes it.  The mutex is held for that copy alone, which
 * cannot fault: the signal handler of a fault never waits for it.
 */
#include "cpu_worker.h"

#include <stdio.h>
#include <string.h>

#define FORMAT_MOST 512
#define TEXT_MOST 1024 /* of one printf */

/* Checks a copy of the format: other threads may write to the format itself. */
static const char *wrong_in(const char *format)
{
	for (const char *at = format; (at = strchr(at, '%')); at++) {
		at += 1 + strspn(at + 1, "-+ #0123456789.*hlLjzt");
		if (!*at || !strchr("diouxXeEfFgGaAcsp%", *at))
			return *at == 'n' ? "%n" : "a conversion that printf has not";
	}
	return NULL;
}

static void keep_text(struct cpu_printed *printed, const char *text, size_t size)
{
	pthread_mutex_lock(&printed->mutex);
	size_t room = sizeof(printed->text) - printed->used;
	/* Nothing follows a text that was cut. */
	size_t fits = printed->cut ? 0 : size < room ? size : room;
	memcpy(printed->text + printed->used, text, fits);
	printed->used += fits;
	printed->cut += size - fits;
	pthread_mutex_unlock(&printed->mutex);
}

int cpu_print(struct kiln_cpu_state *state, const char *format, __builtin_va_list values)
{
	struct cpu_worker *worker = (struct cpu_worker *)state;
	char copy[FORMAT_MOST], text[TEXT_MOST];
	size_t length = strnlen(format, sizeof(copy));
	memcpy(copy, format, length < sizeof(copy) ? length + 1 : length);
	const char *wrong = length == sizeof(copy) ? "a format of over 511 bytes" : wrong_in(copy);
	if (wrong) {
		cpu_block_fail(worker, "thread (%u,%u,%u): printf is called with %s", state->thread.x,
					   state->thread.y, state->thread.z, wrong);
		return -1;
	}
	int bytes = vsnprintf(text, sizeof(text), copy, values);
	if (bytes > 0)
		keep_text(&worker->device->whole->printed, text,
				  (size_t)bytes < sizeof(text) ? (size_t)bytes : sizeof(text) - 1);
	return bytes;
}

size_t cpu_printed(struct device *part, char text[DEVICE_PRINTED_MOST], uint64_t *cut)
{
	struct cpu_printed *printed = &part->whole->printed;
	pthread_mutex_lock(&printed->mutex);
	size_t size = printed->used;
	memcpy(text, printed->text, size);
	*cut = printed->cut;
	printed->used = 0;
	printed->cut = 0;
	pthread_mutex_unlock(&printed->mutex);
	return size;
}
