/*
 * gpu_apart: a client that shares no PID, IPC and mount namespace with the daemon, as in a
 * container: run.sh starts it so.  Memory that it lends by descriptor is used; where it has only a
 * legacy handle, it is told what to do.  Needs no kernel.
 */
#include "driver.h"
#include "runner.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (2u << 20)

struct scene {
	struct runner_options options;
	kiln_client *client;
	unsigned char in[1024], out[1024];
};

/* The daemon writes the first half of the buffer, and reads it. */
static void use(struct scene *scene, const char *name, kiln_buffer *buffer)
{
	runner_fill(&scene->options, scene->in, sizeof(scene->in), 5);
	RUNNER_CHECK(name, kiln_write(buffer, 0, scene->in, sizeof(scene->in)) == KILN_OK);
	RUNNER_CHECK(name, kiln_read(buffer, 0, scene->out, sizeof(scene->out)) == KILN_OK);
	RUNNER_CHECK(name, memcmp(scene->in, scene->out, sizeof(scene->in)) == 0);
}

/* Device cpu: a sealed memfd. */
static void lend_memfd(struct scene *scene)
{
	const char *name = "memory of the host, lent by descriptor";
	kiln_buffer *buffer = NULL;
	int fd = memfd_create("apart", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *map = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, BYTES) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED ||
		kiln_lend_fd(scene->client, fd, 0, BYTES, "lent", &buffer) != KILN_OK) {
		runner_fail(name, "cannot be lent: %s", kiln_errmsg());
	} else {
		use(scene, name, buffer);
		RUNNER_CHECK(name, memcmp(map, scene->in, sizeof(scene->in)) == 0);
	}
	RUNNER_CHECK(name, kiln_free(buffer) == KILN_OK);
	if (map != MAP_FAILED)
		munmap(map, BYTES);
	if (fd >= 0)
		close(fd);
}

/* Memory of cuMemCreate and of a pool that were made to be shared. */
static void lend_shareable(struct scene *scene, enum gpu_memory kind, const char *name)
{
	kiln_buffer *buffer = NULL;
	uint64_t memory = gpu_alloc(BYTES, kind);

	if (!memory || kiln_lend_cuda(scene->client, memory, BYTES, "lent", &buffer) != KILN_OK) {
		runner_fail(name, "cannot be lent: %s", memory ? kiln_errmsg() : gpu_error());
	} else {
		use(scene, name, buffer);
		RUNNER_CHECK(name, gpu_get(scene->out, memory, sizeof(scene->out)) &&
							   !memcmp(scene->in, scene->out, sizeof(scene->in)));
	}
	if (kiln_free(buffer) != KILN_OK || !gpu_free(memory))
		runner_fail(name, "cannot be freed: %s", gpu_error());
}

/* Some drivers open a legacy handle of another namespace all the same. */
static void lend_legacy(struct scene *scene)
{
	const char *name = "memory of cudaMalloc, lent by its legacy handle";
	kiln_buffer *buffer = NULL;
	uint64_t memory = gpu_alloc(BYTES, GPU_MALLOC);

	if (!memory) {
		runner_fail(name, "%s", gpu_error());
	} else if (kiln_lend_cuda(scene->client, memory, BYTES, "lent", &buffer) == KILN_OK) {
		printf("apart: a legacy handle works here\n");
		use(scene, name, buffer);
	} else {
		printf("apart: %s\n", kiln_errmsg());
		RUNNER_CHECK(name,
					 strstr(kiln_errmsg(), "cuMemCreate") && strstr(kiln_errmsg(), "hostPID"));
	}
	if (kiln_free(buffer) != KILN_OK || !gpu_free(memory))
		runner_fail(name, "cannot be freed: %s", gpu_error());
}

int main(int argc, char **argv)
{
	struct scene scene = {0};
	char reason[200];
	if (!runner_options_read(argc, argv, &scene.options))
		return 2;
	RUNNER_CHECK("a PID namespace of its own", getpid() == 1);
	scene.client = runner_connect(&scene.options);
	if (!scene.client)
		return 1;
	if (!strcmp(kiln_device(scene.client), "cpu")) {
		lend_memfd(&scene);
	} else if (!gpu_open(0, reason)) {
		runner_fail("lending", "%s", reason);
	} else {
		lend_shareable(&scene, GPU_EXPORTED, "memory of cuMemCreate, lent by descriptor");
		lend_shareable(&scene, GPU_POOL, "memory of a pool, lent by descriptor");
		lend_legacy(&scene);
	}
	kiln_close(scene.client);
	return runner_end(&scene.options);
}
