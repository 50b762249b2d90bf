/*
 * hostcc: the same kernel source to a shared object for the cpu device, by the host's C++ compiler.
 * Knows how to find and call gcc and clang; what a kernel means on the host is in kernel_src/cpu.
 */
#include "backend.h"

#include "daemon/base/deadlines.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HOSTCC_MAX_OPTIONS (56 + COMPILE_MAX_USER_OPTIONS)
#define HOSTCC_MAX_OBJECT (64u << 20)
#define UNIT_NOT_WRITTEN (-2) /* in place of an exit status */
#define NO_PROCESS                                                                        \
	"the system gives no process for %.200s: end others, or raise the limit (ulimit -u, " \
	"pids.max)"

static struct {
	bool found, open;
	int find_status;
	char find_reason[KERNEL_ERROR_MAX];
	char program[1024], version[256], machine[128];
	bool is_clang, has_libgcc;
	bool hangs;   /* it did not end when it was asked who it is */
	bool starved; /* the system gave no process for that */
	struct workdir dir;
	char files[4][1024]; /* what makes the object, as far as the compiler names it */
	int file_count;
	struct compile_toolchain toolchain;
} state = {.dir.fd = -1};

/* ---- Finding ---- */

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The program's path, through PATH when the name has no slash. */
static bool find_program(const char *name, char *out, size_t size)
{
	const char *at = getenv("PATH");

	if (strchr(name, '/')) {
		char *real = realpath(name, NULL);
		bool good = real && strlen(real) < size && is_program(name);

		/* The name, not what it links to: drivers look at how they are called. */
		if (good && name[0] == '/')
			snprintf(out, size, "%s", name);
		else if (good)
			snprintf(out, size, "%s", real);
		free(real);
		return good;
	}
	for (at = at ? at : "/usr/local/bin:/usr/bin:/bin"; *at;
		 at += strcspn(at, ":"), at += *at == ':') {
		int length = snprintf(out, size, "%.*s/%s", (int)strcspn(at, ":"), at, name);

		if (out[0] == '/' && length > 0 && (size_t)length < size && is_program(out))
			return true;
	}
	return false;
}

static int find_compiler(char *reason)
{
	static const char *const names[] = {"g++", "c++", "clang++"};
	const char *named = getenv("KILN_CXX");

	if (named && named[0]) {
		if (find_program(named, state.program, sizeof(state.program)))
			return KILN_OK;
		return util_fail(reason, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "KILN_CXX=%.200s is no program that can be run", named);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (find_program(names[i], state.program, sizeof(state.program)))
			return KILN_OK;
	return util_fail(reason, KERNEL_ERROR_MAX, KILN_ENOTSUP,
					 "no C++ compiler (g++, c++, clang++) in PATH for device cpu: install one or "
					 "set KILN_CXX");
}

/* ---- Who it is ---- */

/* Runs a compiler that is not known yet; one that hangs is asked nothing more. */
static int run_unknown(char *const *argv)
{
	int exit_status;

	if (state.hangs)
		return -1;
	exit_status = spawn_run(&state.dir, state.program, argv, DEADLINE_COMPILER_ASK_US);
	state.hangs = exit_status < 0 && errno == ETIMEDOUT;
	state.starved = state.starved || (exit_status < 0 && (errno == EAGAIN || errno == ENOMEM));
	return exit_status;
}

/* The first line the compiler prints for one option; "" if it fails. */
static void ask_compiler(const char *option, char *line, size_t size)
{
	char *argv[] = {state.program, (char *)option, NULL};
	char *log = NULL;

	line[0] = 0;
	if (run_unknown(argv) == 0 && (log = spawn_log(&state.dir)))
		snprintf(line, size, "%.*s", (int)strcspn(log, "\n"), log);
	free(log);
}

static void list_files(void)
{
	static const char *const parts[] = {"cc1plus", "as", "ld"};

	state.file_count = 0;
	snprintf(state.files[state.file_count++], sizeof(state.files[0]), "%s", state.program);
	for (size_t i = 0; !state.is_clang && i < sizeof(parts) / sizeof(*parts); i++) {
		char option[64], name[1024];

		snprintf(option, sizeof(option), "-print-prog-name=%s", parts[i]);
		ask_compiler(option, name, sizeof(name));
		if (name[0] && find_program(name, state.files[state.file_count], sizeof(state.files[0])))
			state.file_count++;
	}
}

static bool stamp_now(char stamp[96])
{
	const char *paths[4];

	for (int i = 0; i < state.file_count; i++)
		paths[i] = state.files[i];
	return identity_stamp(paths, state.file_count, stamp);
}

/* Call before the first compile: the options depend on it. */
static int recognize(char *reason)
{
	ask_compiler("--version", state.version, sizeof(state.version));
	ask_compiler("-dumpmachine", state.machine, sizeof(state.machine));
	state.is_clang = strstr(state.version, "clang") != NULL;
	if (state.version[0] && state.machine[0])
		return KILN_OK;
	return util_fail(reason, KERNEL_ERROR_MAX, KILN_ENOTSUP,
					 "%.200s does not answer --version and -dumpmachine as a C++ compiler does",
					 state.program);
}

static int identify(struct compile_toolchain *out)
{
	char extra[512], hex[KERNEL_KEY_HEX] = "";
	const char *paths[4];
	int status;

	list_files();
	for (int i = 0; i < state.file_count; i++)
		paths[i] = state.files[i];
	snprintf(extra, sizeof(extra), "%s\n%s\nlibgcc %d\n", state.version, state.machine,
			 state.has_libgcc);
	status = identity_find(COMPILE_CXX_ID, paths, state.file_count, extra, out, hex);
	if (hex[0])
		util_append(out->id, sizeof(out->id), 0, "host %.32s %s", hex, state.version);
	return status;
}

/* The compiler was upgraded under a running daemon: the job's key names the old one. */
static bool is_same_compiler(void)
{
	char stamp[96];

	return stamp_now(stamp) && strcmp(stamp, state.toolchain.stamp) == 0;
}

bool hostcc_is_current(void)
{
	return !state.open || (is_same_compiler() && workdir_is_there(&state.dir));
}

/* A user who tidies up may remove the directory of a worker that waits for long.  Within a
 * sandbox a worker cannot make another, so it ends. */
static bool have_directory(void)
{
	if (workdir_is_there(&state.dir))
		return true;
	workdir_close(&state.dir);
	return workdir_open(&state.dir);
}

/* ---- Compiling ---- */

static bool write_unit(const char *text)
{
	int fd =
		openat(state.dir.fd, OPTIONS_HOST_UNIT, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t left = strlen(text);
	ssize_t wrote;

	if (fd < 0)
		return false;
	while (left) {
		wrote = write(fd, text, left);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			break;
		text += wrote;
		left -= (size_t)wrote;
	}
	return close(fd) == 0 && left == 0;
}

static int run_compiler(const char *text, const struct compile_job *job)
{
	static const struct compile_job plain = {.target = "cpu"};
	char *argv[HOSTCC_MAX_OPTIONS + 2], map[1100];
	bool known = job != NULL;
	int count = 0;

	job = known ? job : &plain;
	if (!write_unit(text))
		return UNIT_NOT_WRITTEN;
	argv[count++] = state.program;
	for (const struct compile_option *option = options_host; option->text; option++) {
		bool wanted = option->kind == OPTION_ALWAYS ||
					  (option->kind == OPTION_GCC && !state.is_clang) ||
					  (option->kind == OPTION_CLANG && state.is_clang) ||
					  (option->kind == OPTION_IF_KNOWN && state.has_libgcc);

		if (wanted && options_for_job(option, job) && count < HOSTCC_MAX_OPTIONS)
			argv[count++] = (char *)option->text;
	}
	for (int i = 0; i < job->option_count && count < HOSTCC_MAX_OPTIONS; i++)
		if (options_user_counts(job->options[i], job->target))
			argv[count++] = (char *)job->options[i];
	/* Lines are known by the names that files have in the unit, not by where it was compiled. */
	snprintf(map, sizeof(map), "-fdebug-prefix-map=%s=.", state.dir.path);
	if (job->check)
		argv[count++] = map;
	argv[count] = NULL;
	return known ? spawn_run(&state.dir, state.program, argv, 0) : run_unknown(argv);
}

/* An empty unit: warms the file cache, and tells whether libgcc is there. */
static int try_empty(char *reason)
{
	char *log;
	int exit_status;

	state.has_libgcc = true;
	exit_status = run_compiler("\n", NULL);
	if (exit_status != 0) {
		state.has_libgcc = false;
		exit_status = run_compiler("\n", NULL);
	}
	if (exit_status == 0)
		return KILN_OK;
	log = spawn_log(&state.dir);
	state.starved = state.starved || (log && log_says_no_process(log));
	util_fail(reason, KERNEL_ERROR_MAX, KILN_ENOTSUP,
			  "%.120s cannot compile an empty file (exit status %d; if it needs files that a "
			  "sandbox keeps from it, kilnd --sandbox off): %.160s",
			  state.program, exit_status, log ? log : "");
	free(log);
	return KILN_ENOTSUP;
}

void hostcc_find(void)
{
	if (state.found)
		return;
	state.find_status = find_compiler(state.find_reason);
	if (state.find_status == KILN_OK && !workdir_open(&state.dir))
		state.find_status = util_fail(
			state.find_reason, sizeof(state.find_reason), KILN_ENOTSUP,
			"the compiler needs a directory in %.200s, and cannot have one: %s: name another "
			"place with TMPDIR, and start kilnd again",
			workdir_parent(), strerror(errno));
	state.found = state.find_status == KILN_OK;
}

const char *hostcc_program(void)
{
	return state.found ? state.program : NULL;
}

const char *hostcc_directory(void)
{
	return state.found ? state.dir.path : NULL;
}

int hostcc_open(struct compile_toolchain *out)
{
	int status;

	if (state.open) {
		*out = state.toolchain;
		return KILN_OK;
	}
	*out = (struct compile_toolchain){0};
	state.hangs = state.starved = false;
	hostcc_find();
	status = state.find_status;
	if (status != KILN_OK)
		snprintf(out->reason, sizeof(out->reason), "%s", state.find_reason);
	else
		status = recognize(out->reason);
	if (status == KILN_OK)
		status = try_empty(out->reason);
	if (status == KILN_OK)
		status = identify(out);
	workdir_clean(&state.dir);
	if (state.hangs)
		status =
			util_fail(out->reason, sizeof(out->reason), KILN_ENOTSUP,
					  "%.200s has not answered within %d s who it is: see what it waits for, or "
					  "name another compiler in KILN_CXX, and start kilnd again",
					  state.program, DEADLINE_COMPILER_ASK_US / 1000000);
	if (state.starved)
		status = util_fail(out->reason, sizeof(out->reason), KILN_EIO, NO_PROCESS, state.program);
	if (status != KILN_OK) {
		hostcc_close();
		out->id[0] = out->stamp[0] = 0;
		return status;
	}
	snprintf(out->targets, sizeof(out->targets), "cpu");
	state.toolchain = *out;
	state.open = true;
	return KILN_OK;
}

void hostcc_close(void)
{
	workdir_close(&state.dir);
	state.open = state.found = false;
}

static int take_object(struct compile_result *out)
{
	char path[1100];

	phase_begin(out, COMPILE_OBJECT);
	snprintf(path, sizeof(path), "%s/" OPTIONS_HOST_OBJECT, state.dir.path);
	out->object = util_read_file(path, HOSTCC_MAX_OBJECT, &out->object_bytes);
	if (!out->object)
		return util_fail(out->error, sizeof(out->error), KILN_EIO,
						 "cannot read what the compiler made: %s", strerror(errno));
	if (out->object_bytes < 4 || memcmp(out->object, "\177ELF", 4) != 0)
		return util_fail(out->error, sizeof(out->error), KILN_ECOMPILE,
						 "the compiler made no ELF object");
	out->entry = strdup(UNIT_CPU_ENTRY);
	if (!out->entry)
		return util_fail(out->error, sizeof(out->error), KILN_ENOMEM, "no memory for a result");
	phase_end(out, COMPILE_OBJECT);
	return KILN_OK;
}

static bool is_full(void)
{
	struct statvfs status;

	return fstatvfs(state.dir.fd, &status) == 0 && status.f_bavail == 0;
}

/* The worker's own limit has room for any object; a smaller one (ulimit -f) is as a full disk. */
static bool files_are_limited(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < HOSTCC_MAX_OBJECT;
}

/* The job itself has not failed: the next attempt may go well. */
static int blame_directory(const char *why, struct compile_result *out)
{
	return util_fail(out->error, sizeof(out->error), KILN_EIO,
					 "the compiler's directory %.160s cannot be written: %s: make room there, or "
					 "name another with TMPDIR",
					 state.dir.path, why);
}

static int blame_removal(struct compile_result *out)
{
	return util_fail(out->error, sizeof(out->error), KILN_EIO,
					 "the compiler's directory was removed while the worker ran: ask again");
}

/* Somebody who tidies up may remove the directory, or what is in it, in the middle of a compile. */
static bool is_removed(int exit_status)
{
	return !workdir_is_there(&state.dir) ||
		   (exit_status > 0 && (faccessat(state.dir.fd, OPTIONS_HOST_UNIT, F_OK, 0) != 0 ||
								faccessat(state.dir.fd, SPAWN_LOG, F_OK, 0) != 0));
}

/* A compiler says what is wrong with a source.  One that was ended says nothing, and the next
 * attempt may go well. */
static int blame_silence(int exit_status, struct compile_result *out)
{
	int signal = exit_status - 128;

	if (signal == SIGKILL)
		return util_fail(out->error, sizeof(out->error), KILN_ENOMEM,
						 "%.200s was killed, as the system does when memory runs out",
						 state.program);
	if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP)
		return util_fail(out->error, sizeof(out->error), KILN_EIO,
						 "%.200s was ended from outside (%s): ask again", state.program,
						 strsignal(signal));
	return util_fail(out->error, sizeof(out->error), KILN_ECOMPILE,
					 "%.200s failed without a word, with exit status %d", state.program,
					 exit_status);
}

/* Takes what the compiler says of the entry out of the log, and says whether the entry is a kernel.
 * A unit that came whole may be of an earlier daemon, and says nothing of its entry. */
static bool is_kernel(const struct compile_job *job, char *log)
{
	bool said = log_take_warnings(log, UNIT_CPU_KERNEL);

	return said || !job->user_files || job->whole;
}

static int judge(int exit_status, const struct compile_job *job, struct compile_result *out)
{
	int why = errno;

	if (exit_status != 0 && is_removed(exit_status))
		return blame_removal(out);
	if (exit_status == UNIT_NOT_WRITTEN)
		return blame_directory(strerror(why), out);
	if (exit_status < 0)
		return util_fail(out->error, sizeof(out->error), KILN_EIO, "cannot run %.200s: %s",
						 state.program, strerror(why));
	phase_begin(out, COMPILE_LOG);
	out->log = spawn_log(&state.dir);
	phase_end(out, COMPILE_LOG);
	if (!out->log)
		return util_fail(out->error, sizeof(out->error), KILN_ENOMEM,
						 "no memory for the compiler's log");
	/* The log, too, is written there. */
	if (exit_status != 0 && (log_says_no_room(out->log) || is_full() ||
							 (log_says_too_large(out->log) && files_are_limited())))
		return blame_directory("the compiler had no room", out);

	bool kernel = is_kernel(job, out->log);

	if (exit_status == 0)
		return kernel ? take_object(out) : log_refuse_entry(job->instantiation, out->error);
	if (log_says_no_memory(out->log))
		return util_fail(out->error, sizeof(out->error), KILN_ENOMEM,
						 "the compiler ran out of memory");
	if (log_says_no_process(out->log))
		return util_fail(out->error, sizeof(out->error), KILN_EIO, NO_PROCESS, state.program);
	if (out->log[strspn(out->log, " \n")] == 0)
		return blame_silence(exit_status, out);
	log_first_error(out->log, out->error);
	return KILN_ECOMPILE;
}

void hostcc_compile(const struct compile_job *job, struct compile_result *out)
{
	struct compile_toolchain toolchain;
	uint64_t began;
	int exit_status;

	compile_result_begin(out);
	if (hostcc_open(&toolchain) != KILN_OK) {
		out->status =
			util_fail(out->error, sizeof(out->error), KILN_ENOTSUP, "%s", toolchain.reason);
		return;
	}
	if (!options_is_cpu(job->target)) {
		out->status =
			util_fail(out->error, sizeof(out->error), KILN_ENOTSUP,
					  "the host compiler makes objects for target cpu, not %s", job->target);
		return;
	}
	if (!is_same_compiler()) {
		out->status =
			util_fail(out->error, sizeof(out->error), KILN_EIO,
					  "%.200s was replaced while the worker ran: ask again", state.program);
		return;
	}
	if (!have_directory()) {
		out->status = blame_removal(out);
		return;
	}
	phase_begin(out, COMPILE_SOURCES);
	out->status = unit_make(job, &out->source, out->error);
	phase_end(out, COMPILE_SOURCES);
	if (out->status != KILN_OK)
		return;
	began = util_now_us();
	phase_begin(out, COMPILE_COMPILER);
	exit_status = run_compiler(out->source, job);
	phase_end(out, COMPILE_COMPILER);
	out->status = judge(exit_status, job, out);
	out->micros = (int64_t)(util_now_us() - began);
	workdir_clean(&state.dir);
}
