/*
 * harness: what every integration test stands on.  A test owns its daemon: a private directory with
 * its socket, cache and log, started before and stopped after; what is left behind (a process, a
 * socket, a lock, a descriptor) is a failure.  Uses the public header; the one test of hostile
 * bytes speaks frames by itself.
 *
 * Every wait has a deadline, and every program an alarm.
 */
#ifndef KILN_TESTS_HARNESS_H
#define KILN_TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "process_figures.h"

#include <kiln/kiln.h>
#include <stdbool.h>
#include <sys/types.h>

/* They pass only where something is wrong: a machine may have much else to do. */
#define CALL_TIMEOUT_MS 60000  /* of a client's calls: compiles on a busy machine included */
#define START_TIMEOUT_MS 60000 /* until a daemon answers */
#define STOP_TIMEOUT_MS 60000  /* until a process has ended */
#define PROGRAM_SECONDS 1740   /* of a program's tests; CTest would kill it at 1800 */

/* A daemon of the test's own, or the place for one. */
struct kilnd {
	char dir[64];
	char socket[96];
	char cache[96];
	char log[96];
	pid_t pid;  /* 0: not running */
	uid_t uid;  /* its user; 0: the test's */
	gid_t gid;  /* its primary group, where uid is set */
	gid_t also; /* another group of it; 0: none */
};

/* ---- A test ---- */

/* Setup and teardown of every test: *state is a struct kilnd with a directory and no process.
 * Teardown stops the daemon if the test has not, and checks that its figures add up and that
 * nothing is left.  With $KILN_TEST_KEEP the directory, in it the daemon's log, stays. */
int harness_setup(void **state);
int harness_teardown(void **state);
#define HARNESS_TEST(f) cmocka_unit_test_setup_teardown(f, harness_setup, harness_teardown)
/* Before the tests: the alarm, the orphans of daemons become children of this process, and
 * $KILN_TEST chooses tests by name ("test_b*"). */
void harness_begin(void);

/* ---- Daemons ---- */

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Starts $KILND with the harness's options, then these (NULL: none), and waits until it answers. */
void kilnd_start(struct kilnd *daemon, const char *const *options);
/* Before its first start, for tests that are root: it runs as this user, and the test's directory
 * lets others pass; the socket lies in a directory below it that kilnd is to make. */
void kilnd_for_guests(struct kilnd *daemon, uid_t uid, gid_t gid, gid_t also);
/* Starts only.  environment: "NAME=value" to add, ended by NULL (may be NULL).  fd (-1: none)
 * becomes descriptor 3 with LISTEN_FDS. */
void kilnd_spawn(struct kilnd *daemon, const char *const *options, const char *const *environment,
				 int fd);
void kilnd_await(struct kilnd *daemon);
/* SIGTERM; the daemon must end by itself with status 0, and leave no process, socket or lock. */
void kilnd_stop(struct kilnd *daemon);
/* The same for one of several, as teardown does it; asserts nothing.  False: it did not end well,
 * or its figures do not add up, and stderr says so. */
bool kilnd_end(struct kilnd *daemon);
/* Waits for its end, and forgets it.  The wait status. */
int kilnd_wait(struct kilnd *daemon, int timeout_ms);
/* No process that the daemon started is left. */
void assert_no_children(void);
/* The daemon's log so far; free() it. */
char *kilnd_log(const struct kilnd *daemon);
/* Waits until the log has these words: a thread of the daemon writes it, after what it tells of. */
void kilnd_await_log(const struct kilnd *daemon, const char *words);
/* Waits until the process has at most this many descriptors. */
void assert_fds_at_most(pid_t pid, int most);

void assert_shared_maps_at_most(pid_t pid, int most);

/* ---- Clients ---- */

/* A connection to the daemon's cpu device; fails the test if there is none. */
kiln_client *client_open(const struct kilnd *daemon);
/* The same without asserting, for child processes: NULL on failure. */
kiln_client *client_try(const struct kilnd *daemon, int timeout_ms, int *status);
/* A figure of "info". */
int64_t info_int(kiln_client *client, const char *path);
/* The device process in a row of "executors", once it is ready: before it has no pid, and a signal
 * to process 0 would go to this program itself. */
pid_t device_process(kiln_client *client, int row);
/* A compiler in this state ("idle"; NULL: in any), which there must be. */
pid_t compiler_process(kiln_client *client, const char *state);
/* Waits until a figure has a value (or at least it). */
void await_info(kiln_client *client, const char *path, int64_t value);
void await_info_at_least(kiln_client *client, const char *path, int64_t value);
/* The "debug" request with at most one integer and one string argument (NULL: without). */
void debug_int(kiln_client *client, const char *what, const char *name, int64_t value);
void debug_str(kiln_client *client, const char *what, const char *name, const char *value);
/* The device process will do this at that step (daemon/misdeed); own: the session's own process. */
void debug_fail_device(kiln_client *client, const char *misdeed, const char *at, bool own);
/* The equations between the daemon's figures hold, all that it lists. */
void assert_counters_add_up(kiln_client *client);
/* Before a daemon is stopped: they hold, and if no client is left nothing is under way, or soon is
 * not.  False: why is a sentence.  True as well of a daemon that cannot be asked. */
bool figures_settle(const struct kilnd *daemon, char why[400]);
/* Rows that were removed, and their bytes (NULL: not asked for), piece by piece. */
int64_t cache_clear(kiln_client *client, int64_t *freed);
void assert_cache_verifies(kiln_client *client, int64_t least_rows);

/* Only root can become several users. */
void skip_unless_root(void);
/* This process becomes a user with these groups besides its primary one.  False: it may not. */
bool become_user(uid_t uid, gid_t gid, const gid_t *groups, int count);
/* A process of its own that runs body and leaves with what it returns.  It dies with the test. */
typedef int process_body(const struct kilnd *daemon, void *arg);
pid_t process_start(const struct kilnd *daemon, process_body *body, void *arg);
/* Waits for its end: the wait status. */
int process_wait(pid_t pid, int timeout_ms);
/* Stops it with SIGSTOP; none of its threads runs any more. */
void process_stop(pid_t pid);
#define EXITED(n) ((n) << 8) /* the wait status of exit(n) */

/* From here on any system call but those to leave and to read the clock (which is one where the
 * system has no faster way) ends this process.  False: it cannot be forbidden. */
bool forbid_system_calls(void);
/* Starts a daemon, whose client launches 1000 times through a lane once it has forbidden system
 * calls, and ends well.  Skips the test, and says why, where a client cannot do without any. */
void assert_silent(struct kilnd *daemon, process_body *client);

/* ---- Problems ---- */

struct permute {
	kiln_dtype dtype;
	int rank;
	int64_t shape[KILN_MAX_RANK], perm[KILN_MAX_RANK];
	int64_t stride[KILN_MAX_RANK]; /* used if strided */
	bool strided;
	uint64_t offset, y_offset; /* bytes, into the buffers of x and y */
};

kiln_attr int_attr(const char *name, int64_t value);
kiln_attr string_attr(const char *name, const char *value);
kiln_attr perm_attr(const struct permute *problem);
kiln_tensor permute_input(const struct permute *problem, kiln_buffer *buffer);
kiln_tensor permute_output(const struct permute *problem, kiln_buffer *buffer);
/* Bytes that x's buffer and y's buffer must have. */
uint64_t permute_input_bytes(const struct permute *problem);
uint64_t permute_output_bytes(const struct permute *problem);
/* The definition of permute, in plain loops: from x's buffer to y's. */
void permute_reference(const struct permute *problem, const uint8_t *in, uint8_t *out);
void fill_random(uint8_t *bytes, uint64_t count, uint64_t seed);
/*
 * Allocates through the daemon, runs the problem on random data and compares every byte.  KILN_OK,
 * the status of what failed, or KILN_EINTERNAL for a wrong result.  why gets a sentence, origin
 * (may be NULL) where the kernel came from.  Asserts nothing: fit for child processes.
 */
int permute_check(kiln_client *client, const struct permute *problem, uint64_t seed,
				  char origin[16], char why[400]);
/* The same, asserting that it went well. */
void assert_permutes(kiln_client *client, const struct permute *problem, const char *origin);

/* A call of the library that must go well; else its sentence is shown. */
#define assert_ok(call) check_ok(call, #call, __FILE__, __LINE__)
void check_ok(int status, const char *call, const char *file, int line);
/* kiln_errmsg() of the last failure contains the word. */
void assert_sentence(const char *word);
/* A 2-d transpose of f32 that needs a kernel of its own for each n. */
struct permute transpose(int64_t rows, int64_t columns);

int64_t now_ms(void);
void pause_ms(int milliseconds);

#endif
