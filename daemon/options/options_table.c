/*
 * options_table.c: the table of options, and what is written by it: help, limits and the values in
 * use.  options.c reads arguments and environment by the same table.
 */
#include "option_row.h"

#include "daemon/base/misdeed.h"

#include <string.h>

#define AT(field) offsetof(struct options, field)
#ifdef KILN_TEST_HOOKS
#define MISDEED_WORD(name, text) "|" text
#endif
#define KB ((uint64_t)1 << 10)
#define MB ((uint64_t)1 << 20)
#define GB ((uint64_t)1 << 30)
#define TB ((uint64_t)1 << 40)
#define DAY_MS 86400000

/* clang-format off */
const struct option_row options_table[] = {
	{"socket", "KILN_SOCKET", "PATH", NULL, OPTION_SOCKET_PATH, 0, 0, NULL, AT(socket), NULL,
		"where programs connect; default $XDG_RUNTIME_DIR/kiln/kiln.sock or /tmp/kiln-UID/kiln.sock"},
	{"cache-dir", "KILN_CACHE_DIR", "DIR", NULL, OPTION_PATH, 0, 0, NULL, AT(cache_dir), NULL,
		"compiled kernels, on a local disk; default $XDG_CACHE_HOME/kiln, else ~/.cache/kiln"},
	{"cache-bytes", "KILN_CACHE_BYTES", "BYTES", "2GiB", OPTION_BYTES, 4 * KB, 1024 * TB, "no cap",
		AT(cache_bytes), NULL, "kernels on disk, texts and all; the least recently used go first"},
	{"device", "KILN_DEVICES", "LIST", "auto", OPTION_DEVICES, 0, 0, NULL, AT(devices), NULL,
		"auto (every GPU, else cpu), none (compile only), or cpu, cuda:N, GPU-UUID, ',' between"},
	{"specialize", "KILN_SPECIALIZE", "lazy|eager|never", "lazy", OPTION_WORD, 0, 0, NULL, AT(specialize), NULL,
		"exact kernels: when they pay, and generic ones until then; at once, before the call; not"},
	{"workers", "KILN_WORKERS", "N", "0", OPTION_NUMBER, 1, 256, "one per core allowed", AT(workers), NULL,
		"compiler processes"},
	{"compile-timeout", "KILN_COMPILE_TIMEOUT", "MS", "60000", OPTION_NUMBER, 10, DAY_MS, NULL,
		AT(compile_timeout_ms), NULL, "a compile that takes longer is killed"},
	{"launch-timeout", "KILN_LAUNCH_TIMEOUT", "MS", "30000", OPTION_NUMBER, 10, DAY_MS, NULL,
		AT(launch_timeout_ms), NULL, "a device process whose launch takes longer is killed"},
	{"on-miss", "KILN_ON_MISS", "compile|warn|fallback|error", "compile", OPTION_WORD, 0, 0, NULL,
		AT(on_miss), NULL, "what a call does whose kernel is not compiled; sessions may be stricter"},
	{"kernel-dir", "KILN_KERNEL_DIR", "DIR", NULL, OPTION_PATH, 0, 0, NULL, AT(kernel_dir), NULL,
		"kernel sources to use instead of those built in"},
	{"key-dir", "KILN_KEY_DIR", "DIR", NULL, OPTION_PATH, 0, 0, NULL, AT(key_dir), NULL,
		"keys that seal packs; default $XDG_CONFIG_HOME/kiln/keys, else ~/.config/kiln/keys"},
	{"trust-dir", "KILN_TRUST_DIR", "DIR", NULL, OPTION_PATH, 0, 0, NULL, AT(trust_dir), NULL,
		"public keys that are trusted; default $XDG_CONFIG_HOME/kiln/trusted, else ~/.config/kiln/trusted"},
	{"sign-key", "KILN_SIGN_KEY", "NAME", NULL, OPTION_KEY, 0, 0, NULL, AT(sign_key), NULL,
		"which of the keys seals, where there are several"},
	{"remote", "KILN_REMOTE", "URL", NULL, OPTION_REMOTE, 0, 0, NULL, AT(remote), NULL,
		"a Redis that many hosts share: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or unix:/PATH"},
	{"remote-deadline", "KILN_REMOTE_DEADLINE", "MS", "5", OPTION_NUMBER, 1, 1000, NULL,
		AT(remote_deadline_ms), NULL, "how long a miss waits for the Redis to answer"},
	{"remote-ttl", "KILN_REMOTE_TTL", "SECONDS", "2592000", OPTION_NUMBER, 60, 315360000, "for ever",
		AT(remote_ttl_seconds), NULL, "how long a kernel stays there after it was compiled"},
	{"launchers", "KILN_LAUNCHERS", "N|auto", "auto", OPTION_NUMBER, 1, DEVICE_PARTS_MOST,
		"auto", AT(launchers), NULL,
		"launching threads of a device process; auto: one for 4 CPUs of a GPU, 4 at most"},
	{"idle-exit", "KILN_IDLE_EXIT", "SECONDS", "0", OPTION_NUMBER, 1, 31536000, "never",
		AT(idle_exit_seconds), NULL,
		"end after so long without a session; 600 of one that a program started"},
	{"allow-uid", "KILN_ALLOW_UID", "LIST", NULL, OPTION_UIDS, 0, 0, NULL, AT(allow_uids), NULL,
		"users, by name or id, that may connect besides the daemon's own, ',' between; the socket's mode follows"},
	{"allow-gid", "KILN_ALLOW_GID", "LIST", NULL, OPTION_GIDS, 0, 0, NULL, AT(allow_gids), NULL,
		"groups, by name or id, that may connect besides, ',' between; the socket's mode follows"},
	{"log-level", "KILN_LOG_LEVEL", "error|warn|info|debug", "info", OPTION_WORD, 0, 0, NULL,
		AT(log_level), NULL,
		"what is worth a line on stderr; of one that a program started: kilnd.log by the socket"},
	{"log-format", "KILN_LOG_FORMAT", "text|json", "text", OPTION_WORD, 0, 0, NULL, AT(log_format), NULL,
		"how each line says its time, level, process and message; in the journal with its priority"},
	{"metrics", "KILN_METRICS", "ADDRESS:PORT|unix:PATH", NULL, OPTION_METRICS, 0, 0, NULL, AT(metrics), NULL,
		"serve metrics to Prometheus: at 127.0.0.1:9464, or here; loopback and Unix sockets only"},
	{"executor-wrapper", "KILN_EXECUTOR_WRAPPER", "COMMAND", NULL, OPTION_PATH, 0, 0, NULL,
		AT(executor_wrapper), NULL, "starts the device processes, as compute-sanitizer does"},
	{"memcheck", "KILN_MEMCHECK", "natural|reversed|shuffled", NULL, OPTION_MEMCHECK, 0, 0, NULL, AT(memcheck),
		NULL, "device cpu: check each access of each kernel, which is slow; threads run in this order"},
	{"sandbox", "KILN_SANDBOX", "off|auto|require", "auto", OPTION_WORD, 0, 0, NULL, AT(sandbox), NULL,
		"what compilers and kernels may do to this machine: auto: as little as it can enforce"},
	{"test-requests", NULL, NULL, NULL, OPTION_FLAG, 0, 0, NULL, AT(test_requests), NULL, NULL},

	{"max-sessions", "KILN_MAX_SESSIONS", "N", "256", OPTION_NUMBER, 1, 65536, NULL, AT(max_sessions),
		"sessions", "programs connected at once; of a guest's uid a quarter"},
	{"max-buffers", "KILN_MAX_BUFFERS", "N", "10000", OPTION_NUMBER, 1, 10000000, NULL, AT(max_buffers),
		"buffers", "buffers of a session, held by the daemon or lent"},
	{"max-bytes", "KILN_MAX_BYTES", "BYTES", "0", OPTION_BYTES, 4 * KB, 1024 * TB, "no limit", AT(max_bytes),
		"bytes", "memory that the daemon holds for a session"},
	{"max-inflight", "KILN_MAX_INFLIGHT", "N", "1024", OPTION_NUMBER, 1, 1000000, NULL, AT(max_inflight),
		"calls", "calls of a session submitted and not finished"},
	{"max-message", "KILN_MAX_MESSAGE", "BYTES", "1MiB", OPTION_BYTES, 4 * KB, GB, NULL, AT(max_message),
		"bytes", "one message from a program"},
	{"max-queued", "KILN_MAX_QUEUED", "BYTES", "16MiB", OPTION_BYTES, 64 * KB, 64 * GB, NULL, AT(max_queued),
		"bytes", "answers that a program has not taken yet"},
	{"max-calls", "KILN_MAX_CALLS", "N", "10000", OPTION_NUMBER, 1, 10000000, NULL, AT(max_calls),
		"calls", "prepared calls that a session has not released"},
	{"max-variants", "KILN_MAX_VARIANTS", "N", "64", OPTION_NUMBER, 1, 10000000, "no limit", AT(max_variants),
		"kernels", "exact kernels of one operator that a session has compiled"},
	{"max-own", "KILN_MAX_OWN", "N", "8", OPTION_NUMBER, 1, 65536, NULL, AT(max_own), "processes",
		"sessions of one user that run kernels of their own, each with a device process of its own"},

	/* Options that are gone: each is refused with the sentence at the end of its row.  The broker
	 * still tells some to its children, and a test sets them by --test-NAME. */
	{"cache-rows", "KILN_CACHE_ROWS", "N", "100000",
		OPTION_NUMBER, 1, 1000000000, "no cap", AT(cache_rows), NULL, NULL,
		"kilnd keeps 100000 kernels at most, and --cache-bytes says what they may take"},
	{"memory-cache-bytes", "KILN_MEMORY_CACHE_BYTES", "BYTES", "256MiB",
		OPTION_BYTES, 4 * KB, TB, "none", AT(memory_cache_bytes), NULL, NULL,
		"256 MiB of objects are kept in memory besides those on disk"},
	{"warm-generics", "KILN_WARM_GENERICS", "auto|all|none", "auto",
		OPTION_WORD, 0, 0, NULL, AT(warm_generics), NULL, NULL,
		"GPUs have all generic kernels from the start, device cpu those that were asked for"},
	{"liveness-timeout", "KILN_LIVENESS_TIMEOUT", "MS", "10000",
		OPTION_NUMBER, 100, DAY_MS, "do not look", AT(liveness_timeout_ms), NULL, NULL,
		"a child that works and gives no sign of life for 10 s is killed"},
	{"ready-timeout", "KILN_READY_TIMEOUT", "MS", "600000",
		OPTION_NUMBER, 10, DAY_MS, "no end", AT(ready_timeout_ms), NULL, NULL,
		"a call waits for its CUDA stream for 600 s"},
	{"lane-spin", "KILN_LANE_SPIN", "US", "50",
		OPTION_NUMBER, 1, 1000000, "no lanes", AT(lane_spin_us), NULL, NULL,
		"both ends of a lane look for 50 us before they sleep; KILN_LANE=off does without lanes"},
	{"quiet-patience", "KILN_QUIET_PATIENCE", "MS", "5",
		OPTION_NUMBER, 1, 10000, "not at all", AT(quiet_patience_ms), NULL, NULL,
		"a new kernel waits 5 ms for an idle GPU, before launches are held"},
	{"worker-memory", "KILN_WORKER_MEMORY", "BYTES", "4GiB",
		OPTION_BYTES, 64 * MB, TB, "no limit", AT(worker_memory), NULL, NULL,
		"a compiler process has 4 GiB of address space, and --workers says how many there are"},
	{"compile-memory", "KILN_COMPILE_MEMORY", "BYTES", "0",
		OPTION_BYTES, 64 * MB, 1024 * TB, "what is available", AT(compile_memory), NULL, NULL,
		"compilers share what the host and its control groups have left, which may be capped there"},
	{"retry-after", "KILN_RETRY_AFTER", "SECONDS", "300",
		OPTION_NUMBER, 1, 31536000, "at once", AT(retry_after_seconds), NULL, NULL,
		"a compile that took too much time or memory is tried again after 300 s, and by kiln cache retry"},
	{"worker-jobs", "KILN_WORKER_JOBS", "N", "500",
		OPTION_NUMBER, 1, 1000000, NULL, AT(worker_jobs), NULL, NULL,
		"a compiler process is replaced after 500 compiles"},
	{"remote-queue", "KILN_REMOTE_QUEUE", "BYTES", "64MiB",
		OPTION_BYTES, 4 * KB, 4 * GB, NULL, AT(remote_queue_bytes), NULL, NULL,
		"64 MiB of kernels may wait to be written to --remote"},
	{"drain-timeout", "KILN_DRAIN_TIMEOUT", "MS", "5000",
		OPTION_NUMBER, 1, DAY_MS, "do not wait", AT(drain_timeout_ms), NULL, NULL,
		"calls in flight may go on for 5 s at the end"},
	{"thread-order", "KILN_THREAD_ORDER", "natural|reversed|shuffled", "natural",
		OPTION_WORD, 0, 0, NULL, AT(thread_order), NULL, NULL,
		"--memcheck=ORDER says it"},
	{"max-graph-calls", "KILN_MAX_GRAPH_CALLS", "N", "16384",
		OPTION_NUMBER, 1, 10000000, NULL, AT(max_graph_calls), "calls", NULL,
		"the graphs of a session have 16384 calls at most"},

	{"help", NULL, NULL, NULL, OPTION_SHOW, OPTIONS_SHOW_HELP, 0, NULL, AT(show), NULL, NULL},
	{"version", NULL, NULL, NULL, OPTION_SHOW, OPTIONS_SHOW_VERSION, 0, NULL, AT(show), NULL,
		NULL},

	{"role", NULL, "broker|executor|compiler", "broker", OPTION_WORD, 0, 0, NULL, AT(role), NULL, NULL},
	{"device-name", NULL, "NAME", NULL, OPTION_DEVICE, 0, 0, NULL, AT(device_name), NULL, NULL},
	{"wrapped", NULL, NULL, NULL, OPTION_FLAG, 0, 0, NULL, AT(wrapped), NULL, NULL},
	{"own", NULL, NULL, NULL, OPTION_FLAG, 0, 0, NULL, AT(own), NULL, NULL},
#ifdef KILN_TEST_HOOKS
	{"test-misdeed", NULL, "none" MISDEEDS(MISDEED_WORD), "none", OPTION_WORD, 0, 0, NULL, AT(test_misdeed), NULL,
		NULL},
#endif
	{"fd", NULL, "N", NULL, OPTION_DESCRIPTOR, 3, 1 << 20, NULL, AT(fd), NULL, NULL},
	{"trail", NULL, "N", NULL, OPTION_DESCRIPTOR, 3, 1 << 20, NULL, AT(trail), NULL, NULL},
};
/* clang-format on */

const int options_rows = sizeof(options_table) / sizeof(options_table[0]);

const struct option_row *options_find(const char *name, size_t size)
{
	for (int i = 0; i < options_rows; i++)
		if (strlen(options_table[i].name) == size && memcmp(options_table[i].name, name, size) == 0)
			return &options_table[i];
	return NULL;
}

bool option_is_flag(const struct option_row *row)
{
	return row->kind == OPTION_FLAG || row->kind == OPTION_MEMCHECK || row->kind == OPTION_METRICS;
}

bool option_takes_value(const struct option_row *row)
{
	return !option_is_flag(row) && row->kind != OPTION_SHOW;
}

/* ---- Help ---- */

static void help_row(FILE *file, const struct option_row *row)
{
	char left[64];
	const char *between = !row->value ? "" : option_takes_value(row) ? " " : "[=";
	snprintf(left, sizeof(left), "--%s%s%s%s", row->name, between, row->value ? row->value : "",
			 *between == '[' ? "]" : "");
	if (row->environment) {
		fprintf(file, "  %-38s [%s%s%s]\n", left, row->environment,
				row->fallback ? ", default " : "", row->fallback ? row->fallback : "");
	} else {
		fprintf(file, "  %s\n", left);
	}
	fprintf(file, "      %s", row->help);
	if (row->kind == OPTION_NUMBER || row->kind == OPTION_BYTES) {
		char low[24], high[24];
		option_range(row, low, high);
		fprintf(file, " (%s to %s%s%s)", low, high, row->zero ? ", 0: " : "",
				row->zero ? row->zero : "");
	}
	fputc('\n', file);
}

void options_help(FILE *file)
{
	fputs("Usage: kilnd [OPTION]... | --help | --version\n"
		  "Compiles, keeps and launches kernels for the programs of this host.\n\n"
		  "Options, with the variable that means the same:\n",
		  file);
	for (int i = 0; i < options_rows; i++)
		if (options_table[i].help && !options_table[i].unit)
			help_row(file, &options_table[i]);
	fputs("\nLimits:\n", file);
	for (int i = 0; i < options_rows; i++)
		if (options_table[i].help && options_table[i].unit)
			help_row(file, &options_table[i]);
	fputs("\nSizes may be written as 4096, 512k, 64MiB, 2GiB (units of 1024).\n", file);
}

void options_print(const struct options *options, struct util_text *text)
{
	for (int i = 0; i < options_rows; i++) {
		if (options_table[i].help && options_table[i].kind != OPTION_SHOW) {
			util_text_add(text, "  --%s ", options_table[i].name);
			option_write(&options_table[i], options, text);
			util_text_add(text, "\n");
		}
	}
}

int options_limits(const struct options *options, struct limit limits[OPTIONS_LIMITS])
{
	int count = 0;
	for (int i = 0; i < options_rows && count < OPTIONS_LIMITS; i++) {
		const struct option_row *row = &options_table[i];
		if (row->unit) {
			snprintf(limits[count].option, sizeof(limits[count].option), "%s%s",
					 row->gone ? "-" : "--", row->gone ? "" : row->name);
			limits[count].name = row->name + strlen("max-");
			memcpy(&limits[count].value, (const char *)options + row->offset, sizeof(uint64_t));
			limits[count].unit = row->unit;
			count++;
		}
	}
	return count;
}
