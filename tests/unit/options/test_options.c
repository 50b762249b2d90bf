/*
 * The options of kilnd: defaults, environment, arguments, the sentences for what is wrong, and that
 * help and limits walk the same table.
 */
#include "daemon/options/option_row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
/* after the above */
#include <cmocka.h>

#define MAX_WORDS 12

static char error[KERNEL_ERROR_MAX];

/* Parses words, ended by NULL, after the program's name. */
static int parse(struct options *out, const char *const words[MAX_WORDS])
{
	char *argv[MAX_WORDS + 1] = {(char *)"kilnd"};
	int argc = 1;
	while (argc < MAX_WORDS && words[argc - 1]) {
		argv[argc] = (char *)words[argc - 1];
		argc++;
	}
	error[0] = 0;
	return options_parse(argc, argv, out, error);
}

#define PARSE(out, ...) parse(out, (const char *const[MAX_WORDS]){__VA_ARGS__})

static int clean(void **state)
{
	(void)state;
	for (int i = 0; i < options_rows; i++)
		if (options_table[i].environment)
			unsetenv(options_table[i].environment);
	setenv("HOME", "/h/somebody", 1);
	unsetenv("XDG_CACHE_HOME");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("XDG_RUNTIME_DIR");
	return 0;
}

static void defaults(void **state)
{
	(void)state;
	struct options options;
	char path[64];
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	snprintf(path, sizeof(path), "/tmp/kiln-%lu/kiln.sock", (unsigned long)getuid());
	assert_string_equal(options.socket, path);
	assert_string_equal(options.cache_dir, "/h/somebody/.cache/kiln");
	assert_string_equal(options.kernel_dir, "");
	assert_int_equal(options.cache_bytes, 2ull << 30);
	assert_int_equal(options.memory_cache_bytes, 256ull << 20);
	assert_true(options.devices.automatic);
	assert_int_equal(options.devices.count, 0);
	assert_int_equal(options.workers, util_cpu_count());
	assert_int_equal(options.compile_timeout_ms, 60000);
	assert_int_equal(options.launch_timeout_ms, 30000);
	assert_int_equal(options.worker_memory, 4ull << 30);
	assert_int_equal(options.worker_jobs, 500);
	assert_int_equal(options.idle_exit_seconds, 0);
	assert_int_equal(options.drain_timeout_ms, 5000);
	assert_int_equal(options.allow_uids.count, 0);
	assert_int_equal(options.log_level, UTIL_INFO);
	assert_false(options.test_requests);
	assert_int_equal(options.role, OPTIONS_BROKER);
	assert_int_equal(options.fd, -1);
	assert_int_equal(options.show, OPTIONS_SHOW_NOTHING);
}

static void base_directories(void **state)
{
	(void)state;
	struct options options;
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	setenv("XDG_CACHE_HOME", "/var/c", 1);
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	assert_string_equal(options.socket, "/run/user/7/kiln/kiln.sock");
	assert_string_equal(options.cache_dir, "/var/c/kiln");
	assert_string_equal(options.key_dir, "/h/somebody/.config/kiln/keys");
	setenv("XDG_CONFIG_HOME", "/etc/x", 1);
	assert_int_equal(PARSE(&options, "--key-dir=k", "--sign-key=build-1"), KILN_OK);
	assert_string_equal(options.key_dir, "k");
	assert_string_equal(options.trust_dir, "/etc/x/kiln/trusted");
	assert_string_equal(options.sign_key, "build-1");
	/* relative ones do not count */
	setenv("XDG_CACHE_HOME", "c", 1);
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	assert_string_equal(options.cache_dir, "/h/somebody/.cache/kiln");
	unsetenv("HOME");
	assert_int_equal(PARSE(&options, NULL), KILN_EINVAL);
	assert_string_equal(error, "no place for the cache: neither XDG_CACHE_HOME nor HOME is an "
							   "absolute path; use --cache-dir");
	assert_int_equal(PARSE(&options, "--cache-dir", "here"), KILN_OK);
	assert_string_equal(options.cache_dir, "here");
	unsetenv("XDG_CONFIG_HOME");
	assert_int_equal(PARSE(&options, "--cache-dir", "here"), KILN_OK);
	assert_string_equal(options.trust_dir, "");
}

static void values(void **state)
{
	(void)state;
	struct options options;
	assert_int_equal(PARSE(&options, "--socket", "/s", "--cache-bytes=64MiB", "--workers", "3",
						   "--log-level", "debug", "--test-requests", "--test-worker-memory=0",
						   "--idle-exit=9"),
					 KILN_OK);
	assert_string_equal(options.socket, "/s");
	assert_int_equal(options.cache_bytes, 64 << 20);
	assert_int_equal(options.workers, 3);
	assert_int_equal(options.log_level, UTIL_DEBUG);
	assert_true(options.test_requests);
	assert_int_equal(options.worker_memory, 0);
	assert_int_equal(options.idle_exit_seconds, 9);

	assert_int_equal(PARSE(&options, "--device", "cuda:1,cpu,cuda:0", "--allow-uid=root,1000",
						   "--allow-gid", "5"),
					 KILN_OK);
	assert_false(options.devices.automatic);
	assert_int_equal(options.devices.count, 3);
	assert_string_equal(options.devices.names[0], "cuda:1");
	assert_string_equal(options.devices.names[1], "cpu");
	assert_string_equal(options.devices.names[2], "cuda:0");
	assert_int_equal(options.allow_uids.count, 2);
	assert_int_equal(options.allow_uids.ids[0], 0);
	assert_int_equal(options.allow_uids.ids[1], 1000);
	assert_int_equal(options.allow_gids.count, 1);
	assert_int_equal(options.allow_gids.ids[0], 5);
	assert_int_equal(PARSE(&options, "--device=none"), KILN_OK);
	assert_false(options.devices.automatic);
	assert_int_equal(options.devices.count, 0);
	assert_false(options.memcheck);
	assert_int_equal(options.thread_order, DEVICE_NATURAL);
	assert_int_equal(PARSE(&options, "--device=cpu", "--memcheck=shuffled"), KILN_OK);
	assert_true(options.memcheck);
	assert_int_equal(options.thread_order, DEVICE_SHUFFLED);
	assert_string_equal(options.remote.host, "");
	assert_int_equal(options.remote_deadline_ms, 5);
	assert_int_equal(options.remote_ttl_seconds, 30 * 86400);
	assert_int_equal(options.remote_queue_bytes, 64 << 20);
	assert_int_equal(PARSE(&options, "--remote=redis://h/2"), KILN_OK);
	assert_string_equal(options.remote.shown, "redis://h:6379/2");
	/* the last one wins */
	assert_int_equal(PARSE(&options, "--workers=1", "--workers=2"), KILN_OK);
	assert_int_equal(options.workers, 2);
}

static void environment(void **state)
{
	(void)state;
	struct options options;
	setenv("KILN_WORKERS", "5", 1);
	setenv("KILN_DEVICES", "cpu", 1);
	setenv("KILN_CACHE_DIR", "", 1); /* as if it were not set */
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	assert_int_equal(options.workers, 5);
	assert_int_equal(options.devices.count, 1);
	assert_string_equal(options.cache_dir, "/h/somebody/.cache/kiln");
	assert_int_equal(PARSE(&options, "--workers", "6"), KILN_OK);
	assert_int_equal(options.workers, 6);
	assert_false(options.memcheck);
	setenv("KILN_MEMCHECK", "1", 1);
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	assert_true(options.memcheck);
	setenv("KILN_MEMCHECK", "0", 1);
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	assert_false(options.memcheck);
	setenv("KILN_MEMCHECK", "yes", 1);
	assert_int_equal(PARSE(&options, NULL), KILN_EINVAL);
	assert_string_equal(error, "KILN_MEMCHECK: \"yes\" is not one of natural|reversed|shuffled");
	unsetenv("KILN_MEMCHECK");
	setenv("KILN_WORKERS", "many", 1);
	assert_int_equal(PARSE(&options, NULL), KILN_EINVAL);
	assert_string_equal(error, "KILN_WORKERS: \"many\" is not a whole number from 1 to 256, or 0 "
							   "(one per core allowed)");
}

static void children(void **state)
{
	(void)state;
	struct options options;
	unsetenv("HOME"); /* they need no directory */
	assert_int_equal(PARSE(&options, "--role=executor", "--device-name", "cuda:3", "--fd", "7"),
					 KILN_OK);
	assert_int_equal(options.role, OPTIONS_EXECUTOR);
	assert_string_equal(options.device_name, "cuda:3");
	assert_int_equal(options.fd, 7);
	/* Settings of the broker are in the children's environment, too. */
	setenv("KILN_THREAD_ORDER", "reversed", 1); /* the broker refuses it */
	assert_int_equal(PARSE(&options, "--role=compiler", "--fd=3"), KILN_OK);
	unsetenv("KILN_THREAD_ORDER");
	assert_int_equal(options.role, OPTIONS_COMPILER);
}

static void refusals(void **state)
{
	(void)state;
	static const struct {
		const char *words[3];
		const char *sentence;
	} cases[] = {
		{{"--workers", "300"},
		 "--workers: \"300\" is not a whole number from 1 to 256, or 0 (one per core allowed)"},
		{{"--workers=-1"},
		 "--workers: \"-1\" is not a whole number from 1 to 256, or 0 (one per core allowed)"},
		{{"--workers="},
		 "--workers: \"\" is not a whole number from 1 to 256, or 0 (one per core allowed)"},
		{{"--max-own", "0"}, "--max-own: \"0\" is not a whole number from 1 to 65536"},
		{{"--compile-timeout", "18446744073709551616"},
		 "--compile-timeout: \"18446744073709551616\" is not a whole number from 10 to 86400000"},
		{{"--cache-bytes", "1.5GiB"},
		 "--cache-bytes: \"1.5GiB\" is not a size from 4.0 KiB to 1.0 PiB (written like 4096, "
		 "512k, 64MiB), or 0 (no cap)"},
		{{"--max-message", "1"},
		 "--max-message: \"1\" is not a size from 4.0 KiB to 1.0 GiB (written like 4096, 512k, "
		 "64MiB)"},
		{{"--on-miss", "never"}, "--on-miss: \"never\" is not one of compile|warn|fallback|error"},
		{{"--log-level", "loud"}, "--log-level: \"loud\" is not one of error|warn|info|debug"},
		{{"--log-level", "inf"}, "--log-level: \"inf\" is not one of error|warn|info|debug"},
		{{"--device", "cpu,cpu"},
		 "--device: \"cpu,cpu\" is not auto, none, or up to 16 different ones of cpu, cuda:0 to "
		 "cuda:63 and GPU-UUID with ',' between"},
		{{"--device=cuda:64"},
		 "--device: \"cuda:64\" is not auto, none, or up to 16 different ones of cpu, cuda:0 to "
		 "cuda:63 and GPU-UUID with ',' between"},
		{{"--device=auto,cpu"},
		 "--device: \"auto,cpu\" is not auto, none, or up to 16 different ones of cpu, cuda:0 "
		 "to cuda:63 and GPU-UUID with ',' between"},
		{{"--device=cuda:01"},
		 "--device: \"cuda:01\" is not auto, none, or up to 16 different ones of cpu, cuda:0 to "
		 "cuda:63 and GPU-UUID with ',' between"},
		{{"--allow-uid", "1,no such user"},
		 "--allow-uid: \"1,no such user\" is not a list of up to 32 users of this host, or numbers "
		 "from 0 to 4294967294, with ',' between"},
		{{"--allow-gid", "4294967295"},
		 "--allow-gid: \"4294967295\" is not a list of up to 32 groups of this host, or numbers "
		 "from 0 to 4294967294, with ',' between"},
		{{"--socket", ""}, "--socket: \"\" is not a path"},
		{{"--socket"}, "--socket needs a value: --socket PATH"},
		{{"--sokcet", "x"}, "unknown option \"--sokcet\": kilnd --help lists the options"},
		{{"--"}, "unknown option \"--\": kilnd --help lists the options"},
		{{"start"},
		 "unexpected argument \"start\": kilnd takes options only, which kilnd --help lists"},
		{{"--test-requests=yes"}, "--test-requests takes no value, not \"yes\""},
		{{"--role=compiler"}, "--role needs --fd: kilnd starts such processes by itself"},
		{{"--role=executor", "--fd=3"},
		 "--role executor needs --device-name, such as cpu or cuda:0"},
		{{"--device-name=gpu"}, "--device-name: \"gpu\" is not cpu, cuda:0 to cuda:63 or GPU-UUID"},
		{{"--fd=2"}, "--fd: \"2\" is not a descriptor from 3 to 1048576"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct options options;
		assert_int_equal(PARSE(&options, cases[i].words[0], cases[i].words[1], cases[i].words[2]),
						 KILN_EINVAL);
		assert_string_equal(error, cases[i].sentence);
	}
}

/* Each option that went, and its variable, is refused with what is there instead; its children are
 * told some of them, and tests set them all. */
static void options_that_went(void **state)
{
	(void)state;
	int count = 0;
	for (int i = 0; i < options_rows; i++) {
		struct options options;
		char given[64], expected[KERNEL_ERROR_MAX];
		if (!options_table[i].gone)
			continue;
		count++;
		assert_null(options_table[i].help);
		assert_non_null(options_table[i].environment);
		snprintf(given, sizeof(given), "--%s=1", options_table[i].name);
		snprintf(expected, sizeof(expected), "--%s is no option any more: %s",
				 options_table[i].name, options_table[i].gone);
		assert_int_equal(PARSE(&options, given), KILN_EINVAL);
		assert_string_equal(error, expected);
		setenv(options_table[i].environment, "1", 1);
		snprintf(expected, sizeof(expected), "%s is no option any more: %s",
				 options_table[i].environment, options_table[i].gone);
		assert_int_equal(PARSE(&options, "--device=none"), KILN_EINVAL);
		assert_string_equal(error, expected);
		assert_int_equal(PARSE(&options, "--role=compiler", "--fd=3"), KILN_OK);
		unsetenv(options_table[i].environment);
	}
	assert_int_equal(count, 15);
	struct options options;
	assert_int_equal(PARSE(&options, "--role=compiler", "--fd=3", "--worker-memory=64M"), KILN_OK);
	assert_int_equal(options.worker_memory, 64 << 20);
	assert_int_equal(PARSE(&options, "--test-workers=3"), KILN_EINVAL);
	assert_string_equal(error,
						"unknown option \"--test-workers=3\": kilnd --help lists the options");
}

static void tiers_have_words(void **state)
{
	(void)state;
	struct options options;
	assert_int_equal(PARSE(&options, "--specialize", "never", "--test-warm-generics=none"),
					 KILN_OK);
	assert_int_equal(options.specialize, OPTIONS_NEVER);
	assert_int_equal(options.warm_generics, OPTIONS_WARM_NONE);
	assert_int_equal(PARSE(&options, "--specialize", "soon"), KILN_EINVAL);
	assert_string_equal(error, "--specialize: \"soon\" is not one of lazy|eager|never");
	assert_int_equal(PARSE(&options, "--test-warm-generics", "gpu"), KILN_EINVAL);
	assert_string_equal(error, "--test-warm-generics: \"gpu\" is not one of auto|all|none");
	assert_int_equal(PARSE(&options, "--max-variants", "many"), KILN_EINVAL);
	assert_string_equal(error, "--max-variants: \"many\" is not a whole number from 1 to 10000000, "
							   "or 0 (no limit)");
}

static void keys_have_names(void **state)
{
	(void)state;
	struct options options;
	assert_int_equal(PARSE(&options, "--sign-key", "../x"), KILN_EINVAL);
	assert_string_equal(error, "--sign-key: \"../x\" is no name of a key: 1 to 48 of letters, "
							   "digits, '.', '_' and '-', and neither '.' nor '-' first");
}

static void remote_refusals(void **state)
{
	(void)state;
	static const struct {
		const char *words[2];
		const char *sentence;
	} cases[] = {
		{{"--remote=http://h"},
		 "--remote: it begins neither with redis://HOST nor with unix:/PATH"},
		{{"--remote", "redis://h:0"}, "--remote: the port \"0\" is not a number from 1 to 65535"},
		{{"--remote-deadline=0"}, "--remote-deadline: \"0\" is not a whole number from 1 to 1000"},
		{{"--remote-ttl=59"},
		 "--remote-ttl: \"59\" is not a whole number from 60 to 315360000, or 0 (for ever)"},
		{{"--test-remote-queue=1"},
		 "--test-remote-queue: \"1\" is not a size from 4.0 KiB to 4.0 GiB (written like 4096, "
		 "512k, "
		 "64MiB)"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct options options;
		assert_int_equal(PARSE(&options, cases[i].words[0], cases[i].words[1]), KILN_EINVAL);
		assert_string_equal(error, cases[i].sentence);
	}
}

static void memcheck_is_for_the_cpu(void **state)
{
	(void)state;
	static const char needs[] = "--memcheck needs --device cpu; for a GPU there is "
								"--executor-wrapper compute-sanitizer";
	struct options options;
	assert_int_equal(PARSE(&options, "--memcheck"), KILN_EINVAL);
	assert_string_equal(error, needs);
	assert_int_equal(PARSE(&options, "--memcheck", "--device=cpu,cuda:0"), KILN_EINVAL);
	assert_string_equal(error, needs);
	assert_int_equal(PARSE(&options, "--memcheck", "--device=none"), KILN_EINVAL);
	assert_string_equal(error, needs);
	assert_int_equal(PARSE(&options, "--memcheck=odd"), KILN_EINVAL);
	assert_string_equal(error, "--memcheck: \"odd\" is not one of natural|reversed|shuffled");
}

static void metrics_are_for_this_host(void **state)
{
	static const char *const good[] = {"127.0.0.1:9464", "127.8.0.1:1", "localhost:65535",
									   "[::1]:0", "unix:m.sock"};
	static const char *const bad[] = {
		"0.0.0.0:9464", "10.0.0.1:9464",  "[::]:9464",       "[::ffff:127.0.0.1]:1",
		"127.0.0.1",    "127.0.0.1:",     "127.0.0.1:65536", ":9464",
		"[::1:9464",    "example.org:80", "unix:",           "",
		"9464"};
	char option[64], path[OPTIONS_SOCKET_MAX + sizeof "--metrics=unix:"];
	struct options options;
	(void)state;
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	assert_string_equal(options.metrics.text, "");
	assert_int_equal(PARSE(&options, "--metrics"), KILN_OK);
	assert_string_equal(options.metrics.text, "127.0.0.1:9464");
	assert_int_equal(ntohs(options.metrics.at.ip4.sin_port), 9464);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		snprintf(option, sizeof(option), "--metrics=%s", good[i]);
		assert_int_equal(PARSE(&options, option), KILN_OK);
		assert_string_equal(options.metrics.text, good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(option, sizeof(option), "--metrics=%s", bad[i]);
		assert_int_equal(PARSE(&options, option), KILN_EINVAL);
		assert_non_null(strstr(error, "is not a port of this host alone"));
	}
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	memcpy(path, "--metrics=unix:", strlen("--metrics=unix:"));
	assert_int_equal(PARSE(&options, path), KILN_EINVAL);
	path[strlen(path) - 1] = 0;
	assert_int_equal(PARSE(&options, path), KILN_OK);
}

static void a_sandbox_is_whole_or_said_to_be_less(void **state)
{
	(void)state;
	struct options options;
	assert_int_equal(PARSE(&options, NULL), KILN_OK);
	assert_int_equal(options.sandbox, SANDBOX_AUTO);
	assert_int_equal(PARSE(&options, "--sandbox=require"), KILN_OK);
	assert_int_equal(options.sandbox, SANDBOX_REQUIRE);
	assert_string_equal(options_sandbox(options.sandbox), "--sandbox=require");
	assert_int_equal(PARSE(&options, "--sandbox=on"), KILN_EINVAL);
	assert_string_equal(error, "--sandbox: \"on\" is not one of off|auto|require");
	assert_int_equal(PARSE(&options, "--sandbox=require", "--executor-wrapper=ncu"), KILN_EINVAL);
	assert_string_equal(error, "--sandbox require does not go with --executor-wrapper, which needs "
							   "device processes without one");
	assert_int_equal(PARSE(&options, "--sandbox=require", "--memcheck", "--device=cpu"),
					 KILN_EINVAL);
	assert_string_equal(error, "--sandbox require does not go with --memcheck, which needs device "
							   "processes without one");
}

static void long_values(void **state)
{
	(void)state;
	struct options options;
	char path[6000];
	memset(path, 'p', sizeof(path));
	path[107] = 0;
	assert_int_equal(PARSE(&options, "--socket", path), KILN_OK);
	path[107] = 'p';
	path[108] = 0;
	assert_int_equal(PARSE(&options, "--socket", path), KILN_EINVAL);
	assert_non_null(strstr(error, "has 108 bytes; the path of a socket has at most 107"));
	path[108] = 'p';
	path[sizeof(path) - 1] = 0;
	assert_int_equal(PARSE(&options, "--cache-dir", path), KILN_EINVAL);
	assert_non_null(strstr(error, "a path has at most 4095"));
	assert_int_equal(PARSE(&options, "--workers", path), KILN_EINVAL);
	assert_non_null(strstr(error, "is not a whole number from 1 to 256"));
	setenv("XDG_RUNTIME_DIR",
		   "/0123456789012345678901234567890123456789012345678901234567890123456"
		   "7890123456789012345678901234567890123456789",
		   1);
	assert_int_equal(PARSE(&options, NULL), KILN_EINVAL);
	assert_string_equal(error, "XDG_RUNTIME_DIR is too long for a socket, whose path has at most "
							   "107 bytes: use --socket");
}

static void limits_walk_the_table(void **state)
{
	(void)state;
	struct options options;
	struct limit limits[OPTIONS_LIMITS];
	static const struct {
		const char *name;
		uint64_t value;
	} expected[OPTIONS_LIMITS] = {
		{"sessions", 256},    {"buffers", 77},        {"bytes", 0},     {"inflight", 1024},
		{"message", 1 << 20}, {"queued", 16 << 20},   {"calls", 10000}, {"variants", 64},
		{"own", 8},           {"graph-calls", 16384},
	};
	assert_int_equal(PARSE(&options, "--max-buffers", "77"), KILN_OK);
	assert_int_equal(options_limits(&options, limits), OPTIONS_LIMITS);
	for (int i = 0; i < OPTIONS_LIMITS; i++) {
		char option[32] = "-";
		if (strcmp(expected[i].name, "graph-calls") != 0)
			snprintf(option, sizeof(option), "--max-%s", expected[i].name);
		assert_string_equal(limits[i].name, expected[i].name);
		assert_string_equal(limits[i].option, option);
		assert_int_equal(limits[i].value, expected[i].value);
		assert_true(*limits[i].unit);
	}
	int rows = 0;
	for (int i = 0; i < options_rows; i++)
		rows += options_table[i].unit != NULL;
	assert_int_equal(rows, OPTIONS_LIMITS);
}

static void help_names_every_option(void **state)
{
	(void)state;
	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);
	assert_non_null(file);
	options_help(file);
	assert_int_equal(fclose(file), 0);
	for (int i = 0; i < options_rows; i++) {
		char shown[64];
		snprintf(shown, sizeof(shown), "\n  --%s%s", options_table[i].name,
				 !strcmp(options_table[i].name, "memcheck") ||
						 options_table[i].kind == OPTION_METRICS
					 ? "["
				 : options_table[i].value || options_table[i].environment ? " "
																		  : "\n");
		assert_int_equal(strstr(text, shown) != NULL, options_table[i].help != NULL);
		if (options_table[i].environment && options_table[i].help)
			assert_non_null(strstr(text, options_table[i].environment));
	}
	assert_non_null(
		strstr(text, "\n      compiler processes (1 to 256, 0: one per core allowed)\n"));
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
		assert_in_range(strcspn(line, "\n"), 0, 110);
	free(text);
}

static void start_says_how_to_end(void **state)
{
	(void)state;
	struct options options;
	int status = 7;
	char *fine[] = {(char *)"kilnd", (char *)"--workers=1"};
	char *wrong[] = {(char *)"kilnd", (char *)"--workers=x"};
	char *help[] = {(char *)"kilnd", (char *)"-h"};
	assert_true(options_start(2, fine, &options, &status));
	assert_int_equal(status, 0);
	assert_false(options_start(2, wrong, &options, &status));
	assert_int_equal(status, 2);
	assert_false(options_start(2, help, &options, &status));
	assert_int_equal(status, 0);
	assert_int_equal(options.show, OPTIONS_SHOW_HELP);
}

/* Read again, the settings are the same; and no secret is among them. */
static void settings_are_written_as_they_are_read(void **state)
{
	struct options options;
	struct util_text text = {0};
	(void)state;
	assert_int_equal(PARSE(&options, "--remote=redis://me:swordfish@h:7/2", "--workers=3",
						   "--device=cpu", "--allow-uid=5,6", "--on-miss=fallback", "--sandbox=off",
						   "--memcheck", "--cache-bytes=1MiB",
						   "--executor-wrapper=tool --token=swordfish", "--cache-dir=/tmp/c"),
					 KILN_OK);
	options_print(&options, &text);
	assert_non_null(text.text);
	assert_null(strstr(text.text, "swordfish"));
	static const char *const lines[] = {
		"  --remote redis://h:7/2\n", "  --workers 3\n",           "  --device cpu\n",
		"  --allow-uid 5,6\n",        "  --on-miss fallback\n",    "  --sandbox off\n",
		"  --memcheck natural\n",     "  --cache-bytes 1048576\n", "  --executor-wrapper tool\n",
		"  --cache-dir /tmp/c\n",     "  --specialize lazy\n"};
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		if (!strstr(text.text, lines[i]))
			fail_msg("no line \"%s\" in: %s", lines[i], text.text);
	util_text_free(&text);
	assert_int_equal(PARSE(&options, "--device=cpu,cuda:1"), KILN_OK);
	options_print(&options, &text);
	assert_non_null(strstr(text.text, "  --device cpu,cuda:1\n"));
	util_text_free(&text);
}

static void a_password_is_in_no_core(void **state)
{
	char open_url[] = "--remote=redis://h", login[] = "--remote=redis://:swordfish@h";
	char *const without[] = {(char *)"kilnd", open_url, NULL};
	char *const with[] = {(char *)"kilnd", login, NULL};
	struct options options;
	int status;
	(void)state;
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
	assert_true(options_start(2, without, &options, &status));
	assert_int_equal(prctl(PR_GET_DUMPABLE), 1);
	assert_true(options_start(2, with, &options, &status));
	assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
	assert_null(strstr(login, "swordfish"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(defaults, clean),
		cmocka_unit_test_setup(base_directories, clean),
		cmocka_unit_test_setup(values, clean),
		cmocka_unit_test_setup(environment, clean),
		cmocka_unit_test_setup(children, clean),
		cmocka_unit_test_setup(refusals, clean),
		cmocka_unit_test_setup(options_that_went, clean),
		cmocka_unit_test_setup(tiers_have_words, clean),
		cmocka_unit_test_setup(keys_have_names, clean),
		cmocka_unit_test_setup(remote_refusals, clean),
		cmocka_unit_test_setup(a_password_is_in_no_core, clean),
		cmocka_unit_test_setup(settings_are_written_as_they_are_read, clean),
		cmocka_unit_test_setup(metrics_are_for_this_host, clean),
		cmocka_unit_test_setup(memcheck_is_for_the_cpu, clean),
		cmocka_unit_test_setup(a_sandbox_is_whole_or_said_to_be_less, clean),
		cmocka_unit_test_setup(long_values, clean),
		cmocka_unit_test_setup(limits_walk_the_table, clean),
		cmocka_unit_test_setup(help_names_every_option, clean),
		cmocka_unit_test_setup(start_says_how_to_end, clean),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
