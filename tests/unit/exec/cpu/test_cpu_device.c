/*
 * test_cpu_device: streams, copies and memory of the cpu device.
 */
#include "cpu_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Streams, copies, memory ---- */

static void streams_are_independent(void **state)
{
	(void)state;
	enum { BYTES = 9 << 20 }; /* more than two chunks */
	uint8_t *host = malloc(BYTES);
	struct device_memory *x = alloc(BYTES), *y = alloc(BYTES);
	for (int i = 0; i < BYTES; i++)
		host[i] = (uint8_t)(i * 31 >> 3);
	copy(x, host, BYTES, true);
	struct device_operand operands[2] = {{x, 0}, {y, 0}};
	struct device_launch launch = {.copies = true,
								   .operands = operands,
								   .operand_count = 2,
								   .copy_bytes = BYTES,
								   .delay_ms = 60000,
								   .ticket = 1000,
								   .stream = 7};
	assert_int_equal(device_cpu.launch(device, &launch, error), KILN_OK);
	launch.delay_ms = 0;
	launch.ticket++;
	assert_int_equal(device_cpu.launch(device, &launch, error), KILN_OK);
	memset(host, 0, BYTES);
	/* Behind the delayed one in its stream; the other stream waits for none of them. */
	assert_int_equal(device_cpu.copy(device, 7, 1002, y, 0, host, BYTES, false, error), KILN_OK);
	uint8_t other[16] = {1, 2, 3};
	assert_int_equal(device_cpu.copy(device, 8, 1003, x, 0, other, 4, false, error), KILN_OK);
	assert_int_equal(wait_done(1003).status, KILN_OK);
	device_cpu.cancel(device, &(uint64_t){1000}, 1);
	assert_int_equal(wait_done(1000).status, KILN_ECANCELED);
	assert_int_equal(wait_done(1001).status, KILN_OK);
	assert_int_equal(wait_done(1002).status, KILN_OK);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(host[i], (uint8_t)(i * 31 >> 3));
	device_cpu.stream_end(device, 7);
	device_cpu.stream_end(device, 8);
	device_cpu.stream_end(device, 9);
	device_cpu.free(device, x);
	device_cpu.free(device, y);
	free(host);
}

static void poll_returns_for_the_wake_fd(void **state)
{
	(void)state;
	int pipes[2];
	bool broken;
	struct device_done done;
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(device_cpu.poll(device, pipes[0], 0, &done, 1, &broken), 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	assert_int_equal(device_cpu.poll(device, pipes[0], 20000, &done, 1, &broken), 0);
	assert_false(broken);
	close(pipes[0]);
	close(pipes[1]);
}

/* Their pages can vanish below a mapping, seals or not.  None is used. */
static void refuses_huge_pages(void **state)
{
	(void)state;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (fd < 0) {
		fprintf(stderr, "SKIPPED: memfd_create(MFD_HUGETLB): %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	struct device_import what = {.kind = DEVICE_IMPORT_FD, .fd = fd, .span = 4096, .bytes = 4096};
	struct device_memory *memory;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	assert_non_null(strstr(error, "MFD_HUGETLB"));
	close(fd);
}

static void imports_a_part_of_a_memfd(void **state)
{
	(void)state;
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 3 * 4096), 0);
	struct device_import what = {
		.kind = DEVICE_IMPORT_FD, .fd = fd, .span = 3 * 4096, .offset = 4000, .bytes = 400};
	struct device_memory *memory;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	assert_non_null(strstr(error, "F_SEAL_SHRINK"));
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_OK);
	char text[400];
	memset(text, 'k', sizeof(text));
	copy(memory, text, sizeof(text), true);
	assert_int_equal(pread(fd, text, 1, 3999), 1);
	assert_int_equal(text[0], 0);
	assert_int_equal(pread(fd, text, 1, 4000), 1);
	assert_int_equal(text[0], 'k');
	assert_int_equal(pread(fd, text, 1, 4400), 1);
	assert_int_equal(text[0], 0);
	device_cpu.free(device, memory);
	what.bytes = 3 * 4096 - 4000 + 1;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	assert_non_null(strstr(error, "12288"));
	what.bytes = UINT64_MAX - 100;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	what.kind = DEVICE_IMPORT_IPC;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_ENOTSUP);
	close(fd);
}

static void refuses_what_is_wrong(void **state)
{
	(void)state;
	struct device_module *module = load("rotate<int>");
	struct device_memory *x = alloc(64);
	struct device_memory *both[2] = {x, x};
	uint32_t n = 1;
	struct shape good = {{1, 1, 1}, {1, 1, 1}, 64}, shape = good;
	assert_int_equal(start(module, good, 2, both, 0, NULL), KILN_EINVAL);
	assert_string_equal(error, "the kernel takes 3 arguments and was given 2");
	shape.block[1] = 1025;
	assert_int_equal(start(module, shape, 2, both, 1, &n), KILN_EINVAL);
	shape = good;
	shape.grid[1] = 65536;
	assert_int_equal(start(module, shape, 2, both, 1, &n), KILN_EINVAL);
	shape = good;
	shape.shared = info.limits.shared_optin + 1;
	assert_int_equal(start(module, shape, 2, both, 1, &n), KILN_EINVAL);
	struct device_memory *none;
	assert_int_equal(device_cpu.alloc(device, UINT64_MAX, &none, error), KILN_ENOMEM);
	assert_int_equal(device_cpu.copy(device, 1, 1, x, 60, error, 5, true, error), KILN_EINVAL);
	struct device_module *junk;
	assert_int_equal(device_cpu.load(device, "\177ELFjunk", 8, "kiln_cpu_entry", 0, &junk, error),
					 KILN_ECOMPILE);
	device_cpu.unload(device, module);
	device_cpu.free(device, x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_are_independent), cmocka_unit_test(poll_returns_for_the_wake_fd),
		cmocka_unit_test(refuses_huge_pages),      cmocka_unit_test(imports_a_part_of_a_memfd),
		cmocka_unit_test(refuses_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
