/*
 * fuzz_job: messages between broker and compiler worker, as either reads them: what is taken says
 * the same when it is written and read again, and a job makes a unit or is refused in a sentence.
 *
 * Steps (steps.h) are messages, each by itself.
 */
#include "client/wire/wire.h"
#include "daemon/compile/compile.h"
#include "steps.h"

const unsigned fuzz_kinds = 1, fuzz_message_kinds = 1;
const struct steps_message fuzz_messages[] = {
	{"job", "target, source, inst, files, user, macros, options, check, whole, delay, fault"},
	{"result", "st, err, entry, source, log, object, regs, shared, spill, local, us"},
	{"ready", "nvrtc, host"},
	{NULL, NULL}};
const char *const fuzz_words[] = {"n",
								  "b",
								  "v",
								  "o",
								  "cpu",
								  "sm_90",
								  "ops/x.cuh",
								  "k<u8, 2>",
								  "-std=c++17",
								  "--use_fast_math",
								  "id",
								  "stamp",
								  "reason",
								  "targets",
								  "#include \"a.cuh\"\n",
								  "a.cuh",
								  "N",
								  "F(a, b)",
								  "extern __shared__ float t[];\n",
								  NULL};

/* Both are read anew: what was written must say the same. */
static void again(struct wire_out *out, struct wire_in *in)
{
	require(wire_end(out) == KILN_OK &&
				wire_parse(in, out->buffer.data, out->buffer.size) == KILN_OK,
			"what was read cannot be written");
}

static void make_unit(const struct compile_job *job)
{
	char error[KERNEL_ERROR_MAX] = "";
	char *text = NULL;
	if (unit_make(job, &text, error) != KILN_OK)
		require_sentence(error);
	free(text);
}

static void read_job(struct wire_in *in)
{
	static struct compile_job_room room[2];
	struct compile_job job[2];
	struct wire_out out;
	struct wire_in second;
	uint64_t id[2];
	if (compile_job_read(in, &id[0], &job[0], &room[0]) != KILN_OK)
		return;
	require(job[0].file_count <= COMPILE_MAX_FILES && job[0].user_files <= job[0].file_count &&
				job[0].macro_count <= COMPILE_MAX_MACROS &&
				job[0].option_count <= COMPILE_MAX_USER_OPTIONS,
			"more of a job than there is room for");
	make_unit(&job[0]);
	compile_job_write(&out, id[0], &job[0]);
	again(&out, &second);
	require(compile_job_read(&second, &id[1], &job[1], &room[1]) == KILN_OK && id[0] == id[1] &&
				!strcmp(job[0].target, job[1].target) &&
				!strcmp(job[0].instantiation, job[1].instantiation) &&
				job[0].file_count == job[1].file_count && job[0].user_files == job[1].user_files,
			"another job");
	wire_in_free(&second);
	wire_out_free(&out);
}

static void read_result(struct wire_in *in)
{
	struct compile_result result[2];
	struct wire_out out;
	struct wire_in second;
	uint64_t id[2];
	if (compile_result_read(in, &id[0], &result[0]) != KILN_OK)
		return;
	require(result[0].status != KILN_OK || (result[0].object && result[0].entry),
			"a success without an object");
	compile_result_write(&out, id[0], &result[0]);
	again(&out, &second);
	require(compile_result_read(&second, &id[1], &result[1]) == KILN_OK && id[0] == id[1] &&
				result[0].status == result[1].status &&
				result[0].object_bytes == result[1].object_bytes &&
				!strcmp(result[0].error, result[1].error),
			"another result");
	compile_result_free(&result[0]);
	compile_result_free(&result[1]);
	wire_in_free(&second);
	wire_out_free(&out);
}

static void read_ready(struct wire_in *in)
{
	struct compile_toolchains both[2];
	struct wire_out out;
	struct wire_in second;
	if (compile_ready_read(in, &both[0]) != KILN_OK)
		return;
	compile_ready_write(&out, &both[0]);
	again(&out, &second);
	require(compile_ready_read(&second, &both[1]) == KILN_OK &&
				!strcmp(both[0].nvrtc.id, both[1].nvrtc.id) &&
				!strcmp(both[0].host.targets, both[1].host.targets),
			"other compilers");
	wire_in_free(&second);
	wire_out_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct step step;
	while (step_next(&data, &size, &step)) {
		struct wire_in in;
		if (wire_parse(&in, step.bytes, step.size) == KILN_OK) {
			read_job(&in);
			read_result(&in);
			read_ready(&in);
		}
		wire_in_free(&in);
	}
	return 0;
}
