/* place.c: see place.h. */
#include "place.h"

#include "gpu/driver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MARGIN 128 /* poisoned bytes on either side; keeps what alignment a case has */

/* A sealed descriptor of our own, of which a part is lent. */
static bool lend_descriptor(struct me *me, struct place *place, const char *name)
{
	uint64_t before = me_chance(me, 2) ? 0 : 4096, all = before + place->bytes;
	int fd = memfd_create("soak", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool made =
		fd >= 0 && ftruncate(fd, (off_t)all) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
	void *map = made ? mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (map == MAP_FAILED) {
		me_fail(me, "no memory to lend");
		close(fd);
		return false;
	}
	place->lent = map;
	place->map = (unsigned char *)map + before;
	int status = kiln_lend_fd(me->client, fd, before, place->bytes, name, &place->buffer);
	close(fd);
	return me_ok(me, status, "lending a descriptor");
}

static bool lend_cuda(struct me *me, struct place *place, const char *name)
{
	static const enum gpu_memory kinds[] = {GPU_MALLOC, GPU_MALLOC, GPU_EXPORTED, GPU_POOL};

	enum gpu_memory kind = kinds[me_pick(me, 4)];

	place->pointer = gpu_alloc(place->bytes, kind);
	me_count(me, SOAK_COUNT_pools, kind == GPU_POOL);
	if (!place->pointer) {
		me_fail(me, "no memory to lend: %s", gpu_error());
		return false;
	}
	return me_ok(me, kiln_lend_cuda(me->client, place->pointer, place->bytes, name, &place->buffer),
				 "lending CUDA memory");
}

static bool open_memory(struct me *me, struct place *place, int number)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	const char *name = names[number % 8];
	int64_t kind = me_pick(me, 4);
	unsigned flags = me->on_cpu && kind == 1 ? KILN_BUFFER_SHARED : 0;
	void *map = NULL;

	if (me->on_cpu && kind == 2)
		return lend_descriptor(me, place, name);
	if (me->lends_cuda && kind >= 1)
		return lend_cuda(me, place, name);
	if (!me_ok(me, kiln_alloc(me->client, place->bytes, flags, name, &place->buffer), "allocating"))
		return false;
	if (!flags)
		return true;
	if (!me_ok(me, kiln_map(place->buffer, &map), "mapping"))
		return false;
	place->map = map;
	return true;
}

static bool put(struct me *me, struct place *place)
{
	if (place->map) {
		memcpy(place->map, place->sent, place->bytes);
		return true;
	}
	if (!place->pointer)
		return me_ok(me, kiln_write(place->buffer, 0, place->sent, place->bytes), "writing");
	if (!gpu_put(place->pointer, place->sent, place->bytes))
		me_fail(me, "memory that was lent cannot be written: %s", gpu_error());
	return true;
}

static bool get(struct me *me, struct place *place)
{
	memset(place->back, 0, place->bytes);
	if (place->map) {
		memcpy(place->back, place->map, place->bytes);
		return true;
	}
	if (!place->pointer)
		return me_ok(me, kiln_read(place->buffer, 0, place->back, place->bytes), "reading");
	if (!gpu_get(place->back, place->pointer, place->bytes))
		me_fail(me, "memory that was lent cannot be read: %s", gpu_error());
	return true;
}

bool place_open(struct me *me, struct place *place, const struct cases_operand *operand, int number)
{
	uint64_t end;

	*place = (struct place){.operand = operand->dtype == KILN_DTYPE_NONE ? NULL : operand};
	if (!place->operand)
		return true;
	place->begin = MARGIN + operand->offset;
	end = place->begin + cases_bytes(operand);
	place->bytes = end + MARGIN;
	place->seed = cases_word(&me->state);
	place->sent = malloc(place->bytes);
	place->back = malloc(place->bytes);
	if (!place->sent || !place->back) {
		me_fail(me, "no memory");
		return false;
	}
	runner_poison(&me->runner, place->sent, operand->output ? end : place->begin, place->seed);
	runner_poison(&me->runner, place->sent + end, place->bytes - end, place->seed + 1);
	if (!operand->output)
		runner_fill_operand(&me->runner, operand, place->sent + place->begin, place->seed);
	else if (operand->kept)
		memset(place->sent + place->begin, CASES_KEPT, end - place->begin);
	return open_memory(me, place, number) && put(me, place);
}

bool place_check(struct me *me, struct place *place, int number, bool written)
{
	uint64_t end;

	if (!place->operand)
		return true;
	end = place->begin + cases_bytes(place->operand);
	if (!get(me, place))
		return false;
	me_count(me, SOAK_COUNT_bytes, (int64_t)place->bytes);
	for (uint64_t i = 0; i < place->bytes; i++) {
		bool may = written && place->operand->output && i >= place->begin && i < end;
		if (may || place->sent[i] == place->back[i])
			continue;
		me_fail(me, "byte %lld of operand %d (of %lld, in memory of %lld) is %#x and was %#x",
				(long long)(i - place->begin), number, (long long)(end - place->begin),
				(long long)place->bytes, place->back[i], place->sent[i]);
		return false;
	}
	return true;
}

void place_close(struct me *me, struct place *place)
{
	if (place->buffer)
		me_free(me, place->buffer);
	if (place->lent) {
		uint64_t before = (uint64_t)(place->map - (unsigned char *)place->lent);
		munmap(place->lent, before + place->bytes);
	}
	/* Where the daemon is gone, nobody says when its device process has let go. */
	if (place->pointer && !gpu_free(place->pointer) && !me->gone)
		me_fail(me, "memory that was lent cannot be freed: %s", gpu_error());
	free(place->sent);
	free(place->back);
	*place = (struct place){0};
}
