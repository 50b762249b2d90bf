/*
 * fault: post-mortems.  When a device process ends that should not, a compiler dies or hangs, the
 * cache's database is set aside or a client writes nonsense into its lane, what the broker knows is
 * written to a file, which a user can send to whoever is to find out why.
 *
 *   fault.c   when there is a report, and how often: a storm of one fault is one report and a count
 *   text.c    what is in it: of the daemon, the host, the process that ended
 *   calls.c   of the calls that it ran
 *   scrub.c   and what must not be in it
 *   file.c    the directory of reports, on the store's thread
 *
 * In a report there are no addresses, handles, contents of buffers, names that clients gave to
 * them, passwords, keys that seal, texts of kernels.
 */
#ifndef KILN_DAEMON_FAULT_H
#define KILN_DAEMON_FAULT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULT_ID_MAX 24            /* "20261122-101112-7f3a" and its zero byte */
#define FAULT_TEXT_MOST (64 << 10) /* bytes of a report */
#define FAULT_KEPT 64              /* reports; the oldest go */
#define FAULT_RECENT 16            /* different faults that are known again */
#define FAULT_BURST 16             /* reports at once; then one each PAUSE_FAULT_REPORT_US */

struct broker;
struct device_handle;
struct compile_job;
struct util_text;

enum fault_kind { FAULT_DEVICE, FAULT_COMPILER, FAULT_STORE, FAULT_LANE };

struct fault {
	enum fault_kind kind;
	const char *sentence;               /* as clients and the log are told */
	const struct device_handle *handle; /* DEVICE, LANE */
	const struct compile_job *job;      /* COMPILER: that it had; NULL: none */
	const char *output;           /* the end of the process's standard error; NULL: no process */
	int pid, exit_status, signal; /* of the process; with signal, exit_status says nothing */
	uint32_t uid;                 /* whose calls, or the daemon's own */
	uint64_t session;             /* 0: not one's alone */
};

/* What the broker keeps; zero is the beginning. */
struct faults {
	struct fault_recent {
		uint64_t alike; /* hash of what makes two faults the same; 0: free */
		char id[FAULT_ID_MAX];
		uint64_t times, last_us;
		bool telling; /* its count is being written */
	} recent[FAULT_RECENT];
	uint64_t spent, refilled_us; /* of the burst */
	uint64_t writing;
	int64_t named_s; /* the last name: its second, and part of that */
	uint32_t named_part;
};

/* Writes a report, or counts one more of the same; text gets at its end how it is read.  From the
 * loop; what takes time is done elsewhere. */
void fault_report(struct broker *broker, const struct fault *fault, char *text, size_t size);
/* A report of how the daemon is now, without a fault.  Allocates; text->failed without memory. */
void fault_now(struct broker *broker, struct util_text *text);

/* ---- text.c, calls.c, scrub.c ---- */

/* when: seconds since 1970.  fault NULL: of now. */
void fault_write_text(struct broker *broker, const struct fault *fault, const char *id,
					  int64_t when, struct util_text *text);
/* Of a device process: lines "kernel" with the key of each that was in flight; and its last calls.
 */
void fault_write_keys(struct broker *broker, const struct device_handle *handle,
					  struct util_text *text);
void fault_write_calls(struct broker *broker, const struct device_handle *handle,
					   struct util_text *text);
/* A text that others wrote: what may be an address, a handle or the secret becomes dots. */
void fault_scrub(char *text, const char *secret);

/* ---- file.c: what returns int gives a kiln_status and a sentence of KERNEL_ERROR_MAX ---- */

/* DIRECTORY/ID.txt, 0600, whole or not at all; then the oldest go. */
int fault_file_write(const char *directory, const char *id, const char *text, char *error);
/* That it happened so often, last then. */
int fault_file_count(const char *directory, const char *id, uint64_t times, int64_t when,
					 char *error);
/* id "": the newest.  *text is malloc'd. */
int fault_file_read(const char *directory, const char *id, char found[FAULT_ID_MAX], char **text,
					char *error);
typedef void (*fault_visit)(void *arg, const char *id, const char *text);
/* The newest first. */
int fault_file_each(const char *directory, fault_visit visit, void *arg, char *error);
/* The value of a line of the first part, "times", copied; "": there is none. */
void fault_value(const char *text, const char *name, char *value, size_t size);
bool fault_is_id(const char *id);
/* CACHE_DIR/faults */
void fault_directory(const char *cache, char path[PATH_MAX]);

#endif
