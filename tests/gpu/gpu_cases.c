/*
 * gpu_cases: the whole list of cases and random ones through a running daemon, every byte compared
 * with the reference.  Outputs are poisoned before, and what lies around them is looked at after.
 *
 *   gpu_cases --memory held      the daemon holds the buffers
 *   gpu_cases --memory lent      this process allocated them and lends parts of one allocation
 *   gpu_cases --memory exported  the same, from memory that is shared by descriptor
 *   gpu_cases --memory pool      the same, from a stream-ordered pool that is shared
 *   gpu_cases --huge             the cases around and beyond 2^31 elements, held
 */
#include "driver.h"
#include "runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 256 /* poisoned bytes on either side; keeps what alignment a case has */
#define ARENA \
	(1300ull << 20)          /* of lent memory: both tensors of the largest case that is not huge */
#define PIECE (256ull << 20) /* of one transfer */

struct bench {
	struct runner_options options;
	kiln_client *client;
	uint64_t arena; /* 0: the daemon holds the memory */
	kiln_buffer *whole;
	uint64_t bytes; /* of the arena */
};

/* One tensor's memory: margin, the case's offset, the tensor, margin. */
struct place {
	kiln_buffer *buffer;
	uint64_t pointer; /* lent memory's address */
	uint64_t bytes;
	unsigned char *host;
};

static bool place_open(struct bench *bench, struct place *place, uint64_t at, const char *name)
{
	place->host = malloc(place->bytes);
	if (!place->host)
		return false;
	if (!bench->arena)
		return kiln_alloc(bench->client, place->bytes, 0, name, &place->buffer) == KILN_OK;
	place->pointer = bench->arena + at;
	return kiln_lend_cuda(bench->client, place->pointer, place->bytes, name, &place->buffer) ==
		   KILN_OK;
}

static bool place_put(const struct place *place)
{
	if (place->pointer)
		return gpu_put(place->pointer, place->host, place->bytes);
	for (uint64_t at = 0; at < place->bytes; at += PIECE) {
		uint64_t bytes = place->bytes - at < PIECE ? place->bytes - at : PIECE;
		if (kiln_write(place->buffer, at, place->host + at, bytes) != KILN_OK)
			return false;
	}
	return true;
}

static bool place_get(const struct place *place)
{
	if (place->pointer)
		return gpu_get(place->host, place->pointer, place->bytes);
	for (uint64_t at = 0; at < place->bytes; at += PIECE) {
		uint64_t bytes = place->bytes - at < PIECE ? place->bytes - at : PIECE;
		if (kiln_read(place->buffer, at, place->host + at, bytes) != KILN_OK)
			return false;
	}
	return true;
}

static bool place_close(struct place *place)
{
	bool closed = kiln_free(place->buffer) == KILN_OK;
	free(place->host);
	return closed;
}

static const char *why(const struct bench *bench)
{
	return bench->arena && *gpu_error() ? gpu_error() : kiln_errmsg();
}

/* The two ways to have a call made, in turn. */
static int permute(struct bench *bench, const struct cases_case *c, kiln_tensor tensors[2],
				   bool prepared)
{
	kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = c->perm, .count = c->rank};
	if (!prepared)
		return kiln_run(bench->client, c->op, tensors, 2, &attr, 1);
	kiln_call *call = NULL;
	kiln_ticket ticket = 0;
	const kiln_operand operands[2] = {{tensors[0].buffer, tensors[0].offset},
									  {tensors[1].buffer, tensors[1].offset}};
	int status = kiln_prepare(bench->client, c->op, tensors, 2, &attr, 1, &call);
	if (status == KILN_OK)
		status = kiln_submit(call, operands, 2, 0, &ticket);
	if (status == KILN_OK)
		status = kiln_wait(bench->client, ticket, 60000);
	kiln_call_free(call);
	return status;
}

static void tensors_at(const struct cases_case *c, struct place places[2], kiln_tensor tensors[2])
{
	cases_tensors(c, tensors);
	for (int i = 0; i < 2; i++) {
		tensors[i].buffer = places[i].buffer;
		tensors[i].offset += MARGIN;
	}
}

/* Looks at everything that came back. */
static void judge(struct bench *bench, const struct cases_case *c, struct place places[2],
				  const unsigned char *x, uint64_t seed)
{
	uint64_t begin = MARGIN + c->y_offset, bytes = cases_y_bytes(c);
	const unsigned char *y = places[1].host;
	int64_t wrong = runner_compare(&bench->options, c, x + MARGIN + c->x_offset, y + begin, 0,
								   cases_elements(c), 1);
	int64_t before = runner_poison_broken(y, begin, seed);
	int64_t after =
		runner_poison_broken(y + begin + bytes, places[1].bytes - begin - bytes, seed + 1);
	if (wrong >= 0)
		runner_fail(c->name, "element %" PRId64 " of y is wrong", wrong);
	else if (before >= 0)
		runner_fail(c->name, "the byte %" PRId64 " before y was written", (int64_t)begin - before);
	else if (after >= 0)
		runner_fail(c->name, "the byte %" PRId64 " behind y was written", after);
	else if (memcmp(places[0].host, x, places[0].bytes) != 0)
		runner_fail(c->name, "x was written");
	else
		runner_pass();
}

static void run_case(struct bench *bench, const struct cases_case *c, uint64_t number)
{
	struct place places[2] = {{.bytes = 2 * MARGIN + c->x_offset + cases_x_bytes(c)},
							  {.bytes = 2 * MARGIN + c->y_offset + cases_y_bytes(c)}};
	uint64_t seed = bench->options.seed * 1000003 + number, begin = MARGIN + c->y_offset;
	/* Somewhere in the arena, x in its first half and y in its second. */
	uint64_t half = bench->bytes / 2, at[2] = {0, half};
	kiln_tensor tensors[2];
	unsigned char *x = NULL;
	for (int i = 0; i < 2 && bench->arena; i++) {
		if (places[i].bytes + 16 > half) {
			runner_fail(c->name, "the arena is too small");
			return;
		}
		at[i] += (number * 7919 * (i + 1u) * 256) % (half - places[i].bytes - 15) / 256 * 256;
		/* A lent buffer may begin anywhere. */
		at[i] += number % 3 == 0 ? number % 16 : 0;
	}
	if (!place_open(bench, &places[0], at[0], "x") || !place_open(bench, &places[1], at[1], "y") ||
		!(x = malloc(places[0].bytes))) {
		runner_fail(c->name, "no memory: %s", why(bench));
	} else {
		runner_fill(&bench->options, x, places[0].bytes, seed);
		memcpy(places[0].host, x, places[0].bytes);
		runner_poison(&bench->options, places[1].host, begin + cases_y_bytes(c), seed);
		runner_poison(&bench->options, places[1].host + begin + cases_y_bytes(c),
					  places[1].bytes - begin - cases_y_bytes(c), seed + 1);
		tensors_at(c, places, tensors);
		if (!place_put(&places[0]) || !place_put(&places[1]))
			runner_fail(c->name, "cannot be written: %s", why(bench));
		else if (permute(bench, c, tensors, number % 2) != KILN_OK)
			runner_fail(c->name, "%s", kiln_errmsg());
		else if (!place_get(&places[0]) || !place_get(&places[1]))
			runner_fail(c->name, "cannot be read: %s", why(bench));
		else
			judge(bench, c, places, x, seed);
	}
	free(x);
	if (!place_close(&places[0]) || !place_close(&places[1]))
		runner_fail(c->name, "cannot be freed: %s", kiln_errmsg());
}

/* ---- Beyond 2^31 ---- */

/* Reads y piece by piece and compares: all of it, or after `seconds` one block in sixteen. */
static bool judge_huge(struct bench *bench, const struct cases_case *c, const unsigned char *x,
					   kiln_buffer *y, double seconds)
{
	uint32_t element = cases_element(c);
	int64_t step = (int64_t)(PIECE / element), count = cases_elements(c);
	unsigned char *piece = malloc(PIECE), edge[MARGIN];
	double start = runner_now_us();
	bool sampled = false, good = piece != NULL;
	for (int64_t first = 0; first < count && good; first += step) {
		int64_t last = first + step < count ? first + step : count;
		sampled = sampled || runner_now_us() - start > seconds * 1e6;
		good = kiln_read(y, MARGIN + (uint64_t)first * element, piece,
						 (uint64_t)(last - first) * element) == KILN_OK;
		if (!good)
			runner_fail(c->name, "cannot be read: %s", kiln_errmsg());
		int64_t wrong =
			good ? runner_compare(&bench->options, c, x, piece, first, last, sampled ? 16 : 1) : -1;
		if (wrong >= 0) {
			runner_fail(c->name, "element %" PRId64 " of y is wrong", wrong);
			good = false;
		}
	}
	for (int side = 0; side < 2 && good; side++) {
		uint64_t at = side ? MARGIN + (uint64_t)count * element : 0;
		if (kiln_read(y, at, edge, MARGIN) != KILN_OK ||
			runner_poison_broken(edge, MARGIN, (uint64_t)side) >= 0) {
			runner_fail(c->name, "what lies %s y was written", side ? "behind" : "before");
			good = false;
		}
	}
	free(piece);
	if (good && sampled)
		printf("  %s: its end was compared by one block in sixteen\n", c->name);
	return good;
}

static bool write_huge(kiln_buffer *buffer, const unsigned char *host, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += PIECE)
		if (kiln_write(buffer, MARGIN + at, host + at, bytes - at < PIECE ? bytes - at : PIECE) !=
			KILN_OK)
			return false;
	return true;
}

static void run_huge(struct bench *bench, const struct cases_case *c, uint64_t number)
{
	uint64_t x_bytes = cases_x_bytes(c), y_bytes = cases_y_bytes(c);
	unsigned char *x = malloc(x_bytes), edges[2][MARGIN];
	struct place places[2] = {{.bytes = 2 * MARGIN + x_bytes}, {.bytes = 2 * MARGIN + y_bytes}};
	kiln_tensor tensors[2];
	double start = runner_now_us();
	runner_poison(&bench->options, edges[0], MARGIN, 0);
	runner_poison(&bench->options, edges[1], MARGIN, 1);
	if (!x || kiln_alloc(bench->client, places[0].bytes, 0, "x", &places[0].buffer) != KILN_OK ||
		kiln_alloc(bench->client, places[1].bytes, 0, "y", &places[1].buffer) != KILN_OK) {
		runner_fail(c->name, "no memory: %s", kiln_errmsg());
		goto done;
	}
	runner_fill(&bench->options, x, x_bytes, number + bench->options.seed);
	tensors_at(c, places, tensors);
	if (!write_huge(places[0].buffer, x, x_bytes) ||
		kiln_write(places[1].buffer, 0, edges[0], MARGIN) != KILN_OK ||
		kiln_write(places[1].buffer, MARGIN + y_bytes, edges[1], MARGIN) != KILN_OK)
		runner_fail(c->name, "cannot be written: %s", kiln_errmsg());
	else if (permute(bench, c, tensors, true) != KILN_OK)
		runner_fail(c->name, "%s", kiln_errmsg());
	else if (judge_huge(bench, c, x, places[1].buffer, bench->options.quick ? 2 : 8))
		runner_pass();
	printf("  %s: %.1f s\n", c->name, (runner_now_us() - start) / 1e6);
	fflush(stdout);
done:
	kiln_free(places[0].buffer);
	kiln_free(places[1].buffer);
	free(x);
}

/* ---- All of them ---- */

static bool open_arena(struct bench *bench)
{
	char reason[200];
	const char *memory = bench->options.memory;
	enum gpu_memory kind = strcmp(memory, "exported") == 0 ? GPU_EXPORTED
						   : strcmp(memory, "pool") == 0   ? GPU_POOL
														   : GPU_MALLOC;
	if (strcmp(memory, "held") == 0 || bench->options.huge)
		return true;
	if (!gpu_open(0, reason)) {
		runner_fail("lending", "%s", reason);
		return false;
	}
	bench->bytes = bench->options.quick ? ARENA / 16 : ARENA;
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

/* The axes stay where they are: bytes are copied, or there are none. */
static bool is_copy(const struct cases_case *c)
{
	for (int k = 0; k < c->rank; k++)
		if (c->perm[k] != k)
			return cases_elements(c) == 0;
	return c->contiguous || cases_elements(c) == 0;
}

static bool is_wanted(const struct runner_options *options, const struct cases_case *c)
{
	if (options->copies && !is_copy(c))
		return false;
	if (options->quick && (c->flags & CASES_BIG))
		return false;
	return ((c->flags & CASES_HUGE) != 0) == options->huge;
}

static void run_list(struct bench *bench)
{
	const struct runner_options *options = &bench->options;
	bool quarter = strcmp(options->memory, "exported") == 0 || strcmp(options->memory, "pool") == 0;
	int count = 0, random = options->count ? options->count : options->quick ? 50 : 300;
	const struct cases_case *cases = cases_all(&count);
	double start = runner_now_us();
	for (int k = 0; k < count; k++) {
		int i = options->reverse ? count - 1 - k : k;
		if (!is_wanted(options, &cases[i]) || (quarter && !options->copies && i % 4 != 0))
			continue;
		if (runner_now_us() - start > options->seconds * 1e6) {
			runner_fail(cases[i].name, "not reached within %d s", options->seconds);
			return;
		}
		if (options->huge)
			run_huge(bench, &cases[i], (uint64_t)i);
		else
			run_case(bench, &cases[i], (uint64_t)i);
	}
	for (int i = 0; i < random && !options->huge; i++) {
		struct cases_case c;
		cases_random(options->seed, (uint64_t)i, &c);
		if (is_wanted(options, &c))
			run_case(bench, &c, (uint64_t)i);
	}
}

int main(int argc, char **argv)
{
	struct bench bench = {0};
	if (!runner_options_read(argc, argv, &bench.options))
		return 2;
	bench.client = runner_connect(&bench.options);
	if (!bench.client)
		return 1;
	if (open_arena(&bench))
		run_list(&bench);
	if (bench.whole && kiln_free(bench.whole) != KILN_OK)
		runner_fail("lending", "%s", kiln_errmsg());
	if (!gpu_free(bench.arena))
		runner_fail("lending", "%s", gpu_error());
	kiln_close(bench.client);
	return runner_end(&bench.options);
}
