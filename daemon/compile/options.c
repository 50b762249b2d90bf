/*
 * options: the options that each compiler gets, in one place, because they are part of the key.
 */
#include "backend.h"

#include <string.h>

const struct compile_option options_nvrtc[] = {
	{"-std=c++17", OPTION_ALWAYS, false},
	{"-default-device", OPTION_ALWAYS, true},
	{"--ptxas-options=-v", OPTION_ALWAYS, false}, /* registers, spills, shared memory in the log */
	{"--minimal", OPTION_IF_KNOWN, true},         /* since 12.4: 3 to 4 ms less, no textures */
	{"--no-cache", OPTION_IF_KNOWN, false}, /* since 12.9: the daemon has a cache of its own */
	{NULL, OPTION_ALWAYS, false},
};

/*
 * -fno-gnu-unique and hidden visibility keep two objects from sharing one __shared__ array;
 * -fno-strict-aliasing because kernels read arrays through vectors; -fno-math-errno because device
 * code has no errno; -nostdinc because what is not in the unit is not in the key.
 */
const struct compile_option options_host[] = {
	{"-x", OPTION_ALWAYS, false},
	{"c++", OPTION_ALWAYS, false},
	{"-std=c++17", OPTION_ALWAYS, false},
	{"-O2", OPTION_ALWAYS, false},
	{"-g0", OPTION_ALWAYS, false},
	{"-shared", OPTION_ALWAYS, false},
	{"-fPIC", OPTION_ALWAYS, false},
	{"-nostdinc", OPTION_ALWAYS, false},
	{"-nostdlib", OPTION_ALWAYS, false},
	{"-fno-exceptions", OPTION_ALWAYS, false},
	{"-fno-rtti", OPTION_ALWAYS, false},
	{"-fvisibility=hidden", OPTION_ALWAYS, false},
	{"-fsigned-char", OPTION_ALWAYS, false},
	{"-ffp-contract=off", OPTION_ALWAYS, false},
	{"-fno-math-errno", OPTION_ALWAYS, false},
	{"-fno-strict-aliasing", OPTION_ALWAYS, false},
	{"-fno-stack-protector", OPTION_ALWAYS, false},
	{"-fno-ident", OPTION_ALWAYS, false},
	{"-U_FORTIFY_SOURCE", OPTION_ALWAYS, false},
	{"-Wl,--build-id=none", OPTION_ALWAYS, false},
	{"-fno-gnu-unique", OPTION_GCC, false},
	{"-fmax-errors=20", OPTION_GCC, false},
	{"-ferror-limit=20", OPTION_CLANG, false},
	{"-o", OPTION_ALWAYS, false},
	{OPTIONS_HOST_OBJECT, OPTION_ALWAYS, false},
	{OPTIONS_HOST_UNIT, OPTION_ALWAYS, false},
	{"-lgcc", OPTION_IF_KNOWN, false}, /* division of 128-bit integers */
	{NULL, OPTION_ALWAYS, false},
};

/* What a user may ask for: nothing that names a file or changes what else is compiled. */
static const char *const user_options[] = {
	"-std=c++11",
	"-std=c++14",
	"-std=c++17",
	"-std=c++20",
	"--use_fast_math",
	"--fmad=true",
	"--fmad=false",
	"--ftz=true",
	"--ftz=false",
	"--prec-div=true",
	"--prec-div=false",
	"--prec-sqrt=true",
	"--prec-sqrt=false",
	"-lineinfo",
	"-default-device",
	"--restrict",
	"--extra-device-vectorization",
};

#define STANDARD "-std="
#define REGISTERS "--maxrregcount="

bool options_user_allowed(const char *option)
{
	if (strncmp(option, REGISTERS, strlen(REGISTERS)) == 0) {
		const char *number = option + strlen(REGISTERS);
		size_t digits = strspn(number, "0123456789");

		return digits >= 1 && digits <= 3 && number[digits] == 0;
	}
	for (size_t i = 0; i < sizeof user_options / sizeof *user_options; i++)
		if (strcmp(user_options[i], option) == 0)
			return true;
	return false;
}

bool options_user_counts(const char *option, const char *target)
{
	/* The shim in front of a source is C++17. */
	return !options_is_cpu(target) || strcmp(option, STANDARD "c++20") == 0;
}

bool options_for_user(const struct compile_option *option, const struct compile_job *job)
{
	if (option->ours)
		return false;
	if (strncmp(option->text, STANDARD, strlen(STANDARD)) == 0)
		for (int i = 0; i < job->option_count; i++)
			if (strncmp(job->options[i], STANDARD, strlen(STANDARD)) == 0 &&
				options_user_counts(job->options[i], job->target))
				return false;
	return true;
}

bool options_is_cpu(const char *target)
{
	return strcmp(target, "cpu") == 0;
}

bool options_is_cuda(const char *target)
{
	size_t digits;

	if (strncmp(target, "sm_", 3) != 0)
		return false;
	digits = strspn(target + 3, "0123456789");
	target += 3 + digits;
	return (digits == 2 || digits == 3) &&
		   (target[0] == 0 || ((target[0] == 'a' || target[0] == 'f') && target[1] == 0));
}
