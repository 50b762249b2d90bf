/*
 * trail: the broker reads memory that a device process writes, and believes none of it.
 */
#include "daemon/exec/trail.h"
#include "daemon/broker/devices/handle_state.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define ROUNDS 2000
#define READ_MOST 512

static struct broker broker;
static struct device_entry device = {.broker = &broker};

/* The memory as its process has it; the descriptor is gone. */
static struct trail *open_trail(struct device_handle *handle, int *fd)
{
	*fd = handle_trail_open(handle);
	assert_true(*fd >= 0);
	void *memory = mmap(NULL, sizeof(struct trail), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	assert_true(memory != MAP_FAILED);
	return memory;
}

static void memory_stays(void **state)
{
	static struct device_handle handle = {.device = &device};
	int fd;
	struct trail *trail = open_trail(&handle, &fd);
	(void)state;
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	close(fd);
	munmap(trail, sizeof(*trail));
	handle_trail_close(&handle);
}

static void count(void *arg, const struct handle_past *past)
{
	uint64_t now = util_now_us();
	int *seen = arg;
	++*seen;
	assert_true(past->age_us <= now);
	assert_true(past->took_us <= past->age_us);
	assert_true(!past->in_flight || past->took_us == past->age_us);
}

static void count_ended(void *arg, struct device_handle *handle, const struct handle_past *past)
{
	(void)handle;
	assert_true(!past->in_flight);
	count(arg, past);
}

static uint64_t next_word(uint64_t *random)
{
	static const uint64_t odd[] = {0, 1, 2, UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 63};
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	uint64_t which = *random >> 60;
	return which < 6 ? odd[which] : which < 10 ? util_now_us() - (*random >> 44) : *random >> 32;
}

/* Whatever stands there, what is made of it is a bounded list of calls that may have been. */
static void nonsense(void **state)
{
	static struct device_handle handle = {.device = &device};
	uint64_t random = 7, began = util_now_us();
	int fd, all = 0, ended = 0;
	struct trail *trail = open_trail(&handle, &fd);
	(void)state;
	close(fd);
	for (int round = 0; round < ROUNDS; round++) {
		int seen = 0;
		for (size_t i = 0; i < sizeof(*trail) / sizeof(uint64_t); i++) {
			uint64_t word = next_word(&random);
			memcpy((char *)trail + i * sizeof(word), &word, sizeof(word));
		}
		trail->begun = next_word(&random);
		/* Numbers that fit, or nothing else would be looked at. */
		for (unsigned i = 0; i < TRAIL_CALLS; i += 2)
			trail->calls[(trail->begun - 1 - i) % TRAIL_CALLS].number = trail->begun - i;
		handle_each_past(&handle, count, &seen);
		device.handles = &handle;
		broker.devices = &device;
		handles_count_busy(&broker);
		assert_true(seen <= (int)TRAIL_CALLS);
		all += seen;
		for (int reader = 0; reader < HANDLE_READERS; reader++) {
			int read = 0;
			uint64_t missed = handles_read(&broker, reader, READ_MOST, count_ended, &read);
			assert_true(read <= READ_MOST && missed <= UINT32_MAX);
			ended += read;
			if (round % 2)
				handles_read_no_more(&broker, reader);
		}
	}
	assert_true(all > ROUNDS && ended > ROUNDS);
	/* No time grows faster than the clock, but for the half second that it may be behind. */
	double most = (double)(util_now_us() - began) + ROUNDS * 500e3;
	assert_true(device.busy_us >= 0 && device.busy_us <= most);
	for (int i = 0; i < ACCOUNTS_MOST; i++)
		assert_true(broker.accounts.rows[i].device_us >= 0 &&
					broker.accounts.rows[i].device_us <= most);
	trail->busy_us = 1000000;
	handles_count_busy(&broker);
	double before = device.busy_us;
	trail->busy_us += 100000;
	handles_count_busy(&broker);
	assert_true(device.busy_us == before + 100000);
	trail->busy_us += UINT64_C(1) << 40;
	handles_count_busy(&broker);
	trail->busy_us = 5;
	handles_count_busy(&broker);
	assert_true(device.busy_us == before + 100000);
	munmap(trail, sizeof(*trail));
	handle_trail_close(&handle);
}

/* Gives the trail calls that have ended. */
static void add_calls(struct trail *trail, int calls, uint64_t stream)
{
	for (int i = 0; i < calls; i++) {
		uint64_t number = trail->begun++;
		struct trail_call *call = &trail->calls[number % TRAIL_CALLS];
		call->stream = stream;
		call->began_us = call->ended_us = util_now_us();
		call->number = number + 1;
	}
}

/* A trace misses calls of messages, too; a monitor knows them from their answers. */
static void missed(void **state)
{
	static struct device_handle handle = {.device = &device};
	int fd, read = 0;
	struct trail *trail = open_trail(&handle, &fd);
	(void)state;
	close(fd);
	device.handles = &handle;
	broker.devices = &device;
	for (int reader = 0; reader < HANDLE_READERS; reader++)
		assert_int_equal(handles_read(&broker, reader, READ_MOST, count_ended, &read), 0);
	for (uint64_t i = 0; i < 10; i++)
		handle_note(&handle, HANDLE_MESSAGE, i + 1);
	add_calls(trail, 10, 0);
	add_calls(trail, READ_MOST + 20, 3);
	assert_int_equal(handles_read(&broker, HANDLE_TRACE, READ_MOST, count_ended, &read), 30);
	assert_int_equal(handles_read(&broker, HANDLE_RECENT, READ_MOST, count_ended, &read), 20);
	assert_int_equal(read, 2 * READ_MOST);
	for (int reader = 0; reader < HANDLE_READERS; reader++) {
		assert_int_equal(handles_read(&broker, reader, READ_MOST, count_ended, &read), 0);
		handles_read_no_more(&broker, reader);
	}
	assert_int_equal(read, 2 * READ_MOST);
	munmap(trail, sizeof(*trail));
	handle_trail_close(&handle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_stays),
		cmocka_unit_test(nonsense),
		cmocka_unit_test(missed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
