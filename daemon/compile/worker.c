/*
 * worker: the main loop of a compiler process.  One job at a time, on the main thread; no deadline
 * of its own: the broker kills the process group of a worker that takes too long, or that gives no
 * sign of life while it works.
 */
#include "backend.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/heart.h"

#include "daemon/base/misdeed.h"

#include <client/wire/frame.h>
#include <client/wire/wire.h>
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define WORKER_STACK (64u << 20) /* deep nesting in a source overflows the usual 8 MiB */
#define WORKER_FILE (256u << 20) /* of any file: what a source makes must not fill a disk */
#define WORKER_GIVES_WAY 500     /* when memory runs out, before the broker and its clients */

/* ---- A process of its own ---- */

static void close_inherited(int keep)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int fds[256], count;

	/* Close after reading: the directory has a descriptor too. */
	do {
		count = 0;
		if (!dir)
			return;
		rewinddir(dir);
		while (count < 256 && (entry = readdir(dir))) {
			int fd = (int)strtol(entry->d_name, NULL, 10); /* "." and "..": 0 */

			if (fd > 2 && fd != keep && fd != dirfd(dir))
				fds[count++] = fd;
		}
		for (int i = 0; i < count; i++)
			close(fds[i]);
	} while (count == 256);
	closedir(dir);
}

/* A compile needs some megabytes for a moment, and the worker keeps them for the next one.  If the
 * system took them back and zeroed them again, a compile would take a tenth longer, and more among
 * many workers. */
static void keep_memory(void)
{
	mallopt(M_MMAP_THRESHOLD, 16 << 20);
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
	mallopt(M_TOP_PAD, 4 << 20);
}

static void set_soft_limit(int what, uint64_t value)
{
	struct rlimit limit;

	if (getrlimit(what, &limit) != 0)
		return;
	limit.rlim_cur =
		limit.rlim_max == RLIM_INFINITY || value < limit.rlim_max ? (rlim_t)value : limit.rlim_max;
	setrlimit(what, &limit);
}

static void set_hard_limit(int what, uint64_t value)
{
	struct rlimit limit;

	if (getrlimit(what, &limit) != 0)
		return;
	if (limit.rlim_max == RLIM_INFINITY || value < limit.rlim_max)
		limit.rlim_max = (rlim_t)value;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(what, &limit);
}

static void become_worker(int sock)
{
	/* The group is what the broker kills.  Fails, harmlessly, where it was made at the start. */
	if (setsid() < 0)
		setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN); /* inherited: a compiler then says what is wrong */
	fcntl(sock, F_SETFD, FD_CLOEXEC);
	close_inherited(sock);
	set_soft_limit(RLIMIT_STACK, WORKER_STACK);
}

static uint64_t virtual_bytes(void)
{
	size_t bytes;
	char *text = util_read_file("/proc/self/statm", 4096, &bytes);
	uint64_t pages = text ? strtoull(text, NULL, 10) : 0;

	free(text);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* used: bytes of address space, without what a job needs. */
static void limit_self(const struct compile_worker_options *options, uint64_t used)
{
	set_hard_limit(RLIMIT_CORE, 0);
	set_hard_limit(RLIMIT_FSIZE, WORKER_FILE);
	if (options->memory_bytes && used)
		set_hard_limit(RLIMIT_AS, used + options->memory_bytes);
	if (options->cpu_seconds)
		set_hard_limit(RLIMIT_CPU, options->cpu_seconds);
}

static int enter_sandbox(enum sandbox_mode mode, char held[SANDBOX_TEXT],
						 char error[KERNEL_ERROR_MAX])
{
	struct sandbox_files files = {.work = hostcc_directory()};
	struct compile_reach reach = {0};

	if (hostcc_program())
		compile_reach_of(hostcc_program(), &reach);
	for (int i = 0; i < reach.count && i < SANDBOX_READ; i++)
		files.read[files.read_count++] = reach.paths[i];
	return sandbox_enter(SANDBOX_COMPILER, mode, &files, held, error, KERNEL_ERROR_MAX);
}

/* ---- Jobs ---- */

#ifdef KILN_TEST_HOOKS
/* Answers with the object, or the failure, that a test wants.  False: the job is to be compiled. */
static bool forge(const struct compile_job *job, struct compile_result *out)
{
	enum misdeed misdeed = (enum misdeed)job->test_misdeed;
	const char *object = misdeed == MISDEED_CUT ? "\177ELF, and no more" : "a text";

	if (misdeed == MISDEED_FAIL)
		out->status = util_fail(out->error, sizeof(out->error), KILN_ECOMPILE, "failed on request");
	else if (misdeed != MISDEED_NOTHING && misdeed != MISDEED_TEXT && misdeed != MISDEED_CUT)
		return false;
	else
		out->entry = util_strdup("kernel");
	if (misdeed == MISDEED_TEXT || misdeed == MISDEED_CUT) {
		out->object = util_strdup(object);
		out->object_bytes = strlen(object);
	}
	return true;
}

/* Names a kernel that the object does not have. */
static void spoil_entry(const struct compile_job *job, struct compile_result *result)
{
	if (job->test_misdeed == MISDEED_ENTRY && result->entry)
		result->entry[0] ^= 1;
}
#else
static bool forge(const struct compile_job *job, struct compile_result *out)
{
	(void)job, (void)out;
	return false;
}

static void spoil_entry(const struct compile_job *job, struct compile_result *result)
{
	(void)job, (void)result;
}
#endif

static void delay(uint32_t ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	while (ms && nanosleep(&left, &left) != 0)
		continue;
}

static void call_compiler(const struct compile_job *job, struct compile_result *out)
{
	struct rlimit files;

	if (options_is_cpu(job->target)) {
		hostcc_compile(job, out);
	} else if (options_is_cuda(job->target)) {
		/* No source may make NVRTC open a file: its log would show the contents. */
		if (job->user_files)
			sandbox_compile_alone();
		getrlimit(RLIMIT_NOFILE, &files);
		set_soft_limit(RLIMIT_NOFILE, 0);
		nvrtc_compile(job, out);
		setrlimit(RLIMIT_NOFILE, &files);
	} else {
		out->status =
			util_fail(out->error, sizeof(out->error), KILN_ENOTSUP,
					  "no compiler for target %s: targets are cpu and sm_NN", job->target);
	}
}

static void compile(const struct compile_job *job, struct compile_result *out)
{
	compile_result_begin(out);
	if (!forge(job, out))
		call_compiler(job, out);
	if (out->status == KILN_ECOMPILE && job->user_files)
		log_name_entry(job->instantiation, out->error);
}

/* ---- Messages ---- */

static int send_message(int sock, struct wire_out *out)
{
	int status = wire_end(out);

	if (status == KILN_OK)
		status = frame_send_wait(sock, out->buffer.data, out->buffer.size, NULL, 0,
								 DEADLINE_WORKER_SEND_MS);
	wire_out_free(out);
	return status;
}

/* ---- Signs of life: a compile may take long, and tells nobody meanwhile ---- */

struct pulse_out {
	int sock;
	struct wire_out beat;
};

static bool on_beat(void *arg, bool busy)
{
	const struct pulse_out *out = arg;

	/* A broker that cannot take the beat sees other signs of life. */
	if (busy)
		(void)frame_send(out->sock, out->beat.buffer.data, out->beat.buffer.size, NULL, 0);
	return true;
}

static struct heart *start_heart(int sock, uint32_t every_ms)
{
	static struct pulse_out out;

	if (every_ms == 0)
		return NULL;
	out.sock = sock;
	wire_begin(&out.beat, "alive", 0);
	return wire_end(&out.beat) == KILN_OK ? heart_start(every_ms, on_beat, &out) : NULL;
}

/* usable becomes false when this process should do no further job. */
static int do_job(int sock, const struct frame *frame, bool *usable)
{
	struct compile_job_room room;
	struct compile_result result;
	struct wire_out out;
	struct compile_job job;
	struct wire_in in;
	uint64_t id, before;
	char *texts = NULL;
	int status;

	status = wire_parse(&in, frame->data, frame->size);
	if (status != KILN_OK) {
		util_log(UTIL_ERROR, "compiler worker: %s", in.why);
		return status;
	}
	status = compile_job_read(&in, &id, &job, &room);
	if (status == KILN_OK)
		status = compile_job_texts(frame->fd_count ? frame->fds[0] : -1, &job, &room, &texts);
	if (status != KILN_OK) {
		util_log(UTIL_ERROR, "compiler worker: a message that is no job");
		wire_in_free(&in);
		return status;
	}
	delay(job.delay_ms);
	if (misdeed_do((enum misdeed)job.test_misdeed, sock, "result", id)) {
		free(texts);
		wire_in_free(&in);
		return KILN_OK;
	}
	before = usage_begin();
	compile(&job, &result);
	result.peak_bytes = usage_end(before);
	spoil_entry(&job, &result);
	compile_result_write(&out, id, &result);
	/* NVRTC does not give back its memory, and a replaced compiler stays replaced: such a
	 * process ends.  If the compiler changes after the answer, the next job sees it. */
	*usable = result.status != KILN_ENOMEM && hostcc_is_current();
	status = send_message(sock, &out);
	compile_result_free(&result);
	free(texts);
	wire_in_free(&in);
	return status;
}

static int serve(int sock, struct heart *heart)
{
	bool usable = true, busy = false;
	int status;

	do {
		struct frame frame = {0};

		status = frame_recv_wait(sock, &frame, COMPILE_MESSAGE_MAX, KILN_FOREVER);
		if (status == KILN_EPROTO)
			util_log(UTIL_ERROR, "compiler worker: %s", frame.why);
		heart_busy(heart, &busy, true);
		if (status == KILN_OK)
			status = do_job(sock, &frame, &usable);
		heart_busy(heart, &busy, false);
		frame_free(&frame);
	} while (status == KILN_OK && usable);
	return status == KILN_ECONN || status == KILN_OK ? 0 : 1;
}

int compile_worker_main(const struct compile_worker_options *options)
{
	struct compile_toolchains toolchains = {0};
	char error[KERNEL_ERROR_MAX];
	struct wire_out out;
	uint64_t used;
	int status = KILN_OK;

	become_worker(options->sock);
	keep_memory();
	sandbox_give_way(WORKER_GIVES_WAY);
	if (nvrtc_open(&toolchains.nvrtc) == KILN_OK)
		nvrtc_warm();
	hostcc_find();
	usage_open();
	used = virtual_bytes();
	if (enter_sandbox(options->sandbox, toolchains.sandbox, error) != KILN_OK) {
		util_log(UTIL_ERROR, "compiler worker: %s", error);
		hostcc_close();
		return 1;
	}
	/* A compiler that is there and cannot be asked now is no reason to go on without one. */
	if (hostcc_open(&toolchains.host) == KILN_EIO) {
		util_log(UTIL_ERROR, "compiler worker: %s", toolchains.host.reason);
		hostcc_close();
		return 1;
	}
	limit_self(options, used);
	compile_ready_write(&out, &toolchains);
	if (misdeed_do((enum misdeed)options->test_misdeed, options->sock, "ready", 0))
		wire_out_free(&out);
	else
		status = send_message(options->sock, &out);
	if (status == KILN_OK)
		status = serve(options->sock, start_heart(options->sock, options->beat_ms));
	else
		status = status == KILN_ECONN ? 0 : 1;
	hostcc_close();
	return status;
}
