/*
 * nvrtc: CUDA C++ to a cubin, by libnvrtc, on the calling thread.  The only file that sees nvrtc.h;
 * the library is loaded at run time, so a build has the types and no need of the library.
 *
 * It opens no header: the unit has none left, or they are given to it, and the worker takes its
 * file descriptors away.
 */
#include "backend.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef KILN_HAVE_NVRTC_H
#include <dlfcn.h>
#include <nvrtc.h>

#define NVRTC_MAX_OPTIONS (16 + COMPILE_MAX_USER_OPTIONS)
#define NVRTC_MAX_LOG ((size_t)1 << 20)

static struct {
	__typeof__(nvrtcVersion) *version;
	__typeof__(nvrtcGetNumSupportedArchs) *arch_count;
	__typeof__(nvrtcGetSupportedArchs) *archs;
	__typeof__(nvrtcGetErrorString) *error_string;
	__typeof__(nvrtcCreateProgram) *create;
	__typeof__(nvrtcDestroyProgram) *destroy;
	__typeof__(nvrtcAddNameExpression) *add_name;
	__typeof__(nvrtcGetLoweredName) *lowered_name;
	__typeof__(nvrtcCompileProgram) *compile;
	__typeof__(nvrtcGetProgramLogSize) *log_size;
	__typeof__(nvrtcGetProgramLog) *log;
	__typeof__(nvrtcGetCUBINSize) *cubin_size;
	__typeof__(nvrtcGetCUBIN) *cubin;
} api;

static const struct {
	const char *name;
	void *slot;
} api_names[] = {
	{"nvrtcVersion", &api.version},
	{"nvrtcGetNumSupportedArchs", &api.arch_count},
	{"nvrtcGetSupportedArchs", &api.archs},
	{"nvrtcGetErrorString", &api.error_string},
	{"nvrtcCreateProgram", &api.create},
	{"nvrtcDestroyProgram", &api.destroy},
	{"nvrtcAddNameExpression", &api.add_name},
	{"nvrtcGetLoweredName", &api.lowered_name},
	{"nvrtcCompileProgram", &api.compile},
	{"nvrtcGetProgramLogSize", &api.log_size},
	{"nvrtcGetProgramLog", &api.log},
	{"nvrtcGetCUBINSize", &api.cubin_size},
	{"nvrtcGetCUBIN", &api.cubin},
};

static struct {
	bool tried, open, warm;
	struct compile_toolchain toolchain;
	uint32_t unknown; /* bit i: this version does not know options_nvrtc[i] */
} state;

/* Both variables change what NVRTC does without the key knowing (NVRTC_APPEND_OPTIONS,
 * CUDA_CACHE_PATH...). */
static void clear_environment(void)
{
	extern char **environ;

	for (char **at = environ; at && *at;) {
		char name[128];
		size_t size = strcspn(*at, "=");

		if ((strncmp(*at, "NVRTC_", 6) == 0 || strncmp(*at, "CUDA_", 5) == 0) &&
			size < sizeof(name)) {
			memcpy(name, *at, size);
			name[size] = 0;
			unsetenv(name);
			at = environ;
		} else {
			at++;
		}
	}
}

static bool has_target(const char *target)
{
	size_t size = strspn(target, "sm_0123456789"); /* sm_90a is of sm_90 */
	const char *at = state.toolchain.targets;

	for (; *at; at += strcspn(at, " "), at += *at == ' ')
		if (strcspn(at, " ") == size && memcmp(at, target, size) == 0)
			return true;
	return false;
}

static int read_symbols(const struct library *library, struct compile_toolchain *out)
{
	for (size_t i = 0; i < sizeof(api_names) / sizeof(*api_names); i++) {
		void *symbol = dlsym(library->handle, api_names[i].name);

		if (!symbol)
			return util_fail(out->reason, sizeof(out->reason), KILN_ENOTSUP,
							 "%.200s has no %s: NVRTC 11.2 or later is needed", library->path,
							 api_names[i].name);
		memcpy(api_names[i].slot, &symbol, sizeof(symbol));
	}
	return KILN_OK;
}

static int read_targets(struct compile_toolchain *out)
{
	int count = 0, *archs;
	size_t used = 0;

	if (api.arch_count(&count) != NVRTC_SUCCESS || count < 1 || count > 1000)
		return util_fail(out->reason, sizeof(out->reason), KILN_ENOTSUP,
						 "this NVRTC does not say which targets it has");
	archs = util_alloc((size_t)count * sizeof(*archs));
	if (api.archs(archs) == NVRTC_SUCCESS)
		for (int i = 0; i < count; i++)
			used = util_append(out->targets, sizeof(out->targets), used, "%ssm_%d", i ? " " : "",
							   archs[i]);
	free(archs);
	return KILN_OK;
}

static int identify(const struct library *library, int major, int minor,
					struct compile_toolchain *out)
{
	const char *paths[] = {library->path, library->builtins};
	int count = library->builtins[0] ? 2 : 1;
	char hex[KERNEL_KEY_HEX] = "";
	int status = identity_find(COMPILE_NVRTC_ID, paths, count, "", out, hex);

	if (hex[0])
		snprintf(out->id, sizeof(out->id), "nvrtc %d.%d %.64s", major, minor, hex);
	return status;
}

static int open_library(struct compile_toolchain *out)
{
	int major = 0, minor = 0, status;
	struct library library;

	status = library_open(&library, out->reason);
	if (status == KILN_OK)
		status = read_symbols(&library, out);
	if (status == KILN_OK && api.version(&major, &minor) != NVRTC_SUCCESS)
		status = util_fail(out->reason, sizeof(out->reason), KILN_ENOTSUP,
						   "%.200s does not tell its version", library.path);
	if (status != KILN_OK)
		return status;
	library_open_builtins(&library, major, minor);
	status = read_targets(out);
	return status == KILN_OK ? identify(&library, major, minor, out) : status;
}

int nvrtc_open(struct compile_toolchain *out)
{
	/* The first answer stands, for the worker can open no files later on. */
	if (!state.tried) {
		state.tried = true;
		clear_environment();
		state.open = open_library(&state.toolchain) == KILN_OK;
	}
	*out = state.toolchain;
	return state.open ? KILN_OK : KILN_ENOTSUP;
}

/* ---- Compiling ---- */

struct program {
	const char *text, *name, *instantiation; /* name and instantiation may be NULL */
	const char *target;
	uint32_t leave_out;            /* bits of options_nvrtc */
	const struct compile_job *job; /* NULL: none */
	struct compile_result *result; /* that has the phases; NULL: none */
};

static nvrtcResult compile_program(const struct program *what, nvrtcProgram *out)
{
	const char *options[NVRTC_MAX_OPTIONS];
	char arch[KERNEL_TARGET_MAX + 8];
	nvrtcResult result = NVRTC_ERROR_OUT_OF_MEMORY;
	struct headers headers;
	int count = 0;

	snprintf(arch, sizeof(arch), "-arch=%s", what->target);
	options[count++] = arch;
	for (int i = 0; options_nvrtc[i].text && count < NVRTC_MAX_OPTIONS; i++)
		if (!(what->leave_out >> i & 1) &&
			(!what->job || options_for_job(&options_nvrtc[i], what->job)))
			options[count++] = options_nvrtc[i].text;
	for (int i = 0; what->job && i < what->job->option_count && count < NVRTC_MAX_OPTIONS; i++)
		options[count++] = what->job->options[i];
	const bool made = headers_make(what->job, &headers);
	if (what->result)
		phase_end(what->result, COMPILE_SOURCES);
	if (made)
		result =
			api.create(out, what->text, what->name, headers.count, headers.texts, headers.names);
	if (result == NVRTC_SUCCESS && what->instantiation)
		result = api.add_name(*out, what->instantiation);
	if (what->result)
		phase_begin(what->result, COMPILE_COMPILER);
	if (result == NVRTC_SUCCESS)
		result = api.compile(*out, count, options);
	if (what->result)
		phase_end(what->result, COMPILE_COMPILER);
	headers_free(&headers);
	return result;
}

static char *read_log(nvrtcProgram program)
{
	size_t size = 0;
	char *log;

	if (!program || api.log_size(program, &size) != NVRTC_SUCCESS || size == 0)
		return calloc(1, 1);
	log = calloc(size + 1, 1);
	if (log && api.log(program, log) != NVRTC_SUCCESS)
		log[0] = 0;
	if (log && size > NVRTC_MAX_LOG)
		log[NVRTC_MAX_LOG] = 0;
	return log;
}

static bool try_trivial(uint32_t leave_out)
{
	struct program what = {.text = "template <int N> __global__ void warm(int *x) { x[N] = N; }\n",
						   .name = "warm",
						   .instantiation = "warm<1>",
						   .target = has_target("sm_90") ? "sm_90" : NULL,
						   .leave_out = leave_out};
	char first[KERNEL_TARGET_MAX];
	nvrtcProgram program = NULL;
	nvrtcResult result;

	if (!what.target) {
		snprintf(first, sizeof(first), "%.*s", (int)strcspn(state.toolchain.targets, " "),
				 state.toolchain.targets);
		what.target = first;
	}
	result = compile_program(&what, &program);
	api.destroy(&program);
	return result != NVRTC_ERROR_INVALID_OPTION;
}

/* Also finds out which of the options this version knows. */
void nvrtc_warm(void)
{
	if (!state.open || state.warm)
		return;
	state.warm = true;
	if (try_trivial(0))
		return;
	for (int i = 0; options_nvrtc[i].text; i++) {
		uint32_t others = 0;

		if (options_nvrtc[i].kind != OPTION_IF_KNOWN)
			continue;
		for (int j = 0; options_nvrtc[j].text; j++)
			if (j != i && options_nvrtc[j].kind == OPTION_IF_KNOWN)
				others |= 1u << j;
		if (!try_trivial(others))
			state.unknown |= 1u << i;
	}
	try_trivial(state.unknown);
}

static int take_object(nvrtcProgram program, const char *instantiation, struct compile_result *out)
{
	const char *lowered = NULL;

	phase_begin(out, COMPILE_NAMES);
	if (api.lowered_name(program, instantiation, &lowered) != NVRTC_SUCCESS || !lowered)
		return util_fail(out->error, sizeof(out->error), KILN_ECOMPILE,
						 "%.200s names no kernel of the source", instantiation);
	phase_end(out, COMPILE_NAMES);
	phase_begin(out, COMPILE_OBJECT);
	if (api.cubin_size(program, &out->object_bytes) != NVRTC_SUCCESS || out->object_bytes == 0)
		return util_fail(out->error, sizeof(out->error), KILN_ECOMPILE, "NVRTC made no cubin");
	out->entry = strdup(lowered);
	out->object = malloc(out->object_bytes);
	if (!out->entry || !out->object)
		return util_fail(out->error, sizeof(out->error), KILN_ENOMEM, "no memory for a cubin");
	if (api.cubin(program, out->object) != NVRTC_SUCCESS)
		return util_fail(out->error, sizeof(out->error), KILN_ECOMPILE,
						 "NVRTC did not hand out its cubin");
	phase_end(out, COMPILE_OBJECT);
	return KILN_OK;
}

static int judge(nvrtcResult result, const char *target, const char *entry,
				 struct compile_result *out)
{
	switch (result) {
	case NVRTC_SUCCESS:
		return KILN_OK;
	case NVRTC_ERROR_OUT_OF_MEMORY:
		return util_fail(out->error, sizeof(out->error), KILN_ENOMEM,
						 "the compiler ran out of memory");
	case NVRTC_ERROR_COMPILATION:
		if (log_says_no_memory(out->log))
			return judge(NVRTC_ERROR_OUT_OF_MEMORY, target, entry, out);
		if (strstr(out->log, "address of a non-__global__ function"))
			return log_refuse_entry(entry, out->error);
		log_first_error(out->log, out->error);
		return KILN_ECOMPILE;
	case NVRTC_ERROR_INVALID_OPTION:
		return util_fail(out->error, sizeof(out->error), KILN_ENOTSUP,
						 "NVRTC takes no target %s: %.200s", target, out->log);
	default:
		return util_fail(out->error, sizeof(out->error), KILN_ECOMPILE, "NVRTC: %s%s%.200s",
						 api.error_string(result), out->log[0] ? ": " : "", out->log);
	}
}

void nvrtc_compile(const struct compile_job *job, struct compile_result *out)
{
	struct compile_toolchain toolchain;
	nvrtcProgram program = NULL;
	nvrtcResult result;
	uint64_t began;

	compile_result_begin(out);
	if (nvrtc_open(&toolchain) != KILN_OK) {
		out->status =
			util_fail(out->error, sizeof(out->error), KILN_ENOTSUP, "%s", toolchain.reason);
		return;
	}
	if (!options_is_cuda(job->target) || !has_target(job->target)) {
		out->status = util_fail(out->error, sizeof(out->error), KILN_ENOTSUP,
								"target %s is not one of this NVRTC's: %s", job->target,
								state.toolchain.targets);
		return;
	}
	phase_begin(out, COMPILE_SOURCES);
	out->status = unit_make(job, &out->source, out->error);
	phase_end(out, COMPILE_SOURCES);
	if (out->status != KILN_OK)
		return;
	nvrtc_warm();
	began = util_now_us();
	result = compile_program(&(struct program){.text = out->source,
											   .name = job->source,
											   .instantiation = job->instantiation,
											   .target = job->target,
											   .leave_out = state.unknown,
											   .job = job,
											   .result = out},
							 &program);
	phase_begin(out, COMPILE_LOG);
	out->log = read_log(program);
	phase_end(out, COMPILE_LOG);
	if (!out->log)
		out->status = util_fail(out->error, sizeof(out->error), KILN_ENOMEM,
								"no memory for the compiler's log");
	else
		out->status = judge(result, job->target, job->instantiation, out);
	if (out->status == KILN_OK)
		out->status = take_object(program, job->instantiation, out);
	out->micros = (int64_t)(util_now_us() - began);
	if (out->status == KILN_OK)
		log_figures(out->log, out);
	api.destroy(&program);
}

#else

static const char no_headers[] = "this kilnd was built without nvrtc.h: configure it with "
								 "-DKILN_CUDA_INCLUDE=DIRECTORY of nvrtc.h";

int nvrtc_open(struct compile_toolchain *out)
{
	*out = (struct compile_toolchain){0};
	return util_fail(out->reason, sizeof(out->reason), KILN_ENOTSUP, "%s", no_headers);
}

void nvrtc_warm(void)
{
}

void nvrtc_compile(const struct compile_job *job, struct compile_result *out)
{
	compile_result_begin(out);
	out->status = util_fail(out->error, sizeof(out->error), KILN_ENOTSUP,
							"cannot compile for %s: %s", job->target, no_headers);
}

#endif
