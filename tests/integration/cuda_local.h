/*
 * cuda_local.h: what the tests of launches in the program's own context share: the fake driver on
 * both sides, of the daemon's device process and of this program.  The kernels are real ones from
 * NVRTC, which the fake takes and does not run: what is looked at is what the driver is asked to
 * do.
 */
#ifndef KILN_TESTS_CUDA_LOCAL_H
#define KILN_TESTS_CUDA_LOCAL_H

#include "harness.h"

#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#include "cuda_fake.h"

#include <cuda.h>

#define ROWS 64
#define COLUMNS 96
#define BYTES (ROWS * COLUMNS * 4)

static struct {
	__typeof__(cuCtxSetCurrent) *set_current;
	__typeof__(cuCtxGetCurrent) *get_current;
	__typeof__(cuMemAlloc) *alloc;
	__typeof__(cuStreamCreate) *stream_create;
	__typeof__(cuStreamSynchronize) *synchronize;
	__typeof__(cuMemGetAddressRange) *range;
	__typeof__(cuStreamBeginCapture) *record;
	__typeof__(cuStreamEndCapture) *recorded;
	__typeof__(cuGraphDestroy) *drop;
	__typeof__(cuGraphInstantiateWithFlags) *instantiate;
	__typeof__(cuGraphLaunch) *launch;
	__typeof__(cuGraphExecDestroy) *destroy;
} cu;

static inline void open_fake(void)
{
	void *library = load_fake(KILN_FAKE_CUDA_LIBRARY);
	setenv("KILN_FAKE_CUDA_IMAGES", "1", 1);
	*(void **)&cu.set_current = symbol(library, "cuCtxSetCurrent");
	*(void **)&cu.get_current = symbol(library, "cuCtxGetCurrent");
	*(void **)&cu.alloc = symbol(library, "cuMemAlloc_v2");
	*(void **)&cu.stream_create = symbol(library, "cuStreamCreate");
	*(void **)&cu.synchronize = symbol(library, "cuStreamSynchronize");
	*(void **)&cu.record = symbol(library, "cuStreamBeginCapture_v2");
	*(void **)&cu.recorded = symbol(library, "cuStreamEndCapture");
	*(void **)&cu.drop = symbol(library, "cuGraphDestroy");
	*(void **)&cu.instantiate = symbol(library, "cuGraphInstantiateWithFlags");
	*(void **)&cu.launch = symbol(library, "cuGraphLaunch");
	*(void **)&cu.destroy = symbol(library, "cuGraphExecDestroy");
	*(void **)&cu.range = symbol(library, "cuMemGetAddressRange_v2");
}

/* ---- The scene ---- */

struct scene {
	struct kilnd *daemon;
	kiln_client *client;
	CUstream stream;
	uint64_t x, y; /* BYTES and 64 more each */
};

static inline kiln_client *connect_cuda(const struct kilnd *daemon)
{
	const kiln_connect_options options = {.size = sizeof(options),
										  .socket = daemon->socket,
										  .device = "cuda:0",
										  .timeout_ms = CALL_TIMEOUT_MS};
	kiln_client *client = NULL;
	assert_ok(kiln_connect(&options, &client));
	return client;
}

static inline uint64_t allocate(uint64_t bytes)
{
	CUdeviceptr address = 0;
	assert_int_equal(cu.alloc(&address, bytes), CUDA_SUCCESS);
	return address;
}

static inline kiln_call *prepare_transpose(kiln_client *client)
{
	const struct permute problem = transpose(ROWS, COLUMNS);
	const kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	const kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	int status = kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call);
	if (status == KILN_ENOTSUP)
		skip(); /* no NVRTC here */
	assert_ok(status);
	return call;
}

/* options: the daemon's, with its devices. */
static inline void scene_open_with(struct scene *scene, void **state, const char *const *options)
{
	fake->reset();
	scene->daemon = *state;
	kilnd_start(scene->daemon, options);
	scene->client = connect_cuda(scene->daemon);
	assert_int_equal(cu.set_current(fake->context(0)), CUDA_SUCCESS);
	assert_int_equal(cu.stream_create(&scene->stream, 0), CUDA_SUCCESS);
	scene->x = allocate(BYTES + 64);
	scene->y = allocate(BYTES + 64);
}

static inline void scene_open(struct scene *scene, void **state)
{
	scene_open_with(scene, state, OPTIONS("--device", "cpu,cuda:0"));
}

static inline void scene_close(struct scene *scene)
{
	kiln_close(scene->client);
	if (scene->daemon->pid)
		kilnd_stop(scene->daemon);
}

static inline int launch_at(const struct scene *scene, kiln_call *call, uint64_t x, uint64_t y)
{
	const kiln_place places[] = {{x, BYTES}, {y, BYTES}};
	return kiln_launch_local(call, places, 2, scene->stream);
}

static inline int launch(const struct scene *scene, kiln_call *call)
{
	return launch_at(scene, call, scene->x, scene->y);
}

static inline int64_t objects(const struct scene *scene)
{
	return info_int(scene->client, "counters.objects");
}

#define assert_refused(status, wanted, word) \
	do {                                     \
		assert_int_equal(status, wanted);    \
		assert_sentence(word);               \
	} while (0)

#endif
#endif
