/*
 * test_hostcc: real compiles by the C++ compiler of this machine, for the cpu device.  Skipped,
 * with the reason, where there is none.
 */
#include "daemon/compile/compile.h"

#include <dirent.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct compile_toolchain toolchain;
static char temporary[64];

/* A clock of which each look takes so much longer. */
static uint64_t look_us, ahead_us;
uint64_t __real_util_now_us(void);
uint64_t __wrap_util_now_us(void);

uint64_t __wrap_util_now_us(void)
{
	ahead_us += look_us;
	return __real_util_now_us() + ahead_us;
}

/* Stands for the real shim: enough to see how an object is made. */
static const char shim[] = "#pragma once\n"
						   "#define __global__\n"
						   "#define KILN_CPU_ENTRY(...) extern \"C\" "
						   "__attribute__((visibility(\"default\"))) "
						   "void kiln_cpu_entry(long *p) { __VA_ARGS__(p); }\n";
static const char kernel[] = "#if !KILN_CPU\n#error not on a GPU\n#endif\n"
							 "template <class T, int N> __global__ void add(T *p)\n"
							 "{\n"
							 "	static T calls[N];\n"
							 "	p[0] += N;\n"
							 "	p[1] = (T)((__int128)p[2] * p[3] / p[4]);\n"
							 "	p[5] = ++calls[0];\n"
							 "}\n";

static void compile(const char *text, const char *instantiation, struct compile_result *out)
{
	struct compile_file files[] = {{"cpu/shim.cuh", shim, strlen(shim)},
								   {"ops/add.cuh", text, strlen(text)}};
	struct compile_job job = {.target = "cpu",
							  .source = "ops/add.cuh",
							  .instantiation = instantiation,
							  .files = files,
							  .file_count = 2};

	hostcc_compile(&job, out);
}

/* Under a name of its own each time: the loader takes a name it knows for the object it has. */
static void *load(const struct compile_result *result)
{
	static int count;
	char path[100];
	void *handle;
	FILE *file;

	snprintf(path, sizeof(path), "%s/object%d.so", temporary, count++);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(result->object, 1, result->object_bytes, file), result->object_bytes);
	assert_int_equal(fclose(file), 0);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		fail_msg("%s", dlerror());
	unlink(path);
	return handle;
}

static void call(void *handle, const char *entry, long *p)
{
	void *symbol = dlsym(handle, entry);
	void (*function)(long *);

	assert_non_null(symbol);
	memcpy(&function, &symbol, sizeof(function));
	function(p);
}

static void it_says_who_it_is(void **state)
{
	(void)state;
	assert_int_equal(strncmp(toolchain.id, "host ", 5), 0);
	assert_true(strlen(toolchain.id) > 5 + 32 + 1);
	assert_int_equal(strlen(toolchain.stamp), 32);
	assert_string_equal(toolchain.targets, "cpu");
}

static void a_template_becomes_an_object(void **state)
{
	struct compile_result result;
	long p[6] = {5, 0, 1L << 62, 12, 16, 0};
	void *handle;

	(void)state;
	compile(kernel, "add<long, 37>", &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	assert_string_equal(result.entry, "kiln_cpu_entry");
	assert_int_equal(result.registers, -1);
	assert_true(result.micros > 0);
	handle = load(&result);
	call(handle, result.entry, p);
	assert_int_equal(p[0], 42);
	assert_int_equal(p[1], (1L << 62) / 16 * 12); /* by 128-bit division */
	assert_int_equal(dlclose(handle), 0);
	compile_result_free(&result);
}

/* -fno-gnu-unique: what a kernel keeps is its own, and goes with it. */
static void objects_share_nothing(void **state)
{
	struct compile_result a, b;
	long p[6] = {0, 0, 1, 1, 1, 0};
	void *first, *second;

	(void)state;
	compile(kernel, "add<long, 2>", &a);
	compile(kernel, "add<long, 2>", &b);
	assert_int_equal(a.status, KILN_OK);
	/* The same bits, although another process, moment and directory made them. */
	assert_int_equal(a.object_bytes, b.object_bytes);
	assert_memory_equal(a.object, b.object, a.object_bytes);
	assert_null(memmem(a.object, a.object_bytes, "kiln-cc", 7));
	first = load(&a);
	call(first, a.entry, p);
	call(first, a.entry, p);
	assert_int_equal(p[5], 2);
	second = load(&b);
	call(second, b.entry, p);
	assert_int_equal(p[5], 1);
	dlclose(second);
	dlclose(first);
	first = load(&a);
	call(first, a.entry, p);
	assert_int_equal(p[5], 1);
	dlclose(first);
	compile_result_free(&a);
	compile_result_free(&b);
}

/*
 * Two sums, i64 while they are added up and u64 behind the loop: g++ 12.2.0 makes them 2 and 4 at
 * -O2 and at -O3, by its vectorizer of loops (its bug 107212); right are g++ 11.3, 12.4, 13.3 and
 * 14.2, clang++ 14 and 19.
 */
static void sums_in_two_types_are_whole(void **state)
{
	static const char sums[] =
		"typedef long long i64;\n"
		"typedef unsigned long long u64;\n"
		"__attribute__((noinline)) static void add_up(const int *x, int *y)\n"
		"{\n"
		"	i64 a = 0, b = 0;\n"
		"	u64 behind_a = 0, behind_b = 0;\n"
		"	for (int i = 0; i < 4; i++) {\n"
		"		behind_a = (u64)a + (u64)(i64)x[2 * i];\n"
		"		behind_b = (u64)b + (u64)(i64)x[2 * i + 1];\n"
		"		a = (i64)behind_a;\n"
		"		b = (i64)behind_b;\n"
		"	}\n"
		"	y[0] = (int)behind_a;\n"
		"	y[1] = (int)behind_b;\n"
		"}\n"
		"void add(long *p) { add_up((const int *)p, (int *)(p + 4)); }\n";
	struct compile_result result;
	int x[10] = {1, 2, 1, 2, 1, 2, 1, 2, 0, 0};
	long p[5];
	void *handle;

	(void)state;
	memcpy(p, x, sizeof(p));
	compile(sums, "add", &result);
	assert_string_equal(result.error, "");
	handle = load(&result);
	call(handle, result.entry, p);
	memcpy(x, p, sizeof(p));
	assert_int_equal(x[8], 4);
	assert_int_equal(x[9], 8);
	dlclose(handle);
	compile_result_free(&result);
}

static void an_error_has_the_callers_line(void **state)
{
	struct compile_result result;

	(void)state;
	compile("#pragma once\nint x;\n\nvoid add(long *p)\n{\n\t*p = nosuch;\n}\n", "add", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_int_equal(strncmp(result.error, "ops/add.cuh:6:", 14), 0);
	assert_non_null(strstr(result.error, "nosuch"));
	assert_non_null(strstr(result.log, result.error));
	assert_non_null(strstr(result.source, "KILN_CPU_ENTRY(add)"));
	assert_null(result.object);
	compile_result_free(&result);
	compile(kernel, "added<int>", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_int_equal(strncmp(result.error, "instantiation:1:", 16), 0);
	compile_result_free(&result);
}

static void headers_of_the_machine_are_not_there(void **state)
{
	struct compile_result result;

	(void)state;
	compile("#define F <stdio.h>\n#include F\nvoid add(long *p) { *p = 1; }\n", "add", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_int_equal(strncmp(result.error, "ops/add.cuh:2:", 14), 0);
	compile_result_free(&result);
}

static void warnings_are_kept(void **state)
{
	struct compile_result result;

	(void)state;
	compile("void add(long *p) { *p = 1 / 0; }\n", "add", &result);
	assert_int_equal(result.status, KILN_OK);
	assert_non_null(strstr(result.log, "ops/add.cuh:1:"));
	compile_result_free(&result);
}

static void other_targets_are_refused(void **state)
{
	struct compile_job job = {.target = "sm_90"};
	struct compile_result result;

	(void)state;
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_ENOTSUP);
	assert_string_equal(result.error, "the host compiler makes objects for target cpu, not sm_90");
	compile_result_free(&result);
}

/* Every kernel header compiles in front of the real shim. */
static void the_real_shim_compiles(void **state)
{
	static const char tiny[] = "#include \"common/types.cuh\"\n"
							   "template <class T> __global__ void twice(const T *x, T *y)\n"
							   "{ y[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; }\n";
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	struct compile_file files[COMPILE_MAX_HEADERS + 1];
	struct compile_sources *sources;
	struct compile_job job = {
		.target = "cpu", .source = "twice.cuh", .instantiation = "twice<float>", .files = files};
	struct compile_result result;
	char error[KERNEL_ERROR_MAX];

	(void)state;
	assert_int_equal(compile_sources_open(NULL, &sources, error), KILN_OK);
	if (compile_sources_closure(sources, "common/types.cuh", "cpu", found, &job.file_count, error))
		fail_msg("%s", error);
	for (int i = 0; i < job.file_count; i++)
		files[i] = *found[i];
	files[job.file_count++] = (struct compile_file){"twice.cuh", tiny, strlen(tiny)};
	hostcc_compile(&job, &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	dlclose(load(&result));
	compile_result_free(&result);
	/* To be checked, with lines, and nothing of where it was compiled. */
	job.check = true;
	hostcc_compile(&job, &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	assert_null(memmem(result.object, result.object_bytes, temporary, strlen(temporary)));
	assert_non_null(memmem(result.object, result.object_bytes, "twice.cuh", 9));
	dlclose(load(&result));
	compile_result_free(&result);
	compile_sources_close(sources);
}

/* Names in $TMPDIR that are not "." or "..". */
static int left_behind(void)
{
	DIR *dir = opendir(temporary);
	int count = 0;

	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

static void a_dead_process_is_cleaned_up_after(void **state)
{
	struct compile_toolchain other;
	int status;
	pid_t pid;

	(void)state;
	hostcc_close();
	assert_int_equal(left_behind(), 0);
	pid = fork();
	if (pid == 0) {
		hostcc_open(&other);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(left_behind(), 1);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, toolchain.id);
	assert_int_equal(left_behind(), 1); /* its own */
}

/* No file may grow beyond this, as on a disk with so much room. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A full disk is not the job's failure, and nobody may remember it as that. */
static void a_full_disk_is_no_error_of_the_source(void **state)
{
	static const rlim_t rooms[] = {0, 100, 1000};
	struct compile_result result;

	(void)state;
	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
		limit_files(rooms[i]);
		compile(kernel, "add<long, 2>", &result);
		limit_files(RLIM_INFINITY);
		assert_int_equal(result.status, KILN_EIO);
		assert_non_null(strstr(result.error, temporary));
		assert_non_null(strstr(result.error, "make room there, or name another with TMPDIR"));
		compile_result_free(&result);
	}
	compile(kernel, "add<long, 2>", &result);
	assert_int_equal(result.status, KILN_OK);
	compile_result_free(&result);
}

static void a_directory_that_is_removed_is_made_anew(void **state)
{
	struct compile_result result;
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s/*", temporary);
	assert_int_equal(system(command), 0);
	assert_false(hostcc_is_current());
	compile(kernel, "add<long, 2>", &result);
	assert_int_equal(result.status, KILN_OK);
	assert_true(hostcc_is_current());
	compile_result_free(&result);
}

/* A compiler that does this when it meets a kernel, and compiles all else. */
static void name_compiler_that(const char *does)
{
	const char *named = getenv("KILN_CXX");
	char path[100], text[400];
	FILE *file;

	hostcc_close();
	snprintf(path, sizeof(path), "%s/.cxx", temporary);
	snprintf(text, sizeof(text),
			 "#!/bin/sh\nread -r first <unit.cc\n[ -z \"$first\" ] || %s\nexec %s \"$@\"\n", does,
			 named && named[0] ? named : "g++");
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0700), 0);
	setenv("KILN_CXX", path, 1);
}

/* A compiler that was ended, or whose files were taken away, says nothing.  The failure is not the
 * source's, nobody may remember it as that, and it has a sentence all the same. */
static void a_compiler_that_says_nothing_is_spoken_for(void **state)
{
	static const struct {
		const char *does;
		int status;
		const char *words;
	} ends[] = {
		{"rm -rf \"$TMPDIR\"", KILN_EIO, "directory was removed while the worker ran: ask again"},
		{"rm \"$TMPDIR\"/*", KILN_EIO, "directory was removed while the worker ran: ask again"},
		{"kill -TERM $$", KILN_EIO, ".cxx was ended from outside (Terminated): ask again"},
		{"kill -KILL $$", KILN_ENOMEM, ".cxx was killed, as the system does when memory runs out"},
		{"exit 3", KILN_ECOMPILE, ".cxx failed without a word, with exit status 3"},
	};
	const char *named = getenv("KILN_CXX");
	char saved[200], path[100];
	struct compile_result result;

	(void)state;
	snprintf(saved, sizeof(saved), "%s", named ? named : "");
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		setenv("KILN_CXX", saved, 1);
		name_compiler_that(ends[i].does);
		compile(kernel, "add<long, 2>", &result);
		if (result.status != ends[i].status || !strstr(result.error, ends[i].words))
			fail_msg("%s: %d, %s", ends[i].does, result.status, result.error);
		compile_result_free(&result);
	}
	hostcc_close();
	snprintf(path, sizeof(path), "%s/.cxx", temporary);
	assert_int_equal(unlink(path), 0);
	setenv("KILN_CXX", saved, 1);
}

static void a_named_compiler_is_the_only_one(void **state)
{
	struct compile_toolchain other;
	const char *named = getenv("KILN_CXX");
	char value[200], saved[200];

	(void)state;
	snprintf(saved, sizeof(saved), "%s", named ? named : "");
	hostcc_close();
	setenv("KILN_CXX", "/nonexistent/g++", 1);
	assert_int_equal(hostcc_open(&other), KILN_ENOTSUP);
	assert_string_equal(other.reason, "KILN_CXX=/nonexistent/g++ is no program that can be run");
	assert_string_equal(other.id, "");
	setenv("KILN_CXX", "false", 1);
	assert_int_equal(hostcc_open(&other), KILN_ENOTSUP);
	assert_non_null(strstr(other.reason, "false does not answer --version and -dumpmachine"));
	assert_int_equal(left_behind(), 0);
	setenv("KILN_CXX", saved, 1);
	snprintf(value, sizeof(value), "%s:host told", toolchain.stamp);
	setenv(COMPILE_CXX_ID, value, 1);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, "host told");
	hostcc_close();
	value[0] = value[0] == '0' ? '1' : '0';
	setenv(COMPILE_CXX_ID, value, 1);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, toolchain.id);
	unsetenv(COMPILE_CXX_ID);
}

/* A compiler that is a script of ours can be replaced. */
static void a_replaced_compiler_is_noticed(void **state)
{
	const char *named = getenv("KILN_CXX");
	char path[100], command[800], saved[200];
	struct compile_toolchain first, second;
	struct compile_result result;

	(void)state;
	snprintf(saved, sizeof(saved), "%s", named ? named : "");
	hostcc_close();
	snprintf(path, sizeof(path), "%s/.cxx", temporary);
	snprintf(command, sizeof(command), "printf '#!/bin/sh\nexec %s \"$@\"\n' >%s; chmod 700 %s",
			 saved[0] ? saved : "g++", path, path);
	assert_int_equal(system(command), 0);
	setenv("KILN_CXX", path, 1);
	assert_int_equal(hostcc_open(&first), KILN_OK);
	assert_true(hostcc_is_current());
	snprintf(command, sizeof(command), "echo '# changed' >>%s", path);
	assert_int_equal(system(command), 0);
	assert_false(hostcc_is_current());
	compile(kernel, "add<long, 1>", &result);
	assert_int_equal(result.status, KILN_EIO);
	assert_non_null(strstr(result.error, ".cxx was replaced while the worker ran: ask again"));
	compile_result_free(&result);
	hostcc_close();
	assert_int_equal(hostcc_open(&second), KILN_OK);
	assert_string_not_equal(first.id, second.id);
	assert_int_equal(unlink(path), 0);
	setenv("KILN_CXX", saved, 1);
}

static void run_command(const char *command)
{
	assert_int_equal(system(command), 0);
}

/* Puts a script in the compiler's place that does something else where its arguments have a word.
 * It counts from the next hostcc_open() on. */
static void stand_in(const char *word, const char *deed, char path[100])
{
	static char real[200];
	const char *named = getenv("KILN_CXX");
	char command[1000];

	if (!real[0])
		snprintf(real, sizeof(real), "%s", named && named[0] ? named : "g++");
	snprintf(path, 100, "%s/.cxx", temporary);
	snprintf(command, sizeof(command),
			 "printf '#!/bin/sh\ncase \"$*\" in *%s*) %s;; esac\nexec %s \"$@\"\n' >%s; "
			 "chmod 700 %s",
			 word, deed, real, path, path);
	run_command(command);
	setenv("KILN_CXX", path, 1);
}

static void stand_in_ends(const char *saved, const char *path)
{
	struct compile_toolchain other;

	assert_int_equal(unlink(path), 0);
	setenv("KILN_CXX", saved, 1);
	hostcc_close();
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, toolchain.id);
}

/* Each question in turn is the one that hangs; nothing is asked after it. */
static void a_compiler_that_hangs_is_named(void **state)
{
	static const char *const questions[] = {"--version", "-dumpmachine", "unit",
											"-print-prog-name"};
	const char *named = getenv("KILN_CXX");
	char path[100], command[300], saved[200];
	struct compile_toolchain other;
	int count = strstr(toolchain.id, "clang") ? 3 : 4;

	(void)state;
	snprintf(saved, sizeof(saved), "%s", named ? named : "");
	hostcc_close();
	for (int i = 0; i < count; i++) {
		stand_in(questions[i], "echo $$ >$0.pid; exec sleep 600", path);
		look_us = 100000;
		assert_int_equal(hostcc_open(&other), KILN_ENOTSUP);
		look_us = 0;
		assert_non_null(strstr(other.reason, ".cxx has not answered within 20 s who it is: "));
		assert_string_equal(other.id, "");
		assert_int_equal(left_behind(), 0);
		snprintf(command, sizeof(command), "kill $(cat %s.pid); rm %s.pid", path, path);
		run_command(command);
		while (waitpid(-1, NULL, 0) > 0)
			;
	}
	stand_in_ends(saved, path);
}

/* Neither a kernel nor the compiler has failed. */
static void a_system_without_processes_is_no_error_of_the_source(void **state)
{
	static const char refusal[] =
		"[ -e $0.on ] && { echo vfork: Resource temporarily unavailable >&2; exit 1; }";
	const char *named = getenv("KILN_CXX");
	char path[100], command[300], saved[200];
	struct compile_toolchain other;
	struct compile_result result;

	(void)state;
	snprintf(saved, sizeof(saved), "%s", named ? named : "");
	hostcc_close();
	stand_in("unit", refusal, path);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	snprintf(command, sizeof(command), ": >%s.on", path);
	run_command(command);
	compile(kernel, "add<long, 3>", &result);
	assert_int_equal(result.status, KILN_EIO);
	assert_non_null(strstr(result.error, "the system gives no process for "));
	compile_result_free(&result);
	hostcc_close();
	assert_int_equal(hostcc_open(&other), KILN_EIO);
	assert_non_null(strstr(other.reason, ".cxx: end others, or raise the limit (ulimit -u"));
	assert_string_equal(other.id, "");
	snprintf(command, sizeof(command), "rm %s.on", path);
	run_command(command);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	stand_in_ends(saved, path);
}

static int close_all(void **state)
{
	(void)state;
	hostcc_close();
	return rmdir(temporary); /* fails if anything was left */
}

/* The compiler is asked whether the entry is a kernel, and what it says of that stays out of the
 * log. */
static void an_entry_of_a_users_is_a_kernel(void **state)
{
	static const char user_shim[] =
		"#define __global__ __attribute__((deprecated(KILN_CPU_KERNEL)))\n"
		"#define KILN_CPU_ENTRY(...) extern \"C\" __attribute__((visibility(\"default\"))) "
		"void kiln_cpu_entry(long *p) { __VA_ARGS__(p); }\n";
	static const char mine[] = "__global__ void kernel(long *p) { *p = 1 / 0; }\n"
							   "void function(long *p) { *p = 1 / 0; }\n";
	static const char wrong[] = "__global__ void kernel(long *p) { *p = M; }\n";
	struct compile_file files[] = {{"cpu/shim.cuh", user_shim, strlen(user_shim)},
								   {"mine.cu", mine, strlen(mine)}};
	struct compile_job job = {.target = "cpu",
							  .source = "mine.cu",
							  .instantiation = "kernel",
							  .files = files,
							  .file_count = 2,
							  .user_files = 1};
	struct compile_result result;

	(void)state;
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_OK);
	assert_non_null(strstr(result.log, "mine.cu:2:"));
	assert_non_null(strstr(result.log, "division by zero"));
	assert_null(strstr(result.log, "deprecated"));
	assert_null(strstr(result.log, "declared here"));
	assert_null(strstr(result.log, "entry:"));
	compile_result_free(&result);
	files[1] = (struct compile_file){"mine.cu", wrong, strlen(wrong)};
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_non_null(strstr(result.log, "mine.cu:1:"));
	assert_null(strstr(result.log, "deprecated"));
	assert_null(strstr(result.log, "entry:"));
	compile_result_free(&result);
	files[1] = (struct compile_file){"mine.cu", mine, strlen(mine)};
	job.instantiation = "function";
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_string_equal(result.error, "the entry function is a function that is not declared "
									  "__global__, and so no kernel");
	assert_null(result.object);
	compile_result_free(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_who_it_is),
		cmocka_unit_test(a_template_becomes_an_object),
		cmocka_unit_test(objects_share_nothing),
		cmocka_unit_test(sums_in_two_types_are_whole),
		cmocka_unit_test(an_error_has_the_callers_line),
		cmocka_unit_test(headers_of_the_machine_are_not_there),
		cmocka_unit_test(warnings_are_kept),
		cmocka_unit_test(an_entry_of_a_users_is_a_kernel),
		cmocka_unit_test(other_targets_are_refused),
		cmocka_unit_test(the_real_shim_compiles),
		cmocka_unit_test(a_dead_process_is_cleaned_up_after),
		cmocka_unit_test(a_full_disk_is_no_error_of_the_source),
		cmocka_unit_test(a_directory_that_is_removed_is_made_anew),
		cmocka_unit_test(a_compiler_that_says_nothing_is_spoken_for),
		cmocka_unit_test(a_named_compiler_is_the_only_one),
		cmocka_unit_test(a_replaced_compiler_is_noticed),
		cmocka_unit_test(a_compiler_that_hangs_is_named),
		cmocka_unit_test(a_system_without_processes_is_no_error_of_the_source),
	};

	snprintf(temporary, sizeof(temporary), "/tmp/kiln-hostcc.XXXXXX");
	if (mkdtemp(temporary) == NULL)
		return 1;
	setenv("TMPDIR", temporary, 1);
	if (hostcc_open(&toolchain) != KILN_OK) {
		printf("skipped: %s\n", toolchain.reason);
		rmdir(temporary);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, close_all);
}
