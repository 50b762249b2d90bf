/*
 * test_basic: what one program can do with a daemon: buffers of every kind, permutes checked
 * against plain loops, tickets, cancelling, and an event loop.
 */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct permute problems[] = {
	{KILN_F32, 2, {37, 53}, {1, 0}},
	{KILN_F16, 2, {64, 64}, {1, 0}},
	{KILN_U8, 2, {129, 33}, {1, 0}},
	{KILN_I64, 2, {31, 17}, {1, 0}},
	{KILN_C128, 2, {9, 20}, {1, 0}},
	{KILN_BOOL, 3, {5, 6, 7}, {2, 0, 1}},
	{KILN_BF16, 3, {8, 3, 40}, {0, 2, 1}},
	{KILN_U8, 3, {24, 32, 3}, {2, 0, 1}},
	{KILN_F64, 4, {2, 3, 4, 5}, {3, 2, 1, 0}},
	{KILN_I16, 4, {4, 5, 6, 8}, {0, 2, 1, 3}},
	{KILN_U32, 5, {2, 3, 2, 5, 4}, {4, 0, 3, 1, 2}},
	{KILN_I8, 8, {2, 2, 2, 2, 3, 3, 3, 3}, {4, 5, 6, 7, 0, 1, 2, 3}},
};

static void test_permutes(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_string_equal(kiln_device(client), "cpu");
	for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++)
		assert_permutes(client, &problems[i], NULL);
	assert_counters_add_up(client);
	assert_int_equal(info_int(client, "counters.failures"), 0);
	assert_int_equal(info_int(client, "counters.launches"), sizeof(problems) / sizeof(problems[0]));
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_strided(void **state)
{
	const struct permute strided = {.dtype = KILN_F32,
									.rank = 3,
									.shape = {4, 5, 6},
									.perm = {2, 0, 1},
									.strided = true,
									.stride = {61, 11, 2},
									.offset = 12};
	const struct permute repeated = {.dtype = KILN_U16,
									 .rank = 3,
									 .shape = {3, 7, 5},
									 .perm = {1, 0, 2},
									 .strided = true,
									 .stride = {0, 1, 0}};
	const struct permute unaligned = {
		.dtype = KILN_U8, .rank = 2, .shape = {16, 16}, .perm = {1, 0}, .offset = 3};
	struct kilnd *daemon = *state;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &strided, NULL);
	assert_permutes(client, &repeated, NULL);
	assert_permutes(client, &unaligned, NULL);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The same kernel: first compiled, then found, also when memory has forgotten it and by a daemon
 * that comes later. */
static void test_origins(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(48, 80);
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	assert_permutes(client, &problem, "hit");
	debug_str(client, "expire", NULL, NULL);
	assert_permutes(client, &problem, "hit");
	assert_int_equal(info_int(client, "counters.requests"), 3);
	assert_int_equal(info_int(client, "counters.compiles"), 1);
	assert_int_equal(info_int(client, "counters.hits"), 2);
	assert_int_equal(info_int(client, "cache.rows"), 1);
	kiln_close(client);
	kilnd_stop(daemon);

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "hit");
	assert_int_equal(info_int(client, "counters.compiles"), 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_without_kernels(void **state)
{
	const struct permute copies[] = {
		{KILN_F32, 3, {3, 4, 5}, {0, 1, 2}},
		{KILN_U8, 4, {1, 7, 1, 9}, {2, 1, 0, 3}}, /* only axes of size 1 move */
		{KILN_F64, 0, {0}, {0}},                  /* one element */
		{KILN_F32, 3, {4, 0, 5}, {2, 1, 0}},      /* none at all */
	};
	struct kilnd *daemon = *state;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++)
		assert_permutes(client, &copies[i], "copy");
	assert_int_equal(info_int(client, "counters.compiles"), 0);
	assert_int_equal(info_int(client, "counters.requests"), 0);
	assert_int_equal(info_int(client, "cache.rows"), 0);
	assert_int_equal(info_int(client, "counters.copies"), 4);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Buffers ---- */

static void run_once(kiln_client *client, const struct permute *problem, kiln_buffer *x,
					 kiln_buffer *y)
{
	kiln_tensor tensors[] = {permute_input(problem, x), permute_output(problem, y)};
	kiln_attr perm = perm_attr(problem);
	if (kiln_run(client, "permute", tensors, 2, &perm, 1))
		fail_msg("permute: %s", kiln_errmsg());
}

static void test_shared_buffers(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 30);
	kiln_buffer *x, *y, *held;
	uint8_t expected[2400];
	void *in, *out;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_ok(kiln_alloc(client, 2400, KILN_BUFFER_SHARED, "x", &x));
	assert_ok(kiln_alloc(client, 2400, KILN_BUFFER_SHARED, "y", &y));
	assert_ok(kiln_map(x, &in));
	assert_ok(kiln_map(y, &out));
	assert_int_equal(kiln_buffer_bytes(x), 2400);
	for (int i = 0; i < 2400; i++)
		assert_int_equal(((uint8_t *)in)[i], 0);
	fill_random(in, 2400, 5);
	permute_reference(&problem, in, expected);
	run_once(client, &problem, x, y);
	assert_memory_equal(out, expected, 2400);
	/* kiln_read sees the same memory as the mapping. */
	memset(expected, 0, sizeof(expected));
	assert_ok(kiln_read(y, 0, expected, 2400));
	assert_memory_equal(out, expected, 2400);

	assert_ok(kiln_alloc(client, 64, 0, "held", &held));
	assert_int_equal(kiln_map(held, &in), KILN_ENOTSUP);
	assert_ok(kiln_free(held));
	assert_ok(kiln_free(x));
	assert_ok(kiln_free(y));
	await_info(client, "session.buffers", 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

static int make_memfd(uint64_t bytes, bool seal, uint8_t **map)
{
	int fd = memfd_create("kiln-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (seal)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	*map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(*map != MAP_FAILED);
	return fd;
}

static void test_lent_memory(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(32, 16);
	uint8_t *map, *loose, expected[2048];
	kiln_buffer *x, *y, *none = NULL;
	kiln_client *client;
	int fd, unsealed;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	fd = make_memfd(16384, true, &map);
	unsealed = make_memfd(4096, false, &loose);
	/* x and y are parts of one descriptor. */
	assert_ok(kiln_lend_fd(client, fd, 4096, 2048, "x", &x));
	assert_ok(kiln_lend_fd(client, fd, 8192, 2048, "y", &y));
	fill_random(map, 16384, 11);
	permute_reference(&problem, map + 4096, expected);
	run_once(client, &problem, x, y);
	assert_memory_equal(map + 8192, expected, 2048);

	assert_true(kiln_lend_fd(client, unsealed, 0, 4096, "loose", &none) < 0);
	assert_sentence("seal");
	assert_int_equal(kiln_lend_fd(client, fd, 8192, 8193, "long", &none), KILN_EINVAL);
	assert_null(none);
	assert_ok(kiln_free(x));
	assert_ok(kiln_free(y));
	kiln_close(client);
	munmap(map, 16384);
	munmap(loose, 4096);
	close(fd);
	close(unsealed);
	kilnd_stop(daemon);
}

static void test_partial_copies(void **state)
{
	struct kilnd *daemon = *state;
	uint8_t in[1000], out[1000];
	kiln_buffer *buffer;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_ok(kiln_alloc(client, 1000, 0, "bytes", &buffer));
	fill_random(in, 1000, 3);
	assert_ok(kiln_write(buffer, 500, in + 500, 499));
	assert_ok(kiln_read(buffer, 0, out, 1000));
	for (int i = 0; i < 1000; i++)
		assert_int_equal(out[i], i >= 500 && i < 999 ? in[i] : 0);
	assert_int_equal(kiln_write(buffer, 1000, in, 1), KILN_EINVAL);
	assert_sentence("bytes");
	assert_int_equal(kiln_read(buffer, UINT64_MAX, out, 2), KILN_EINVAL);
	assert_ok(kiln_free(buffer));
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Tickets ---- */

struct prepared {
	struct permute problem;
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_call *call;
	uint8_t in[4096], expected[4096];
};

static void prepare(struct prepared *p, struct kilnd *daemon)
{
	kiln_tensor tensors[2];
	kiln_attr perm;

	kilnd_start(daemon, NULL);
	p->client = client_open(daemon);
	p->problem = transpose(32, 32);
	fill_random(p->in, 4096, 23);
	permute_reference(&p->problem, p->in, p->expected);
	assert_ok(kiln_alloc(p->client, 4096, 0, "x", &p->x));
	assert_ok(kiln_alloc(p->client, 4096, 0, "y", &p->y));
	assert_ok(kiln_write(p->x, 0, p->in, 4096));
	tensors[0] = permute_input(&p->problem, p->x);
	tensors[1] = permute_output(&p->problem, p->y);
	perm = perm_attr(&p->problem);
	if (kiln_prepare(p->client, "permute", tensors, 2, &perm, 1, &p->call))
		fail_msg("prepare: %s", kiln_errmsg());
}

static void unprepare(struct prepared *p, struct kilnd *daemon)
{
	kiln_call_free(p->call);
	kiln_free(p->x);
	kiln_free(p->y);
	kiln_close(p->client);
	kilnd_stop(daemon);
}

static kiln_ticket submit(struct prepared *p, kiln_buffer *x, kiln_buffer *y, kiln_ticket after)
{
	const kiln_operand operands[] = {{x, 0}, {y, 0}};
	kiln_ticket ticket = 0;
	if (kiln_submit(p->call, operands, 2, after, &ticket))
		fail_msg("submit: %s", kiln_errmsg());
	assert_true(ticket != 0);
	return ticket;
}

static void test_order_and_tickets(void **state)
{
	struct prepared p = {0};
	uint8_t out[4096];
	kiln_ticket first, second;

	prepare(&p, *state);
	pid_t executor = device_process(p.client, 0);
	process_stop(executor);
	first = submit(&p, p.x, p.y, 0);
	second = submit(&p, p.y, p.x, first); /* the transpose of the transpose */
	assert_int_equal(kiln_wait(p.client, second, 0), KILN_EAGAIN);
	kill(executor, SIGCONT);
	assert_ok(kiln_wait(p.client, second, CALL_TIMEOUT_MS));
	assert_ok(kiln_wait(p.client, first, 0)); /* it ran before */
	assert_int_equal(kiln_wait(p.client, first, 0), KILN_ENOENT);
	assert_int_equal(kiln_wait(p.client, 123456789, 0), KILN_ENOENT);
	assert_ok(kiln_read(p.x, 0, out, 4096));
	assert_memory_equal(out, p.in, 4096);
	assert_ok(kiln_read(p.y, 0, out, 4096));
	assert_memory_equal(out, p.expected, 4096);
	unprepare(&p, *state);
}

static void test_cancel_and_after(void **state)
{
	struct prepared p = {0};
	uint8_t out[4096], zero[4096] = {0};
	kiln_ticket running, canceled, dependent, independent;
	kiln_buffer *other;

	prepare(&p, *state);
	assert_ok(kiln_alloc(p.client, 4096, 0, "other", &other));
	debug_int(p.client, "delay-launch", "ms", 3000);
	running = submit(&p, p.x, p.y, 0);
	debug_int(p.client, "delay-launch", "ms", 0);
	canceled = submit(&p, p.x, other, 0);
	dependent = submit(&p, p.x, other, canceled);
	independent = submit(&p, p.x, p.y, running);
	assert_ok(kiln_cancel(p.client, canceled));
	assert_int_equal(kiln_wait(p.client, canceled, CALL_TIMEOUT_MS), KILN_ECANCELED);
	assert_int_equal(kiln_wait(p.client, dependent, CALL_TIMEOUT_MS), KILN_ECANCELED);
	assert_true(kiln_errmsg()[0]);
	assert_ok(kiln_wait(p.client, running, CALL_TIMEOUT_MS));
	assert_ok(kiln_wait(p.client, independent, CALL_TIMEOUT_MS));
	assert_int_equal(kiln_cancel(p.client, independent), KILN_ENOENT);
	assert_ok(kiln_read(other, 0, out, 4096));
	assert_memory_equal(out, zero, 4096);
	assert_ok(kiln_free(other));
	unprepare(&p, *state);
}

static void test_event_loop(void **state)
{
	struct prepared p = {0};
	kiln_ticket tickets[3];
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	int finished = 0;

	prepare(&p, *state);
	debug_int(p.client, "delay-launch", "ms", 30);
	for (int i = 0; i < 3; i++)
		tickets[i] = submit(&p, p.x, p.y, 0);
	while (finished < 3 && now_ms() < end) {
		struct pollfd poller = {.fd = kiln_fd(p.client), .events = (short)kiln_events(p.client)};
		assert_true(poll(&poller, 1, CALL_TIMEOUT_MS) > 0);
		finished = kiln_dispatch(p.client);
		assert_in_range(finished, 0, 3);
	}
	assert_int_equal(finished, 3);
	for (int i = 0; i < 3; i++)
		assert_ok(kiln_wait(p.client, tickets[i], 0));
	assert_int_equal(kiln_dispatch(p.client), 0);
	unprepare(&p, *state);
}

#define LARGE (4 << 20)

/* A client that goes away takes all that was made for it with it. */
static void test_nothing_leaks(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(24, 40);
	uint8_t *bytes = calloc(1, LARGE);
	kiln_client *watcher;
	int64_t resident;
	pid_t executor;
	int fds, maps;

	assert_non_null(bytes);
	kilnd_start(daemon, NULL);
	watcher = client_open(daemon);
	assert_permutes(watcher, &problem, NULL);
	await_info(watcher, "workers.idle", info_int(watcher, "workers.count"));
	executor = device_process(watcher, 0);
	fds = count_fds(daemon->pid);
	maps = count_shared_maps(executor);
	resident = resident_kib(executor);
	assert_true(resident > 0);
	for (int i = 0; i < 20; i++) {
		kiln_client *client = client_open(daemon);
		kiln_buffer *shared, *held;
		assert_ok(kiln_alloc(client, 4096, KILN_BUFFER_SHARED, "s", &shared));
		assert_ok(kiln_alloc(client, LARGE, 0, "h", &held));
		assert_ok(kiln_write(held, 0, bytes, LARGE));
		assert_permutes(client, &problem, "hit");
		kiln_close(client);
		/* Valid for freeing only. */
		kiln_free(shared);
		kiln_free(held);
	}
	free(bytes);
	await_info(watcher, "server.sessions", 1);
	assert_fds_at_most(daemon->pid, fds);
	assert_shared_maps_at_most(executor, maps);
	/* 80 MiB came and went; ThreadSanitizer keeps its shadow of what one client had. */
	assert_in_range(resident_kib(executor), 0, resident + 40 * 1024);
	kiln_close(watcher);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_permutes),         HARNESS_TEST(test_strided),
		HARNESS_TEST(test_origins),          HARNESS_TEST(test_without_kernels),
		HARNESS_TEST(test_shared_buffers),   HARNESS_TEST(test_lent_memory),
		HARNESS_TEST(test_partial_copies),   HARNESS_TEST(test_order_and_tickets),
		HARNESS_TEST(test_cancel_and_after), HARNESS_TEST(test_event_loop),
		HARNESS_TEST(test_nothing_leaks),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
