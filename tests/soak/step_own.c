/*
 * step_own.c: kernels of one's own: right ones, judged; and such as fault, never end, do not
 * compile, or get the wrong arguments.
 */
#include "client.h"

#include <kiln/ops.h>
#include <string.h>

#define WORDS 1531 /* odd, so that not all threads have an element */
#define BYTES (WORDS * sizeof(uint32_t))
#define VARIANTS 12
#define ENDLESS_MS 250

static const char source[] =
	"#include <stdint.h>\n"
	"template <int N> __global__ void affine(uint32_t *x, uint32_t by, uint32_t n)\n"
	"{\n"
	"	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;\n"
	"	if (i < n)\n"
	"		x[i] = x[i] * FACTOR + by * i + N;\n"
	"}\n"
	"__global__ void turned(uint32_t *x, uint32_t n)\n"
	"{\n"
	"	extern __shared__ uint32_t part[];\n"
	"	for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)\n"
	"		part[i] = x[i] + FACTOR;\n"
	"	__syncthreads();\n"
	"	for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)\n"
	"		x[i] = part[n - 1 - i];\n"
	"}\n"
	"__global__ void beyond(uint32_t *x, uint32_t n) { x[((int64_t)1 << 40) + n] = FACTOR; }\n"
	"__global__ void endless(volatile uint32_t *x, uint32_t n)\n"
	"{\n"
	"	while (x[0] != n)\n"
	"		;\n"
	"}\n";

struct own {
	struct me *me;
	kiln_buffer *buffer;
	kiln_call *call;
	uint32_t factor, by, expected[WORDS], words[WORDS];
};

/* ELIMIT is an answer: so many device processes there may be. */
static bool prepare(struct own *own, const char *entry, const char *text)
{
	char factor[16];
	kiln_text macro = {.name = "FACTOR", .text = factor};
	const kiln_raw raw = {.size = sizeof(raw),
						  .name = "soak.cu",
						  .source = text,
						  .entry = entry,
						  .macros = &macro,
						  .macro_count = 1};
	int status;

	snprintf(factor, sizeof(factor), "%u", own->factor);
	kiln_call_free(own->call);
	own->call = NULL;
	status = kiln_prepare_raw(own->me->client, &raw, &own->call);
	if (status == KILN_ELIMIT && strstr(kiln_errmsg(), "--max-own"))
		return false;
	if (text != source)
		return me_ends(own->me, status, KILN_ECOMPILE, "what does not compile") && false;
	return me_ok(own->me, status, "preparing a kernel of one's own");
}

static int launch(struct own *own, const kiln_raw_arg *args, int count, kiln_launch how)
{
	kiln_ticket ticket;
	how.size = sizeof(how);
	how.args = args;
	how.arg_count = count;
	int status = kiln_submit_raw(own->call, &how, 0, &ticket);
	if (status == KILN_OK)
		status = kiln_wait(own->me->client, ticket, SOAK_CALL_MS);
	if (status == KILN_EAGAIN)
		me_fail(own->me, "a launch has not ended after %d ms", SOAK_CALL_MS);
	me_beat(own->me);
	return status;
}

static bool fill(struct own *own)
{
	for (int i = 0; i < WORDS; i++)
		own->expected[i] = (uint32_t)cases_word(&own->me->state);
	return me_ok(own->me, kiln_write(own->buffer, 0, own->expected, BYTES), "writing");
}

static void compare(struct own *own)
{
	if (!me_ok(own->me, kiln_read(own->buffer, 0, own->words, BYTES), "reading"))
		return;
	me_count(own->me, SOAK_COUNT_bytes, BYTES);
	for (int i = 0; i < WORDS && !own->me->soak->options.copies; i++) {
		if (own->words[i] == own->expected[i])
			continue;
		me_fail(own->me, "word %d is %#x, not %#x", i, own->words[i], own->expected[i]);
		return;
	}
}

static void affine(struct own *own)
{
	const uint32_t n = WORDS;
	const kiln_raw_arg args[] = {kiln_raw_memory(own->buffer, 0, KILN_READ | KILN_WRITE),
								 kiln_raw_value(&own->by, sizeof(own->by)),
								 kiln_raw_value(&n, sizeof(n))};
	const kiln_launch how = {.grid = {(WORDS + 127) / 128}, .block = {128}};
	bool well = prepare(own, "affine<3>", source) && fill(own);

	for (int64_t times = 1 + me_pick(own->me, 4); times > 0 && well; times--) {
		well = me_ok(own->me, launch(own, args, 3, how), "a kernel of one's own");
		me_count(own->me, SOAK_COUNT_own, well);
		for (uint32_t i = 0; i < WORDS; i++)
			own->expected[i] = own->expected[i] * own->factor + own->by * i + 3;
	}
	if (well)
		compare(own);
}

static void turned(struct own *own)
{
	const uint32_t n = WORDS;
	const kiln_raw_arg args[] = {kiln_raw_memory(own->buffer, 0, 0), kiln_raw_value(&n, sizeof(n))};
	const kiln_launch how = {.block = {96}, .shared_bytes = BYTES};

	if (!prepare(own, "turned", source) || !fill(own) ||
		!me_ok(own->me, launch(own, args, 2, how), "a kernel with shared memory"))
		return;
	me_count(own->me, SOAK_COUNT_own, 1);
	for (int i = 0; i < WORDS / 2; i++) {
		uint32_t word = own->expected[i];
		own->expected[i] = own->expected[WORDS - 1 - i];
		own->expected[WORDS - 1 - i] = word;
	}
	for (int i = 0; i < WORDS; i++)
		own->expected[i] += own->factor;
	compare(own);
}

/* One that fails, and then one that works, in a new process. */
static void fails(struct own *own, const char *entry, int wanted, int timeout_ms)
{
	const uint32_t n = 123456789;
	const kiln_raw_arg args[] = {kiln_raw_memory(own->buffer, 0, 0), kiln_raw_value(&n, sizeof(n))};
	const kiln_launch how = {.timeout_ms = timeout_ms};

	if (own->me->soak->options.copies || !prepare(own, entry, source) || !fill(own))
		return;
	me_count(own->me, SOAK_COUNT_faults, 1);
	if (me_ends(own->me, launch(own, args, 2, how), wanted, entry))
		affine(own);
}

static void wrong_arguments(struct own *own)
{
	const kiln_raw_arg args[] = {kiln_raw_memory(own->buffer, 0, 0)};
	const kiln_launch how = {.block = {32}};

	if (!prepare(own, "affine<3>", source) || !fill(own))
		return;
	if (me_ends(own->me, launch(own, args, 1, how), KILN_EINVAL, "too few arguments"))
		compare(own);
}

void step_own(struct me *me)
{
	static struct own own;
	own = (struct own){.me = me};
	own.factor = (uint32_t)(me_chance(me, 6) ? 1000 + me_pick(me, 1 << 20) : me_pick(me, VARIANTS));
	own.by = (uint32_t)cases_word(&me->state);
	int64_t what = me_pick(me, 12);
	if (me_ok(me, kiln_alloc(me->client, BYTES, 0, "own", &own.buffer), "allocating")) {
		me_doing(me, "own kernel %d", (int)what);
		if (what == 0)
			fails(&own, "beyond", KILN_EDEVICE, 0);
		else if (what == 1)
			fails(&own, "endless", KILN_ETIMEDOUT, ENDLESS_MS);
		else if (what == 2)
			prepare(&own, "k", "__global__ void k() { x = FACTOR; }\n");
		else if (what == 3)
			wrong_arguments(&own);
		else if (what < 7)
			turned(&own);
		else
			affine(&own);
	}
	kiln_call_free(own.call);
	if (own.buffer)
		me_free(me, own.buffer);
}
