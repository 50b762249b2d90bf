/*
 * The cuda device and memory lent from another process's pool, over the fake driver: what is opened
 * how often, what is given back and when, and what is said when the driver refuses.  The exporter
 * is played by this process, so what it lends is written here by hand.
 */
#include "cuda_scene.h"

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

#include <stdio.h>

int main(void)
{
	printf("SKIP: built without CUDA headers; there is no driver to stand in for\n");
	return 77;
}

#else

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define POOL_BYTES 65536

/* A pool as a descriptor, filled with 32-bit words from 0 on. */
static int pool_fd(void)
{
	int fd = memfd_create("pool", MFD_CLOEXEC);
	assert_true(fd >= 0);
	for (uint32_t i = 0; i < POOL_BYTES / 4; i++)
		assert_int_equal(write(fd, &i, sizeof(i)), sizeof(i));
	return fd;
}

static uint64_t inode(int fd)
{
	struct stat status;
	assert_int_equal(fstat(fd, &status), 0);
	return status.st_ino;
}

/* The allocation of `span` bytes at byte `at` of the pool: its buffer from `offset` on. */
static struct device_import lent(int fd, uint64_t at, uint64_t span, uint64_t id, uint64_t offset,
								 uint64_t bytes)
{
	struct device_import what = {.kind = DEVICE_IMPORT_POOL,
								 .buffer_id = id,
								 .pool_id = 1,
								 .pid = 4711,
								 .fd = fd,
								 .span = span,
								 .offset = offset,
								 .bytes = bytes};
	const struct fake_share share = {FAKE_SHARE_MAGIC, 0, inode(fd), at, span};
	memcpy(what.handle, &share, sizeof(share));
	return what;
}

static struct device_memory *import(const struct device_import *what)
{
	struct device_memory *memory = NULL;
	assert_int_equal(device_cuda.import(device, what, &memory, error), KILN_OK);
	return memory;
}

/* True: the exporter may free what lies at that byte of its pool. */
static bool is_given_back(int fd, uint64_t at)
{
	char path[64];
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int own = open(path, O_RDWR | O_CLOEXEC);
	assert_true(own >= 0);
	assert_int_equal(fcntl(own, F_OFD_GETLK, &lock), 0);
	close(own);
	return lock.l_type == F_UNLCK;
}

static void reads_and_writes_a_part(void **state)
{
	(void)state;
	int fd = pool_fd();
	uint32_t word = 0xfeedf00d, found = 0;
	struct device_import what = lent(fd, 8192, 4096, 5, 400, 96);
	struct device_memory *memory = import(&what);
	assert_int_equal(first_word(memory), (8192 + 400) / 4);
	transfer(memory, 92, &word, sizeof(word), true);
	assert_int_equal(pread(fd, &found, sizeof(found), 8192 + 492), sizeof(found));
	assert_int_equal(found, word);
	assert_int_equal(device_cuda.copy(device, 1, 2, memory, 93, &word, 4, false, error),
					 KILN_EINVAL);
	/* The pool is open by now: its descriptor is the exporter's again. */
	assert_false(is_given_back(fd, 8192));
	device_cuda.free(device, memory);
	assert_true(is_given_back(fd, 8192));
	close(fd);
}

static void opens_a_pool_and_an_allocation_once(void **state)
{
	(void)state;
	int fd = pool_fd(), pools = fake->live(FAKE_LIVE_POOLS);
	struct device_import what = lent(fd, 0, 8192, 5, 0, 8192);
	struct device_memory *a = import(&what);
	what = lent(fd, 0, 8192, 5, 4096, 16);
	struct device_memory *b = import(&what);
	what = lent(fd, 16384, 4096, 6, 0, 4096);
	struct device_memory *other = import(&what);
	assert_int_equal(fake->calls("cuMemPoolImportFromShareableHandle"), 1);
	assert_int_equal(fake->calls("cuMemPoolImportPointer"), 2);
	assert_int_equal(first_word(b), 1024);
	assert_int_equal(first_word(other), 4096);
	int freed = fake->calls("cuMemFreeAsync");
	device_cuda.free(device, a);
	assert_int_equal(fake->calls("cuMemFreeAsync"), freed);
	assert_int_equal(first_word(b), 1024);
	device_cuda.free(device, b);
	assert_int_equal(fake->calls("cuMemFreeAsync"), freed + 1);
	assert_true(is_given_back(fd, 0));
	assert_int_equal(fake->live(FAKE_LIVE_POOLS), pools + 1);
	assert_int_equal(first_word(other), 4096);
	device_cuda.free(device, other);
	assert_int_equal(fake->live(FAKE_LIVE_POOLS), pools);
	/* All over again. */
	what = lent(fd, 16384, 4096, 7, 0, 4096);
	other = import(&what);
	assert_int_equal(fake->calls("cuMemPoolImportFromShareableHandle"), 2);
	assert_int_equal(first_word(other), 4096);
	device_cuda.free(device, other);
	close(fd);
}

/* The same numbers from someone else mean another pool. */
static void keeps_processes_apart(void **state)
{
	(void)state;
	int first = pool_fd(), second = pool_fd();
	uint32_t word = 77;
	assert_int_equal(pwrite(second, &word, sizeof(word), 0), sizeof(word));
	struct device_import what = lent(first, 0, 4096, 5, 0, 4096);
	struct device_memory *a = import(&what);
	what = lent(second, 0, 4096, 5, 0, 4096);
	what.pid = 4712;
	struct device_memory *b = import(&what);
	assert_int_equal(first_word(a), 0);
	assert_int_equal(first_word(b), 77);
	/* A process without a number here is never taken for another one without. */
	what.pid = 0;
	struct device_memory *c = import(&what);
	what = lent(first, 0, 4096, 5, 0, 4096);
	what.pid = 0;
	struct device_memory *d = import(&what);
	assert_int_equal(first_word(c), 77);
	assert_int_equal(first_word(d), 0);
	assert_int_equal(fake->calls("cuMemPoolImportFromShareableHandle"), 4);
	device_cuda.free(device, a);
	device_cuda.free(device, b);
	device_cuda.free(device, c);
	device_cuda.free(device, d);
	close(first);
	close(second);
}

static void asks_for_access_only_from_another_gpu(void **state)
{
	(void)state;
	int fd = pool_fd();
	struct device_import what = lent(fd, 0, 4096, 5, 0, 4096);
	device_cuda.free(device, import(&what));
	assert_int_equal(fake->calls("cuMemPoolSetAccess"), 0);
	fake->pool_access(0);
	device_cuda.free(device, import(&what));
	assert_int_equal(fake->calls("cuMemPoolSetAccess"), 1);
	struct device_memory *memory = NULL;
	int pools = fake->live(FAKE_LIVE_POOLS);
	fake->pool_access(0);
	fake->inject("cuMemPoolSetAccess", 217, 1);
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("cannot reach the GPU of the pool that process 4711 lends from");
	assert_sentence("CUDA_ERROR_FAKE_217");
	assert_null(memory);
	assert_int_equal(fake->live(FAKE_LIVE_POOLS), pools);
	close(fd);
}

static void refuses_what_does_not_hang_together(void **state)
{
	(void)state;
	struct device_memory *memory = NULL, *stale;
	int fd = pool_fd(), pools = fake->live(FAKE_LIVE_POOLS);
	struct device_import what = lent(fd, 0, 8192, 5, 8000, 193);
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("(193 bytes from byte 8000) ends beyond its allocation, which has 8192 bytes");
	what.offset = UINT64_MAX;
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_int_equal(fake->calls("cuMemPoolImportFromShareableHandle"), 0);
	/* The driver's size counts more than the owner's. */
	fake->known_span(4096);
	what = lent(fd, 0, 8192, 5, 4000, 97);
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("which has 4096 bytes as the driver knows it");
	assert_true(is_given_back(fd, 0));
	fake->known_span(0);
	/* Freed by its owner, and allocated again, while it was lent. */
	what = lent(fd, 0, 8192, 5, 0, 16);
	stale = import(&what);
	what.buffer_id = 9;
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("lent as CUDA buffer 5 by process 4711");
	assert_sentence("free the lent buffer before the memory");
	assert_int_equal(first_word(stale), 0);
	device_cuda.free(device, stale);
	/* Data of no pool, and no pool at all. */
	memset(what.handle, 0, sizeof(what.handle));
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("cannot import the pool memory that process 4711 lends");
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	what.fd = pipes[0];
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("cannot import the pool that process 4711 lends from");
	assert_null(memory);
	assert_int_equal(fake->live(FAKE_LIVE_POOLS), pools);
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
}

/* The answer to a free tells the owner that it may free: not before the driver is done. */
static void waits_until_the_driver_is_done(void **state)
{
	(void)state;
	int fd = pool_fd();
	struct device_import what = lent(fd, 0, 4096, 5, 0, 4096);
	struct device_memory *memory = import(&what);
	fake->inject("cuStreamQuery", 600, 3); /* CUDA_ERROR_NOT_READY */
	int asked = fake->calls("cuStreamQuery");
	device_cuda.free(device, memory);
	assert_int_equal(fake->calls("cuStreamQuery"), asked + 4);
	/* But not for ever. */
	memory = import(&what);
	fake->inject("cuStreamQuery", 600, -1);
	uint64_t start = util_now_us();
	device_cuda.free(device, memory);
	assert_in_range(util_now_us() - start, 900000, 20000000);
	fake->inject("cuStreamQuery", 0, 0);
	close(fd);
}

static void gives_everything_back_at_the_end(void **state)
{
	(void)state;
	int fd = pool_fd();
	struct device_import what = lent(fd, 0, 4096, 5, 0, 4096);
	struct device_memory *first = import(&what);
	what = lent(fd, 4096, 4096, 6, 0, 4096);
	struct device_memory *second = import(&what);
	device_cuda.close(device);
	assert_true(is_given_back(fd, 0));
	assert_true(is_given_back(fd, 4096));
	assert_int_equal(fake->live(FAKE_LIVE_POOLS), 0);
	assert_int_equal(fake->live(FAKE_LIVE_IMPORTS), 0);
	free(first);
	free(second);
	close(fd);
	assert_int_equal(device_cuda.open(NULL, &device, &info, error), KILN_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(reads_and_writes_a_part),
		OPENED(opens_a_pool_and_an_allocation_once),
		OPENED(keeps_processes_apart),
		OPENED(asks_for_access_only_from_another_gpu),
		OPENED(refuses_what_does_not_hang_together),
		OPENED(waits_until_the_driver_is_done),
		OPENED(gives_everything_back_at_the_end),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
