/*
 * bench_launch: what launches cost through Kiln, beside programs that have CUDA itself: one table,
 * everything in it measured in the same run.
 *
 *   bench_launch [--socket PATH] [--device cuda:N] [--quick] [--json FILE] [--only SECTION,...]
 *
 * Sections: one (each way to launch, by one program), spread (how these times spread), many (1 to 8
 * processes at once; 8 that wait for 64 launches at a time, too), side (the same by --launchers, of
 * daemons of its own), fresh (a new process until its first result), fair (64 equal clients), idle
 * (the daemon's own processor time), trace (with and without a trace of the calls).  Needs a
 * running kilnd; but side runs alone, and without one: a second daemon's process on the GPU would
 * take time from those that are measured.  On device cpu there is nothing to compare with; what
 * needs no GPU runs all the same.
 */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char source[] = "struct alignas(16) four { float x, y, z, w; };\n"
							 "extern \"C\" __global__ void add(const four *x, four *y)\n"
							 "{\n"
							 "	const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
							 "	const four v = x[i];\n"
							 "	y[i] = {v.x + 1, v.y + 1, v.z + 1, v.w + 1};\n"
							 "}\n";

/* Those that open the GPU in this process come last: others are measured without its context. */
static const struct {
	const char *name;
	void (*run)(struct bench *bench);
} sections[] = {
	{"many", launch_many},     {"fair", launch_fair},   {"side", launch_side},
	{"fresh", launch_fresh},   {"idle", launch_idle},   {"one", launch_one},
	{"spread", launch_spread}, {"trace", launch_trace},
};
enum { SECTIONS = sizeof(sections) / sizeof(sections[0]) };

/* ---- Options ---- */

/* Takes an option that only this program has, with its value, out of the arguments. */
static const char *take_option(int *argc, char **argv, const char *name)
{
	for (int i = 1; i + 1 < *argc; i++)
		if (strcmp(argv[i], name) == 0) {
			const char *value = argv[i + 1];
			memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof(*argv));
			*argc -= 2;
			return value;
		}
	return NULL;
}

static bool is_listed(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
			return true;
	return false;
}

/* False after a sentence: side is one of several. */
static bool check_side(const char *only, bool *alone)
{
	bool named = is_listed(only, "side");
	*alone = named && strcmp(only, "side") == 0;
	if (named && !*alone)
		fprintf(stderr,
				"bench_launch: side has daemons of its own, so it runs alone: --only side\n");
	return *alone || !named;
}

static bool check_list(const char *list)
{
	char word[16];
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		bool known = false;
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(at, ","), at);
		for (int i = 0; i < SECTIONS; i++)
			known = known || strcmp(sections[i].name, word) == 0;
		if (!known) {
			fprintf(stderr, "bench_launch: --only names \"%s\"; there are", word);
			for (int i = 0; i < SECTIONS; i++)
				fprintf(stderr, " %s", sections[i].name);
			fprintf(stderr, "\n");
			return false;
		}
	}
	return true;
}

int bench_ordinal(const char *device)
{
	char *end = NULL;
	if (strncmp(device, "cuda:", 5) != 0)
		return -1;
	long ordinal = strtol(device + 5, &end, 10);
	return end != device + 5 && !*end && ordinal >= 0 && ordinal < 1024 ? (int)ordinal : -1;
}

/* ---- The daemon, and the kernel that others launch by themselves ---- */

/* Finds the architecture for which the daemon compiles, such as "sm_90". */
static bool find_target(kiln_client *client, const char *device, char target[16])
{
	kiln_reply *reply = NULL;
	char path[40];
	target[0] = 0;
	if (kiln_request(client, "devices", NULL, 0, &reply) != KILN_OK)
		return false;
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		snprintf(path, sizeof(path), "rows[%d].name", i);
		if (strcmp(kiln_reply_str(reply, path), device) != 0)
			continue;
		snprintf(path, sizeof(path), "rows[%d].target", i);
		snprintf(target, 16, "%s", kiln_reply_str(reply, path));
	}
	kiln_reply_free(reply);
	return target[0] != 0;
}

static bool keep_cubin(struct bench *bench, const void *found, size_t bytes)
{
	bench->cubin = found && bytes ? malloc(bytes) : NULL;
	if (!bench->cubin)
		return false;
	memcpy(bench->cubin, found, bytes);
	bench->cubin_fd = memfd_create("bench-cubin", MFD_CLOEXEC);
	return bench->cubin_fd >= 0 && write(bench->cubin_fd, found, bytes) == (ssize_t)bytes;
}

static bool fetch_cubin(kiln_client *client, struct bench *bench)
{
	const kiln_raw raw = {.size = sizeof(raw), .name = "add.cu", .source = source, .entry = "add"};
	kiln_reply *reply = NULL, *object = NULL;
	char target[16];
	size_t bytes = 0;
	bool kept = false;
	if (find_target(client, bench->options.device, target) &&
		kiln_compile_raw(client, &raw, target, &reply) == KILN_OK) {
		const kiln_attr key = {
			.name = "key", .kind = KILN_ATTR_STRING, .s = kiln_reply_str(reply, "key")};
		if (kiln_request(client, "cache.get", &key, 1, &object) == KILN_OK) {
			const void *found = kiln_reply_bin(object, "object", &bytes);
			kept = keep_cubin(bench, found, bytes);
		}
	}
	kiln_reply_free(object);
	kiln_reply_free(reply);
	return kept;
}

static bool prepare(struct bench *bench)
{
	kiln_client *client = runner_connect(&bench->options);
	kiln_reply *info = NULL;
	bool good = client && kiln_request(client, "info", NULL, 0, &info) == KILN_OK;
	bench->daemon = good ? (pid_t)kiln_reply_int(info, "server.pid") : 0;
	if (good && bench->ordinal >= 0)
		good = fetch_cubin(client, bench);
	if (!good)
		runner_fail("the daemon", "%s", kiln_errmsg());
	kiln_reply_free(info);
	kiln_close(client);
	return good;
}

int main(int argc, char **argv)
{
	double begun = runner_now_us();
	struct bench bench = {.cubin_fd = -1};
	const char *role = take_option(&argc, argv, "--child");
	const char *only = take_option(&argc, argv, "--only");
	bool side = false;
	if (!check_list(only) || !check_side(only, &side) ||
		!runner_options_read(argc, argv, &bench.options))
		return 2;
	bench.ordinal = bench_ordinal(bench.options.device);
	if (role)
		return crew_child(&bench, role, begun);
	if (side || prepare(&bench)) {
		for (int i = 0; i < SECTIONS; i++)
			if (only ? is_listed(only, sections[i].name) : sections[i].run != launch_side)
				sections[i].run(&bench);
		table_end();
	}
	free(bench.cubin);
	if (bench.cubin_fd >= 0)
		close(bench.cubin_fd);
	return runner_end(&bench.options);
}
