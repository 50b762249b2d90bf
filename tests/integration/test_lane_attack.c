/*
 * test_lane_attack: a client that writes nonsense into the memory of its lane, anywhere and at any
 * time, while it submits, waits and cancels, and that misuses what it was handed besides.  Nobody
 * else may see a wrong number or wait for it; the daemon's processes stay, and have in the end what
 * they had before.
 *
 * The nonsense is words and blocks at random places of struct lane_memory: what lies where does not
 * matter.  $KILN_ATTACK_MS says for how long, $KILN_ATTACK_SEED begins the random numbers.
 */
#include "lane_scene.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HONEST 2
#define ATTACKERS 2
#define LIVE_MS 150      /* of one connection of an attacker, if it is not thrown out before */
#define PATIENCE_MS 1000 /* of an attacker: what it waits for may never come */
#define WORDS (sizeof(struct lane_memory) / sizeof(uint64_t))
#define BLOCK_WORDS 8 /* a cache line */
#define MORE_KIB 4096 /* that a process of the daemon may have in the end: allocators keep some */
#define IDLE_MS 500
#define IDLE_MOST_US 50000

/* In memory of all processes. */
struct scene {
	_Atomic bool over;
	_Atomic int64_t rounds[HONEST];
	_Atomic int64_t connections, submitted, writes;
};

static int64_t from_environment(const char *name, int64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoll(text, NULL, 10) : otherwise;
}

static uint64_t draw(uint64_t *random)
{
	*random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return *random >> 16;
}

static struct scene *scene_new(void)
{
	struct scene *scene =
		mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(scene != MAP_FAILED);
	return scene;
}

/* ---- Honest clients ---- */

struct honest {
	struct scene *scene;
	int number;
};

/* There and back, on any stream, with other numbers each time. */
static int work_honestly(const struct kilnd *daemon, void *arg)
{
	const struct honest *honest = arg;
	struct pair pair;
	kiln_ticket tickets[2];
	alarm(0); /* the test's own ends this process, too */
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; !honest->scene->over; i++) {
		unsigned stream = (unsigned)i % KILN_STREAMS;
		float first = (float)(i % 1000 * 4 + honest->number);
		matrix_put(pair.x, first);
		assert_ok(pair_submit_on(&pair, false, stream, 0, &tickets[0]));
		assert_ok(pair_submit_on(&pair, true, stream ^ 1, tickets[0], &tickets[1]));
		assert_ok(kiln_wait(pair.client, tickets[1], CALL_TIMEOUT_MS));
		assert_ok(kiln_wait(pair.client, tickets[0], CALL_TIMEOUT_MS));
		assert_transposed(&pair, first);
		matrix_put(pair.x, -first);
		pair_run(&pair, false);
		assert_transposed(&pair, -first);
		honest->scene->rounds[honest->number]++;
	}
	pair_close(&pair);
	return 0;
}

/* ---- Nonsense ---- */

/* A value that is wrong, or nearly right. */
static uint64_t nonsense(uint64_t old, uint64_t *random)
{
	static const uint64_t steps[] = {1, 2, LANE_ENTRIES, UINT64_C(1) << 32, UINT64_C(1) << 63};
	uint64_t step = steps[draw(random) % 5];
	switch (draw(random) % 6) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return old + step;
	case 3:
		return old - step;
	case 4:
		return draw(random) % 2000;
	default:
		return draw(random) << 32 ^ draw(random);
	}
}

/* The eventfds of this process, which are those of its lane; how many. */
static int find_eventfds(int *fds, int most)
{
	int count = 0;
	for (int fd = 3; fd < 256 && count < most; fd++) {
		char path[32], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "[eventfd]"))
			fds[count++] = fd;
	}
	return count;
}

/* Never returns: who started it ends it. */
static void scribble(struct lane_memory *lane, struct scene *scene, uint64_t random)
{
	static const uint64_t one = 1;
	int fds[4], fd_count = find_eventfds(fds, 4);
	volatile uint64_t *words = (volatile uint64_t *)lane;
	const int pace = (int)(draw(&random) % 4);
	for (;;) {
		size_t at = draw(&random) % WORDS, from = draw(&random) % (WORDS - BLOCK_WORDS);
		switch (draw(&random) % 8) {
		case 0: /* the header and the first entries, which else are seldom met */
			at %= 64;
			words[at] = nonsense(words[at], &random);
			break;
		case 1: /* what was right elsewhere */
			at = at % (WORDS - BLOCK_WORDS) / BLOCK_WORDS * BLOCK_WORDS;
			from = from / BLOCK_WORDS * BLOCK_WORDS;
			for (size_t i = 0; i < BLOCK_WORDS; i++)
				words[at + i] = words[from + i];
			break;
		case 2:
			lane->entries[draw(&random) % LANE_ENTRIES] =
				lane->entries[draw(&random) % LANE_ENTRIES];
			break;
		case 3:
			for (int i = 0; i < fd_count; i++)
				if (write(fds[i], &one, sizeof(one)) < 0)
					_exit(1);
			break;
		default:
			words[at] = nonsense(words[at], &random);
		}
		scene->writes++;
		for (int i = 0; i < 1 << (4 * pace); i++)
			lane_pause();
	}
}

/* A process that dies with this one. */
static pid_t fork_here(void)
{
	pid_t parent = getpid(), pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

static pid_t scribbler_start(struct lane_memory *lane, struct scene *scene, uint64_t random)
{
	pid_t pid = fork_here();
	if (pid == 0)
		scribble(lane, scene, random);
	return pid;
}

/* ---- Attackers ---- */

struct attack {
	struct scene *scene;
	uint64_t random;
	void (*strike)(const struct kilnd *daemon, struct attack *attack);
};

/* Any of what the library has for calls.  False: thrown out. */
static bool act(struct pair *pair, kiln_call *graph, uint64_t *random)
{
	kiln_operand operands[2][2];
	kiln_work works[] = {pair_work(pair, false, operands[0]), pair_work(pair, true, operands[1])};
	kiln_submit_options options = {.size = sizeof(options), .stream = draw(random) % KILN_STREAMS};
	kiln_ticket ticket = 0;
	int status;
	if (draw(random) % 4 == 0)
		status = kiln_submit_with(graph, NULL, 0, &options, &ticket);
	else
		status = kiln_submit_many(works, 1 + (int)(draw(random) % 2), &options, &ticket);
	if (status == KILN_OK && draw(random) % 8 == 0)
		status = kiln_cancel(pair->client, ticket);
	if (status == KILN_OK && draw(random) % 4 == 0)
		(void)kiln_wait(pair->client, ticket, 1);
	if (draw(random) % 64 == 0)
		status = kiln_dispatch(pair->client);
	return status != KILN_ECONN;
}

/* One connection, for a while. */
static void write_nonsense(const struct kilnd *daemon, struct attack *attack)
{
	struct pair pair;
	kiln_operand operands[2];
	kiln_call *graph;
	int status;
	kiln_client *client = client_try(daemon, PATIENCE_MS, &status);
	assert_non_null(client);
	pair_open_on(client, &pair);
	kiln_work work = pair_work(&pair, false, operands);
	assert_ok(kiln_prepare_graph(pair.client, &work, 1, &graph));
	pair_warm(&pair);
	pid_t scribbler = scribbler_start(lane_find(NULL), attack->scene, draw(&attack->random));
	assert_true(scribbler > 0);
	int64_t end = now_ms() + LIVE_MS;
	while (now_ms() < end && act(&pair, graph, &attack->random))
		attack->scene->submitted++;
	if (draw(&attack->random) % 2)
		kill(scribbler, SIGKILL);
	kiln_call_free(graph);
	pair_close(&pair);
	kill(scribbler, SIGKILL);
	assert_int_equal(waitpid(scribbler, NULL, 0), scribbler);
}

/* Flags of an open file are everybody's who has it: what must not block is made to, and is filled
 * and emptied behind the other's back.  Never returns. */
static void misuse(struct lane_memory *lane, struct scene *scene)
{
	static const uint64_t full = UINT64_MAX - 1;
	uint64_t sum;
	int fds[4], count = find_eventfds(fds, 4);
	for (;; scene->writes++)
		for (int i = 0; i < count; i++) {
			fcntl(fds[i], F_SETFL, O_NONBLOCK);
			(void)!write(fds[i], &full, sizeof(full));
			fcntl(fds[i], F_SETFL, 0);
			lane->header.waiting = 1;
			sched_yield();
			fcntl(fds[i], F_SETFL, O_NONBLOCK);
			(void)!read(fds[i], &sum, sizeof(sum));
			fcntl(fds[i], F_SETFL, 0);
		}
}

/* A client that may block itself that way: it is killed. */
static void misuse_descriptors(const struct kilnd *daemon, struct attack *attack)
{
	struct scene *scene = attack->scene;
	int64_t goal = scene->submitted + 20, end = now_ms() + CALL_TIMEOUT_MS;
	pid_t pid = fork_here();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct pair pair;
		pair_open(daemon, &pair);
		pair_warm(&pair);
		pid_t other = fork_here();
		if (other == 0)
			misuse(lane_find(NULL), scene);
		if (other < 0)
			_exit(1);
		for (int i = 0;; i++) {
			pair_run(&pair, i % 2);
			scene->submitted++;
		}
	}
	while (scene->submitted < goal && now_ms() < end)
		pause_ms(1);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int attack_on(const struct kilnd *daemon, void *arg)
{
	struct attack *attack = arg;
	alarm(0);
	while (!attack->scene->over) {
		attack->strike(daemon, attack);
		attack->scene->connections++;
	}
	return 0;
}

/* ---- The scene ---- */

/* The daemon's processes hold this. */
struct holding {
	pid_t pid;
	int fds, maps;
	int64_t kib;
};

static struct holding holding_of(pid_t pid)
{
	return (struct holding){pid, count_fds(pid), count_shared_maps(pid), resident_kib(pid)};
}

static void assert_holds_no_more(const struct holding *before)
{
	/* Sanitizers keep what was freed. */
	int64_t kib = getenv("KILN_SANITIZE") ? 0 : resident_kib(before->pid);
	assert_fds_at_most(before->pid, before->fds);
	assert_shared_maps_at_most(before->pid, before->maps);
	if (kib > before->kib + MORE_KIB)
		fail_msg("process %d has %lld KiB, %lld before: leaked", before->pid, (long long)kib,
				 (long long)before->kib);
}

static int64_t processor_us(pid_t pid)
{
	struct timespec time;
	clockid_t clock;
	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &time), 0);
	return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void assert_idle(pid_t pid)
{
	int64_t before = processor_us(pid);
	pause_ms(IDLE_MS);
	int64_t spent = processor_us(pid) - before;
	if (spent > IDLE_MOST_US)
		fail_msg("process %d has nothing to do, and took %lld us of %d ms", pid, (long long)spent,
				 IDLE_MS);
}

static void start_all(struct kilnd *daemon, struct scene *scene,
					  void (*strike)(const struct kilnd *, struct attack *), pid_t *pids)
{
	uint64_t seed = (uint64_t)from_environment("KILN_ATTACK_SEED", 1);
	for (int i = 0; i < HONEST; i++) {
		struct honest honest = {scene, i};
		pids[i] = process_start(daemon, work_honestly, &honest);
	}
	for (int i = 0; i < ATTACKERS; i++) {
		struct attack attack = {scene, seed * 1000 + (uint64_t)i, strike};
		pids[HONEST + i] = process_start(daemon, attack_on, &attack);
	}
}

/* As long as the honest ones get on. */
static void watch(const struct scene *scene, int64_t milliseconds)
{
	int64_t end = now_ms() + milliseconds, seen[HONEST] = {0}, since[HONEST];
	for (int i = 0; i < HONEST; i++)
		since[i] = now_ms();
	while (now_ms() < end) {
		pause_ms(20);
		for (int i = 0; i < HONEST; i++)
			if (scene->rounds[i] != seen[i]) {
				seen[i] = scene->rounds[i];
				since[i] = now_ms();
			} else if (now_ms() > since[i] + CALL_TIMEOUT_MS) {
				fail_msg("honest client %d has been stuck since round %lld", i, (long long)seen[i]);
			}
	}
}

static void under_attack(struct kilnd *daemon, int64_t milliseconds,
						 void (*strike)(const struct kilnd *, struct attack *))
{
	struct scene *scene = scene_new();
	pid_t pids[HONEST + ATTACKERS];
	struct pair pair;
	kilnd_start(daemon, NULL);
	/* Its lane would be the attackers', too, if it were still there. */
	pair_open(daemon, &pair);
	pair_warm(&pair);
	pair_close(&pair);
	kiln_client *client = client_open(daemon);
	await_info(client, "server.sessions", 1);
	pid_t executor = device_process(client, 0);
	struct holding before[] = {holding_of(daemon->pid), holding_of(executor)};
	start_all(daemon, scene, strike, pids);
	watch(scene, milliseconds);
	scene->over = true;
	for (int i = 0; i < HONEST + ATTACKERS; i++)
		assert_int_equal(process_wait(pids[i], 2 * CALL_TIMEOUT_MS), EXITED(0));
	await_info(client, "server.sessions", 1);
	print_message("%lld connections wrote %lld times and submitted %lld; rounds of the others: "
				  "%lld and %lld\n",
				  (long long)scene->connections, (long long)scene->writes,
				  (long long)scene->submitted, (long long)scene->rounds[0],
				  (long long)scene->rounds[1]);
	assert_int_equal(info_int(client, "executors[0].pid"), executor);
	assert_int_equal(info_int(client, "executors[0].restarts"), 0);
	assert_true(scene->connections >= ATTACKERS && scene->submitted > scene->connections);
	for (int i = 0; i < 2; i++) {
		assert_holds_no_more(&before[i]);
		assert_idle(before[i].pid);
	}
	kiln_close(client);
	kilnd_stop(daemon);
	munmap(scene, sizeof(*scene));
}

static void nonsense_in_memory(void **state)
{
	under_attack(*state, from_environment("KILN_ATTACK_MS", getenv("KILN_SANITIZE") ? 3000 : 5000),
				 write_nonsense);
}

static void misused_descriptors(void **state)
{
	under_attack(*state, from_environment("KILN_ATTACK_MS", 2000), misuse_descriptors);
}

/* The device process stands still, so it takes none of them. */
static void cancels_without_end(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket ticket;
	kilnd_start(daemon, OPTIONS("--max-inflight", "4"));
	pair_open(daemon, &pair);
	pair_warm(&pair);
	pid_t process = device_process(pair.client, 0);
	for (int round = 0; round < 2; round++) {
		process_stop(process);
		assert_ok(pair_submit(&pair, false, 0, &ticket));
		for (int i = 0; i < 4; i++)
			assert_ok(kiln_cancel(pair.client, ticket));
		assert_int_equal(kiln_cancel(pair.client, ticket), KILN_ELIMIT);
		assert_sentence("4 cancels of this session are on their way to its device process");
		assert_int_equal(kill(process, SIGCONT), 0);
		(void)kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS); /* canceled, or not */
		await_info(pair.client, "executors[0].inflight", 0);
	}
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* The same of one call that goes by message. */
static void a_call_is_canceled_once(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket ticket;
	kilnd_start(daemon, OPTIONS("--specialize", "eager")); /* nothing is loaded meanwhile */
	setenv("KILN_LANE", "off", 1);
	pair_open(daemon, &pair);
	unsetenv("KILN_LANE");
	pair_run(&pair, false);
	await_info(pair.client, "executors[0].inflight", 0);
	pid_t process = device_process(pair.client, 0);
	process_stop(process);
	assert_ok(pair_submit(&pair, false, 0, &ticket));
	for (int i = 0; i < 4; i++)
		assert_ok(kiln_cancel(pair.client, ticket));
	assert_int_equal(info_int(pair.client, "executors[0].inflight"), 2);
	assert_int_equal(kill(process, SIGCONT), 0);
	(void)kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS);
	pair_close(&pair);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(misused_descriptors),
		HARNESS_TEST(nonsense_in_memory),
		HARNESS_TEST(cancels_without_end),
		HARNESS_TEST(a_call_is_canceled_once),
	};
	harness_begin();
	alarm((unsigned)(from_environment("KILN_ATTACK_MS", 0) / 1000) + PROGRAM_SECONDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
