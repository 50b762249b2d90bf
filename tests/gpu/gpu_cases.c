/*
 * gpu_cases: the list of cases, the short sums of cases_sums() and random ones through a running
 * daemon, every result judged.  Outputs are poisoned before, and what lies around all operands, and
 * in inputs, is looked at after.  All but permutes, and what is huge, run a second time over other
 * poison: bit for bit the same must come.  Calls are made in both ways in turn.
 *
 *   gpu_cases --memory held      the daemon holds the buffers
 *   gpu_cases --memory lent      this process allocated them and lends parts of one allocation
 *   gpu_cases --memory exported  the same, from memory that is shared by descriptor
 *   gpu_cases --memory pool      the same, from a stream-ordered pool that is shared
 *   gpu_cases --huge             the cases around and beyond 2^31 elements, held
 *   gpu_cases --graph            a quarter of them, twice in a graph that is launched three times
 *   gpu_cases --generic          all of them, by the operators' generic kernels
 *   gpu_cases --ops LIST         only these operators: "softmax,layer_norm"
 *
 * One in eight of the large cases of other operators than permute runs; which ones is the seed's
 * choice; of slow ones, where there is no GPU, one in six.
 */
#include "driver.h"
#include "runner.h"
#include "tests/ops/common/reference.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 256           /* poisoned bytes on either side; keeps what alignment a case has */
#define PIECE (256ull << 20) /* of one transfer */
#define LARGE_SHARE 8
#define SLOW_SHARE 6

/* One operand's memory: margin, the case's offset, the operand, margin. */
struct place {
	const struct cases_operand *operand; /* NULL: left out */
	kiln_buffer *buffer;
	uint64_t pointer;      /* lent memory's address */
	uint64_t begin, bytes; /* of the first element; of all */
	uint64_t seed;
	unsigned char *host;  /* what was sent, what has come back; room that is used again */
	unsigned char *other; /* to compare it with; none for huge cases */
	uint64_t room;        /* in either */
};

struct bench {
	struct runner_options options;
	kiln_client *client;
	uint64_t arena; /* 0: the daemon holds the memory */
	kiln_buffer *whole;
	uint64_t bytes; /* of the arena */
	struct place places[CASES_MAX_OPERANDS];
	int partly; /* cases that were judged in part */
	int graphs; /* launched */
};

/* ---- Memory ---- */

static bool place_open(struct bench *bench, struct place *place, uint64_t at, int number)
{
	char name[16];
	snprintf(name, sizeof(name), "operand %d", number);
	if (place->bytes > place->room) {
		free(place->host);
		free(place->other);
		place->host = malloc(place->bytes);
		place->other = bench->options.huge ? NULL : malloc(place->bytes);
		place->room = place->host && (place->other || bench->options.huge) ? place->bytes : 0;
		if (!place->room)
			return false;
	}
	if (!bench->arena)
		return kiln_alloc(bench->client, place->bytes, 0, name, &place->buffer) == KILN_OK;
	place->pointer = bench->arena + at;
	return kiln_lend_cuda(bench->client, place->pointer, place->bytes, name, &place->buffer) ==
		   KILN_OK;
}

/* Where the operands lie in the arena: one behind the other, with gaps; false: it is too small. */
static bool set_places(struct bench *bench, const struct cases_case *c, uint64_t number,
					   uint64_t at[CASES_MAX_OPERANDS])
{
	uint64_t all = 0, cursor = 0;
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *operand = &c->operand[i];
		struct place *place = &bench->places[i];
		bool there = operand->dtype != KILN_DTYPE_NONE;
		place->operand = there ? operand : NULL;
		place->buffer = NULL;
		place->pointer = 0;
		place->begin = MARGIN + operand->offset;
		place->bytes = place->begin + cases_bytes(operand) + MARGIN;
		place->seed = bench->options.seed * 1000003 + number * CASES_MAX_OPERANDS + (uint64_t)i;
		all += there ? place->bytes + 512 : 0;
	}
	if (bench->arena && all > bench->bytes)
		return false;
	for (int i = 0; i < c->operand_count && bench->arena; i++) {
		struct place *place = &bench->places[i];
		uint64_t gap = (bench->bytes - all) / (uint64_t)c->operand_count + 1;
		/* A lent buffer may begin anywhere; permute does not mind if elements do. */
		uint64_t unit = strcmp(c->op->name, "permute") == 0 ? 1 : cases_element(&c->operand[i]);
		if (!place->operand)
			continue;
		at[i] = cursor + number * 7919 * ((uint64_t)i + 1) * 256 % gap / 256 * 256;
		at[i] += number % 3 == 0 ? number % 16 / unit * unit : 0;
		cursor = (at[i] + place->bytes + 255) / 256 * 256;
	}
	return true;
}

static bool place_move(const struct place *place, unsigned char *host, bool write)
{
	if (place->pointer)
		return write ? gpu_put(place->pointer, host, place->bytes)
					 : gpu_get(host, place->pointer, place->bytes);
	for (uint64_t at = 0; at < place->bytes; at += PIECE) {
		uint64_t bytes = place->bytes - at < PIECE ? place->bytes - at : PIECE;
		int status = write ? kiln_write(place->buffer, at, host + at, bytes)
						   : kiln_read(place->buffer, at, host + at, bytes);
		if (status != KILN_OK)
			return false;
	}
	return true;
}

static const char *why(const struct bench *bench)
{
	return bench->arena && *gpu_error() ? gpu_error() : kiln_errmsg();
}

/* ---- One case ---- */

static int submit(struct bench *bench, kiln_call *made, const kiln_operand *operands, int count)
{
	kiln_ticket ticket = 0;
	int status = kiln_submit(made, operands, count, 0, &ticket);
	return status == KILN_OK ? kiln_wait(bench->client, ticket, 60000) : status;
}

/* The second launch finds what the first left in scratch memory.  A kernel that counts indices
 * cannot be in a graph, and runs as usual. */
static int submit_graph(struct bench *bench, kiln_call *made, const kiln_operand *operands,
						int count)
{
	const kiln_work works[] = {{made, operands, count}, {made, operands, count}};
	kiln_call *graph = NULL;
	int status = kiln_prepare_graph(bench->client, works, 2, &graph);
	if (status == KILN_ENOTSUP)
		return submit(bench, made, operands, count);
	for (int i = 0; i < 3 && status == KILN_OK; i++)
		status = submit(bench, graph, NULL, 0);
	kiln_call_free(graph);
	bench->graphs++;
	return status;
}

/* The attributes of a case, and which kernel is wanted. */
static int case_attrs(const struct runner_options *options, const struct cases_case *c,
					  kiln_attr attrs[CASES_MAX_ATTRS + 1])
{
	cases_attrs(c, attrs);
	if (!options->generic)
		return c->attr_count;
	attrs[c->attr_count] = (kiln_attr){.name = "choice", .kind = KILN_ATTR_STRING, .s = "generic"};
	return c->attr_count + 1;
}

static int make_call(struct bench *bench, const struct cases_case *c, bool prepared)
{
	kiln_tensor tensors[CASES_MAX_OPERANDS];
	kiln_operand operands[CASES_MAX_OPERANDS] = {{0}};
	kiln_attr attrs[CASES_MAX_ATTRS + 1];
	kiln_call *made = NULL;
	int attr_count = case_attrs(&bench->options, c, attrs);
	cases_tensors(c, tensors);
	for (int i = 0; i < c->operand_count; i++) {
		if (!bench->places[i].operand)
			continue;
		tensors[i].buffer = operands[i].buffer = bench->places[i].buffer;
		tensors[i].offset = operands[i].offset = bench->places[i].begin;
	}
	if (!prepared && !bench->options.graph)
		return kiln_run(bench->client, c->op->name, tensors, c->operand_count, attrs, attr_count);
	int status = kiln_prepare(bench->client, c->op->name, tensors, c->operand_count, attrs,
							  attr_count, &made);
	if (status == KILN_OK)
		status = bench->options.graph ? submit_graph(bench, made, operands, c->operand_count)
									  : submit(bench, made, operands, c->operand_count);
	kiln_call_free(made);
	return status;
}

/* Where an index is out of range, that is what the call must end in. */
static int call(struct bench *bench, const struct cases_case *c, bool prepared)
{
	int status = make_call(bench, c, prepared);

	if (!(c->flags & CASES_STRAYS))
		return status;
	return status == KILN_EINDEX ? KILN_OK : status == KILN_OK ? KILN_EINDEX : status;
}

/* Poison around the operand, and in an output that is not huge, or data in an input; sent. */
static bool place_fill(struct bench *bench, struct place *place, uint64_t seed)
{
	const struct runner_options *options = &bench->options;
	uint64_t end = place->begin + cases_bytes(place->operand);
	bool output = place->operand->output;
	runner_poison(options, place->host, output && place->other ? end : place->begin, seed);
	runner_poison(options, place->host + end, place->bytes - end, seed + 1);
	if (place->operand->kept)
		memset(place->host + place->begin, CASES_KEPT, end - place->begin);
	if (!output)
		runner_fill_operand(options, place->operand, place->host + place->begin, seed);
	if (!output && place->other)
		memcpy(place->other, place->host, end);
	if (!output || place->other || place->operand->kept)
		return place_move(place, place->host, true);
	return kiln_write(place->buffer, 0, place->host, place->begin) == KILN_OK &&
		   kiln_write(place->buffer, end, place->host + end, place->bytes - end) == KILN_OK;
}

/* The edges of what came back; false after a message. */
static bool check_edges(const struct cases_case *c, const struct place *place, int number,
						uint64_t seed)
{
	uint64_t end = place->begin + cases_bytes(place->operand);
	int64_t before = runner_poison_broken(place->host, place->begin, seed);
	int64_t after = runner_poison_broken(place->host + end, place->bytes - end, seed + 1);
	if (before >= 0)
		runner_fail(c->name, "the byte %" PRId64 " before operand %d was written",
					(int64_t)place->begin - before, number);
	else if (after >= 0)
		runner_fail(c->name, "the byte %" PRId64 " behind operand %d was written", after, number);
	else if (!place->operand->output && place->other &&
			 memcmp(place->host + place->begin, place->other + place->begin, end - place->begin) !=
				 0)
		runner_fail(c->name, "operand %d, an input, was written", number);
	else
		return true;
	return false;
}

/* Sends everything, calls, and gets everything back; false after a message. */
static bool run_once(struct bench *bench, const struct cases_case *c, uint64_t number, bool again)
{
	/* Inputs are there already the second time. */
	for (int i = 0; i < c->operand_count; i++) {
		struct place *place = &bench->places[i];
		if (place->operand && (place->operand->output || !again) &&
			!place_fill(bench, place, place->seed + again)) {
			runner_fail(c->name, "cannot be written: %s", why(bench));
			return false;
		}
	}
	if (call(bench, c, (number + again) % 2) != KILN_OK) {
		runner_fail(c->name, "%s", kiln_errmsg());
		return false;
	}
	for (int i = 0; i < c->operand_count; i++) {
		struct place *place = &bench->places[i];
		if (!place->operand)
			continue;
		if (!place_move(place, place->host, false)) {
			runner_fail(c->name, "cannot be read: %s", why(bench));
			return false;
		}
		if (!check_edges(c, place, i, place->seed + (again && place->operand->output)))
			return false;
	}
	return true;
}

static bool judge(struct bench *bench, const struct cases_case *c)
{
	const void *memory[CASES_MAX_OPERANDS] = {NULL};
	struct cases_verdict verdict = {0};
	double seconds = c->flags & CASES_HUGE ? 8 : 2;
	for (int i = 0; i < c->operand_count; i++)
		if (bench->places[i].operand)
			memory[i] = bench->places[i].host + bench->places[i].begin;
	if (!runner_judge(&bench->options, c, memory, seconds, &verdict))
		bench->partly++;
	if (verdict.wrong)
		runner_fail(c->name, "element %" PRId64 " of operand %d is %.9g, not %.9g (+- %.3g)",
					verdict.element, verdict.operand, verdict.got, verdict.expected,
					verdict.allowed);
	return !verdict.wrong;
}

/* The same call over other poison, and in the other way: the results are the same bits. */
static bool repeat(struct bench *bench, const struct cases_case *c, uint64_t number)
{
	for (int i = 0; i < c->operand_count; i++) {
		struct place *place = &bench->places[i];
		if (place->operand && place->operand->output)
			memcpy(place->other, place->host, place->bytes);
	}
	if (!run_once(bench, c, number, true))
		return false;
	for (int i = 0; i < c->operand_count; i++) {
		const struct place *place = &bench->places[i];
		uint64_t at = place->begin;
		if (!place->operand || !place->operand->output ||
			memcmp(place->host + at, place->other + at, cases_bytes(place->operand)) == 0)
			continue;
		while (place->host[at] == place->other[at])
			at++;
		runner_fail(c->name, "element %" PRIu64 " of operand %d is not the same again",
					(at - place->begin) / cases_element(place->operand), i);
		return false;
	}
	return true;
}

static void run_case(struct bench *bench, const struct cases_case *c, uint64_t number)
{
	uint64_t at[CASES_MAX_OPERANDS] = {0};
	bool opened = true, freed = true;
	/* Sums in any order may have other bits again. */
	bool once = bench->options.huge || strcmp(c->op->name, "permute") == 0 ||
				!reference_int(c, "deterministic", 1);
	double start = runner_now_us();
	if (!set_places(bench, c, number, at)) {
		runner_fail(c->name, "the arena is too small");
		return;
	}
	for (int i = 0; i < c->operand_count && opened; i++)
		if (bench->places[i].operand)
			opened = place_open(bench, &bench->places[i], at[i], i);
	if (!opened)
		runner_fail(c->name, "no memory: %s", why(bench));
	else if (run_once(bench, c, number, false) && judge(bench, c) &&
			 (once || repeat(bench, c, number)))
		runner_pass();
	for (int i = 0; i < c->operand_count; i++)
		freed =
			(!bench->places[i].buffer || kiln_free(bench->places[i].buffer) == KILN_OK) && freed;
	if (!freed)
		runner_fail(c->name, "cannot be freed: %s", kiln_errmsg());
	if (c->flags & CASES_HUGE)
		printf("  %s: %.1f s\n", c->name, (runner_now_us() - start) / 1e6);
	fflush(stdout);
}

/* ---- All of them ---- */

/* Bytes of one case and its margins. */
static uint64_t case_bytes(const struct cases_case *c)
{
	uint64_t bytes = 0;
	for (int i = 0; i < c->operand_count; i++)
		bytes += cases_bytes(&c->operand[i]) + c->operand[i].offset + 2 * MARGIN + 512;
	return bytes;
}

/* The axes stay where they are: bytes are copied, or there are none. */
static bool is_copy(const struct cases_case *c)
{
	if (strcmp(c->op->name, "permute") != 0)
		return false;
	for (int k = 0; k < c->operand[0].rank; k++)
		if (c->ints[k] != k)
			return cases_elements(&c->operand[0]) == 0;
	return c->operand[0].contiguous || cases_elements(&c->operand[0]) == 0;
}

static bool is_listed(const char *list, const char *op)
{
	size_t length = strlen(op);
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strncmp(at, op, length) == 0 && (at[length] == 0 || at[length] == ','))
			return true;
	return !list;
}

static bool is_wanted(const struct runner_options *options, const struct cases_case *c, int i)
{
	bool large = (c->flags & CASES_BIG) && strcmp(c->op->name, "permute") != 0;
	if (!is_listed(options->ops, c->op->name) || (options->copies && !is_copy(c)))
		return false;
	if (((c->flags & CASES_HUGE) != 0) != options->huge)
		return false;
	if ((c->flags & CASES_SLOW) && strcmp(options->device, "cpu") == 0 && i % SLOW_SHARE != 0)
		return false;
	if (large && !options->huge && ((uint64_t)i + options->seed) % LARGE_SHARE != 0)
		return false;
	return !(options->quick && (c->flags & CASES_BIG));
}

/* The list of cases, and behind it the sums. */
static const struct cases_case *case_at(int i)
{
	int listed = 0, sums = 0;
	const struct cases_case *list = cases_all(&listed), *more = cases_sums(&sums);
	if (i < listed)
		return &list[i];
	return i - listed < sums ? &more[i - listed] : NULL;
}

static bool open_arena(struct bench *bench)
{
	char reason[200];
	const char *memory = bench->options.memory;
	enum gpu_memory kind = strcmp(memory, "exported") == 0 ? GPU_EXPORTED
						   : strcmp(memory, "pool") == 0   ? GPU_POOL
														   : GPU_MALLOC;
	if (strcmp(memory, "held") == 0 || bench->options.huge)
		return true;
	/* Both sides count alike here. */
	const char *number = strchr(kiln_device(bench->client), ':');
	if (!gpu_open(number ? (int)strtol(number + 1, NULL, 10) : 0, reason)) {
		runner_fail("lending", "%s", reason);
		return false;
	}
	const struct cases_case *c;
	for (int i = 0; (c = case_at(i)); i++)
		if (is_wanted(&bench->options, c, i) && case_bytes(c) > bench->bytes)
			bench->bytes = case_bytes(c);
	bench->bytes += bench->bytes / 4 + (64 << 20);
	bench->arena = gpu_alloc(bench->bytes, kind);
	if (!bench->arena) {
		runner_fail("lending", "%s", gpu_error());
		return false;
	}
	/* Lent as a whole too, so that its parts come and go while the daemon has it open. */
	if (kiln_lend_cuda(bench->client, bench->arena, bench->bytes, "arena", &bench->whole) !=
		KILN_OK) {
		runner_fail("lending", "%s", kiln_errmsg());
		return false;
	}
	return true;
}

#define WARMERS 8

/* Every eighth wanted case, prepared by a client of its own: first is which. */
static void warm_part(void *arg, int64_t first, int64_t last)
{
	const struct runner_options *options = arg;
	kiln_client *client = runner_connect(options);
	const struct cases_case *c;
	for (int i = (int)first; client && last > first && (c = case_at(i)); i += WARMERS) {
		kiln_tensor tensors[CASES_MAX_OPERANDS];
		kiln_attr attrs[CASES_MAX_ATTRS + 1];
		kiln_call *made = NULL;
		if (!is_wanted(options, c, i))
			continue;
		int attr_count = case_attrs(options, c, attrs);
		cases_tensors(c, tensors);
		/* A call that fails here fails again when it is run, and is told then. */
		kiln_prepare(client, c->op->name, tensors, c->operand_count, attrs, attr_count, &made);
		kiln_call_free(made);
	}
	kiln_close(client);
}

static void run_list(struct bench *bench)
{
	const struct runner_options *options = &bench->options;
	bool quarter = strcmp(options->memory, "exported") == 0 ||
				   strcmp(options->memory, "pool") == 0 || options->graph;
	int count = 0, random = options->count ? options->count : options->quick ? 100 : 400;
	double start = runner_now_us();
	while (case_at(count))
		count++;
	for (int k = 0; k < count; k++) {
		int i = options->reverse ? count - 1 - k : k;
		const struct cases_case *c = case_at(i);
		if (!is_wanted(options, c, i) || (quarter && !options->copies && i % 4 != 0))
			continue;
		if (runner_now_us() - start > options->seconds * 1e6) {
			runner_fail(c->name, "not reached within %d s", options->seconds);
			return;
		}
		run_case(bench, c, (uint64_t)i);
	}
	for (int i = 0; i < random && !options->huge; i++) {
		struct cases_case c;
		cases_random(options->seed, (uint64_t)i, &c);
		if (is_wanted(options, &c, i))
			run_case(bench, &c, (uint64_t)i);
	}
	if (options->graph)
		printf("  %d graphs were launched\n", bench->graphs);
	if (options->graph && bench->graphs == 0)
		runner_fail("graphs", "there was none");
	if (bench->partly)
		printf("  %d large results were judged in part\n", bench->partly);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	if (!runner_options_read(argc, argv, &bench.options))
		return 2;
	bench.client = runner_connect(&bench.options);
	if (!bench.client)
		return 1;
	/* Kernels are compiled by several at once: one after the other they take most of the time. */
	case_at(0);
	if (!bench.options.copies)
		runner_parallel(&bench.options, WARMERS, 1, warm_part, &bench.options);
	if (open_arena(&bench))
		run_list(&bench);
	if (bench.whole && kiln_free(bench.whole) != KILN_OK)
		runner_fail("lending", "%s", kiln_errmsg());
	if (!gpu_free(bench.arena))
		runner_fail("lending", "%s", gpu_error());
	kiln_close(bench.client);
	for (int i = 0; i < CASES_MAX_OPERANDS; i++) {
		free(bench.places[i].host);
		free(bench.places[i].other);
	}
	return runner_end(&bench.options);
}
