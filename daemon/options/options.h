/*
 * options: reads the options of kilnd from arguments and environment, by one table; the limits are
 * rows of the same table.  Knows nothing of the use of the values.  The main thread reads them
 * once; nobody changes them later.
 */
#ifndef KILN_DAEMON_OPTIONS_H
#define KILN_DAEMON_OPTIONS_H

#include "daemon/exec/device.h"
#include "daemon/plan/kernel.h"
#include "remote_url.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/seal/seal.h"
#include "daemon/base/util.h"

#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#define OPTIONS_SOCKET_MAX 108 /* of sockaddr_un */
#define OPTIONS_MAX_DEVICES 16
#define OPTIONS_MAX_IDS 32
#define OPTIONS_LIMITS 10

enum options_role { OPTIONS_BROKER, OPTIONS_EXECUTOR, OPTIONS_COMPILER };
enum options_show { OPTIONS_SHOW_NOTHING, OPTIONS_SHOW_HELP, OPTIONS_SHOW_VERSION };

/* The answer to a call whose kernel is not compiled: the stricter, the larger. */
enum options_miss {
	OPTIONS_MISS_COMPILE,
	OPTIONS_MISS_WARN,     /* and a line in the log */
	OPTIONS_MISS_FALLBACK, /* the generic kernel, and no compile */
	OPTIONS_MISS_ERROR,    /* neither */
};
/* The time at which a kernel is compiled for exactly the problem that is asked for. */
enum options_specialize { OPTIONS_LAZY, OPTIONS_EAGER, OPTIONS_NEVER };
/* The devices that have their generic kernels from the start; AUTO: GPUs. */
enum options_warm { OPTIONS_WARM_AUTO, OPTIONS_WARM_ALL, OPTIONS_WARM_NONE };

struct options_ids {
	uint32_t ids[OPTIONS_MAX_IDS];
	int count;
};

struct options_devices {
	bool automatic; /* every GPU there is, else cpu; names is empty */
	char names[OPTIONS_MAX_DEVICES][DEVICE_UUID_TEXT]; /* "cpu", "cuda:1", "GPU-8a3b" */
	int count;                                         /* 0 and not automatic: compile only */
};

union options_address {
	struct sockaddr any;
	struct sockaddr_un local;
	struct sockaddr_in ip4;
	struct sockaddr_in6 ip6;
};

/* The place at which metrics are served: loopback, or a Unix socket. */
struct options_metrics {
	char text[sizeof "unix:" + OPTIONS_SOCKET_MAX]; /* "": nowhere */
	union options_address at;
	socklen_t size;
};

struct options {
	enum options_show show;

	char socket[OPTIONS_SOCKET_MAX];
	char cache_dir[PATH_MAX];
	char kernel_dir[PATH_MAX];                   /* "": the embedded sources */
	char key_dir[PATH_MAX], trust_dir[PATH_MAX]; /* "": there is no place for them */
	char sign_key[SEAL_NAME_MAX];                /* "": the only one there is */
	uint64_t cache_bytes;                        /* 0: no cap */
	uint64_t cache_rows;                         /* 0: no cap */
	uint64_t memory_cache_bytes;
	struct options_devices devices;
	enum options_specialize specialize;
	enum options_warm warm_generics;
	uint64_t launchers;           /* of a device process; 0: one */
	uint64_t workers;             /* never 0: the cores allowed are filled in */
	uint64_t compile_timeout_ms;  /* of one job */
	uint64_t launch_timeout_ms;   /* of one launch, from its start on the device */
	uint64_t liveness_timeout_ms; /* of a child that works, without a sign of life; 0: no end */
	uint64_t ready_timeout_ms;    /* of an entry of a lane, for its CUDA stream; 0: no end */
	uint64_t lane_spin_us;        /* before either end of a lane sleeps; 0: there are no lanes */
	uint64_t quiet_patience_ms;   /* of what stalls a GPU; 0: it is done at once */
	uint64_t worker_memory;       /* 0: no limit */
	uint64_t compile_memory;      /* of all compilers together; 0: what the host has */
	uint64_t retry_after_seconds; /* failures that may pass are remembered so long; 0: not */
	uint64_t worker_jobs;         /* after so many a worker is replaced */
	struct remote_url remote;     /* without a host: there is no second tier */
	uint64_t remote_deadline_ms;  /* of an ask */
	uint64_t remote_ttl_seconds;  /* of an entry; 0: for ever */
	uint64_t remote_queue_bytes;  /* of entries to be written */
	uint64_t idle_exit_seconds;   /* 0: never */
	uint64_t drain_timeout_ms;
	struct options_ids allow_uids, allow_gids; /* besides the daemon's own uid */
	enum util_level log_level;
	enum util_log_format log_format;
	struct options_metrics metrics;
	enum sandbox_mode sandbox;
	bool test_requests;
	enum options_miss on_miss; /* of every session, which may be stricter */

	bool memcheck; /* kernels of device cpu are compiled and run so that each access is checked */
	enum device_order thread_order;
	char executor_wrapper[PATH_MAX]; /* program and arguments, blanks between; "": none */

	/* Limits.  All but max_sessions, max_message and max_own are of one session. */
	uint64_t max_sessions;
	uint64_t max_buffers;
	uint64_t max_bytes; /* held by the daemon; 0: no limit */
	uint64_t max_inflight;
	uint64_t max_message;
	uint64_t max_queued; /* output bytes not yet taken by the client */
	uint64_t max_calls;
	uint64_t max_graph_calls;
	uint64_t max_variants; /* exact kernels of one operator; 0: no limit */
	uint64_t max_own;      /* sessions of one uid that bring kernels of their own */

	/* Options of the children, which the broker starts. */
	enum options_role role;
	char device_name[DEVICE_NAME_TEXT];
	bool wrapped;     /* an executor that was started through executor_wrapper */
	bool own;         /* an executor of a session that brings kernels of its own */
	int fd;           /* -1: none */
	int trail;        /* an executor: memory for its last calls; -1: none */
	int test_misdeed; /* an enum misdeed, which it does instead of saying that it is ready */
};

/* A limit as `info` and error messages name it. */
struct limit {
	const char *name; /* "buffers" */
	char option[24];  /* "--max-buffers"; "-": it cannot be set */
	uint64_t value;   /* 0: no limit */
	const char *unit; /* "buffers" */
};

/* Reads all options: arguments win over the environment, the environment over the defaults.
 * KILN_OK, or a status with a sentence that names the option, the value and the values allowed. */
int options_parse(int argc, char *const *argv, struct options *out, char error[KERNEL_ERROR_MAX]);
/* Begins main: reads the options, and prints help, version or the sentence.  False: the process
 * ends with *exit_status. */
bool options_start(int argc, char *const *argv, struct options *out, int *exit_status);
/* Lists the limits in the order of the table; returns how many, which is OPTIONS_LIMITS. */
int options_limits(const struct options *options, struct limit limits[OPTIONS_LIMITS]);
void options_help(FILE *file);
/* Adds "  --workers 4", a line for each option, without secrets. */
void options_print(const struct options *options, struct util_text *text);
/* Returns the argument for a child, "--sandbox=auto". */
const char *options_sandbox(enum sandbox_mode mode);
/* Writes the argument for a child, "--liveness-timeout=10000". */
void options_liveness(const struct options *options, char text[48]);

#endif
