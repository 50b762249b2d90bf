/*
 * options.c: reads the options from arguments and environment, by the table (options_table.c), and
 * fills in what depends on the user and the machine.  Knows nothing of the use of the values.
 */
#include "option_row.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_defaults(struct options *out, char error[KERNEL_ERROR_MAX])
{
	for (int i = 0; i < options_rows; i++) {
		const struct option_row *row = &options_table[i];
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
	bool flag = option_is_flag(row);
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
	for (int i = 0; i < options_rows; i++) {
		const struct option_row *row = &options_table[i];
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
		if (option_takes_value(row) && !text) {
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

/* ---- Defaults of the user and the machine ---- */

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

/* ---- Reading and checking ---- */

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
	for (int i = 0; i < options_rows; i++) {
		const char *text = options_table[i].gone ? getenv(options_table[i].environment) : NULL;
		if (text && *text)
			return refuse_gone(&options_table[i], options_table[i].environment, error);
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
