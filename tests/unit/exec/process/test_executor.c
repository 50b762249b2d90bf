/*
 * The executor process on the cpu device, spoken to as the broker does: what it answers, what it
 * refuses, in which order it lets go, and how it ends.
 */
#include "executor_scene.h"

#include "daemon/base/map.h"

/* ---- Tests ---- */

static void tells_what_it_is(void **state)
{
	(void)state;
	struct peer peer;
	begin_peer(&peer, "cpu");
	const msgpack_object *root = &answer.root;
	int64_t grid[3];
	assert_int_equal(wire_get_int(root, "st", 1), KILN_OK);
	assert_string_equal(wire_get_str(&answer, root, "name"), "cpu");
	assert_string_equal(wire_get_str(&answer, root, "target"), "cpu");
	assert_int_equal(wire_get_int(root, "max_threads", 0), 1024);
	assert_int_equal(wire_get_int(root, "shared_default", 0), 49152);
	assert_int_equal(wire_get_int(root, "shared_optin", 0), 166912);
	assert_int_equal(wire_get_int(root, "warp", 0), 32);
	assert_int_equal(wire_get_ints(root, "grid", grid, 3), 3);
	assert_int_equal(grid[0], INT32_MAX);
	assert_int_equal(grid[1], 65535);
	assert_true(wire_get_uint(root, "memory", 0) > 0);
	assert_int_equal(end_peer(&peer), 0);
}

static void ends_with_3_without_a_device(void **state)
{
	(void)state;
	static const char *const names[] = {"cpu:1", "gpu", "cuda:x", "cuda:1000", ""};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct peer peer;
		begin_peer(&peer, names[i]);
		assert_true(wire_get_int(&answer.root, "st", 0) < 0);
		assert_true(strlen(sentence()) > 20);
		assert_int_equal(end_peer(&peer), EXEC_EXIT_NO_DEVICE);
	}
}

static void writes_launches_and_reads(void **state)
{
	(void)state;
	struct peer peer;
	int fd, *host = map_staging(&fd, 4000);
	begin_scale(&peer);
	for (int i = 0; i < 1000; i++)
		host[i] = i - 500;
	/* Nothing waits for anything here but the order of the stream. */
	uint64_t write_id = post_copy(&peer, 1, 0, 4000, true, fd);
	uint64_t launch_id = post_launch(&peer, &scale_launch);
	assert_int_equal(status_of(&peer, write_id), KILN_OK);
	assert_int_equal(status_of(&peer, launch_id), KILN_OK);
	assert_non_null(wire_get(&answer.root, "us"));
	assert_int_equal(status_of(&peer, post_copy(&peer, 2, 0, 4000, false, fd)), KILN_OK);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(host[i], (i - 500) * 3);
	/* A plain copy, and a part of it read at an offset. */
	struct launch copy = {.stream = 1,
						  .copy = 400,
						  .operands = {{2, 0, 400, 4}, {1, 3600, 400, 4}},
						  .operand_count = 2};
	assert_int_equal(ask_launch(&peer, &copy), KILN_OK);
	assert_int_equal(status_of(&peer, post_copy(&peer, 1, 3600, 400, false, fd)), KILN_OK);
	for (int i = 0; i < 100; i++)
		assert_int_equal(host[i], (i - 500) * 3);
	assert_int_equal(ask_number(&peer, "end", "stream", 1), KILN_OK);
	assert_int_equal(ask_number(&peer, "ping", "x", 1), KILN_OK);
	assert_int_equal(wire_get_int(&answer.root, "inflight", -1), 0);
	munmap(host, 4000);
	close(fd);
	assert_int_equal(end_peer(&peer), 0);
}

static void imports_shared_memory(void **state)
{
	(void)state;
	struct peer peer;
	int fd, *host = map_staging(&fd, 8192);
	begin_scale(&peer);
	struct wire_out message;
	begin(&peer, &message, "import");
	wire_put_uint(&message, "buf", 9);
	wire_put_str(&message, "kind", "fd");
	wire_put_uint(&message, "span", 8192);
	wire_put_uint(&message, "offset", 4);
	wire_put_uint(&message, "bytes", 4000);
	assert_int_equal(status_of(&peer, post(&peer, &message, &fd, 1)), KILN_OK);
	for (int i = 0; i < 1000; i++)
		host[1 + i] = i;
	struct launch launch = scale_launch;
	launch.operands[0].buffer = 9;
	launch.operands[1].buffer = 9;
	assert_int_equal(ask_launch(&peer, &launch), KILN_OK);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(host[1 + i], i * 3);
	/* The buffer begins 4 bytes into a page. */
	launch.operands[0].alignment = 8;
	assert_int_equal(ask_launch(&peer, &launch), KILN_EINVAL);
	assert_non_null(strstr(sentence(), "multiple of 8"));
	begin(&peer, &message, "import");
	wire_put_uint(&message, "buf", 10);
	wire_put_str(&message, "kind", "fd");
	wire_put_uint(&message, "span", 4096);
	wire_put_uint(&message, "offset", 4);
	wire_put_uint(&message, "bytes", UINT64_MAX - 2);
	assert_int_equal(status_of(&peer, post(&peer, &message, &fd, 1)), KILN_EINVAL);
	munmap(host, 8192);
	close(fd);
	assert_int_equal(end_peer(&peer), 0);
}

/* The status of an import of kind "pool" with a handle of so many bytes. */
static int ask_pool(struct peer *peer, size_t handle_bytes, const int *fds, int count)
{
	static const uint8_t handle[65];
	struct wire_out message;
	begin(peer, &message, "import");
	wire_put_uint(&message, "buf", 11);
	wire_put_str(&message, "kind", "pool");
	wire_put_bin(&message, "handle", handle, handle_bytes);
	wire_put_uint(&message, "span", 4096);
	wire_put_uint(&message, "bytes", 4096);
	return status_of(peer, post(peer, &message, fds, count));
}

static void refuses_pools_on_the_cpu(void **state)
{
	(void)state;
	struct peer peer;
	int fd, *host = map_staging(&fd, 4096);
	begin_scale(&peer);
	assert_int_equal(ask_pool(&peer, 65, &fd, 1), KILN_EPROTO);
	assert_non_null(strstr(sentence(), "kind \"pool\" has 64 bytes"));
	assert_int_equal(ask_pool(&peer, 64, NULL, 0), KILN_EPROTO);
	assert_non_null(strstr(sentence(), "came with 0 descriptors"));
	assert_int_equal(ask_pool(&peer, 64, &fd, 1), KILN_ENOTSUP);
	assert_non_null(strstr(sentence(), "device cpu cannot use CUDA memory"));
	munmap(host, 4096);
	close(fd);
	assert_int_equal(end_peer(&peer), 0);
}

static void expect_refusal(struct peer *peer, const struct launch *launch, int status,
						   const char *part)
{
	int got = ask_launch(peer, launch);
	if (got != status || !strstr(sentence(), part))
		fail_msg("expected %d and \"%s\", got %d and \"%s\"", status, part, got, sentence());
}

static void refuses_wrong_launches(void **state)
{
	(void)state;
	struct peer peer;
	struct launch wrong;
	begin_scale(&peer);
#define EXPECT(field, value, status, part) \
	wrong = scale_launch;                  \
	wrong.field = value;                   \
	expect_refusal(&peer, &wrong, status, part)
	EXPECT(operands[0].extent, 4001, KILN_EINVAL, "operand 0: 4001 bytes at 0 are not within");
	EXPECT(operands[1].offset, 4, KILN_EINVAL, "operand 1: 4000 bytes at 4");
	EXPECT(operands[1].offset, (uint64_t)INT64_MAX, KILN_EINVAL, "operand 1: 4000 bytes at");
	EXPECT(operands[0].buffer, 77, KILN_ENOENT, "operand 0: there is no buffer 77");
	EXPECT(operands[0].alignment, 3, KILN_EPROTO, "8 or 16 bytes, not 3");
	EXPECT(operands[0].alignment, 32, KILN_EPROTO, "8 or 16 bytes, not 32");
	EXPECT(module, 5, KILN_ENOENT, "no module 5");
	EXPECT(grid[0], 0, KILN_EINVAL, "a grid of 0x1x1");
	EXPECT(grid[2], 65536, KILN_EINVAL, "a grid of 4x1x65536");
	EXPECT(block[0], 1025, KILN_EINVAL, "a block of 1025x1x1");
	EXPECT(block[1], 5, KILN_EINVAL, "a block of 256x5x1");
	EXPECT(block[2], -1, KILN_EPROTO, "grid and block");
	EXPECT(shared, 166913, KILN_EINVAL, "166913 bytes of shared memory");
	EXPECT(scalar_count, 1, KILN_EINVAL, "takes 4 arguments and was given 3");
	EXPECT(scalar_bytes, 8, KILN_EINVAL, "argument 2 of the kernel has 4 bytes and was given 8");
	EXPECT(scalar_bytes, 2, KILN_EPROTO, "argument 2 is neither");
	EXPECT(operand_count, 1, KILN_EPROTO, "argument 1 is neither");
	EXPECT(scratch[0], KERNEL_SCRATCH_MAX + 1, KILN_EINVAL,
		   "268435457 bytes of scratch memory, 0 of them counters");
	EXPECT(scratch[0], UINT64_MAX, KILN_EPROTO, "is not [bytes, counters]");
	wrong.scratch[0] = 8;
	wrong.scratch[1] = 9;
	expect_refusal(&peer, &wrong, KILN_EINVAL, "8 bytes of scratch memory, 9 of them counters");
	EXPECT(takes_scratch, true, KILN_EINVAL, "takes 4 arguments and was given 5");
	EXPECT(says, LAUNCH_NEITHER, KILN_EPROTO, "either its kernel (mod) or how many bytes");
	EXPECT(says, LAUNCH_MOD | LAUNCH_COPY, KILN_EPROTO, "either its kernel (mod) or how many");
	EXPECT(pointers, 0, KILN_EINVAL, "takes 4 arguments");
#undef EXPECT
	struct launch copy = {.copy = 500, .operands = {{1, 0, 400, 1}, {2, 0, 500, 1}}};
	copy.operand_count = 2;
	expect_refusal(&peer, &copy, KILN_EINVAL, "a copy of 500 bytes");
	copy.operand_count = 1;
	expect_refusal(&peer, &copy, KILN_EPROTO, "two operands, not 1");
	/* No number of a module says that there is none. */
	copy = scale_launch;
	copy.module = 0;
	copy.says = LAUNCH_MOD;
	expect_refusal(&peer, &copy, KILN_ENOENT, "there is no module 0");
	/* None of them left anything behind. */
	assert_int_equal(ask_launch(&peer, &scale_launch), KILN_OK);
	assert_int_equal(ask_number(&peer, "free", "buf", 1), KILN_OK);
	assert_int_equal(ask_number(&peer, "unload", "mod", 1), KILN_OK);
	assert_int_equal(end_peer(&peer), 0);
}

/* x is left out, so its elements count as ones. */
static void gives_scratch_memory(void **state)
{
	(void)state;
	struct peer peer;
	int fd, *host = map_staging(&fd, 4000);
	const struct launch sum = {.module = 2,
							   .stream = 1,
							   .grid = {63, 1, 1},
							   .block = {1, 1, 1},
							   .operands = {{0, 0, 0, 1}, {2, 0, 16, 4}},
							   .operand_count = 2,
							   .takes_scratch = true,
							   .scratch = {256, 4},
							   .pointers = 2,
							   .scalars = {1000},
							   .scalar_bytes = 4,
							   .scalar_count = 1};
	begin_scale(&peer);
	assert_int_equal(ask_load(&peer, 2, "sum<0>"), KILN_OK);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ask_launch(&peer, &sum), KILN_OK);
		assert_int_equal(status_of(&peer, post_copy(&peer, 2, 0, 16, false, fd)), KILN_OK);
		assert_int_equal(host[0], 1000);
	}
	assert_true(peer.scratch >= 256);
	struct launch wrong = sum;
	wrong.operands[0].extent = 4;
	expect_refusal(&peer, &wrong, KILN_ENOENT, "operand 0: there is no buffer 0");
	assert_int_equal(ask_load(&peer, 3, "sum<1>"), KILN_OK);
	wrong = sum;
	wrong.module = 3;
	expect_refusal(&peer, &wrong, KILN_EDEVICE, "must leave them at zero");
	assert_int_equal(ask_launch(&peer, &sum), KILN_OK);
	munmap(host, 4000);
	close(fd);
	assert_int_equal(end_peer(&peer), 0);
}

/* Indices may be 0 to 999 here. */
static void says_what_kernels_report(void **state)
{
	(void)state;
	struct peer peer;
	int fd, *host = map_staging(&fd, 4000);
	const struct launch stray = {.module = 2,
								 .stream = 1,
								 .grid = {1, 1, 1},
								 .block = {1, 1, 1},
								 .operands = {{1, 0, 4000, 4}, {2, 0, 4, 4}},
								 .operand_count = 2,
								 .takes_report = true,
								 .report = {1000, 990},
								 .pointers = 2,
								 .scalars = {1000, 990},
								 .scalar_bytes = 4,
								 .scalar_count = 2};
	begin_scale(&peer);
	for (int i = 0; i < 1000; i++)
		host[i] = i;
	assert_int_equal(status_of(&peer, post_copy(&peer, 1, 0, 4000, true, fd)), KILN_OK);
	assert_int_equal(ask_load(&peer, 2, "stray<0>"), KILN_OK);
	for (int i = 0; i < 3; i++) {
		struct launch all = stray;
		expect_refusal(&peer, &stray, KILN_EINDEX,
					   "10 of 1000 indices are out of range, which is 0 to 989");
		all.scalars[1] = 1000;
		assert_int_equal(ask_launch(&peer, &all), KILN_OK);
		assert_int_equal(status_of(&peer, post_copy(&peer, 2, 0, 4, false, fd)), KILN_OK);
		assert_int_equal(host[0], 0);
	}
	struct launch wrong = stray;
	wrong.report[1] = UINT64_MAX;
	expect_refusal(&peer, &wrong, KILN_EPROTO, "is not [indices, end]");
	munmap(host, 4000);
	close(fd);
	assert_int_equal(end_peer(&peer), 0);
}

/* Arguments as the broker has them in memory. */
static void takes_planned_arguments(void **state)
{
	(void)state;
	struct peer peer;
	struct launch launch;
	struct kernel_arg args[KERNEL_MAX_ARGS + 1] = {
		{.kind = KERNEL_ARG_POINTER, .operand = 0},
		{.kind = KERNEL_ARG_POINTER, .operand = 1},
		{.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = scale_launch.scalars[0]},
		{.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = scale_launch.scalars[1]}};
	begin_scale(&peer);
	launch = scale_launch;
	launch.planned = args;
	launch.planned_bytes = 4 * sizeof(*args);
	assert_int_equal(ask_launch(&peer, &launch), KILN_OK);
	launch.planned_bytes--;
	expect_refusal(&peer, &launch, KILN_EPROTO, "are not the arguments of a launch");
	launch.planned_bytes = sizeof(args);
	expect_refusal(&peer, &launch, KILN_EPROTO, "are not the arguments of a launch");
	launch.planned_bytes = 4 * sizeof(*args);
#define EXPECT(field, wrong)                                                  \
	do {                                                                      \
		const struct kernel_arg was = args[2];                                \
		args[2].field = wrong;                                                \
		expect_refusal(&peer, &launch, KILN_EPROTO, "argument 2 is neither"); \
		args[2] = was;                                                        \
	} while (0)
	EXPECT(bytes, 2);
	EXPECT(value, UINT64_MAX);
	EXPECT(kind, KERNEL_ARG_BYTES);
	EXPECT(kind, 77);
	args[2].kind = KERNEL_ARG_POINTER;
	EXPECT(operand, 2);
	EXPECT(operand, -1);
#undef EXPECT
	args[2].kind = KERNEL_ARG_SCALAR;
	assert_int_equal(ask_launch(&peer, &launch), KILN_OK);
	assert_int_equal(end_peer(&peer), 0);
}

static void refuses_wrong_requests(void **state)
{
	(void)state;
	struct peer peer;
	begin_scale(&peer);
	assert_int_equal(ask_alloc(&peer, 1, 10), KILN_EPROTO);
	assert_int_equal(ask_alloc(&peer, 0, 10), KILN_EPROTO);
	assert_int_equal(ask_alloc(&peer, 3, UINT64_MAX / 2), KILN_ENOMEM);
	assert_int_equal(ask_number(&peer, "free", "buf", 3), KILN_ENOENT);
	assert_int_equal(ask_number(&peer, "unload", "mod", 3), KILN_ENOENT);
	assert_int_equal(ask_number(&peer, "dance", "x", 3), KILN_EPROTO);
	assert_non_null(strstr(sentence(), "\"dance\""));
	assert_int_equal(ask_load(&peer, 1, "scale<int>"), KILN_EPROTO);
	struct wire_out message;
	begin(&peer, &message, "load");
	wire_put_uint(&message, "mod", 4);
	wire_put_str(&message, "entry", "kiln_cpu_entry");
	wire_put_bin(&message, "object", "nonsense", 8);
	assert_int_equal(ask(&peer, &message), KILN_ECOMPILE);
	/* Copies: too far, no descriptor, a file that can shrink. */
	int fd, *host = map_staging(&fd, 4096);
	assert_int_equal(status_of(&peer, post_copy(&peer, 1, 8, 3993, true, fd)), KILN_EINVAL);
	assert_int_equal(ask_alloc(&peer, 5, 5000), KILN_OK);
	assert_int_equal(status_of(&peer, post_copy(&peer, 5, 0, 5000, true, fd)), KILN_EINVAL);
	assert_non_null(strstr(sentence(), "at least 5000 bytes"));
	begin(&peer, &message, "copy");
	wire_put_uint(&message, "buf", 1);
	wire_put_uint(&message, "bytes", 4);
	wire_put_bool(&message, "to", true);
	assert_int_equal(ask(&peer, &message), KILN_EPROTO);
	int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(loose, 4096), 0);
	assert_int_equal(status_of(&peer, post_copy(&peer, 1, 0, 4, true, loose)), KILN_EINVAL);
	close(loose);
	close(fd);
	munmap(host, 4096);
	assert_int_equal(end_peer(&peer), 0);
}

static void keeps_what_is_in_flight(void **state)
{
	(void)state;
	struct peer peer;
	begin_scale(&peer);
	/* The launch waits behind a copy, which waits until it is canceled. */
	struct launch copy = {.copy = 4, .stream = 1, .operands = {{1, 0, 4, 1}, {1, 8, 4, 1}}};
	copy.operand_count = 2;
	copy.delay = 60000;
	uint64_t copy_id = post_launch(&peer, &copy);
	uint64_t launch_id = post_launch(&peer, &scale_launch);
	struct wire_out message;
	begin(&peer, &message, "free");
	wire_put_uint(&message, "buf", 2);
	uint64_t free_id = post(&peer, &message, NULL, 0);
	begin(&peer, &message, "unload");
	wire_put_uint(&message, "mod", 1);
	uint64_t unload_id = post(&peer, &message, NULL, 0);
	/* Both names are gone at once, and another stream is not held up. */
	struct launch other = scale_launch;
	other.stream = copy.stream = 2;
	copy.delay = 0;
	assert_int_equal(ask_launch(&peer, &other), KILN_ENOENT);
	assert_int_equal(ask_launch(&peer, &copy), KILN_OK);
	assert_int_equal(ask_number(&peer, "ping", "x", 1), KILN_OK);
	assert_int_equal(wire_get_int(&answer.root, "inflight", -1), 2);
	assert_int_equal(ask_number(&peer, "cancel", "ticket", copy_id), KILN_OK);
	assert_int_equal(status_of(&peer, copy_id), KILN_ECANCELED);
	assert_int_equal(status_of(&peer, launch_id), KILN_OK);
	assert_int_equal(status_of(&peer, free_id), KILN_OK);
	assert_int_equal(status_of(&peer, unload_id), KILN_OK);
	assert_int_equal(end_peer(&peer), 0);
}

static void a_wrong_kernel_does_not_end_it(void **state)
{
	(void)state;
	struct peer peer;
	begin_scale(&peer);
	assert_int_equal(ask_load(&peer, 2, "bad<5>"), KILN_OK);
	struct launch trap = scale_launch;
	trap.module = 2;
	trap.scalar_count = 1;
	expect_refusal(&peer, &trap, KILN_EDEVICE, "__trap was called");
	assert_int_equal(ask_launch(&peer, &scale_launch), KILN_OK);
	assert_int_equal(end_peer(&peer), 0);
}

static void a_fault_is_told_and_ends_it(void **state)
{
	(void)state;
	struct peer peer;
	begin_scale(&peer);
	assert_int_equal(ask_load(&peer, 2, "bad<0>"), KILN_OK);
	struct launch bad = scale_launch, slow = scale_launch;
	bad.module = 2;
	bad.scalar_count = 1;
	bad.scalars[0] = 1001;
	slow.delay = 60000;
	slow.stream = 3;
	post_launch(&peer, &slow);
	uint64_t id = post_launch(&peer, &bad);
	const msgpack_object *root = receive(&peer);
	assert_string_equal(wire_type(&answer), "event");
	assert_string_equal(wire_get_str(&answer, root, "what"), "fault");
	assert_int_equal(wire_get_uint(root, "ticket", 0), id);
	if (!strstr(sentence(), "block (2,0,0), thread (5,0,0): writes beyond the end of "
							"operand 1, at byte 4004 of 4000"))
		fail_msg("%s", sentence());
	struct frame more;
	assert_int_equal(frame_recv_wait(peer.sock, &more, LIMIT, WAIT_MS), KILN_ECONN);
	assert_int_equal(end_peer(&peer), EXEC_EXIT_FAULT);
}

static void ends_with_the_socket(void **state)
{
	(void)state;
	struct peer peer;
	begin_scale(&peer);
	struct launch slow = scale_launch;
	slow.delay = 60000;
	post_launch(&peer, &slow);
	assert_int_equal(end_peer(&peer), 0);
}

/* More requests than may be in flight, and more answers than the socket holds. */
static void many_requests_at_once(void **state)
{
	(void)state;
	enum { MANY = 6000 };
	struct peer peer;
	begin_scale(&peer);
	int sent = 0, received = 0;
	bool seen[MANY] = {false};
	uint64_t first = peer.next_id;
	struct launch copy = {
		.copy = 4, .stream = 1, .operands = {{1, 0, 4, 1}, {1, 8, 4, 1}}, .operand_count = 2};
	alarm(300);
	while (received < MANY) {
		struct pollfd fd = {.fd = peer.sock, .events = POLLIN};
		if (sent < MANY)
			fd.events |= POLLOUT;
		assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
		/* Reading comes last on purpose. */
		if (fd.revents & POLLOUT) {
			post_launch(&peer, &copy);
			sent++;
			continue;
		}
		assert_int_equal(wire_get_int(receive(&peer), "st", 1), KILN_OK);
		uint64_t id = wire_id(&answer) - first;
		assert_true(id < MANY && !seen[id]);
		seen[id] = true;
		received++;
	}
	alarm(0);
	assert_int_equal(end_peer(&peer), 0);
}

static void holds_no_descriptor_of_others(void **state)
{
	(void)state;
	struct peer peer;
	char path[64], target[64];
	int leak = dup2(STDERR_FILENO, 200);
	assert_int_equal(leak, 200);
	begin_peer(&peer, "cpu");
	snprintf(path, sizeof(path), "/proc/%d/fd/200", (int)peer.pid);
	assert_int_equal(readlink(path, target, sizeof(target)), -1);
	close(leak);
	struct rlimit core;
	assert_int_equal(prlimit(peer.pid, RLIMIT_CORE, NULL, &core), 0);
	assert_int_equal(core.rlim_max, 0);
	assert_int_equal(getpgid(peer.pid), peer.pid);
	assert_int_equal(end_peer(&peer), 0);
}

static void map_finds_what_is_there(void **state)
{
	(void)state;
	enum { N = 5000 };
	struct map map = {0};
	static char values[N];
	assert_null(map_get_id(&map, 1));
	assert_null(map_remove_id(&map, 1));
	for (uint64_t i = 0; i < N; i++)
		assert_true(map_put_id(&map, i * i + 1, &values[i]) == 0);
	for (uint64_t i = 0; i < N; i += 3)
		assert_ptr_equal(map_remove_id(&map, i * i + 1), &values[i]);
	for (uint64_t i = 0; i < N; i++)
		assert_ptr_equal(map_get_id(&map, i * i + 1), i % 3 ? &values[i] : NULL);
	size_t left = map.count;
	assert_int_equal(left, N - (N + 2) / 3);
	while (map_take(&map))
		left--;
	assert_int_equal(left, 0);
	map_free(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_what_it_is),
		cmocka_unit_test(ends_with_3_without_a_device),
		cmocka_unit_test(writes_launches_and_reads),
		cmocka_unit_test(imports_shared_memory),
		cmocka_unit_test(refuses_pools_on_the_cpu),
		cmocka_unit_test(refuses_wrong_launches),
		cmocka_unit_test(takes_planned_arguments),
		cmocka_unit_test(gives_scratch_memory),
		cmocka_unit_test(says_what_kernels_report),
		cmocka_unit_test(refuses_wrong_requests),
		cmocka_unit_test(keeps_what_is_in_flight),
		cmocka_unit_test(a_wrong_kernel_does_not_end_it),
		cmocka_unit_test(a_fault_is_told_and_ends_it),
		cmocka_unit_test(ends_with_the_socket),
		cmocka_unit_test(many_requests_at_once),
		cmocka_unit_test(holds_no_descriptor_of_others),
		cmocka_unit_test(map_finds_what_is_there),
	};
	return cmocka_run_group_tests(tests, NULL, teardown);
}
