/* report.c: what must hold when all is over, and the report. */
#include "soak.h"

#include "gpu/driver.h"
#include "process_figures.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GPU_SLACK (16ull << 20)
#define GPU_PATIENCE_MS 20000
#define CHILDREN_MS 5000
#define LINE_MOST 1024

static int64_t gpu_before = -1, gpu_after = -1;
static int64_t rows_verified, bad_rows;

/* ---- Device memory ---- */

/* Bytes of the GPU in use, as a process of its own sees it; -1: unknown. */
static int64_t measure_gpu(const struct soak *soak)
{
	int ends[2];
	uint64_t used = 0;
	char why[200];

	if (strncmp(soak->options.device, "cuda:", 5) != 0 || pipe(ends) != 0)
		return -1;
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		bool known = gpu_open(soak->options.device[5] - '0', why) && gpu_used(&used);
		_exit(known && write(ends[1], &used, sizeof(used)) == (ssize_t)sizeof(used) ? 0 : 1);
	}
	close(ends[1]);
	bool known = pid > 0 && read(ends[0], &used, sizeof(used)) == (ssize_t)sizeof(used);
	close(ends[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return known ? (int64_t)used : -1;
}

static void check_gpu(const struct conductor *conductor)
{
	int64_t until = soak_now_ms() + GPU_PATIENCE_MS;

	if (gpu_before < 0)
		return;
	do {
		gpu_after = measure_gpu(conductor->soak);
		if (gpu_after >= 0 && gpu_after <= gpu_before + (int64_t)GPU_SLACK)
			return;
		soak_pause_ms(500);
	} while (soak_now_ms() < until);
	soak_fail(conductor->soak, "the GPU has %.1f MiB in use, and had %.1f before",
			  (double)gpu_after / 1048576, (double)gpu_before / 1048576);
}

void final_first(struct conductor *conductor)
{
	gpu_before = measure_gpu(conductor->soak);
}

/* ---- What is left ---- */

/* ThreadSanitizer writes one where a process begins, and one that is killed then leaves it. */
static bool is_ours(const char *name)
{
	return name[0] != '.' && strncmp(name, "tsan.rodata.", strlen("tsan.rodata.")) != 0;
}

static void check_directory(struct soak *soak, const char *name, const char *word)
{
	char path[160];
	struct dirent *entry;

	snprintf(path, sizeof(path), "%s/%s", soak->directory, name);
	DIR *directory = opendir(path);
	while (directory && (entry = readdir(directory)))
		if (is_ours(entry->d_name) && strstr(entry->d_name, word))
			soak_fail(soak, "%s/%s is left", path, entry->d_name);
	if (directory)
		closedir(directory);
}

static void check_children(struct soak *soak)
{
	int64_t until = soak_now_ms() + CHILDREN_MS;
	pid_t pid = 0;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && soak_now_ms() < until)
		soak_pause_ms(10);
	if (pid >= 0 || errno != ECHILD)
		soak_fail(soak, "processes are left %d ms after the daemon", CHILDREN_MS);
}

/* Looks for lines in which sanitizers, or the daemon, tell of a defect. */
static void check_log(const struct conductor *conductor)
{
	static const char *const words[] = {"Sanitizer", "runtime error", "a defect in Kiln"};
	char path[160], line[LINE_MOST];

	snprintf(path, sizeof(path), "%s/log", conductor->daemon.directory);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strstr(line, words[i]))
				soak_fail(conductor->soak, "the daemon's log says: %s", line);
	if (file)
		fclose(file);
}

static void verify_cache(struct conductor *conductor)
{
	char key[80] = "";
	bool more = conductor->client != NULL;

	while (more) {
		const kiln_attr next = {.name = "next", .kind = KILN_ATTR_STRING, .s = key};
		kiln_reply *reply = NULL;
		if (kiln_request(conductor->client, "cache.verify", &next, 1, &reply) != KILN_OK) {
			soak_fail(conductor->soak, "cache.verify: %s", kiln_errmsg());
			return;
		}
		rows_verified += kiln_reply_int(reply, "checked");
		bad_rows += kiln_reply_int(reply, "bad");
		more = kiln_reply_int(reply, "more") != 0;
		snprintf(key, sizeof(key), "%s", kiln_reply_str(reply, "next"));
		kiln_reply_free(reply);
	}
	if (bad_rows)
		soak_fail(conductor->soak, "%lld rows of the cache are bad", (long long)bad_rows);
	if (!rows_verified)
		soak_fail(conductor->soak, "the cache has no rows");
}

/* Nobody is connected: what is held for clients is gone. */
static void check_idle(struct conductor *conductor)
{
	struct soak *soak = conductor->soak;
	int64_t until = soak_now_ms() + CHILDREN_MS;
	int fds, maps = 0, executors = 0, buffers = 0;

	do {
		kiln_reply *reply = soak_info(conductor);
		if (!reply)
			return;
		executors = kiln_reply_count(reply, "executors");
		buffers = (int)kiln_reply_int(reply, "executors[0].buffers");
		maps = soak_shared_maps(conductor, reply);
		kiln_reply_free(reply);
		fds = count_fds(conductor->daemon.pid);
		if (executors <= 1 && buffers == 0 && fds <= conductor->idle_fds &&
			maps <= conductor->idle_maps)
			return;
		soak_pause_ms(50);
	} while (soak_now_ms() < until);
	if (executors > 1)
		soak_fail(soak, "nobody is connected, and %d device processes are there", executors);
	if (buffers)
		soak_fail(soak, "nobody is connected, and the device process has %d buffers", buffers);
	if (maps > conductor->idle_maps)
		soak_fail(soak, "nobody is connected, and the device process has %d shared mappings", maps);
	if (fds > conductor->idle_fds)
		soak_fail(soak, "nobody is connected, and the broker has %d descriptors; it had %d", fds,
				  conductor->idle_fds);
}

void final_checks(struct conductor *conductor)
{
	struct soak *soak = conductor->soak;

	if (soak_settle(conductor)) {
		check_idle(conductor);
		verify_cache(conductor);
	}
	soak_daemon_stop(conductor);
	check_children(soak);
	check_directory(soak, "tmp", "");
	check_directory(soak, ".", "socket");
	check_directory(soak, ".", ".lock");
	check_log(conductor);
	check_gpu(conductor);
}

/* ---- The report ---- */

static void report_counts(const struct soak *soak, FILE *json)
{
	static const char *const texts[] = {
#define TEXT(name, text) text,
		SOAK_COUNTS(TEXT)
#undef TEXT
	};
	printf("clients\n");
	for (int what = 0; what < SOAK_COUNT_END; what++) {
		int64_t all = 0;
		for (int i = 0; i < soak->options.clients; i++)
			all += atomic_load(&soak->seats[i].counts[what]);
		printf("  %-44s %14lld\n", texts[what], (long long)all);
		if (json)
			fprintf(json, "  \"%s\": %lld,\n", texts[what], (long long)all);
	}
	for (int status = 1; status < 32; status++) {
		int64_t all = 0;
		for (int i = 0; i < soak->options.clients; i++)
			all += atomic_load(&soak->seats[i].excused[status]);
		if (all)
			printf("    %-42s %14lld\n", kiln_status_name(-status), (long long)all);
		if (all && json)
			fprintf(json, "  \"%s\": %lld,\n", kiln_status_name(-status), (long long)all);
	}
}

void final_report(struct conductor *conductor)
{
	const struct soak *soak = conductor->soak;
	const struct soak_options *options = &soak->options;
	double seconds = (double)(conductor->ends_ms - conductor->began_ms) / 1000;
	FILE *json = options->json ? fopen(options->json, "w") : NULL;

	if (options->json && !json)
		fprintf(stderr, "soak: %s: %s\n", options->json, strerror(errno));
	printf("\nsoak: device %s, seed %llu, %d clients, %.0f s\n", options->device,
		   (unsigned long long)options->seed, options->clients, seconds);
	if (json)
		fprintf(json,
				"{\n  \"device\": \"%s\", \"seed\": %llu, \"clients\": %d, \"seconds\": %.1f,\n",
				options->device, (unsigned long long)options->seed, options->clients, seconds);
	report_counts(soak, json);
	killer_report(conductor, json);
	watch_report(conductor, json);
	printf("at the end\n");
	printf("  %-44s %14lld\n", "client processes that there were", (long long)conductor->lives);
	printf("  %-44s %14d\n", "daemons that there were", conductor->daemon_lives);
	printf("  %-44s %14lld of %lld\n", "bad rows of the cache", (long long)bad_rows,
		   (long long)rows_verified);
	if (gpu_before >= 0)
		printf("  %-44s %7.1f before, %7.1f after\n", "device memory in use, MiB",
			   (double)gpu_before / 1048576, (double)gpu_after / 1048576);
	printf("soak: %d failures\n", atomic_load(&soak->failures));
	if (soak->first_failure[0])
		printf("the first: %s\n", soak->first_failure);
	if (!json)
		return;
	fprintf(json, "  \"daemons\": %d, \"client processes\": %d,\n", conductor->daemon_lives,
			conductor->lives);
	fprintf(json, "  \"rows verified\": %lld, \"bad rows\": %lld,\n", (long long)rows_verified,
			(long long)bad_rows);
	fprintf(json, "  \"gpu_before\": %lld, \"gpu_after\": %lld,\n", (long long)gpu_before,
			(long long)gpu_after);
	fprintf(json, "  \"failures\": %d\n}\n", atomic_load(&soak->failures));
	fclose(json);
}
