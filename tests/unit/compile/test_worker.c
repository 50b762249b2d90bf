/*
 * test_worker: a whole compiler process over its socket, and the messages themselves.
 */
#include "client/wire/frame.h"
#include "client/wire/wire.h"
#include "daemon/compile/compile.h"
#include "daemon/base/misdeed.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 240000

/* A sanitizer's allocator does not survive an address space limit. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static struct compile_toolchains toolchains;

struct worker {
	pid_t pid;
	int sock;
};

static void receive(struct worker *worker, struct frame *frame, struct wire_in *in)
{
	*frame = (struct frame){0};
	assert_int_equal(frame_recv_wait(worker->sock, frame, COMPILE_MESSAGE_MAX, WAIT_MS), KILN_OK);
	assert_int_equal(wire_parse(in, frame->data, frame->size), KILN_OK);
}

static struct worker start(void)
{
	struct worker worker;
	struct frame frame;
	struct wire_in in;
	int pair[2];

	assert_int_equal(frame_pair(pair), KILN_OK);
	worker.pid = fork();
	assert_true(worker.pid >= 0);
	if (worker.pid == 0) {
		struct compile_worker_options options = {
			.sock = pair[1], .memory_bytes = 512u << 20, .cpu_seconds = 120};

		_exit(compile_worker_main(&options));
	}
	close(pair[1]);
	worker.sock = pair[0];
	receive(&worker, &frame, &in);
	assert_int_equal(compile_ready_read(&in, &toolchains), KILN_OK);
	wire_in_free(&in);
	frame_free(&frame);
	return worker;
}

/* Exit status, or minus the signal. */
static int stop(struct worker *worker)
{
	int status;

	close(worker->sock);
	assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const char shim[] = "#define KILN_CPU_ENTRY(...) extern \"C\" "
						   "__attribute__((visibility(\"default\"))) "
						   "void kiln_cpu_entry(int *p) { __VA_ARGS__(p); }\n"
						   "#define __global__\n";
static const char kernel[] = "template <int N> __global__ void set(int *p) { *p = N; }\n";

static struct compile_job make_job(const char *target, struct compile_file files[2])
{
	struct compile_job job = {.source = "ops/set.cuh", .instantiation = "set<3>", .files = files};

	snprintf(job.target, sizeof(job.target), "%s", target);
	if (strcmp(target, "cpu") == 0)
		files[job.file_count++] = (struct compile_file){"cpu/shim.cuh", shim, strlen(shim)};
	files[job.file_count++] = (struct compile_file){"ops/set.cuh", kernel, strlen(kernel)};
	return job;
}

static void send_job(struct worker *worker, uint64_t id, const struct compile_job *job)
{
	struct wire_out out;

	compile_job_write(&out, id, job);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(
		frame_send_wait(worker->sock, out.buffer.data, out.buffer.size, NULL, 0, WAIT_MS), KILN_OK);
	wire_out_free(&out);
}

static void get_result(struct worker *worker, uint64_t id, struct compile_result *result)
{
	struct frame frame;
	struct wire_in in;
	uint64_t got = 0;

	receive(worker, &frame, &in);
	assert_int_equal(compile_result_read(&in, &got, result), KILN_OK);
	assert_int_equal(got, id);
	wire_in_free(&in);
	frame_free(&frame);
}

static void every_back_end_answers(struct worker *worker, const char *target,
								   const struct compile_toolchain *toolchain)
{
	struct compile_file files[2];
	struct compile_job job = make_job(target, files);
	struct compile_result result;

	send_job(worker, 7, &job);
	get_result(worker, 7, &result);
	if (toolchain->id[0] == 0) {
		assert_int_equal(result.status, KILN_ENOTSUP);
		assert_true(toolchain->reason[0] && strstr(result.error, toolchain->reason));
		return;
	}
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	assert_true(result.object_bytes > 64);
	assert_memory_equal(result.object, "\177ELF", 4);
	assert_non_null(result.entry);
	assert_non_null(strstr(result.source, kernel));
	assert_non_null(result.log);
	assert_true(result.micros > 0);
	compile_result_free(&result);
	/* The limits of one back end do not stay for the other. */
	job.instantiation = "nosuch<3>";
	send_job(worker, 8, &job);
	get_result(worker, 8, &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_non_null(strstr(result.error, "nosuch"));
	assert_null(result.object);
	compile_result_free(&result);
}

static void jobs_are_answered(void **state)
{
	struct worker worker = start();

	(void)state;
	every_back_end_answers(&worker, "sm_90", &toolchains.nvrtc);
	every_back_end_answers(&worker, "cpu", &toolchains.host);
	every_back_end_answers(&worker, "sm_90", &toolchains.nvrtc);
	assert_int_equal(stop(&worker), 0);
}

static void large_messages_pass(void **state)
{
	struct worker worker = start();
	size_t bytes = 300000;
	char *text = malloc(bytes);
	struct compile_file files[2];
	struct compile_job job = make_job("cpu", files);
	struct compile_result result;

	(void)state;
	memset(text, '\n', bytes);
	memcpy(text + bytes - strlen(kernel), kernel, strlen(kernel));
	files[1].text = text;
	files[1].bytes = bytes;
	send_job(&worker, 9, &job);
	get_result(&worker, 9, &result);
	if (toolchains.host.id[0]) {
		assert_int_equal(result.status, KILN_OK);
		assert_true(strlen(result.source) > bytes);
	}
	compile_result_free(&result);
	free(text);
	assert_int_equal(stop(&worker), 0);
}

/* Ten million statements, or as many as fit. */
static void memory_is_limited(void **state)
{
	static const char bomb[] = "#define A(x) x x x x x x x x x x\n"
							   "#define B(x) A(A(A(A(A(A(A(x)))))))\n"
							   "__global__ void set(int *p) { B(*p += 1;) }\n";
	struct worker worker = start();
	struct compile_file files[2];
	struct compile_job job = make_job("sm_90", files);
	struct compile_result result;
	struct frame frame = {0};

	(void)state;
	if (toolchains.nvrtc.id[0] && !SANITIZED) {
		job.instantiation = "set";
		files[0].text = bomb;
		files[0].bytes = strlen(bomb);
		send_job(&worker, 1, &job);
		get_result(&worker, 1, &result);
		assert_int_equal(result.status, KILN_ENOMEM);
		assert_string_equal(result.error, "the compiler ran out of memory");
		compile_result_free(&result);
		/* And goes, because what it held does not come back. */
		assert_int_equal(frame_recv_wait(worker.sock, &frame, COMPILE_MESSAGE_MAX, WAIT_MS),
						 KILN_ECONN);
	}
	assert_int_equal(stop(&worker), 0);
}

static void other_targets_are_refused(void **state)
{
	struct worker worker = start();
	struct compile_file files[2];
	struct compile_job job = make_job("gfx90a", files);
	struct compile_result result;

	(void)state;
	send_job(&worker, 1, &job);
	get_result(&worker, 1, &result);
	assert_int_equal(result.status, KILN_ENOTSUP);
	assert_string_equal(result.error, "no compiler for target gfx90a: targets are cpu and sm_NN");
	compile_result_free(&result);
	assert_int_equal(stop(&worker), 0);
}

static void faults_happen_on_request(void **state)
{
	struct worker worker = start();
	struct compile_file files[2];
	struct compile_job job = make_job("cpu", files);
	struct compile_result result;
	struct frame frame = {0};

	(void)state;
	job.test_misdeed = MISDEED_FAIL;
	job.delay_ms = 1;
	send_job(&worker, 1, &job);
	get_result(&worker, 1, &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_string_equal(result.error, "failed on request");
	compile_result_free(&result);
	job.test_misdeed = MISDEED_CRASH;
	send_job(&worker, 2, &job);
	assert_int_equal(frame_recv_wait(worker.sock, &frame, COMPILE_MESSAGE_MAX, WAIT_MS),
					 KILN_ECONN);
	assert_int_equal(stop(&worker), -SIGSEGV);
}

static void a_hanging_worker_is_killed_by_its_group(void **state)
{
	struct worker worker = start();
	struct compile_file files[2];
	struct compile_job job = make_job("cpu", files);
	struct frame frame = {0};

	(void)state;
	assert_int_equal(getpgid(worker.pid), worker.pid);
	job.test_misdeed = MISDEED_HANG;
	send_job(&worker, 1, &job);
	assert_int_equal(frame_recv_wait(worker.sock, &frame, COMPILE_MESSAGE_MAX, 50), KILN_ETIMEDOUT);
	assert_int_equal(kill(-worker.pid, SIGKILL), 0);
	assert_int_equal(stop(&worker), -SIGKILL);
}

static void garbage_ends_the_worker(void **state)
{
	static const char garbage[] = "\xc1 is no map";
	struct worker worker = start();
	struct wire_out out;

	(void)state;
	assert_int_equal(frame_send_wait(worker.sock, garbage, sizeof(garbage), NULL, 0, WAIT_MS),
					 KILN_OK);
	assert_int_equal(stop(&worker), 1);
	worker = start();
	wire_begin(&out, "lunch", 3);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(
		frame_send_wait(worker.sock, out.buffer.data, out.buffer.size, NULL, 0, WAIT_MS), KILN_OK);
	wire_out_free(&out);
	assert_int_equal(stop(&worker), 1);
}

/* ---- Messages alone ---- */

static void ready_comes_back_as_it_went(void **state)
{
	struct compile_toolchains sent = {.nvrtc = {"nvrtc 1", "s1", "", "sm_75 sm_80"},
									  .host = {"", "", "no compiler", ""}},
							  got;
	struct wire_out out;
	struct wire_in in;

	(void)state;
	compile_ready_write(&out, &sent);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(wire_parse(&in, out.buffer.data, out.buffer.size), KILN_OK);
	assert_int_equal(compile_ready_read(&in, &got), KILN_OK);
	assert_string_equal(got.nvrtc.id, "nvrtc 1");
	assert_string_equal(got.nvrtc.stamp, "s1");
	assert_string_equal(got.nvrtc.targets, "sm_75 sm_80");
	assert_string_equal(got.host.id, "");
	assert_string_equal(got.host.reason, "no compiler");
	wire_in_free(&in);
	wire_out_free(&out);
}

static void job_comes_back_as_it_went(void **state)
{
	struct compile_job_room room;
	struct compile_file files[2];
	struct compile_job sent = make_job("cpu", files), got;
	struct wire_out out;
	struct wire_in in;
	uint64_t id = 0;

	(void)state;
	sent.delay_ms = 12;
	sent.test_misdeed = MISDEED_HANG;
	files[0].bytes = 0;
	compile_job_write(&out, 1ull << 40, &sent);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(wire_parse(&in, out.buffer.data, out.buffer.size), KILN_OK);
	assert_int_equal(compile_job_read(&in, &id, &got, &room), KILN_OK);
	assert_true(id == 1ull << 40);
	assert_string_equal(got.target, "cpu");
	assert_string_equal(got.source, "ops/set.cuh");
	assert_string_equal(got.instantiation, "set<3>");
	assert_int_equal(got.file_count, 2);
	assert_string_equal(got.files[0].name, "cpu/shim.cuh");
	assert_int_equal(got.files[0].bytes, 0);
	assert_int_equal(got.files[1].bytes, strlen(kernel));
	assert_memory_equal(got.files[1].text, kernel, strlen(kernel));
	assert_int_equal(got.delay_ms, 12);
	assert_int_equal(got.test_misdeed, MISDEED_HANG);
	wire_in_free(&in);
	wire_out_free(&out);
}

/* A result as the worker of another version, or a broken one, might send it. */
static int read_result(int64_t status, const char *object, bool with_entry)
{
	struct compile_result result = {0};
	struct wire_out out;
	struct wire_in in;
	uint64_t id;
	int answer;

	wire_begin(&out, "result", 4);
	wire_put_int(&out, "st", status);
	if (object)
		wire_put_bin(&out, "object", object, strlen(object));
	if (with_entry)
		wire_put_str(&out, "entry", "k");
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(wire_parse(&in, out.buffer.data, out.buffer.size), KILN_OK);
	answer = compile_result_read(&in, &id, &result);
	wire_in_free(&in);
	wire_out_free(&out);
	compile_result_free(&result);
	return answer;
}

static void broken_results_are_refused(void **state)
{
	(void)state;
	static const char object[] = "\177ELF and so on";

	assert_int_equal(read_result(KILN_OK, object, true), KILN_OK);
	assert_int_equal(read_result(KILN_OK, NULL, true), KILN_EPROTO);
	assert_int_equal(read_result(KILN_OK, "\177EL", true), KILN_EPROTO);
	assert_int_equal(read_result(KILN_OK, "an object", true), KILN_EPROTO);
	assert_int_equal(read_result(KILN_OK, object, false), KILN_EPROTO);
	assert_int_equal(read_result(KILN_ECOMPILE, NULL, false), KILN_OK);
	assert_int_equal(read_result(1, object, true), KILN_EPROTO);
	assert_int_equal(read_result(-1000, object, true), KILN_EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ready_comes_back_as_it_went),
		cmocka_unit_test(job_comes_back_as_it_went),
		cmocka_unit_test(broken_results_are_refused),
		cmocka_unit_test(jobs_are_answered),
		cmocka_unit_test(large_messages_pass),
		cmocka_unit_test(memory_is_limited),
		cmocka_unit_test(other_targets_are_refused),
		cmocka_unit_test(faults_happen_on_request),
		cmocka_unit_test(a_hanging_worker_is_killed_by_its_group),
		cmocka_unit_test(garbage_ends_the_worker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
