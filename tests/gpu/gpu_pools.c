/*
 * gpu_pools: what is special about memory of stream-ordered pools: which may be lent and which not,
 * and that several allocations of one pool are kept apart, and parts of one are not.  Needs no
 * kernel.
 */
#include "driver.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>

#define BYTES 4096u

struct scene {
	struct runner_options options;
	kiln_client *client;
};

static const char *why(void)
{
	return *gpu_error() ? gpu_error() : kiln_errmsg();
}

static void refuses_the_default_pool(struct scene *scene)
{
	const char *name = "memory as cudaMallocAsync gives it";
	kiln_buffer *buffer = NULL;
	uint64_t memory = gpu_alloc(BYTES, GPU_DEFAULT);
	if (!memory)
		runner_fail(name, "%s", gpu_error());
	else if (kiln_lend_cuda(scene->client, memory, BYTES, "refused", &buffer) != KILN_ENOTSUP)
		runner_fail(name, "was lent, or refused otherwise: %s", kiln_errmsg());
	else if (!strstr(kiln_errmsg(), "pool") || !strstr(kiln_errmsg(), "cudaMalloc,"))
		runner_fail(name, "is refused by the words \"%s\"", kiln_errmsg());
	else
		runner_pass();
	kiln_free(buffer);
	if (!gpu_free(memory))
		runner_fail(name, "%s", gpu_error());
}

/* Two small allocations of one pool, and one of another: none is taken for another, and the end of
 * one is not the end of its pool. */
static void keeps_allocations_apart(struct scene *scene)
{
	static const char *const names[] = {"an allocation of a pool", "a second one of that pool",
										"one of another pool"};
	unsigned char in[3][BYTES], out[BYTES];
	uint64_t memory[3] = {0, 0, 0};
	kiln_buffer *buffers[3] = {NULL, NULL, NULL};
	for (int i = 0; i < 3; i++) {
		runner_fill(&scene->options, in[i], BYTES, (uint64_t)i + 1);
		memory[i] = gpu_alloc(BYTES, i < 2 ? GPU_POOL : GPU_POOL_2);
		if (!memory[i] || !gpu_put(memory[i], in[i], BYTES) ||
			kiln_lend_cuda(scene->client, memory[i], BYTES, NULL, &buffers[i]) != KILN_OK)
			runner_fail(names[i], "cannot be lent: %s", why());
	}
	for (int i = 0; i < 3; i++) {
		if (buffers[i] && kiln_read(buffers[i], 0, out, BYTES) != KILN_OK)
			runner_fail(names[i], "cannot be read: %s", kiln_errmsg());
		else if (!buffers[i] || memcmp(out, in[i], BYTES) != 0)
			runner_fail(names[i], "reads otherwise");
		else
			runner_pass();
		if (kiln_free(buffers[i]) != KILN_OK || !gpu_free(memory[i]))
			runner_fail(names[i], "cannot be freed: %s", why());
	}
}

/* One byte past the allocation, though the pool goes on behind it. */
static void refuses_what_lies_behind(struct scene *scene)
{
	kiln_buffer *buffer = NULL;
	uint64_t memory = gpu_alloc(BYTES, GPU_POOL);
	int status = kiln_lend_cuda(scene->client, memory + BYTES - 16, 1u << 20, NULL, &buffer);
	RUNNER_CHECK("a part that ends beyond its allocation", memory && status == KILN_EINVAL);
	kiln_free(buffer);
	if (!gpu_free(memory))
		runner_fail("a part that ends beyond its allocation", "%s", gpu_error());
}

/* Copies 1024 bytes of one buffer, from that offset on, to the beginning of the other. */
static int copy(struct scene *scene, kiln_buffer *from, uint64_t offset, kiln_buffer *to)
{
	const int64_t perm[1] = {0};
	const kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = perm, .count = 1};
	const kiln_tensor tensors[2] = {
		{.dtype = KILN_U8,
		 .rank = 1,
		 .shape = {1024},
		 .contiguous = 1,
		 .buffer = from,
		 .offset = offset},
		{.dtype = KILN_U8, .rank = 1, .shape = {1024}, .contiguous = 1, .buffer = to}};
	return kiln_run(scene->client, "permute", tensors, 2, &attr, 1);
}

/* Two buffers that begin 1024 bytes apart in one allocation. */
static void knows_what_overlaps(struct scene *scene)
{
	const char *name = "parts of one allocation";
	unsigned char in[BYTES], out[1024];
	kiln_buffer *first = NULL, *second = NULL;
	uint64_t memory = gpu_alloc(BYTES, GPU_POOL);
	runner_fill(&scene->options, in, BYTES, 3);
	if (!memory || !gpu_put(memory, in, BYTES) ||
		kiln_lend_cuda(scene->client, memory, 2048, "first", &first) != KILN_OK ||
		kiln_lend_cuda(scene->client, memory + 1024, 2048, "second", &second) != KILN_OK) {
		runner_fail(name, "cannot be lent: %s", why());
	} else {
		RUNNER_CHECK(name, copy(scene, first, 512, second) == KILN_EINVAL);
		RUNNER_CHECK(name, copy(scene, first, 0, second) == KILN_OK);
		RUNNER_CHECK(name,
					 gpu_get(out, memory + 1024, sizeof(out)) && memcmp(out, in, sizeof(out)) == 0);
	}
	if (kiln_free(first) != KILN_OK || kiln_free(second) != KILN_OK || !gpu_free(memory))
		runner_fail(name, "cannot be freed: %s", why());
}

int main(int argc, char **argv)
{
	struct scene scene = {0};
	char reason[200];
	if (!runner_options_read(argc, argv, &scene.options))
		return 2;
	scene.client = runner_connect(&scene.options);
	if (!scene.client)
		return 1;
	if (!gpu_open(0, reason)) {
		runner_fail("lending", "%s", reason);
	} else {
		refuses_the_default_pool(&scene);
		keeps_allocations_apart(&scene);
		refuses_what_lies_behind(&scene);
		knows_what_overlaps(&scene);
	}
	kiln_close(scene.client);
	return runner_end(&scene.options);
}
