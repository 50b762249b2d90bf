/*
 * gpu_order: calls in order with CUDA streams of this program's own (KILN_SUBMIT_CUDA): a kernel of
 * its own, late on purpose, makes what a call works on, and a copy takes the result, on two streams
 * and without the host between them; the same while the device process is killed; and what it
 * costs, beside a launch of one's own.  The daemon must run with --test-requests.
 */
#include "driver.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS 2
#define SHAPES 8
#define SLOTS 16 /* results that are looked at together */
#define MOST (256 * 1024 * sizeof(uint32_t))
#define DEADLINE_MS 10000
#define QUEUED 100

/* Thread i waits for spin clock ticks, and then writes x[i] = first + i. */
static const char source[] = ".version 7.0\n"
							 ".target sm_70\n"
							 ".address_size 64\n"
							 ".visible .entry produce(.param .u64 x, .param .u32 first,\n"
							 "                        .param .u32 n, .param .u32 spin)\n"
							 "{\n"
							 "	.reg .pred %p<3>;\n"
							 "	.reg .b32 %r<8>;\n"
							 "	.reg .b64 %rd<8>;\n"
							 "	ld.param.u64 %rd1, [x];\n"
							 "	ld.param.u32 %r1, [first];\n"
							 "	ld.param.u32 %r2, [n];\n"
							 "	ld.param.u32 %r3, [spin];\n"
							 "	cvt.u64.u32 %rd2, %r3;\n"
							 "	mov.u64 %rd3, %clock64;\n"
							 "AGAIN:\n"
							 "	mov.u64 %rd4, %clock64;\n"
							 "	sub.u64 %rd4, %rd4, %rd3;\n"
							 "	setp.lt.u64 %p1, %rd4, %rd2;\n"
							 "	@%p1 bra AGAIN;\n"
							 "	mov.u32 %r4, %ctaid.x;\n"
							 "	mov.u32 %r5, %ntid.x;\n"
							 "	mov.u32 %r6, %tid.x;\n"
							 "	mad.lo.u32 %r4, %r4, %r5, %r6;\n"
							 "	setp.ge.u32 %p2, %r4, %r2;\n"
							 "	@%p2 bra DONE;\n"
							 "	cvta.to.global.u64 %rd5, %rd1;\n"
							 "	mul.wide.u32 %rd6, %r4, 4;\n"
							 "	add.u64 %rd5, %rd5, %rd6;\n"
							 "	add.u32 %r7, %r1, %r4;\n"
							 "	st.global.u32 [%rd5], %r7;\n"
							 "DONE:\n"
							 "	ret;\n"
							 "}\n";

struct scene {
	const struct runner_options *options;
	kiln_client *client;
	struct gpu_kernel produce;
	kiln_call *calls[SHAPES];
	uint32_t rows[SHAPES], columns[SHAPES];
	uint64_t x[STREAMS], y[STREAMS], slots[SLOTS];
	kiln_buffer *lent[STREAMS][2];
	uint32_t *host;
	uint64_t state; /* of what is chosen at random */
};

struct round {
	int shape;
	uint32_t first;
	kiln_ticket ticket;
};

static uint32_t choose(struct scene *scene, uint32_t below)
{
	scene->state = scene->state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(scene->state >> 33) % below;
}

/* ---- The scene ---- */

static bool prepare(struct scene *scene, int i)
{
	const int turned = !scene->options->copies;
	const int64_t perm[2] = {turned, !turned};
	const kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = perm, .count = 2};
	kiln_tensor tensors[2] = {{.dtype = KILN_U32, .rank = 2, .contiguous = 1},
							  {.dtype = KILN_U32, .rank = 2, .contiguous = 1}};
	/* The first is the one that is timed: 64 Ki elements. */
	scene->rows[i] = i == 0 ? 256 : 1 + choose(scene, 500);
	scene->columns[i] = i == 0 ? 256 : 1 + choose(scene, 500);
	tensors[0].shape[0] = tensors[1].shape[turned] = scene->rows[i];
	tensors[0].shape[1] = tensors[1].shape[!turned] = scene->columns[i];
	return kiln_prepare(scene->client, "permute", tensors, 2, &attr, 1, &scene->calls[i]) ==
		   KILN_OK;
}

/* Every call is bound, and every buffer known: also to a device process that has just come. */
static bool warm(struct scene *scene)
{
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < SHAPES; i++)
			for (int s = 0; s < STREAMS; s++) {
				const kiln_operand operands[] = {{scene->lent[s][0], 0}, {scene->lent[s][1], 0}};
				kiln_ticket ticket;
				int status = KILN_EDEVICE;
				for (int tries = 0; tries < 3 && status == KILN_EDEVICE; tries++) {
					status = kiln_submit(scene->calls[i], operands, 2, 0, &ticket);
					if (status == KILN_OK)
						status = kiln_wait(scene->client, ticket, DEADLINE_MS);
				}
				if (status != KILN_OK)
					return false;
			}
	return true;
}

static bool open_scene(struct scene *scene)
{
	char why[200];
	setenv("KILN_FAKE_CUDA_STREAMS", "1", 1); /* for a stand-in of the driver */
	scene->state = scene->options->seed * 2 + 1;
	scene->host = malloc(MOST);
	scene->client = runner_connect(scene->options);
	if (!scene->client || !scene->host || !gpu_open(0, why))
		return false;
	if (!scene->options->copies && !gpu_load(source, "produce", 0, &scene->produce))
		return false;
	for (int i = 0; i < SLOTS; i++)
		if (!(scene->slots[i] = gpu_alloc(MOST, GPU_MALLOC)))
			return false;
	for (int s = 0; s < STREAMS; s++) {
		scene->x[s] = gpu_alloc(MOST, GPU_MALLOC);
		scene->y[s] = gpu_alloc(MOST, GPU_MALLOC);
		if (!scene->x[s] || !scene->y[s] ||
			kiln_lend_cuda(scene->client, scene->x[s], MOST, "x", &scene->lent[s][0]) != KILN_OK ||
			kiln_lend_cuda(scene->client, scene->y[s], MOST, "y", &scene->lent[s][1]) != KILN_OK)
			return false;
	}
	for (int i = 0; i < SHAPES; i++)
		if (!prepare(scene, i))
			return false;
	return warm(scene);
}

static void close_scene(struct scene *scene)
{
	for (int i = 0; i < SHAPES; i++)
		kiln_call_free(scene->calls[i]);
	for (int s = 0; s < STREAMS; s++) {
		kiln_free(scene->lent[s][0]);
		kiln_free(scene->lent[s][1]);
		gpu_free(scene->x[s]);
		gpu_free(scene->y[s]);
	}
	for (int i = 0; i < SLOTS; i++)
		gpu_free(scene->slots[i]);
	kiln_close(scene->client);
	free(scene->host);
}

/* ---- Order ---- */

/* Stream 0 is the one that the driver has at first. */
static void use_stream(int s)
{
	static int used;
	if (s != used)
		gpu_change_stream();
	used = s;
}

static bool produce(struct scene *scene, int s, const struct round *round, uint32_t spin)
{
	uint32_t n = scene->rows[round->shape] * scene->columns[round->shape], first = round->first;
	const uint32_t grid[3] = {(n + 255) / 256, 1, 1}, block[3] = {256, 1, 1};
	void *arguments[] = {&scene->x[s], &first, &n, &spin};
	if (scene->options->copies)
		return gpu_set(scene->x[s], (unsigned char)first, (uint64_t)n * 4);
	return gpu_launch(&scene->produce, grid, block, 0, arguments);
}

static int submit(struct scene *scene, int s, int shape, kiln_ticket *ticket)
{
	const kiln_operand operands[] = {{scene->lent[s][0], 0}, {scene->lent[s][1], 0}};
	const kiln_submit_options options = {.size = sizeof(options),
										 .stream = (unsigned)s,
										 .flags = KILN_SUBMIT_CUDA,
										 .cuda_stream = gpu_stream()};
	return kiln_submit_with(scene->calls[shape], operands, 2, &options, ticket);
}

static bool queue(struct scene *scene, int slot, struct round *round)
{
	int s = (int)choose(scene, STREAMS);
	*round = (struct round){(int)choose(scene, SHAPES), choose(scene, 1u << 30), 0};
	uint64_t bytes = (uint64_t)scene->rows[round->shape] * scene->columns[round->shape] * 4;
	use_stream(s);
	return produce(scene, s, round, choose(scene, 40000)) &&
		   submit(scene, s, round->shape, &round->ticket) == KILN_OK &&
		   gpu_copy(scene->slots[slot], scene->y[s], bytes);
}

static bool finish_both(void)
{
	bool good = true;
	for (int s = 0; s < STREAMS; s++) {
		use_stream(s);
		good = gpu_finish_within(DEADLINE_MS) && good;
	}
	return good;
}

static bool is_right(struct scene *scene, int slot, const struct round *round)
{
	uint32_t rows = scene->rows[round->shape], columns = scene->columns[round->shape];
	if (!gpu_get(scene->host, scene->slots[slot], (uint64_t)rows * columns * 4))
		return false;
	for (uint32_t i = 0; i < rows; i++)
		for (uint32_t k = 0; k < columns; k++)
			if (scene->options->copies
					? scene->host[i * columns + k] != (round->first & 0xff) * 0x01010101u
					: scene->host[k * rows + i] != round->first + i * columns + k)
				return false;
	return true;
}

static int64_t lane_launches(struct scene *scene)
{
	kiln_reply *reply = NULL;
	int64_t count = -1;
	if (kiln_request(scene->client, "info", NULL, 0, &reply) == KILN_OK)
		count = kiln_reply_int(reply, "counters.lane_launches");
	kiln_reply_free(reply);
	return count;
}

static void in_order(struct scene *scene, int rounds)
{
	struct round queued[SLOTS];
	int64_t before = lane_launches(scene);
	int wrong = 0;
	for (int i = 0; i < rounds; i += SLOTS) {
		bool good = true;
		for (int slot = 0; slot < SLOTS && good; slot++)
			good = queue(scene, slot, &queued[slot]);
		if (!good || !finish_both()) {
			runner_fail("order", "round %d: %s %s", i, kiln_errmsg(), gpu_error());
			return;
		}
		for (int slot = 0; slot < SLOTS; slot++) {
			if (kiln_wait(scene->client, queued[slot].ticket, DEADLINE_MS) != KILN_OK)
				runner_fail("order", "%s", kiln_errmsg());
			wrong += !is_right(scene, slot, &queued[slot]);
		}
	}
	RUNNER_CHECK("results in order with streams of one's own", wrong == 0);
	RUNNER_CHECK("without messages", lane_launches(scene) - before >= rounds);
}

/* The host is back while the stream is still busy with what comes before the call. */
static void host_goes_on(struct scene *scene)
{
	const struct round round = {0, 7, 0};
	kiln_ticket ticket;
	use_stream(0);
	if (scene->options->copies)
		return;
	bool good = produce(scene, 0, &round, 200u << 20) && submit(scene, 0, 0, &ticket) == KILN_OK;
	RUNNER_CHECK("submitted", good);
	RUNNER_CHECK("nobody waits on the host",
				 good && kiln_wait(scene->client, ticket, 0) == KILN_EAGAIN);
	RUNNER_CHECK("the stream goes on", finish_both());
	RUNNER_CHECK("the call ends", good && kiln_wait(scene->client, ticket, DEADLINE_MS) == KILN_OK);
}

/* ---- The device process dies ---- */

static bool kill_executor(struct scene *scene)
{
	const kiln_attr attrs[] = {{.name = "what", .kind = KILN_ATTR_STRING, .s = "kill"},
							   {.name = "role", .kind = KILN_ATTR_STRING, .s = "executor"}};
	kiln_reply *reply = NULL;
	int status = kiln_request(scene->client, "debug", attrs, 2, &reply);
	kiln_reply_free(reply);
	return status == KILN_OK;
}

static void killed(struct scene *scene, int times)
{
	struct round queued[SLOTS];
	for (int i = 0; i < times; i++) {
		bool good = true;
		for (int slot = 0; slot < SLOTS && good; slot++) {
			good = queue(scene, slot, &queued[slot]);
			if (slot == i % SLOTS)
				good = kill_executor(scene) && good;
		}
		bool free = finish_both();
		if (!free)
			runner_fail("streams come free", "after kill %d: %s", i, gpu_error());
		else
			runner_pass();
		for (int slot = 0; slot < SLOTS && good; slot++) {
			int status = kiln_wait(scene->client, queued[slot].ticket, DEADLINE_MS);
			good = status == KILN_OK || status == KILN_EDEVICE || status == KILN_ECANCELED;
		}
		if (!good || !free || !warm(scene)) {
			runner_fail("after a kill", "%s %s", kiln_errmsg(), gpu_error());
			return;
		}
	}
	in_order(scene, SLOTS);
}

/* ---- What it costs ---- */

static bool direct_once(struct scene *scene, kiln_ticket *ticket)
{
	const struct round round = {0, 1, 0};
	*ticket = 0;
	return produce(scene, 0, &round, 0);
}

static bool ordered_once(struct scene *scene, kiln_ticket *ticket)
{
	return submit(scene, 0, 0, ticket) == KILN_OK;
}

typedef bool launch_once(struct scene *scene, kiln_ticket *ticket);

/* Returns the cost of one of `depth` that are queued before the wait; tickets are not timed. */
static double cost(struct scene *scene, launch_once *once, int depth)
{
	enum { ROUNDS = 200 };
	double times[ROUNDS];
	kiln_ticket tickets[QUEUED];
	int rounds = scene->options->quick ? ROUNDS / 10 : ROUNDS;
	for (int i = -5; i < rounds; i++) {
		bool good = true;
		double began = runner_now_us();
		for (int k = 0; k < depth && good; k++)
			good = once(scene, &tickets[k]);
		good = good && gpu_finish();
		double took = runner_now_us() - began;
		for (int k = 0; k < depth && good; k++)
			good = tickets[k] == 0 || kiln_wait(scene->client, tickets[k], DEADLINE_MS) == KILN_OK;
		if (!good) {
			runner_fail("timing", "%s %s", kiln_errmsg(), gpu_error());
			return 0;
		}
		times[i > 0 ? i : 0] = took / depth;
	}
	return runner_percentile(times, rounds, 0.5);
}

static void figures(struct scene *scene)
{
	use_stream(0);
	const struct {
		const char *direct, *ordered, *ratio;
		int depth;
	} lines[] = {{"direct launch + sync", "call in order with a stream + sync",
				  "in order beside direct, one at a time (at most 2)", 1},
				 {"direct launches, queued", "calls in order with a stream, queued",
				  "in order beside direct, queued", QUEUED}};
	for (int i = 0; i < 2; i++) {
		double direct = cost(scene, direct_once, lines[i].depth);
		double ordered = cost(scene, ordered_once, lines[i].depth);
		runner_figure(scene->options, lines[i].direct, direct, "us");
		runner_figure(scene->options, lines[i].ordered, ordered, "us");
		runner_figure(scene->options, lines[i].ratio, ordered / direct, "");
	}
}

int main(int argc, char **argv)
{
	struct runner_options options;
	struct scene scene = {.options = &options};
	if (!runner_options_read(argc, argv, &options))
		return 2;
	if (open_scene(&scene)) {
		in_order(&scene, options.count ? options.count : options.quick ? 10 * SLOTS : 1008);
		host_goes_on(&scene);
		figures(&scene);
		killed(&scene, options.quick ? 3 : 8);
	} else {
		runner_fail("start", "%s %s", kiln_errmsg(), gpu_error());
	}
	close_scene(&scene);
	return runner_end(&options);
}
