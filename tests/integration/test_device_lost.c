/*
 * test_device_lost: a GPU that is not there, goes away under running kernels, stays away, and comes
 * back as another one.  Over the fake driver, whose state is a file that the test writes
 * (tests/unit/exec/cuda/fake_cuda.c).  Where there is no NVRTC, what needs a kernel is left out.
 */
#include "harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef KILN_FAKE_CUDA_LIBRARY

#include "gpu_scene.h"
#include "tests/unit/exec/cuda/fake_cuda.h"

#define FIRST_UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define AT_ONCE_MS 10000 /* no wait for any device, on a busy machine */
#define LENT_BYTES (2 << 20)
#define ROWS 64
#define COLUMNS 96
#define BYTES (ROWS * COLUMNS * 4)

/* ---- The GPU ---- */

/* Finds what `devices` says of cuda:0. */
static void device_text(kiln_client *client, const char *member, char *text, size_t size)
{
	kiln_reply *reply;
	char path[32];
	snprintf(path, sizeof(path), "rows[0].%s", member);
	assert_ok(kiln_request(client, "devices", NULL, 0, &reply));
	snprintf(text, size, "%s", kiln_reply_str(reply, path));
	kiln_reply_free(reply);
}

static void assert_device(kiln_client *client, const char *member, const char *part)
{
	char text[512];
	device_text(client, member, text, sizeof(text));
	if (!strstr(text, part) || (!*part && *text))
		fail_msg("%s of cuda:0 is \"%s\", not \"%s\"", member, text, part);
}

static void await_device(kiln_client *client, const char *state)
{
	char text[512];
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	do {
		device_text(client, "state", text, sizeof(text));
		if (!strcmp(text, state))
			return;
		pause_ms(5);
	} while (now_ms() < end);
	fail_msg("cuda:0 is %s, not %s", text, state);
}

/* A line of what the command says has this in it. */
static void assert_shown(const struct kilnd *daemon, const char *command, const char *part)
{
	char line[400];
	snprintf(line, sizeof(line), "\"$KILN\" --socket %s %s | grep -q '%s'", daemon->socket, command,
			 part);
	if (system(line) != 0)
		fail_msg("kiln %s does not say %s", command, part);
}

/* ---- Not there from the start ---- */

static void test_never_there(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = NULL, *other;
	int64_t start;
	gpu_start(daemon, "cuInit=803", "cuda:0,cpu");
	assert_int_equal(connect_to(daemon, "cuda:0", &client), KILN_ENOTSUP);
	assert_sentence("device cuda:0 is not available: the NVIDIA driver does not start");
	assert_sentence("803");
	assert_sentence("of different versions");
	/* A client that names none gets the one there is; a second request is answered at once. */
	assert_ok(connect_to(daemon, NULL, &client));
	assert_string_equal(kiln_device(client), "cpu");
	assert_device(client, "state", "absent");
	assert_device(client, "reason", "803");
	start = now_ms();
	assert_int_equal(connect_to(daemon, "cuda:0", &other), KILN_ENOTSUP);
	assert_in_range(now_ms() - start, 0, AT_ONCE_MS);
	kiln_close(client);
	gpu_end(daemon);
}

/* ---- Lost, and found as another ---- */

struct scene {
	struct kilnd *daemon;
	kiln_client *client, *viewer;
	kiln_buffer *x, *y, *lent;
	kiln_call *call, *graph, *raw; /* NULL: there is no compiler */
	kiln_tensor tensors[2];
	kiln_operand operands[2];
	kiln_attr perm;
};
static const struct permute problem = {
	.dtype = KILN_F32, .rank = 2, .shape = {ROWS, COLUMNS}, .perm = {1, 0}};

static kiln_buffer *lend(kiln_client *client)
{
	kiln_buffer *buffer;
	int fd = memfd_create("gpu", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, LENT_BYTES), 0);
	assert_ok(kiln_lend_fd(client, fd, 0, BYTES, "lent", &buffer));
	close(fd);
	return buffer;
}

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);
	assert_non_null(found);
	return found;
}

/* This program sees another GPU than the daemon does. */
static void assert_other_memory_is_refused(kiln_client *client)
{
	void *library = dlopen(KILN_FAKE_CUDA_LIBRARY, RTLD_NOW);
	const struct fake_cuda_control *fake = symbol(library, "fake_cuda_control");
	int (*set_current)(void *) = NULL, (*allocate)(unsigned long long *, size_t) = NULL;
	unsigned long long address = 0;
	kiln_buffer *buffer;
	*(void **)&set_current = symbol(library, "cuCtxSetCurrent");
	*(void **)&allocate = symbol(library, "cuMemAlloc_v2");
	unsetenv("KILN_FAKE_CUDA_FILE");
	setenv("KILN_FAKE_CUDA", "uuid=5", 1);
	assert_int_equal(set_current(fake->context(0)), 0);
	assert_int_equal(allocate(&address, BYTES), 0);
	assert_int_equal(kiln_lend_cuda(client, address, BYTES, "theirs", &buffer), KILN_EINVAL);
	assert_sentence("buffer theirs is memory of GPU-05162738-495a-6b7c-8d9e-afc0d1e2f304");
	assert_sentence("device cuda:0 is " FIRST_UUID);
	unsetenv("KILN_FAKE_CUDA");
	dlclose(library);
}

static void write_both(const struct scene *scene)
{
	static const uint8_t bytes[BYTES];
	assert_ok(kiln_write(scene->x, 0, bytes, BYTES));
	assert_ok(kiln_write(scene->y, 0, bytes, BYTES));
}

static int submit(const struct scene *scene, kiln_ticket *ticket)
{
	return kiln_submit(scene->call, scene->operands, 2, 0, ticket);
}

static int run_once(const struct scene *scene)
{
	kiln_ticket ticket;
	int status = submit(scene, &ticket);
	return status == KILN_OK ? kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS) : status;
}

/* A kernel of the program's own, in a device process of its own. */
static int run_raw(const struct scene *scene)
{
	const kiln_raw_arg arg = {.buffer = scene->x, .bytes = 4, .access = KILN_WRITE};
	const kiln_launch launch = {.size = sizeof(launch), .args = &arg, .arg_count = 1};
	kiln_ticket ticket;
	int status = kiln_submit_raw(scene->raw, &launch, 0, &ticket);
	return status == KILN_OK ? kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS) : status;
}

static void prepare_raw(struct scene *scene)
{
	const kiln_raw raw = {.size = sizeof(raw),
						  .name = "one.cu",
						  .source = "__global__ void one(float *y) { *y = 1; }",
						  .entry = "one"};
	kiln_call_free(scene->raw);
	assert_ok(kiln_prepare_raw(scene->client, &raw, &scene->raw));
}

/* The winner of tuning, for the GPU that is there. */
static void tune(const struct scene *scene)
{
	kiln_reply *plan, *reply;
	assert_ok(
		kiln_explain(scene->client, "permute", scene->tensors, 2, &scene->perm, 1, NULL, &plan));
	const kiln_attr row[] = {
		string_attr("op", "permute"),
		string_attr("model", kiln_reply_str(plan, "model")),
		string_attr("target", "sm_90"),
		string_attr("signature", kiln_reply_str(plan, "signature")),
		string_attr("choice", kiln_reply_str(plan, "choices[0]")),
		kiln_attr_real("micros", 1),
		kiln_attr_real("own_micros", 2),
		int_attr("candidates", 2),
		int_attr("when", 1700000000),
	};
	assert_ok(kiln_request(scene->client, "tuned.put", row, sizeof(row) / sizeof(row[0]), &reply));
	kiln_reply_free(reply);
	kiln_reply_free(plan);
}

static void assert_tuned(const struct scene *scene, const char *model, bool wanted)
{
	kiln_reply *plan;
	assert_ok(
		kiln_explain(scene->client, "permute", scene->tensors, 2, &scene->perm, 1, NULL, &plan));
	assert_string_equal(kiln_reply_str(plan, "model"), model);
	assert_int_equal(kiln_reply_has(plan, "tuned.choice"), wanted);
	kiln_reply_free(plan);
}

static void open_scene(struct scene *scene, struct kilnd *daemon)
{
	*scene = (struct scene){.daemon = daemon, .perm = perm_attr(&problem)};
	gpu_start(daemon, "", "cuda:0,cpu");
	assert_ok(connect_to(daemon, "cuda:0", &scene->client));
	assert_ok(connect_to(daemon, "none", &scene->viewer));
	assert_ok(kiln_alloc(scene->client, BYTES, 0, "x", &scene->x));
	assert_ok(kiln_alloc(scene->client, BYTES, 0, "y", &scene->y));
	scene->lent = lend(scene->client);
	scene->tensors[0] = permute_input(&problem, scene->x);
	scene->tensors[1] = permute_output(&problem, scene->y);
	scene->operands[0].buffer = scene->x;
	scene->operands[1].buffer = scene->y;
	write_both(scene);
	int status =
		kiln_prepare(scene->client, "permute", scene->tensors, 2, &scene->perm, 1, &scene->call);
	if (status == KILN_ENOTSUP)
		return; /* no NVRTC here */
	assert_ok(status);
	assert_ok(run_once(scene));
	const kiln_work work = {scene->call, scene->operands, 2};
	assert_ok(kiln_prepare_graph(scene->client, &work, 1, &scene->graph));
	prepare_raw(scene);
	assert_ok(run_raw(scene));
	tune(scene);
	assert_tuned(scene, "Fake GPU", true);
}

static void close_scene(struct scene *scene)
{
	kiln_call_free(scene->raw);
	kiln_call_free(scene->graph);
	kiln_call_free(scene->call);
	assert_ok(kiln_free(scene->lent));
	assert_ok(kiln_free(scene->y));
	assert_ok(kiln_free(scene->x));
	kiln_close(scene->client);
	kiln_close(scene->viewer);
	gpu_end(scene->daemon);
}

/* Kernels that run when it falls off its bus, and a driver that does not find it again. */
static void lose_under_work(struct scene *scene)
{
	kiln_ticket running = 0, queued = 0;
	gpu_is(scene->daemon, "cuEventQuery=600,cuStreamQuery=600");
	if (scene->call) {
		assert_ok(submit(scene, &running));
		assert_ok(submit(scene, &queued));
		pause_ms(20); /* that they are there changes nothing of what follows */
	}
	gpu_is(scene->daemon, "cuEventQuery=719,cuStreamQuery=719,cuMemcpyHtoDAsync=719,cuInit=100");
	int64_t start = now_ms();
	if (scene->call) {
		assert_int_equal(kiln_wait(scene->client, running, CALL_TIMEOUT_MS), KILN_EDEVICE);
		assert_sentence("cuda:0");
		assert_int_equal(kiln_wait(scene->client, queued, CALL_TIMEOUT_MS), KILN_EDEVICE);
	} else {
		uint8_t byte = 0;
		assert_int_equal(kiln_write(scene->x, 0, &byte, 1), KILN_EDEVICE);
	}
	await_device(scene->viewer, "lost");
	assert_in_range(now_ms() - start, 0, AT_ONCE_MS);
}

/* Whatever is asked is answered at once, in a sentence that names the device and says when. */
static void assert_lost(const struct scene *scene)
{
	kiln_client *client;
	kiln_buffer *buffer;
	uint8_t byte = 0;
	int64_t start = now_ms();
#define LOST(call)                                                    \
	do {                                                              \
		assert_int_equal(call, KILN_EDEVICE);                         \
		assert_sentence("cuda:0 (Fake GPU, " FIRST_UUID ") is lost"); \
		assert_sentence("looked for");                                \
	} while (0)
	LOST(kiln_write(scene->x, 0, &byte, 1));
	LOST(kiln_read(scene->x, 0, &byte, 1));
	LOST(kiln_alloc(scene->client, 16, 0, "z", &buffer));
	LOST(connect_to(scene->daemon, "cuda:0", &client));
	if (scene->call)
		LOST(run_once(scene));
#undef LOST
	assert_in_range(now_ms() - start, 0, AT_ONCE_MS);
	assert_device(scene->viewer, "reason", "sees no GPU");
	assert_shown(scene->daemon, "devices", "cuda:0 *lost .*sees no GPU");
	assert_shown(scene->daemon, "status", "cuda:0: not running.*sees no GPU");
	/* A client that names no device gets one that is there. */
	assert_ok(connect_to(scene->daemon, NULL, &client));
	assert_string_equal(kiln_device(client), "cpu");
	kiln_close(client);
	/* Looked for now and then, each time after twice as long: so often in half a minute. */
	assert_in_range(info_int(scene->viewer, "executors[0].restarts"), 1, 6);
}

/* A moment later it is the same again: nothing is planned anew. */
static void same_again(struct scene *scene)
{
	uint8_t byte;
	gpu_is(scene->daemon, "");
	await_device(scene->viewer, "present");
	assert_device(scene->viewer, "was", "");
	assert_int_equal(kiln_read(scene->y, 0, &byte, 1), KILN_ELOST);
	assert_ok(kiln_read(scene->lent, 0, &byte, 1));
	write_both(scene);
	if (scene->call) {
		int64_t compiles = info_int(scene->viewer, "counters.compiles");
		kiln_ticket ticket;
		assert_ok(run_once(scene));
		assert_ok(kiln_submit(scene->graph, NULL, 0, 0, &ticket));
		assert_ok(kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS));
		assert_int_equal(info_int(scene->viewer, "counters.compiles"), compiles);
		assert_tuned(scene, "Fake GPU", true);
	}
}

/* Kernels, graphs and winners of the other GPU are not for this one. */
static void assert_planned_anew(struct scene *scene)
{
	int64_t compiles = info_int(scene->viewer, "counters.compiles");
	kiln_ticket ticket;
	assert_ok(run_once(scene));
	assert_int_equal(info_int(scene->viewer, "counters.compiles"), compiles + 1);
	assert_ok(kiln_submit(scene->graph, NULL, 0, 0, &ticket));
	assert_int_equal(kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS), KILN_EDEVICE);
	assert_sentence("the graph was for cuda:0 as it was, Fake GPU, sm_90");
	assert_sentence("it is Fake GPU 1, sm_80 now");
	assert_tuned(scene, "Fake GPU 1", false);
	assert_int_equal(run_raw(scene), KILN_EDEVICE);
	assert_sentence("the kernel was for cuda:0 as it was, Fake GPU, sm_90");
	assert_sentence("prepare it again");
	prepare_raw(scene);
	assert_ok(run_raw(scene)); /* by a process that has the new one */
}

static void another(struct scene *scene)
{
	kiln_client *client;
	kiln_buffer *fresh;
	uint8_t byte;
	gpu_is(scene->daemon, "uuid=1,model=1,capability=80,mps=108,memory=64");
	await_device(scene->viewer, "present");
	assert_device(scene->viewer, "target", "sm_80");
	assert_device(scene->viewer, "model", "Fake GPU 1");
	assert_device(scene->viewer, "was", "Fake GPU, sm_90, " FIRST_UUID);
	assert_device(scene->viewer, "reason", "");
	assert_shown(scene->daemon, "devices", "sm_80.*Fake GPU 1; was Fake GPU, sm_90, " FIRST_UUID);
	assert_ok(connect_to(scene->daemon, NULL, &client));
	assert_string_equal(kiln_device(client), "cuda:0");
	kiln_close(client);
	/* The buffer is gone, and the sentence names it. */
	assert_int_equal(kiln_read(scene->x, 0, &byte, 1), KILN_ELOST);
	assert_sentence("buffer x");
	assert_int_equal(kiln_read(scene->lent, 0, &byte, 1), KILN_ELOST);
	assert_sentence("buffer lent cannot be used: it was lent from " FIRST_UUID);
	assert_sentence("lend it again");
	fresh = lend(scene->client);
	assert_ok(kiln_read(fresh, 0, &byte, 1));
	assert_ok(kiln_free(fresh));
	write_both(scene);
	if (scene->call)
		assert_planned_anew(scene);
}

static void test_lost_and_found(void **state)
{
	struct scene scene;
	open_scene(&scene, *state);
	assert_other_memory_is_refused(scene.client);
	lose_under_work(&scene);
	assert_lost(&scene);
	same_again(&scene);
	lose_under_work(&scene);
	another(&scene);
	close_scene(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_never_there),
		HARNESS_TEST(test_lost_and_found),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	puts("built without the fake driver");
	return 77;
}

#endif
