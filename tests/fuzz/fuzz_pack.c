/*
 * fuzz_pack: any bytes as a pack, and, since a seal keeps nearly all of them out, any bytes that a
 * trusted key has sealed.  Refused or taken: afterwards the cache has what it should.
 *
 * The first byte says what the rest is: 0: a whole file; 1: what is between the beginning and the
 * seal; 2: the rows, of which there are as many as the next byte says; 3: rows and winners of
 * tuning, as many as the next two bytes say.
 */
#include "daemon/cache/internal.h"
#include "daemon/cache/pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cache *cache;
static struct seal_secret secret;
static struct seal_ring *ring;
static char directory[64], error[KERNEL_ERROR_MAX];

static void require(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "fuzz_pack: %s: %s\n", what, error);
		abort();
	}
}

static void clean_up(void)
{
	char command[96];
	cache_close(cache);
	seal_ring_free(ring);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "fuzz_pack: %s is left\n", directory);
}

static void begin(void)
{
	struct cache_options options = {.directory = directory};
	struct seal_key key;
	char keys[80];
	snprintf(directory, sizeof(directory), "/tmp/kiln-fuzz-pack-XXXXXX");
	require(mkdtemp(directory) != NULL, "no directory");
	snprintf(keys, sizeof(keys), "%s/keys", directory);
	require(seal_new(keys, "k", &key, error) == KILN_OK, "no key");
	require(seal_open(keys, "k", &secret, error) == KILN_OK, "no key");
	require(seal_ring_open(keys, &ring, error) == KILN_OK, "no ring");
	require(cache_open(&options, &cache, error) == KILN_OK, "no cache");
	atexit(clean_up);
}

static void add(struct util_text *text, uint64_t number)
{
	unsigned char bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(number >> (8 * i));
	util_text_bytes(text, bytes, sizeof(bytes));
}

static void make_file(const uint8_t *data, size_t size, struct util_text *out)
{
	unsigned char seal[SEAL_BYTES];
	struct seal_content content;
	struct util_hash hash;
	int kind = data[0];
	size_t head = kind == 3 ? 3 : 2; /* bytes before the rows */
	uint64_t winners = size > 2 && kind == 3 ? data[2] : 0;
	if (kind == 0) {
		util_text_bytes(out, data + 1, size - 1);
		return;
	}
	util_text_bytes(out, "KILNPACK", 8);
	add(out, kind == 3 ? 2 : 1);
	if (kind == 1 || size < head) {
		util_text_bytes(out, data + 1, size - 1);
	} else {
		util_text_bytes(out, data + head, size - head);
		add(out, winners);
		add(out, data[1]);
		add(out, size - head - 8u * (data[1] + winners));
	}
	util_hash_begin(&hash);
	util_hash_add(&hash, out->text, out->size);
	util_hash_end(&hash, content.digest);
	content.bytes = out->size;
	seal_make(&secret, PACK_PURPOSE, &content, 1, 0, seal);
	util_text_bytes(out, seal, sizeof(seal));
}

static uint64_t rows(void)
{
	struct cache_stats stats;
	cache_stats(cache, &stats);
	return stats.rows;
}

static void read_pack(const char *path)
{
	struct pack_reader *reader;
	bool more = true;
	error[0] = 0;
	int status = pack_read_open(path, ring, &reader, error);
	if (status != KILN_OK) {
		require(error[0] != 0, "a refusal without a sentence");
		return;
	}
	while (status == KILN_OK && more)
		status = pack_read(reader, cache, 2, &more, error);
	require(status == KILN_OK || error[0] != 0, "a refusal without a sentence");
	require(rows() == pack_figures(reader)->taken, "other rows than were taken");
	while (pack_undo(reader, cache))
		continue;
	require(rows() == 0, "something is left");
	size_t taken;
	(void)pack_winners_taken(reader, &taken);
	require(status != KILN_OK || taken <= pack_figures(reader)->winners, "more than there are");
	require(cache_tuned_remove(cache, NULL, error) == KILN_OK, "winners stay");
	pack_read_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct util_text text = {0};
	char path[64];
	if (!cache)
		begin();
	if (size == 0)
		return 0;
	make_file(data, size, &text);
	int fd = memfd_create("pack", MFD_CLOEXEC);
	require(fd >= 0 && !text.failed, "no memory");
	require(text.size == 0 || write(fd, text.text, text.size) == (ssize_t)text.size, "no memory");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_pack(path);
	close(fd);
	util_text_free(&text);
	return 0;
}
