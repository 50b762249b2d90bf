/*
 * watch.c: memory and descriptors of the broker and of device processes, once a second, and whether
 * they grow.
 *
 * Judged is what is measured in the second half of the time, of processes that are warm by then and
 * live through enough of it: the line that fits the samples best (least squares) may not rise by
 * more than the bounds from the window's begin to its end.  A device process keeps kernels that
 * were used, thousands of them: what these take is allowed for, and on device cpu each has a
 * descriptor.  CUDA's driver keeps a descriptor of its own for each pool that a client lent from:
 * these are counted apart, and may not rise by more than the clients lent.
 */
#include "soak.h"

#include "process_figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_MS 60000   /* of a process */
#define LEAST_MS 120000 /* of a window that is judged */
#define MEMORY_BOUND_KIB 8192.0
#define FDS_BOUND 2.0   /* for each client: how many buffers they have at the time is chance */
#define KERNEL_KIB 32.0 /* of a loaded kernel */
#define CUBIN_KIB 128.0 /* of one that CUDA's driver has loaded */
#define ENDED_MS 10000  /* without a sample: the process has ended */
#define SERIES_MOST 64
#define DRIVER_FD "/dev/nvidiactl"

struct sample {
	int64_t at_ms;
	double kib, fds, kernels, driver_fds, pools;
};

struct series {
	pid_t pid;
	bool broker, own;
	int count, room;
	struct sample *samples;
	struct fd_kinds begin, end; /* of the window that is judged */
};

struct watch {
	int64_t next_ms, next_line_ms;
	int count;
	struct series series[SERIES_MOST];
	double worst_kib, worst_fds; /* rises of those that were judged */
	int judged;
};

struct watch *watch_new(void)
{
	return calloc(1, sizeof(struct watch));
}

/* Its place is free for another: it has ended, and nothing could be said of it. */
static bool is_forgettable(const struct series *series, int64_t now)
{
	int64_t first = series->count ? series->samples[0].at_ms : 0;
	int64_t last = series->count ? series->samples[series->count - 1].at_ms : 0;
	return now - last > ENDED_MS && last - first < LEAST_MS;
}

/* The series of a process; NULL: there is no room for it. */
static struct series *find_series(struct watch *watch, pid_t pid, int64_t now)
{
	for (int i = 0; i < watch->count; i++)
		if (watch->series[i].pid == pid)
			return &watch->series[i];
	if (watch->count < SERIES_MOST)
		return &watch->series[watch->count++];
	for (int i = 0; i < watch->count; i++) {
		if (!is_forgettable(&watch->series[i], now))
			continue;
		free(watch->series[i].samples);
		watch->series[i] = (struct series){0};
		return &watch->series[i];
	}
	return NULL;
}

/* This part of the run is judged. */
struct window {
	int64_t begin_ms, end_ms;
};

static struct window window_of(const struct conductor *conductor)
{
	double milliseconds = conductor->soak->options.seconds * 1000.0;
	return (struct window){
		.begin_ms = conductor->began_ms + (int64_t)(milliseconds * SOAK_MEASURED),
		.end_ms = conductor->began_ms + (int64_t)(milliseconds * SOAK_MEASURED_END),
	};
}

static int64_t sum(const struct soak *soak, enum soak_count what)
{
	int64_t all = 0;
	for (int i = 0; i < soak->options.clients; i++)
		all += atomic_load(&soak->seats[i].counts[what]);
	return all;
}

static int count_of(const struct fd_kinds *kinds, const char *name)
{
	for (int i = 0; i < kinds->count; i++)
		if (strcmp(kinds->kinds[i].name, name) == 0)
			return kinds->kinds[i].count;
	return 0;
}

static void take_sample(const struct conductor *conductor, pid_t pid, bool broker, bool own,
						double kernels)
{
	struct watch *watch = conductor->watch;
	const struct window window = window_of(conductor);
	struct fd_kinds kinds = {0};
	struct sample sample = {.at_ms = soak_now_ms(),
							.kib = (double)resident_kib(pid),
							.fds = count_fds(pid),
							.kernels = kernels,
							.pools = (double)sum(conductor->soak, SOAK_COUNT_pools)};
	struct series *series = find_series(watch, pid, sample.at_ms);

	if (!series)
		return;
	count_fd_kinds(pid, &kinds);
	sample.driver_fds = count_of(&kinds, DRIVER_FD);
	sample.fds -= sample.driver_fds;
	series->pid = pid;
	series->broker = broker;
	series->own = own;
	if (series->count == series->room) {
		int room = series->room ? 2 * series->room : 64;
		struct sample *more = realloc(series->samples, (size_t)room * sizeof(*more));
		if (!more)
			return;
		series->samples = more;
		series->room = room;
	}
	if (sample.kib > 0 && sample.fds > 0)
		series->samples[series->count++] = sample;
	if (sample.at_ms < window.begin_ms || sample.at_ms > window.end_ms)
		return;
	if (!series->begin.count)
		series->begin = kinds;
	series->end = kinds;
}

static void progress(const struct conductor *conductor)
{
	const struct soak *soak = conductor->soak;
	const struct watch *watch = conductor->watch;
	const struct series *broker = NULL;

	for (int i = 0; i < watch->count; i++)
		if (watch->series[i].pid == conductor->daemon.pid && watch->series[i].count)
			broker = &watch->series[i];
	printf("%5lld s: steps %lld, operators %lld, bytes %.1f MB, deaths %d, excused %lld, broker "
		   "%.1f MiB %d descriptors, failures %d\n",
		   (long long)(soak_now_ms() - conductor->began_ms) / 1000,
		   (long long)sum(soak, SOAK_COUNT_steps), (long long)sum(soak, SOAK_COUNT_operators),
		   (double)sum(soak, SOAK_COUNT_bytes) / 1e6, atomic_load(&soak->deaths),
		   (long long)sum(soak, SOAK_COUNT_excused),
		   broker ? broker->samples[broker->count - 1].kib / 1024 : 0,
		   broker ? (int)broker->samples[broker->count - 1].fds : 0, atomic_load(&soak->failures));
	fflush(stdout);
}

void watch_tick(struct conductor *conductor)
{
	struct watch *watch = conductor->watch;
	int64_t now = soak_now_ms();
	kiln_reply *reply;
	char path[48];

	if (now >= watch->next_line_ms) {
		progress(conductor);
		watch->next_line_ms = now + 5000;
	}
	if (now < watch->next_ms || conductor->daemon_frozen)
		return;
	watch->next_ms = now + 1000;
	reply = soak_info(conductor);
	if (!reply)
		return;
	take_sample(conductor, conductor->daemon.pid, true, false, 0);
	for (int i = 0; i < kiln_reply_count(reply, "executors"); i++) {
		snprintf(path, sizeof(path), "executors[%d].session", i);
		bool own = kiln_reply_int(reply, path) != 0;
		snprintf(path, sizeof(path), "executors[%d].modules", i);
		double kernels = (double)kiln_reply_int(reply, path);
		snprintf(path, sizeof(path), "executors[%d].pid", i);
		if (kiln_reply_int(reply, path) > 0)
			take_sample(conductor, (pid_t)kiln_reply_int(reply, path), false, own, kernels);
	}
	kiln_reply_free(reply);
}

/* ---- Judging ---- */

static bool is_on_cpu(const struct soak *soak)
{
	return strcmp(soak->options.device, "cpu") == 0;
}

static double kernel_kib(const struct soak *soak)
{
	return is_on_cpu(soak) ? KERNEL_KIB : CUBIN_KIB;
}

enum figure { MEMORY, DESCRIPTORS, KERNELS, DRIVER_DESCRIPTORS, POOLS };

static double figure_of(const struct sample *sample, enum figure figure)
{
	switch (figure) {
	case MEMORY:
		return sample->kib;
	case DESCRIPTORS:
		return sample->fds;
	case KERNELS:
		return sample->kernels;
	case DRIVER_DESCRIPTORS:
		return sample->driver_fds;
	case POOLS:
		break;
	}
	return sample->pools;
}

/* How much the line of the best fit rises over the window. */
static double rise(const struct sample *samples, int count, enum figure figure)
{
	double n = count, t = 0, v = 0, tt = 0, tv = 0;
	for (int i = 0; i < count; i++) {
		double at = (double)(samples[i].at_ms - samples[0].at_ms);
		double value = figure_of(&samples[i], figure);
		t += at;
		v += value;
		tt += at * at;
		tv += at * value;
	}
	double below = n * tt - t * t, span = (double)(samples[count - 1].at_ms - samples[0].at_ms);
	return below > 0 ? (n * tv - t * v) / below * span : 0;
}

/* Prints the kinds of descriptors that have become more. */
static void print_kinds(const struct series *series)
{
	for (int i = 0; i < series->end.count; i++) {
		const struct fd_kind *kind = &series->end.kinds[i];
		int more = kind->count - count_of(&series->begin, kind->name);
		if (more > 0)
			printf("             %+d %s\n", more, kind->name);
	}
}

static void judge(struct conductor *conductor, const struct series *series, FILE *json)
{
	struct watch *watch = conductor->watch;
	const struct window window = window_of(conductor);
	const char *what = series->broker ? "broker" : series->own ? "own device" : "device";
	int first = 0, last = series->count;

	while (first < series->count &&
		   (series->samples[first].at_ms < window.begin_ms ||
			series->samples[first].at_ms < series->samples[0].at_ms + WARM_MS))
		first++;
	while (last > first && series->samples[last - 1].at_ms > window.end_ms)
		last--;
	int count = last - first;
	if (count < 2)
		return;
	const struct sample *from = &series->samples[first], *to = &series->samples[last - 1];
	if (to->at_ms - from->at_ms < LEAST_MS)
		return;
	bool on_cpu = is_on_cpu(conductor->soak);
	double kernels = rise(from, count, KERNELS), kib = rise(from, count, MEMORY);
	double fds = rise(from, count, DESCRIPTORS) - (on_cpu ? kernels : 0);
	watch->judged++;
	watch->worst_kib = kib > watch->worst_kib ? kib : watch->worst_kib;
	watch->worst_fds = fds > watch->worst_fds ? fds : watch->worst_fds;
	printf("  %-10s %-7d %5lld s  memory %8.1f to %8.1f MiB, rise %8.1f KiB; descriptors %3.0f to "
		   "%3.0f, rise %5.1f; kernels %3.0f to %3.0f\n",
		   what, (int)series->pid, (long long)(to->at_ms - from->at_ms) / 1000, from->kib / 1024,
		   to->kib / 1024, kib, from->fds, to->fds, fds, from->kernels, to->kernels);
	print_kinds(series);
	if (json)
		fprintf(json,
				"  \"%s %d\": {\"seconds\": %lld, \"rise_kib\": %.1f, \"rise_fds\": %.2f, "
				"\"rise_kernels\": %.1f, \"kib\": %.0f, \"fds\": %.0f},\n",
				what, (int)series->pid, (long long)(to->at_ms - from->at_ms) / 1000, kib, fds,
				kernels, to->kib, to->fds);
	if (kib > MEMORY_BOUND_KIB + (kernels > 0 ? kernels * kernel_kib(conductor->soak) : 0))
		soak_fail(conductor->soak, "memory of the %s, process %d, rose by %.0f KiB in %lld s", what,
				  (int)series->pid, kib, (long long)(to->at_ms - from->at_ms) / 1000);
	if (fds > FDS_BOUND * conductor->soak->options.clients)
		soak_fail(conductor->soak, "descriptors of the %s, process %d, rose by %.1f in %lld s",
				  what, (int)series->pid, fds, (long long)(to->at_ms - from->at_ms) / 1000);
	double driver = rise(from, count, DRIVER_DESCRIPTORS), pools = rise(from, count, POOLS);
	if (driver > FDS_BOUND + pools)
		soak_fail(conductor->soak,
				  "%s of the %s, process %d, rose by %.1f, and %.1f buffers were lent "
				  "from pools",
				  DRIVER_FD, what, (int)series->pid, driver, pools);
}

void watch_report(struct conductor *conductor, FILE *json)
{
	struct watch *watch = conductor->watch;

	printf("growth in the second half, of processes that are warm; bounds %.0f KiB and %.0f for a "
		   "loaded kernel, %.0f descriptors\n",
		   MEMORY_BOUND_KIB, kernel_kib(conductor->soak),
		   FDS_BOUND * conductor->soak->options.clients);
	for (int i = 0; i < watch->count; i++)
		judge(conductor, &watch->series[i], json);
	if (!watch->judged)
		printf("  none: no process lived for long enough\n");
	for (int i = 0; i < watch->count; i++)
		free(watch->series[i].samples);
	watch->count = 0;
}
