/* pool/memory.c: what a compile is believed to take, in a worker that is new and in one that keeps
 * what compiles before it had. */
#include "daemon/broker/devices/pool/pool_memory.c"

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* The queue's, which has nothing to do here. */
void queue_assign(struct broker *broker)
{
	(void)broker;
}

static struct pool pool;
static struct compile_job gpu = {.target = "sm_90"}, host = {.target = "cpu"};

static int begin(void **state)
{
	(void)state;
	for (int user = 0; user < 2; user++) {
		pool.memory.estimates[0][user] = NVRTC_BYTES;
		pool.memory.estimates[1][user] = HOST_BYTES;
	}
	return 0;
}

/* As a worker that has compiled before grows by a few pages, however much it uses. */
static void a_worker_that_keeps_its_memory(void **state)
{
	(void)state;
	struct slot warm = {.base = 74 * MIB, .resident = 74 * MIB}, fresh = warm;
	memory_note(&pool, &warm, &gpu, 20 * (int64_t)MIB);
	warm.resident = 90 * MIB;
	for (int i = 0; i < 100; i++)
		memory_note(&pool, &warm, &gpu, 40 << 10);
	assert_in_range(pool.memory.estimates[0][0], 16 * MIB, 17 * MIB);
	assert_in_range(memory_estimate(&pool, &fresh, &gpu), 16 * MIB, 17 * MIB);
	assert_in_range(memory_estimate(&pool, &warm, &gpu), 40 << 10, MIB);
	assert_int_equal(pool.memory.estimates[0][1], NVRTC_BYTES);
}

/* The host's compiler is another process each time. */
static void a_compiler_that_ends(void **state)
{
	(void)state;
	struct slot slot = {.base = 74 * MIB, .resident = 90 * MIB};
	for (int i = 0; i < 100; i++)
		memory_note(&pool, &slot, &host, 180 * (int64_t)MIB);
	assert_int_equal(memory_estimate(&pool, &slot, &host), 180 * MIB);
	/* Where nothing was measured nothing is learnt. */
	memory_note(&pool, &slot, &host, 0);
	assert_int_equal(memory_estimate(&pool, &slot, &host), 180 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_worker_that_keeps_its_memory, begin),
		cmocka_unit_test_setup(a_compiler_that_ends, begin),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
