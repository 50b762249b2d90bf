/*
 * test_sandbox: users' sources that want more than a kernel may: what they try on the host, in the
 * compiler and in the process that runs them, and what comes of it: nothing, said in a sentence,
 * while everybody else goes on.  And hosts that cannot hold them.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MARKER "marker-of-a-secret-file"
#define WORDS 16
#define LANDLOCK_CREATE 444

/* Returns whether a right is taken away here, as the daemon says itself. */
static bool holds(kiln_client *client, const char *what)
{
	kiln_reply *reply;
	await_info_at_least(client, "workers.idle", 1);
	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	bool yes = strstr(kiln_reply_str(reply, "executors[0].sandbox"), what) &&
			   strstr(kiln_reply_str(reply, "workers.sandbox"), what);
	kiln_reply_free(reply);
	return yes;
}

/* Ends the test, and the clients, where there is nothing that it could show. */
static void skip_without(kiln_client *client, kiln_client *other, const char *what)
{
	if (holds(client, what))
		return;
	print_message("%s does not hold here\n", what);
	kiln_close(client);
	kiln_close(other);
	skip();
}

static kiln_raw raw_of(const char *source, const kiln_text *macros, size_t macro_count)
{
	return (kiln_raw){.size = sizeof(kiln_raw),
					  .name = "deed.cu",
					  .source = source,
					  .entry = "deed",
					  .macros = macros,
					  .macro_count = macro_count};
}

/* Runs a kernel of one thread on WORDS words; they are those of out afterwards. */
static int run(kiln_client *client, const kiln_raw *raw, int64_t out[WORDS])
{
	kiln_buffer *buffer;
	kiln_ticket ticket;
	kiln_call *call;
	assert_ok(kiln_alloc(client, WORDS * sizeof(*out), 0, "out", &buffer));
	assert_ok(kiln_prepare_raw(client, raw, &call));
	kiln_raw_arg arg = {.buffer = buffer};
	kiln_launch how = {.size = sizeof(how), .args = &arg, .arg_count = 1};
	int status = kiln_submit_raw(call, &how, 0, &ticket);
	if (status == KILN_OK)
		status = kiln_wait(client, ticket, CALL_TIMEOUT_MS);
	if (status == KILN_OK)
		assert_ok(kiln_read(buffer, 0, out, WORDS * sizeof(*out)));
	kiln_call_free(call);
	kiln_free(buffer);
	return status;
}

/* ---- In the middle of a kernel ---- */

static const char deed_source[] =
	"extern \"C\" long syscall(long, ...);\n"
	"__global__ void deed(long *out) { out[0] = syscall(NUMBER, A, B, C, 0); }\n";

static const struct {
	long number;
	const char *a, *b, *c, *word;
} kernel_deeds[] = {
	{SYS_openat, "-100L", "\"/etc/passwd\"", "0L", "opens a file (system call 257), which no"},
	{SYS_socket, "1L", "1L", "0L", "uses a socket"},
	{SYS_execve, "\"/bin/true\"", "0L", "0L", "starts a program"},
	{SYS_vfork, "0L", "0L", "0L", "starts a process or thread"},
	{SYS_kill, "BROKER", "9L", "0L", "sends a signal"},
	{SYS_ptrace, "16L", "BROKER", "0L", "looks into another process"},
	{SYS_write, "3L", "\"rubbish\"", "7L", "writes to a descriptor that is not its own"},
	{SYS_mkdir, "\"/tmp/kiln-made-by-a-kernel\"", "0L", "0L",
	 "makes a system call (system call 83)"},
};

static void test_kernels_are_caught(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(5, 7);
	int64_t out[WORDS];
	char number[24], broker[24];

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon), *other = client_open(daemon);
	assert_permutes(other, &problem, NULL);
	skip_without(client, other, "seccomp");
	int64_t pid = info_int(other, "executors[0].pid");
	snprintf(broker, sizeof(broker), "%dL", (int)daemon->pid);
	for (size_t i = 0; i < sizeof(kernel_deeds) / sizeof(kernel_deeds[0]); i++) {
		const kiln_text macros[] = {{"NUMBER", number, 0},
									{"A", kernel_deeds[i].a, 0},
									{"B", kernel_deeds[i].b, 0},
									{"C", kernel_deeds[i].c, 0},
									{"BROKER", broker, 0}};
		kiln_raw raw = raw_of(deed_source, macros, 5);
		snprintf(number, sizeof(number), "%ldL", kernel_deeds[i].number);
		assert_int_equal(run(client, &raw, out), KILN_EDEVICE);
		assert_sentence("block (0,0,0), thread (0,0,0): ");
		assert_sentence(kernel_deeds[i].word);
		assert_permutes(other, &problem, NULL);
	}
	/* It was always their own process that ended. */
	assert_int_equal(info_int(other, "executors[0].pid"), pid);
	assert_int_equal(access("/tmp/kiln-made-by-a-kernel", F_OK), -1);
	kiln_close(client);
	kiln_close(other);
	kilnd_stop(daemon);
}

/* ---- Before any kernel runs: code of the object itself ---- */

static const char early_source[] =
	"extern \"C\" char **environ;\n"
	"static long seen[16];\n"
	"static long sys(long n, long a, long b, long c, long d)\n"
	"{\n"
	"	register long r10 __asm__(\"r10\") = d;\n"
	"	long r;\n"
	"	__asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c), "
	"\"r\"(r10)\n"
	"					 : \"rcx\", \"r11\", \"memory\");\n"
	"	return r;\n"
	"}\n"
	"static bool is_secret(const char *at)\n"
	"{\n"
	"	const char *word = \"KILN_SECRET_OF_TEST\";\n"
	"	while (*word && *at == *word)\n"
	"		at++, word++;\n"
	"	return !*word;\n"
	"}\n"
	"__attribute__((constructor)) static void early()\n"
	"{\n"
	"	seen[0] = 1;\n"
	"	seen[1] = sys(257, -100, (long)SECRET, 0, 0);\n" /* openat, to read */
	"	seen[2] = sys(257, -100, (long)SECRET, 1, 0);\n" /* to write */
	"	seen[3] = sys(257, -100, (long)PARENT \"/environ\", 0, 0);\n"
	"	seen[4] = sys(257, -100, (long)PARENT \"/mem\", 0, 0);\n"
	"	seen[5] = sys(41, 1, 1, 0, 0);\n"                   /* socket */
	"	seen[6] = sys(59, (long)\"/bin/true\", 0, 0, 0);\n" /* execve */
	"	seen[7] = sys(62, BROKER, 9, 0, 0);\n"              /* kill */
	"	seen[8] = sys(234, BROKER, BROKER, 9, 0);\n"        /* tgkill */
	"	seen[9] = sys(56, 17, 0, 0, 0);\n"                  /* clone */
	"	seen[10] = sys(310, BROKER, 0, 0, 0);\n"            /* process_vm_readv */
	"	for (char **at = environ; *at; at++)\n"
	"		seen[11] += is_secret(*at);\n"
	"	seen[12] = sys(2, (long)SECRET, 0, 0, 0);\n" /* open */
	"}\n"
	"__global__ void deed(long *out)\n"
	"{\n"
	"	for (int i = 0; i < 16; i++)\n"
	"		out[i] = seen[i];\n"
	"}\n";

static void write_secret(const struct kilnd *daemon, char path[128])
{
	snprintf(path, 128, "%s/secret", daemon->dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "\"" MARKER "\"\n", sizeof(MARKER) + 2), sizeof(MARKER) + 2);
	close(fd);
}

static void test_objects_reach_nothing(void **state)
{
	struct kilnd *daemon = *state;
	char secret[128], quoted[160], parent[64], broker[24];
	int64_t out[WORDS] = {0};

	write_secret(daemon, secret);
	kilnd_spawn(daemon, NULL, OPTIONS("KILN_SECRET_OF_TEST=hush"), -1);
	kilnd_await(daemon);
	kiln_client *client = client_open(daemon);
	skip_without(client, NULL, "seccomp");
	bool files = holds(client, "landlock");
	snprintf(quoted, sizeof(quoted), "\"%s\"", secret);
	snprintf(parent, sizeof(parent), "\"/proc/%d\"", (int)daemon->pid);
	snprintf(broker, sizeof(broker), "%dL", (int)daemon->pid);
	const kiln_text macros[] = {
		{"SECRET", quoted, 0}, {"PARENT", parent, 0}, {"BROKER", broker, 0}};
	kiln_raw raw = raw_of(early_source, macros, 3);
	assert_int_equal(run(client, &raw, out), KILN_OK);
	assert_int_equal(out[0], 1);
	for (int i = 1; i <= 12; i++) {
		bool reads = i == 1 || i == 3 || i == 4 || i == 12;
		if (i == 11)
			assert_int_equal(out[i], 0);
		else if (!reads)
			assert_int_equal(out[i], -EPERM);
		else if (files)
			assert_int_equal(out[i], -EACCES);
	}
	assert_true(info_int(client, "server.pid") == daemon->pid);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- In the compiler ---- */

/* SECRET stands for the path; its text must not come back.  A compiler of the host says that it may
 * not look at a file, NVRTC sees none. */
static const struct {
	const char *source;
	int status, on_gpu;
} compiler_deeds[] = {
	{"#include SECRET\n__global__ void deed(long *) {}\n", KILN_ECOMPILE, KILN_ECOMPILE},
	{"#inc\\\nlude SECRET\n__global__ void deed(long *) {}\n", KILN_ECOMPILE, KILN_ECOMPILE},
	{"%:include SECRET\n__global__ void deed(long *) {}\n", KILN_ECOMPILE, KILN_ECOMPILE},
	{"/**/ # /**/ include /**/ SECRET\n__global__ void deed(long *) {}\n", KILN_ECOMPILE,
	 KILN_ECOMPILE},
	{"#if __has_include(SECRET)\n#error it is there\n#endif\n__global__ void deed(long *) {}\n",
	 KILN_ECOMPILE, KILN_OK},
	{"__asm__(\".incbin \\\"\" SECRET \"\\\"\");\n__global__ void deed(long *) {}\n", KILN_ECOMPILE,
	 KILN_ECOMPILE},
	{"__asm__(\".include \\\"\" SECRET \"\\\"\");\n__global__ void deed(long *) {}\n",
	 KILN_ECOMPILE, KILN_ECOMPILE},
	/* Half a GiB. */
	{"__asm__(\".section .data\\n.fill 0x20000000, 1, 1\");\n__global__ void deed(long *) {}\n",
	 KILN_ECOMPILE, KILN_ECOMPILE},
};

static void try_compiler(kiln_client *client, size_t i, const char *target, const char *quoted)
{
	const kiln_text macro = {"SECRET", quoted, 0};
	kiln_raw raw = raw_of(compiler_deeds[i].source, &macro, 1);
	kiln_reply *reply = NULL;
	int status = kiln_compile_raw(client, &raw, target, &reply);
	if (status != (strcmp(target, "cpu") ? compiler_deeds[i].on_gpu : compiler_deeds[i].status))
		fail_msg("%s, source %zu: %s: %s", target, i, kiln_status_name(status), kiln_errmsg());
	if (status && (!kiln_errmsg()[0] || strchr(kiln_errmsg(), '\n')))
		fail_msg("%s, source %zu: no sentence: %s", target, i, kiln_errmsg());
	if (strstr(kiln_errmsg(), MARKER) || (kiln_errlog() && strstr(kiln_errlog(), MARKER)))
		fail_msg("%s, source %zu shows the file: %s", target, i, kiln_errlog());
	kiln_reply_free(reply);
}

/* The directories of the system hold more than compilers: what is no program, library or header
 * lies below /usr/share. */
static bool find_data(char quoted[160])
{
	glob_t found = {0};
	struct stat status;
	bool any = false;
	glob("/usr/share/*/*", 0, NULL, &found);
	for (size_t i = 0; i < found.gl_pathc && !any; i++)
		any = strlen(found.gl_pathv[i]) < 150 && !strpbrk(found.gl_pathv[i], "\"\\") &&
			  lstat(found.gl_pathv[i], &status) == 0 && S_ISREG(status.st_mode) &&
			  access(found.gl_pathv[i], R_OK) == 0 &&
			  snprintf(quoted, 160, "\"%s\"", found.gl_pathv[i]) > 0;
	globfree(&found);
	return any;
}

static void test_compilers_read_no_data(void **state)
{
	struct kilnd *daemon = *state;
	char quoted[160];
	kiln_reply *reply = NULL;

	if (!find_data(quoted))
		skip();
	const kiln_text macro = {"SECRET", quoted, 0};
	kiln_raw raw =
		raw_of("__asm__(\".pushsection .rodata\\n.incbin \\\"\" SECRET \"\\\"\\n.popsection\");\n"
			   "__global__ void deed(long *) {}\n",
			   &macro, 1);
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	skip_without(client, NULL, "landlock");
	if (kiln_compile_raw(client, &raw, "cpu", &reply) != KILN_ECOMPILE)
		fail_msg("a source reads %s", quoted);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_compilers_read_nothing(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(3, 5);
	char secret[128], quoted[160];
	kiln_reply *reply;

	write_secret(daemon, secret);
	snprintf(quoted, sizeof(quoted), "\"%s\"", secret);
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	skip_without(client, NULL, "landlock");
	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	bool nvrtc = kiln_reply_str(reply, "workers.nvrtc_targets")[0];
	kiln_reply_free(reply);
	for (size_t i = 0; i < sizeof(compiler_deeds) / sizeof(compiler_deeds[0]); i++) {
		try_compiler(client, i, "cpu", quoted);
		if (nvrtc && i < 5) /* the others are for an assembler of the host */
			try_compiler(client, i, "sm_90", quoted);
	}
	assert_permutes(client, &problem, NULL);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Hosts that have less ---- */

/* Answers the question for Landlock as an old kernel does. */
static bool hide_landlock(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LANDLOCK_CREATE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
		   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int old_host(const struct kilnd *daemon, void *mode)
{
	int log = open(daemon->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (!hide_landlock())
		return 99;
	dup2(log, STDERR_FILENO);
	execl(getenv("KILND"), "kilnd", "--socket", daemon->socket, "--cache-dir", daemon->cache,
		  "--device", "cpu", "--sandbox", (const char *)mode, (char *)NULL);
	return 98;
}

static void assert_logged(const struct kilnd *daemon, const char *word)
{
	char *log = kilnd_log(daemon);
	if (!strstr(log, word))
		fail_msg("no \"%s\" in the log: %s", word, log);
	free(log);
}

static void test_less_is_said(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(3, 5);
	pid_t pid = process_start(daemon, old_host, (void *)(uintptr_t) "require");
	assert_int_equal(process_wait(pid, START_TIMEOUT_MS), EXITED(1));
	assert_logged(daemon, "--sandbox require: this host lacks ");
	assert_logged(daemon, "Landlock (the kernel is older than 5.13 or has it off)");

	daemon->pid = process_start(daemon, old_host, (void *)(uintptr_t) "auto");
	kilnd_await(daemon);
	kilnd_await_log(daemon, "warn the sandbox lacks ");
	kiln_client *client = client_open(daemon);
	kiln_reply *reply;
	assert_permutes(client, &problem, NULL);
	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	assert_string_equal(kiln_reply_str(reply, "sandbox.mode"), "auto");
	assert_non_null(strstr(kiln_reply_str(reply, "sandbox.lacks"), "Landlock"));
	assert_null(strstr(kiln_reply_str(reply, "executors[0].sandbox"), "landlock"));
	kiln_reply_free(reply);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_off_and_wrapped(void **state)
{
	static const char *const ways[][2] = {{"--sandbox", "off"}, {"--executor-wrapper", "env"}};
	struct kilnd *daemon = *state;
	struct permute problem = transpose(3, 5);
	kiln_reply *reply;

	for (size_t i = 0; i < 2; i++) {
		kilnd_start(daemon, OPTIONS(ways[i][0], ways[i][1]));
		kiln_client *client = client_open(daemon);
		assert_permutes(client, &problem, NULL);
		assert_ok(kiln_request(client, "info", NULL, 0, &reply));
		assert_string_equal(kiln_reply_str(reply, "executors[0].sandbox"), "off");
		/* Compilers stay in theirs while device processes are watched. */
		assert_int_equal(strcmp(kiln_reply_str(reply, "workers.sandbox"), "off") == 0, i == 0);
		kiln_reply_free(reply);
		kiln_close(client);
		kilnd_stop(daemon);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_kernels_are_caught),     HARNESS_TEST(test_objects_reach_nothing),
		HARNESS_TEST(test_compilers_read_nothing), HARNESS_TEST(test_compilers_read_no_data),
		HARNESS_TEST(test_less_is_said),           HARNESS_TEST(test_off_and_wrapped),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
