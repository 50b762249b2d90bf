/*
 * bench_quiet: what one client's launches take while another brings kernels that the device process
 * has not loaded yet: loaded at once as they come (--test-quiet-patience 0), and at quiet points.
 *
 * Client A launches one kernel again and again, two in flight, of about 20 us and then of about
 * 20 ms.  Meanwhile client B prepares and launches fifty new ones, one after another: from the
 * cache, the same shared by five clients, and compiling them.  A's times are from the submission to
 * the end that it sees.
 *
 *   bench_quiet [--device NAME] [--quick] [--count KERNELS] [--json FILE]
 *
 * Starts a kilnd of its own for each way, from $KILN_DAEMON or from beside this program.
 */
#include "own_daemon.h"

#include <kiln/ops.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 60000
#define START_MS 60000
#define MOST_KERNELS 200
#define MOST_SAMPLES (1 << 21)
#define ROWS 4096 /* of A's kernel: some of the GPU is left for B */
#define MOST_COLUMNS (1 << 25)
#define ELEMENTS 4096 /* of B's */

/* ---- Calls ---- */

/* One statement over f32, of up to three operands, y the last. */
struct kernel {
	kiln_client *client;
	kiln_call *call;
	kiln_operand operands[3];
	int count;
};

static bool kernel_open(kiln_client *client, const char *statement, const char *names,
						const int64_t *lengths, int count, struct kernel *kernel)
{
	kiln_attr attrs[] = {
		{.name = "statement", .kind = KILN_ATTR_STRING, .s = statement},
		{.name = "names", .kind = KILN_ATTR_STRING, .s = names},
	};
	kiln_tensor tensors[3];
	kernel->client = client;
	kernel->count = count;
	for (int i = 0; i < count; i++) {
		kiln_buffer **buffer = &kernel->operands[i].buffer;
		if (!*buffer && kiln_alloc(client, (uint64_t)lengths[i] * 4, 0, NULL, buffer))
			return false;
		tensors[i] = kiln_tensor_make(*buffer, 0, KILN_F32, 1, &lengths[i]);
	}
	return !kiln_prepare(client, "map", tensors, count, attrs, 2, &kernel->call);
}

static bool kernel_submit(struct kernel *kernel, kiln_ticket *ticket)
{
	return !kiln_submit(kernel->call, kernel->operands, kernel->count, 0, ticket);
}

static bool kernel_run(struct kernel *kernel, double *micros)
{
	kiln_ticket ticket;
	return kernel_submit(kernel, &ticket) &&
		   !kiln_wait_time(kernel->client, ticket, DEADLINE_MS, micros);
}

static void kernel_close(struct kernel *kernel)
{
	kiln_call_free(kernel->call);
	for (int i = 0; i < kernel->count; i++)
		kiln_free(kernel->operands[i].buffer);
}

/* ---- A: a kernel of a given length ---- */

/* Takes as long as it has columns. */
static bool long_open(kiln_client *client, int64_t columns, struct kernel *kernel)
{
	const int64_t lengths[] = {ROWS, columns, ROWS};
	return kernel_open(client, "y[i] += exp(sin(exp(x[i] * w[k])))", "x,w,y", lengths, 3, kernel);
}

/* The number of columns for so many us; *found: what it takes.  0: it cannot be had. */
static int64_t find_columns(kiln_client *client, double wanted, double *found)
{
	int64_t columns = 64;
	for (int tries = 0; tries < 12; tries++) {
		struct kernel kernel = {0};
		double times[5] = {0};
		bool good = long_open(client, columns, &kernel) && kernel_run(&kernel, &times[0]);
		for (int i = 0; good && i < 5; i++)
			good = kernel_run(&kernel, &times[i]);
		kernel_close(&kernel);
		if (!good)
			return 0;
		*found = runner_percentile(times, 5, 0.5);
		double factor = wanted / (*found > 1 ? *found : 1);
		if ((factor > 0.75 && factor < 1.33) || columns >= MOST_COLUMNS || factor * 64 < 1)
			return columns;
		factor = factor > 32 ? 32 : factor;
		if ((double)columns * factor < 1)
			return columns;
		columns = (int64_t)((double)columns * factor);
		columns = columns < MOST_COLUMNS ? columns : MOST_COLUMNS;
	}
	return columns;
}

struct sample {
	double begin, end;
};

/* A's process shares this with this one. */
struct record {
	_Atomic bool stop, failed;
	_Atomic int count;
	char why[400];
	struct sample samples[MOST_SAMPLES];
};

static void launch_on(struct kernel *kernel, struct record *record)
{
	kiln_ticket tickets[2];
	struct sample samples[2];
	bool good = true;
	for (int i = 0; good && !record->stop; i++) {
		if (i >= 2) {
			int count = record->count;
			good = !kiln_wait(kernel->client, tickets[i % 2], DEADLINE_MS);
			samples[i % 2].end = runner_now_us();
			record->samples[count] = samples[i % 2];
			record->count = count + 1;
			if (count + 1 == MOST_SAMPLES)
				break;
		}
		samples[i % 2].begin = runner_now_us();
		good = good && kernel_submit(kernel, &tickets[i % 2]);
	}
	if (!good)
		snprintf(record->why, sizeof(record->why), "%s", kiln_errmsg());
	record->failed = !good;
}

static _Noreturn void run_a(const struct runner_options *options, int64_t columns,
							struct record *record)
{
	struct kernel kernel = {0};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	kiln_client *client = runner_connect(options);
	double unused;
	if (client && long_open(client, columns, &kernel) && kernel_run(&kernel, &unused)) {
		launch_on(&kernel, record);
	} else {
		snprintf(record->why, sizeof(record->why), "%s", kiln_errmsg());
		record->failed = true;
	}
	_exit(record->failed);
}

/* ---- B: new kernels ---- */

enum manner { NOBODY, CACHED, SEVERAL, COMPILED, MANNERS };
static const char *const manners[] = {"nothing", "from the cache", "from the cache, 5 clients",
									  "compiled"};
#define MOST_GUESTS 5

/* B's processes share this with this one. */
struct doorstep {
	_Atomic bool open;
	_Atomic int waiting, done;
	char why[400];
};

/* One of B's processes: kernels first .. first + count - 1. */
struct guest {
	kiln_client *client;
	kiln_buffer *x, *y;
	const char *target;
	int first, count;
};

/* No two in one daemon are the same, and what is to be compiled is in no cache. */
static int kernel_number(int length, enum manner manner, int way)
{
	int set = manner == COMPILED ? (int)manner + way : (int)manner;
	return (length * (MANNERS + 1) + set) * MOST_KERNELS + 1;
}

static void guest_problem(const struct guest *guest, int i, char statement[64], kiln_attr attrs[2],
						  kiln_tensor tensors[2])
{
	static const int64_t length = ELEMENTS;
	snprintf(statement, 64, "y[i] = x[i] + %d", guest->first + i);
	attrs[0] = (kiln_attr){.name = "statement", .kind = KILN_ATTR_STRING, .s = statement};
	attrs[1] = (kiln_attr){.name = "names", .kind = KILN_ATTR_STRING, .s = "x,y"};
	tensors[0] = kiln_tensor_make(guest->x, 0, KILN_F32, 1, &length);
	tensors[1] = kiln_tensor_make(guest->y, 0, KILN_F32, 1, &length);
}

/* Into the cache, and not into the device process. */
static bool guest_compile(const struct guest *guest, int i)
{
	char statement[64];
	kiln_attr attrs[2];
	kiln_tensor tensors[2];
	kiln_reply *reply = NULL;
	guest_problem(guest, i, statement, attrs, tensors);
	bool good = !kiln_compile(guest->client, "map", tensors, 2, attrs, 2, guest->target, &reply);
	kiln_reply_free(reply);
	return good;
}

static bool guest_launch(const struct guest *guest, int i)
{
	const kiln_operand operands[] = {{guest->x, 0}, {guest->y, 0}};
	char statement[64];
	kiln_attr attrs[2];
	kiln_tensor tensors[2];
	kiln_call *call = NULL;
	kiln_ticket ticket;
	guest_problem(guest, i, statement, attrs, tensors);
	bool good = !kiln_prepare(guest->client, "map", tensors, 2, attrs, 2, &call) &&
				!kiln_submit(call, operands, 2, 0, &ticket) &&
				!kiln_wait(guest->client, ticket, DEADLINE_MS);
	kiln_call_free(call);
	return good;
}

/* x is zeros. */
static bool guest_right(const struct guest *guest)
{
	float y[ELEMENTS];
	return !kiln_read(guest->y, 0, y, sizeof(y)) &&
		   y[ELEMENTS - 1] == (float)(guest->first + guest->count - 1);
}

static bool guest_stay(const struct runner_options *options, enum manner manner,
					   struct guest *guest, struct doorstep *doorstep)
{
	guest->client = runner_connect(options);
	bool good = guest->client && !kiln_alloc(guest->client, ELEMENTS * 4, 0, "x", &guest->x) &&
				!kiln_alloc(guest->client, ELEMENTS * 4, 0, "y", &guest->y);
	for (int i = 0; good && manner != COMPILED && i < guest->count; i++)
		good = guest_compile(guest, i);
	doorstep->waiting++;
	while (good && !doorstep->open)
		usleep(100);
	for (int i = 0; good && i < guest->count; i++)
		good = guest_launch(guest, i);
	doorstep->done++;
	return good && guest_right(guest);
}

static _Noreturn void run_guest(const struct runner_options *options, enum manner manner,
								struct guest guest, struct doorstep *doorstep)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bool good = guest_stay(options, manner, &guest, doorstep);
	if (!good)
		snprintf(doorstep->why, sizeof(doorstep->why), "%s", kiln_errmsg());
	_exit(!good);
}

/* ---- A row ---- */

struct row {
	double p50, p99, worst, guest_ms;
	int launches;
};

/* Judges the launches that were under way within the time. */
static void judge(const struct record *record, double begin, double end, struct row *row)
{
	double *times = calloc((size_t)record->count + 1, sizeof(*times));
	for (int i = 0; times && i < record->count; i++) {
		const struct sample *sample = &record->samples[i];
		if (sample->end >= begin && sample->begin <= end)
			times[row->launches++] = sample->end - sample->begin;
	}
	if (times) {
		row->p50 = runner_percentile(times, row->launches, 0.5);
		row->p99 = runner_percentile(times, row->launches, 0.99);
		row->worst = runner_percentile(times, row->launches, 1);
	}
	free(times);
}

static void *share(size_t bytes)
{
	void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
						MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared != MAP_FAILED)
		return shared;
	perror("mmap");
	exit(1);
}

static void wait_for(_Atomic int *number, int value)
{
	double until = runner_now_us() + 5.0 * START_MS * 1e3;
	while (*number < value && runner_now_us() < until)
		usleep(50);
}

/* The numbers of B's kernels begin with first. */
static void measure(const struct runner_options *options, int64_t columns, enum manner manner,
					const struct guest *all, struct row *row)
{
	struct record *record = share(sizeof(*record));
	struct doorstep *doorstep = share(sizeof(*doorstep));
	int guests = manner == NOBODY ? 0 : manner == SEVERAL ? MOST_GUESTS : 1, wrong = 0, status;
	guests = guests < all->count ? guests : all->count;
	pid_t pids[MOST_GUESTS], pid;
	for (int i = 0; i < guests; i++) {
		int first = all->count * i / guests, next = all->count * (i + 1) / guests;
		struct guest guest = {
			.target = all->target, .first = all->first + first, .count = next - first};
		if ((pids[i] = fork()) == 0)
			run_guest(options, manner, guest, doorstep);
	}
	wait_for(&doorstep->waiting, guests);
	if ((pid = fork()) == 0)
		run_a(options, columns, record);
	wait_for(&record->count, 10);
	double begin = runner_now_us();
	doorstep->open = true;
	if (manner == NOBODY)
		usleep(options->quick ? 200000 : 1000000);
	wait_for(&doorstep->done, guests);
	double end = runner_now_us();
	row->guest_ms = (end - begin) / 1e3;
	wait_for(&record->count, record->count + 2);
	record->stop = true;
	waitpid(pid, NULL, 0);
	for (int i = 0; i < guests; i++)
		wrong += waitpid(pids[i], &status, 0) != pids[i] || status != 0;
	judge(record, begin, end, row);
	if (record->failed || row->launches == 0)
		runner_fail("A", "beside %s: %s", manners[manner], record->why);
	else if (wrong)
		runner_fail("B", "%s: %s", manners[manner],
					*doorstep->why ? doorstep->why : "a result is wrong");
	else
		runner_pass();
	munmap(record, sizeof(*record));
	munmap(doorstep, sizeof(*doorstep));
}

/* ---- The table ---- */

static const struct way {
	const char *name, *patience;
} ways[] = {{"loaded at once", "0"}, {"at quiet points", "5"}};
enum { WAYS = sizeof(ways) / sizeof(*ways) };

static const struct length {
	const char *name;
	double micros;
} lengths[] = {{"20 us", 20}, {"20 ms", 20000}};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

static void print_row(const struct runner_options *options, const char *way, const char *length,
					  enum manner manner, const struct row *row)
{
	char label[160], took[24] = "";
	if (manner != NOBODY)
		snprintf(took, sizeof(took), "%.1f", row->guest_ms);
	printf("%-18s %-25s %10.1f %10.1f %11.1f %9d %10s\n", way, manners[manner], row->p50, row->p99,
		   row->worst, row->launches, took);
	fflush(stdout);
	FILE *json = options->json ? fopen(options->json, "a") : NULL;
	if (!json)
		return;
	snprintf(label, sizeof(label), "A of %s, %s, B: %s", length, way, manners[manner]);
	fprintf(json,
			"{\"program\": \"%s\", \"figure\": \"%s\", \"p50_us\": %.2f, \"p99_us\": %.2f, "
			"\"worst_us\": %.2f, \"launches\": %d, \"guest_ms\": %.3f}\n",
			options->program, label, row->p50, row->p99, row->worst, row->launches, row->guest_ms);
	fclose(json);
}

static void print_counters(const struct runner_options *options)
{
	kiln_client *client = runner_connect(options);
	kiln_reply *reply = NULL;
	if (client && kiln_request(client, "info", NULL, 0, &reply) == KILN_OK)
		printf("of all: %lld loads and closes while it was idle, %lld in %lld holds, of which the "
			   "longest took %.1f ms\n",
			   (long long)kiln_reply_int(reply, "counters.quiet_idle"),
			   (long long)kiln_reply_int(reply, "counters.quiet_held"),
			   (long long)kiln_reply_int(reply, "counters.holds"),
			   (double)kiln_reply_int(reply, "counters.worst_hold_us") / 1e3);
	kiln_reply_free(reply);
	kiln_close(client);
}

static bool find_target(kiln_client *client, const char *device, char target[32])
{
	kiln_reply *reply = NULL;
	char path[32];
	const char *name = "";
	*target = 0;
	if (kiln_request(client, "devices", NULL, 0, &reply) != KILN_OK)
		return false;
	for (int i = 0; name && !*target; i++) {
		snprintf(path, sizeof(path), "rows[%d].name", i);
		name = kiln_reply_str(reply, path);
		snprintf(path, sizeof(path), "rows[%d].target", i);
		if (name && strcmp(name, device) == 0)
			snprintf(target, 32, "%s", kiln_reply_str(reply, path));
	}
	kiln_reply_free(reply);
	return *target != 0;
}

/* Before the first row: what A launches, and what B compiles for. */
static bool learn(const struct runner_options *options, int64_t columns[LENGTHS], char target[32])
{
	kiln_client *client = runner_connect(options);
	bool good = client != NULL;
	for (int i = 0; good && i < LENGTHS; i++) {
		double found = 0;
		columns[i] = find_columns(client, lengths[i].micros, &found);
		good = columns[i] > 0;
		if (good)
			printf("A's kernel of about %s takes %.1f us on the device\n", lengths[i].name, found);
	}
	good = good && find_target(client, options->device, target);
	if (!good)
		runner_fail("A", "there is no kernel to begin with: %s", kiln_errmsg());
	kiln_close(client);
	return good;
}

static void run_way(const struct runner_options *options, int way, const int64_t *columns,
					const char *target)
{
	for (int length = 0; length < LENGTHS; length++) {
		printf("\nA's kernel: %-6s %-25s %10s %10s %11s %9s %10s\n", lengths[length].name,
			   "B brings", "A p50 us", "p99 us", "worst us", "launches", "B in all ms");
		for (int i = NOBODY; i < MANNERS; i++) {
			enum manner manner = (enum manner)i;
			struct row row = {0};
			const struct guest guest = {.target = target,
										.first = kernel_number(length, manner, way),
										.count = options->count};
			measure(options, columns[length], manner, &guest, &row);
			print_row(options, ways[way].name, lengths[length].name, manner, &row);
		}
	}
}

static void run_all(const struct runner_options *options, struct own_daemon *daemon)
{
	int64_t columns[LENGTHS] = {0};
	char target[32];
	bool good = true;
	for (int way = 0; good && way < WAYS; way++) {
		const char *const arguments[] = {"--device", options->device,         "--specialize",
										 "eager",    "--test-quiet-patience", ways[way].patience,
										 NULL};
		if (!own_daemon_start(daemon, "cache", arguments))
			return;
		good = way > 0 || learn(options, columns, target);
		if (good) {
			run_way(options, way, columns, target);
			print_counters(options);
		}
		own_daemon_stop(daemon);
	}
}

int main(int argc, char **argv)
{
	struct runner_options options;
	struct own_daemon daemon;
	if (!runner_options_read(argc, argv, &options))
		return 2;
	if (options.count <= 0 || options.count > MOST_KERNELS)
		options.count = options.quick ? 10 : 50;
	if (!own_daemon_make(&daemon, "quiet"))
		return 1;
	options.socket = daemon.socket;
	printf("two launches of A in flight; B brings %d kernels\n", options.count);
	run_all(&options, &daemon);
	int status = runner_end(&options);
	own_daemon_remove(&daemon, status);
	return status;
}
