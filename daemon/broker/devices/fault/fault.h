/*
 * fault: post-mortems.  A fault is the unwanted end of a device process, a compiler that dies or
 * hangs, a database that the cache sets aside, or nonsense in a client's lane.  The broker writes
 * all that it knows of it to a file, which a user can send to those who find out why.
 *
 *   fault.c         decides whether a fault gets a report: a storm of one fault gets one, and a
 *                   count
 *   fault_text.c    writes the parts about the daemon, the host and the process that ended
 *   fault_calls.c   writes the part about the calls that the process ran
 *   fault_scrub.c   removes what must not be in a report
 *   fault_file.c    keeps the directory of reports, on the store's thread
 *
 * A report holds no addresses, handles, contents of buffers, names that clients gave to them,
 * passwords, sealing keys or texts of kernels.
 */
#ifndef KILN_DAEMON_FAULT_H
#define KILN_DAEMON_FAULT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULT_ID_MAX 24            /* "20261122-101112-7f3a" and its zero byte */
#define FAULT_TEXT_MOST (64 << 10) /* bytes of a report */
#define FAULT_KEPT 64              /* reports; the oldest are removed */
#define FAULT_RECENT 16            /* faults that are recognized when they repeat */
#define FAULT_BURST 16             /* reports at once; then one each PAUSE_FAULT_REPORT_US */

struct broker;
struct device_handle;
struct compile_job;
struct util_text;

enum fault_kind { FAULT_DEVICE, FAULT_COMPILER, FAULT_STORE, FAULT_LANE };

struct fault {
	enum fault_kind kind;
	const char *sentence;               /* what clients and the log read */
	const struct device_handle *handle; /* DEVICE, LANE */
	const struct compile_job *job;      /* COMPILER: its job; NULL: it had none */
	const char *output;                 /* end of the process's standard error; NULL: no process */
	int pid, exit_status, signal;       /* of the process; exit_status counts without a signal */
	uint32_t uid;                       /* whose calls, or the daemon's own */
	uint64_t session;                   /* that has the process alone; 0: none */
};

/* The broker's memory of faults; it begins zeroed. */
struct faults {
	struct fault_recent {
		uint64_t alike; /* hash of kind, device, uid and sentence; 0: free */
		char id[FAULT_ID_MAX];
		uint64_t times, last_us;
		bool telling; /* the store's thread writes its report or count */
	} recent[FAULT_RECENT];
	uint64_t spent, refilled_us; /* reports of the burst */
	uint64_t writing;
	int64_t named_s; /* the second in the last name, and the part of that second */
	uint32_t named_part;
};

/* Writes a report, or counts a repetition; appends to text the command that shows the report.
 * Called on the loop; the store's thread does the writing. */
void fault_report(struct broker *broker, const struct fault *fault, char *text, size_t size);
/* Writes a report about the daemon as it is now, without a fault.  The caller frees text;
 * text->failed without memory. */
void fault_now(struct broker *broker, struct util_text *text);

/* ---- fault_text.c, fault_calls.c, fault_scrub.c ---- */

/* when: seconds since 1970.  fault NULL: the report is about now. */
void fault_write_text(struct broker *broker, const struct fault *fault, const char *id,
					  int64_t when, struct util_text *text);
/* Writes a line "kernel" with the key of each kernel that the device process had in flight. */
void fault_write_keys(struct broker *broker, const struct device_handle *handle,
					  struct util_text *text);
/* Writes the last calls of the device process, and the requests that it has not answered. */
void fault_write_calls(struct broker *broker, const struct device_handle *handle,
					   struct util_text *text);
/* Turns into dots each part of a stranger's text that may be an address, a handle or the secret. */
void fault_scrub(char *text, const char *secret);

/* ---- fault_file.c: an int is a kiln_status, with a sentence of KERNEL_ERROR_MAX in error ---- */

/* Writes DIRECTORY/ID.txt, 0600, whole or not at all; then removes the oldest reports. */
int fault_file_write(const char *directory, const char *id, const char *text, char *error);
/* Writes into a report how often its fault has happened, and when last. */
int fault_file_count(const char *directory, const char *id, uint64_t times, int64_t when,
					 char *error);
/* Reads a report, for id "" the newest; the caller frees *text. */
int fault_file_read(const char *directory, const char *id, char found[FAULT_ID_MAX], char **text,
					char *error);
typedef void (*fault_visit)(void *arg, const char *id, const char *text);
/* Visits all reports, the newest first. */
int fault_file_each(const char *directory, fault_visit visit, void *arg, char *error);
/* Copies the value of a line of the first part, such as "times"; "" without that line. */
void fault_value(const char *text, const char *name, char *value, size_t size);
bool fault_is_id(const char *id);
/* Writes "CACHE_DIR/faults". */
void fault_directory(const char *cache, char path[PATH_MAX]);

#endif
