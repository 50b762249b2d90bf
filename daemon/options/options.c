/*
 * options.c: the table of options, by which arguments and environment are read, and help and limits
 * written.  Knows nothing of the use of the values.
 */
#include "option_row.h"

#include "daemon/base/misdeed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
static const struct option_row table[] = {
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

#define ROWS ((int)(sizeof(table) / sizeof(table[0])))

static const struct option_row *options_find(const char *name, size_t size)
{
	for (int i = 0; i < ROWS; i++)
		if (strlen(table[i].name) == size && memcmp(table[i].name, name, size) == 0)
			return &table[i];
	return NULL;
}

/* A flag, or an option whose value may stand behind "=". */
static bool is_flag(const struct option_row *row)
{
	return row->kind == OPTION_FLAG || row->kind == OPTION_MEMCHECK || row->kind == OPTION_METRICS;
}

static bool takes_value(const struct option_row *row)
{
	return !is_flag(row) && row->kind != OPTION_SHOW;
}

static int read_defaults(struct options *out, char error[KERNEL_ERROR_MAX])
{
	for (int i = 0; i < ROWS; i++) {
		const struct option_row *row = &table[i];
		if (row->fallback) {
			int status = option_read(row, row->name, row->fallback, out, error);
			if (status < 0)
				return status;
		}
	}
	return KILN_OK;
}

static int read_variable(const struct option_row *row, const char *text, struct options *out,
						 char error[KERNEL_ERROR_MAX])
{
	bool flag = is_flag(row);
	if (flag && !strcmp(text, "0"))
		return KILN_OK;
	if (flag && !strcmp(text, "1"))
		return option_read(row, row->environment, NULL, out, error);
	if (row->kind != OPTION_FLAG)
		return option_read(row, row->environment, text, out, error);
	return FAIL(KILN_EINVAL, "%s: \"%.80s\" is not 0 or 1", row->environment, text);
}

/* A variable that is set and empty counts as not set. */
static int read_environment(struct options *out, char error[KERNEL_ERROR_MAX])
{
	for (int i = 0; i < ROWS; i++) {
		const struct option_row *row = &table[i];
		const char *text = row->environment && !row->gone ? getenv(row->environment) : NULL;
		if (text && *text) {
			int status = read_variable(row, text, out, error);
			if (status < 0)
				return status;
		}
	}
	return KILN_OK;
}

static int refuse_gone(const struct option_row *row, const char *given,
					   char error[KERNEL_ERROR_MAX])
{
	return FAIL(KILN_EINVAL, "%s is no option any more: %s", given, row->gone);
}

/* Finds an option that is gone as a test may set it, "--test-lane-spin". */
static const struct option_row *find_for_tests(const char *name, size_t size)
{
#ifdef KILN_TEST_HOOKS
	size_t prefix = strlen("test-");
	const struct option_row *row = size > prefix && !strncmp(name, "test-", prefix)
									   ? options_find(name + prefix, size - prefix)
									   : NULL;
	return row && row->gone ? row : NULL;
#else
	(void)name, (void)size;
	return NULL;
#endif
}

static int read_arguments(int argc, char *const *argv, struct options *out,
						  char error[KERNEL_ERROR_MAX])
{
	for (int i = 1; i < argc; i++) {
		const char *word = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
		if (strncmp(word, "--", 2) != 0) {
			return FAIL(KILN_EINVAL,
						"unexpected argument \"%.100s\": kilnd takes options only, which kilnd "
						"--help lists",
						word);
		}
		const char *name = word + 2;
		size_t size = strcspn(name, "=");
		const char *text = name[size] ? name + size + 1 : NULL;
		const struct option_row *row = options_find(name, size),
								*tested = find_for_tests(name, size);
		if (!row && !tested) {
			return FAIL(KILN_EINVAL, "unknown option \"%.100s\": kilnd --help lists the options",
						word);
		}
		char given[40];
		snprintf(given, sizeof(given), "--%s%s", row ? "" : "test-", (row ? row : tested)->name);
		if (row && row->gone && out->role == OPTIONS_BROKER)
			return refuse_gone(row, given, error);
		row = row ? row : tested;
		if (takes_value(row) && !text) {
			text = ++i < argc ? argv[i] : NULL;
			if (!text)
				return FAIL(KILN_EINVAL, "%s needs a value: %s %s", given, given, row->value);
		}
		int status = option_read(row, given, text, out, error);
		if (status < 0)
			return status;
	}
	return KILN_OK;
}

/* The base directory specification: a variable counts when it is an absolute path. */
static const char *absolute(const char *variable)
{
	const char *path = getenv(variable);
	return path && *path == '/' ? path : NULL;
}

/* Writes the path below the directory of an XDG variable, or else below HOME; "" for one that is
 * too long.  False: neither variable is an absolute path. */
static bool below_user(const char *variable, const char *ending, const char *home_ending,
					   char path[PATH_MAX])
{
	const char *base = absolute(variable), *home = absolute("HOME");
	if (!base && !home)
		return false;
	int size = snprintf(path, PATH_MAX, "%s%s", base ? base : home, base ? ending : home_ending);
	path[0] = size < PATH_MAX ? path[0] : 0;
	return true;
}

/* Defaults that depend on the user and the machine. */
static int complete(struct options *out, char error[KERNEL_ERROR_MAX])
{
	if (out->workers == 0) {
		int cpus = util_cpu_count();
		out->workers = cpus < 256 ? (uint64_t)cpus : 256;
	}
	/* A daemon without a place for keys runs, and tells those who need keys. */
	if (!*out->key_dir)
		below_user("XDG_CONFIG_HOME", "/kiln/keys", "/.config/kiln/keys", out->key_dir);
	if (!*out->trust_dir)
		below_user("XDG_CONFIG_HOME", "/kiln/trusted", "/.config/kiln/trusted", out->trust_dir);
	if (!*out->socket) {
		const char *base = absolute("XDG_RUNTIME_DIR");
		int size = base ? snprintf(out->socket, sizeof(out->socket), "%s/kiln/kiln.sock", base)
						: snprintf(out->socket, sizeof(out->socket), "/tmp/kiln-%lu/kiln.sock",
								   (unsigned long)getuid());
		if ((size_t)size >= sizeof(out->socket)) {
			return FAIL(KILN_EINVAL,
						"XDG_RUNTIME_DIR is too long for a socket, whose path has at most %d "
						"bytes: use --socket",
						OPTIONS_SOCKET_MAX - 1);
		}
	}
	if (!*out->cache_dir &&
		!below_user("XDG_CACHE_HOME", "/kiln", "/.cache/kiln", out->cache_dir)) {
		return FAIL(KILN_EINVAL,
					"no place for the cache: neither XDG_CACHE_HOME nor HOME is an absolute path; "
					"use --cache-dir");
	}
	if (!*out->cache_dir) {
		return FAIL(KILN_EINVAL, "%s is too long for a directory: use --cache-dir",
					absolute("XDG_CACHE_HOME") ? "XDG_CACHE_HOME" : "HOME");
	}
	return KILN_OK;
}

static int check_child(const struct options *out, char error[KERNEL_ERROR_MAX])
{
	if (out->fd < 0)
		return FAIL(KILN_EINVAL, "--role needs --fd: kilnd starts such processes by itself");
	if (out->role == OPTIONS_EXECUTOR && !*out->device_name)
		return FAIL(KILN_EINVAL, "--role executor needs --device-name, such as cpu or cuda:0");
	return KILN_OK;
}

static int check_broker(const struct options *out, char error[KERNEL_ERROR_MAX])
{
	const struct options_devices *devices = &out->devices;
	/* Children inherit these variables; the broker alone refuses them. */
	for (int i = 0; i < ROWS; i++) {
		const char *text = table[i].gone ? getenv(table[i].environment) : NULL;
		if (text && *text)
			return refuse_gone(&table[i], table[i].environment, error);
	}
	if (out->memcheck && (devices->count != 1 || strcmp(devices->names[0], "cpu") != 0)) {
		return FAIL(KILN_EINVAL,
					"--memcheck needs --device cpu; for a GPU there is --executor-wrapper "
					"compute-sanitizer");
	}
#ifndef KILN_TEST_HOOKS
	if (out->test_requests) {
		return FAIL(KILN_ENOTSUP,
					"--test-requests is for tests, and this kilnd is built without them: build it "
					"with -DKILN_BUILD_TESTS=ON");
	}
#endif
	/* A tool that watches the device processes takes them out of the sandbox. */
	if (out->sandbox == SANDBOX_REQUIRE && (out->memcheck || *out->executor_wrapper)) {
		return FAIL(KILN_EINVAL,
					"--sandbox require does not go with %s, which needs device processes without "
					"one",
					out->memcheck ? "--memcheck" : "--executor-wrapper");
	}
	return KILN_OK;
}

int options_parse(int argc, char *const *argv, struct options *out, char error[KERNEL_ERROR_MAX])
{
	*out = (struct options){.fd = -1, .trail = -1};
	int status = read_defaults(out, error);
	if (status == KILN_OK)
		status = read_environment(out, error);
	if (status == KILN_OK)
		status = read_arguments(argc, argv, out, error);
	if (status != KILN_OK || out->show != OPTIONS_SHOW_NOTHING)
		return status;
	if (out->role != OPTIONS_BROKER)
		return check_child(out, error);
	status = check_broker(out, error);
	return status == KILN_OK ? complete(out, error) : status;
}

const char *options_sandbox(enum sandbox_mode mode)
{
	static const char *const words[] = {
		[SANDBOX_OFF] = "--sandbox=off",
		[SANDBOX_AUTO] = "--sandbox=auto",
		[SANDBOX_REQUIRE] = "--sandbox=require",
	};
	return words[mode];
}

void options_liveness(const struct options *options, char text[48])
{
	snprintf(text, 48, "--liveness-timeout=%llu", (unsigned long long)options->liveness_timeout_ms);
}

static void help_row(FILE *file, const struct option_row *row)
{
	char left[64];
	const char *between = !row->value ? "" : takes_value(row) ? " " : "[=";
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
	for (int i = 0; i < ROWS; i++)
		if (table[i].help && !table[i].unit)
			help_row(file, &table[i]);
	fputs("\nLimits:\n", file);
	for (int i = 0; i < ROWS; i++)
		if (table[i].help && table[i].unit)
			help_row(file, &table[i]);
	fputs("\nSizes may be written as 4096, 512k, 64MiB, 2GiB (units of 1024).\n", file);
}

void options_print(const struct options *options, struct util_text *text)
{
	for (int i = 0; i < ROWS; i++) {
		if (table[i].help && table[i].kind != OPTION_SHOW) {
			util_text_add(text, "  --%s ", table[i].name);
			option_write(&table[i], options, text);
			util_text_add(text, "\n");
		}
	}
}

/* Others can read the arguments and the environment of a process. */
static void hide_passwords(int argc, char *const *argv)
{
	char *variable = getenv("KILN_REMOTE");
	for (int i = 1; i < argc; i++) {
		bool value = strcmp(argv[i - 1], "--remote") == 0;
		if (value || strncmp(argv[i], "--remote=", 9) == 0)
			remote_url_hide(argv[i]);
	}
	if (variable)
		remote_url_hide(variable);
}

bool options_start(int argc, char *const *argv, struct options *out, int *exit_status)
{
	char error[KERNEL_ERROR_MAX];
	*exit_status = 0;
	if (options_parse(argc, argv, out, error) < 0) {
		fprintf(stderr, "kilnd: %s\n", error);
		*exit_status = 2;
		return false;
	}
	hide_passwords(argc, argv);
	if (out->remote.password[0])
		util_keep_secrets();
	if (out->show == OPTIONS_SHOW_HELP)
		options_help(stdout);
	else if (out->show == OPTIONS_SHOW_VERSION)
		printf("kilnd %s (build %.12s)\n", KILN_VERSION_STRING, util_build());
	if (out->show != OPTIONS_SHOW_NOTHING) {
		*exit_status = fflush(stdout) == 0 ? 0 : 1;
		return false;
	}
	return true;
}

int options_limits(const struct options *options, struct limit limits[OPTIONS_LIMITS])
{
	int count = 0;
	for (int i = 0; i < ROWS && count < OPTIONS_LIMITS; i++) {
		const struct option_row *row = &table[i];
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
