/* soak.c: the conductor: a daemon, clients, a hand that kills, and the end. */
#include "soak.h"

#include "process_figures.h"

#include <errno.h>
#include <kiln/ops.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 20
#define IDLE_SLACK 4   /* descriptors: a worker that is being replaced has two for a while */
#define LAST_MS 300000 /* the end, checks and all, takes no longer */

const char *const soak_roles[SOAK_ROLES] = {"daemon", "shared device process", "own device process",
											"compiler worker", "client"};

int64_t soak_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void soak_pause_ms(int milliseconds)
{
	struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
	nanosleep(&time, NULL);
}

int64_t soak_pick(uint64_t *state, int64_t count)
{
	return count > 0 ? (int64_t)(cases_word(state) % (uint64_t)count) : 0;
}

bool soak_chance(uint64_t *state, int one_in)
{
	return soak_pick(state, one_in) == 0;
}

void soak_fail(struct soak *soak, const char *format, ...)
{
	char text[700], line[800];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	int size = snprintf(line, sizeof(line), "FAIL seed %llu, %s\n",
						(unsigned long long)soak->options.seed, text);
	/* One write, so that those of several processes do not mix. */
	if (size > 0 && write(STDOUT_FILENO, line, (size_t)size) < 0)
		return;
	if (atomic_fetch_add(&soak->failures, 1) == 0)
		snprintf(soak->first_failure, sizeof(soak->first_failure), "%s", text);
}

int soak_deaths_since(const struct soak *soak, unsigned roles, int64_t since_ms)
{
	int last = atomic_load(&soak->deaths), first = last > SOAK_DEATHS ? last - SOAK_DEATHS : 0;
	int count = 0;

	for (int i = first; i < last; i++) {
		const struct soak_death *death = &soak->death[i % SOAK_DEATHS];
		count += (roles & SOAK_ROLE(atomic_load(&death->role))) &&
				 atomic_load(&death->at_ms) >= since_ms;
	}
	return count;
}

/* ---- The beginning ---- */

/* The command beside this program, or $KILN. */
static void find_command(struct soak *soak)
{
	const char *named = getenv("KILN");
	ssize_t size = readlink("/proc/self/exe", soak->kiln, sizeof(soak->kiln) - 8);
	soak->kiln[size > 0 ? size : 0] = 0;
	char *slash = strrchr(soak->kiln, '/');
	if (slash)
		snprintf(slash + 1, 6, "kiln");
	if (named)
		snprintf(soak->kiln, sizeof(soak->kiln), "%s", named);
	if (access(soak->kiln, X_OK) != 0)
		soak->kiln[0] = 0;
}

/* Temporary files and configuration of the daemon lie in the soak's directory, where they are
 * seen. */
static bool make_directory(struct conductor *conductor)
{
	struct soak *soak = conductor->soak;
	char path[160];

	if (!own_daemon_make(&conductor->daemon, "soak"))
		return false;
	snprintf(soak->directory, sizeof(soak->directory), "%s", conductor->daemon.directory);
	snprintf(soak->socket, sizeof(soak->socket), "%s", conductor->daemon.socket);
	snprintf(path, sizeof(path), "%s/config", soak->directory);
	setenv("XDG_CONFIG_HOME", path, 1);
	snprintf(path, sizeof(path), "%s/tmp", soak->directory);
	setenv("TMPDIR", path, 1);
	return mkdir(path, 0700) == 0;
}

/* One small call, and what the daemon and its device process hold after. */
static bool warm_up(struct conductor *conductor)
{
	const kiln_connect_options options = {.size = sizeof(options),
										  .socket = conductor->daemon.socket,
										  .device = conductor->soak->options.device,
										  .timeout_ms = SOAK_CALL_MS};
	const int64_t shape[2] = {3, 5}, turned[2] = {5, 3}, perm[2] = {1, 0};
	kiln_client *client = NULL;
	kiln_buffer *x = NULL, *y = NULL;
	int status = kiln_connect(&options, &client);

	if (status == KILN_OK)
		status = kiln_alloc(client, 60, 0, "x", &x);
	if (status == KILN_OK)
		status = kiln_alloc(client, 60, 0, "y", &y);
	for (int i = 0; i < 4 && status == KILN_OK; i++)
		status = kiln_permute(client, kiln_tensor_make(x, 0, KILN_F32, 2, shape),
							  kiln_tensor_make(y, 0, KILN_F32, 2, turned), perm);
	if (status != KILN_OK)
		soak_fail(conductor->soak, "the first call ended in %s: %s", kiln_status_name(status),
				  kiln_errmsg());
	kiln_free(x);
	kiln_free(y);
	kiln_close(client);
	if (status != KILN_OK || !soak_settle(conductor))
		return false;
	kiln_reply *reply = soak_info(conductor);
	conductor->idle_fds = count_fds(conductor->daemon.pid) + IDLE_SLACK;
	conductor->idle_maps = reply ? soak_shared_maps(conductor, reply) + IDLE_SLACK : 0;
	kiln_reply_free(reply);
	return reply != NULL;
}

/* ---- While it goes on ---- */

static bool goes_on(const struct conductor *conductor, int living)
{
	const struct soak *soak = conductor->soak;
	return living > 0 && soak_now_ms() < conductor->ends_ms && !atomic_load(&soak->stop) &&
		   atomic_load(&soak->failures) < SOAK_FAILURES_MOST;
}

static void conduct(struct conductor *conductor)
{
	int living = 1;

	crew_start(conductor);
	while (goes_on(conductor, living)) {
		living = crew_tend(conductor);
		killer_tick(conductor);
		watch_tick(conductor);
		soak_pause_ms(TICK_MS);
	}
	conductor->ends_ms = soak_now_ms();
	killer_rest(conductor);
	atomic_store(&conductor->soak->stop, 1);
	/* The watch over those that hang ends this loop. */
	while (crew_tend(conductor) > 0)
		soak_pause_ms(TICK_MS);
	crew_kill(conductor);
}

static void on_interrupt(int signal)
{
	(void)signal;
	_exit(1);
}

static void on_alarm(int signal)
{
	static const char text[] = "FAIL soak: the conductor itself hangs\n";
	(void)signal;
	if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0)
		_exit(1);
	_exit(1);
}

/* The list of cases is built once, and all children have it. */
static bool begin(struct conductor *conductor)
{
	cases_all(&(int){0});
	find_command(conductor->soak);
	if (!make_directory(conductor))
		return false;
	final_first(conductor);
	if (!soak_daemon_start(conductor))
		return false;
	if (!warm_up(conductor)) {
		soak_daemon_stop(conductor);
		return false;
	}
	conductor->began_ms = soak_now_ms();
	conductor->ends_ms = conductor->began_ms + conductor->soak->options.seconds * 1000LL;
	conductor->killer = killer_new(conductor);
	conductor->watch = watch_new();
	return conductor->killer && conductor->watch;
}

int main(int argc, char **argv)
{
	struct soak *soak =
		mmap(NULL, sizeof(*soak), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct conductor conductor = {.soak = soak};
	int code = 1;

	if (soak == MAP_FAILED || !soak_options_read(argc, argv, &soak->options, &code))
		return code;
	/* Orphans of a daemon come here instead of to init, so that leftovers are seen. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGINT, on_interrupt);
	signal(SIGTERM, on_interrupt);
	signal(SIGALRM, on_alarm);
	alarm((unsigned)(soak->options.seconds + (SOAK_HANG_MS + LAST_MS) / 1000));
	if (soak->options.repeat)
		atomic_store(&soak->seats[soak->options.repeat_client].step, soak->options.repeat_step);
	if (begin(&conductor)) {
		conduct(&conductor);
		final_checks(&conductor);
		final_report(&conductor);
	}
	free(conductor.killer);
	free(conductor.watch);
	own_daemon_remove(&conductor.daemon, atomic_load(&soak->failures));
	if (atomic_load(&soak->failures))
		printf("soak: the daemon's log is %s/log\n", conductor.daemon.directory);
	return atomic_load(&soak->failures) || !conductor.watch ? 1 : 0;
}
