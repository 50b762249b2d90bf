/*
 * bench_data.c: where the operands of a case lie in the two pools, and what they hold.
 *
 * Inputs hold what the case says.  Of large ones only the first megabytes are made up; they are
 * repeated on the device by copies, and on the host by mapping the same pages again and again, so
 * that a gigabyte of input costs neither time nor memory and can still be judged against.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define WHOLE (8u << 20)      /* operands up to here are filled from end to end */
#define TILE (4u << 20)       /* what is repeated in larger ones, about */
#define MOST_TILE (32u << 20) /* unless rows can only be kept whole in more than this */
#define BLANK (2u << 20)      /* tile of outputs */
#define MOST_SETS 32

static uint64_t round_up(uint64_t value, uint64_t step)
{
	return (value + step - 1) / step * step;
}

static bool is_there(const struct cases_operand *operand)
{
	return operand->dtype != KILN_DTYPE_NONE;
}

/* ---- Places ---- */

static uint64_t room(const struct cases_operand *operand)
{
	return is_there(operand) ? round_up(operand->offset + cases_bytes(operand), 256) : 0;
}

void bench_data_size(const struct cases_case *c, uint64_t bytes[2])
{
	bytes[BENCH_IN] = bytes[BENCH_OUT] = 0;
	for (int i = 0; i < c->operand_count; i++)
		bytes[c->operand[i].output ? BENCH_OUT : BENCH_IN] += room(&c->operand[i]);
}

static void lay_out(const struct cases_case *c, uint64_t pool, struct bench_work *work)
{
	uint64_t used[2] = {0, 0};

	work->kind = BENCH_KERNEL;
	work->c = c;
	work->place_count = c->operand_count;
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *operand = &c->operand[i];
		struct bench_place *place = &work->places[i];
		place->pool = operand->output ? BENCH_OUT : BENCH_IN;
		place->absent = !is_there(operand);
		place->at = used[place->pool] + operand->offset;
		used[place->pool] += room(operand);
	}
	work->sets = c->flags & CASES_BIG ? MOST_SETS : 1;
	for (int p = 0; p < 2; p++) {
		work->step[p] = used[p];
		if (used[p] && pool / used[p] < (uint64_t)work->sets)
			work->sets = pool / used[p] ? (int)(pool / used[p]) : 1;
	}
}

/* ---- Tiles ---- */

/* Memory that stands for an operand's: `tile` bytes, again and again. */
struct tile {
	int fd;
	unsigned char *bytes;
	uint64_t size;
};

static bool tile_open(uint64_t size, struct tile *tile)
{
	tile->size = round_up(size ? size : 1, PAGE);
	tile->fd = memfd_create("bench", MFD_CLOEXEC);
	tile->bytes = MAP_FAILED;
	if (tile->fd >= 0 && ftruncate(tile->fd, (off_t)tile->size) == 0)
		tile->bytes = mmap(NULL, tile->size, PROT_READ | PROT_WRITE, MAP_SHARED, tile->fd, 0);
	if (tile->bytes != MAP_FAILED)
		return true;
	if (tile->fd >= 0)
		close(tile->fd);
	return false;
}

static void tile_close(struct tile *tile)
{
	munmap(tile->bytes, tile->size);
	close(tile->fd);
}

/* NULL: no memory. */
static unsigned char *repeat(const struct tile *tile, uint64_t bytes)
{
	uint64_t mapped = round_up(bytes, PAGE);
	unsigned char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
							   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (uint64_t at = 0; base != MAP_FAILED && at < mapped; at += tile->size) {
		uint64_t part = mapped - at < tile->size ? mapped - at : tile->size;
		if (mmap(base + at, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, tile->fd, 0) ==
			MAP_FAILED) {
			munmap(base, mapped);
			return NULL;
		}
	}
	return base == MAP_FAILED ? NULL : base;
}

static bool spread(const struct bench_way *way, enum bench_pool pool, uint64_t at,
				   const struct tile *tile, uint64_t bytes)
{
	uint64_t done = tile->size < bytes ? tile->size : bytes;

	if (!way->put(pool, at, tile->bytes, done))
		return false;
	while (done < bytes) {
		uint64_t more = done < bytes - done ? done : bytes - done;
		if (!way->copy(pool, at + done, at, more))
			return false;
		done += more;
	}
	return true;
}

/* ---- Inputs ---- */

static int64_t divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Rows of the operand's length, whole pages of them; where that is too much, one long row. */
static void shorten(struct cases_operand *operand)
{
	uint32_t element = cases_element(operand);
	int64_t columns = operand->rank ? operand->shape[operand->rank - 1] : 1;
	int64_t row = columns * element, rows = PAGE / divisor(PAGE, row);

	operand->rank = 2;
	operand->shape[0] = TILE > rows * row ? TILE / (rows * row) * rows : rows;
	operand->shape[1] = columns;
	if (rows * row > MOST_TILE) {
		operand->shape[0] = 1;
		operand->shape[1] = TILE / element;
	}
	operand->stride[0] = operand->shape[1];
	operand->stride[1] = 1;
}

static bool make_input(const struct bench_options *options, const struct cases_operand *operand,
					   uint64_t seed, struct tile *tile)
{
	struct cases_operand shorter = *operand;

	if (cases_bytes(operand) > WHOLE)
		shorten(&shorter);
	if (!tile_open(cases_bytes(&shorter), tile))
		return false;
	runner_fill_operand(&options->runner, &shorter, tile->bytes, seed);
	return true;
}

/* ---- Both ---- */

static bool open_operand(const struct bench_way *way, const struct bench_options *options,
						 struct bench_data *data, int i)
{
	const struct cases_operand *operand = &data->c->operand[i];
	const struct bench_place *place = &data->work.places[i];
	uint64_t bytes = cases_bytes(operand);
	struct tile tile;

	if (place->absent || bytes == 0)
		return true;
	bool made = operand->output ? tile_open(BLANK, &tile)
								: make_input(options, operand, (uint64_t)i + 1, &tile);
	if (!made)
		return false;
	if (operand->output)
		memset(tile.bytes, 0xff, tile.size);
	else
		made = spread(way, place->pool, place->at, &tile, bytes);
	data->host[i] = made ? repeat(&tile, bytes) : NULL;
	data->mapped[i] = round_up(bytes, PAGE);
	tile_close(&tile);
	return data->host[i] != NULL;
}

bool bench_data_open(const struct bench_way *way, const struct bench_options *options,
					 const struct cases_case *c, struct bench_data *out)
{
	memset(out, 0, sizeof(*out));
	out->c = c;
	lay_out(c, options->pool, &out->work);
	for (int i = 0; i < c->operand_count; i++)
		if (!open_operand(way, options, out, i))
			return false;
	/* The other sets hold the same. */
	uint64_t step = out->work.step[BENCH_IN], bytes = step * (uint64_t)out->work.sets;
	for (uint64_t done = step; step && done < bytes;) {
		uint64_t more = done < bytes - done ? done : bytes - done;
		if (!way->copy(BENCH_IN, done, 0, more))
			return false;
		done += more;
	}
	return true;
}

void bench_data_close(struct bench_data *data)
{
	for (int i = 0; i < CASES_MAX_OPERANDS; i++)
		if (data->host[i])
			munmap(data->host[i], data->mapped[i]);
}

bool bench_data_poison(const struct bench_way *way, const struct bench_data *data)
{
	bool good = true;
	struct tile tile;

	if (!tile_open(BLANK, &tile))
		return false;
	memset(tile.bytes, 0xff, tile.size);
	for (int i = 0; i < data->c->operand_count; i++) {
		const struct bench_place *place = &data->work.places[i];
		if (good && !place->absent && place->pool == BENCH_OUT)
			good = spread(way, BENCH_OUT, place->at, &tile, cases_bytes(&data->c->operand[i]));
	}
	tile_close(&tile);
	return good;
}
