/*
 * options: the options that each compiler gets, in one place, because they are part of the key.
 */
#include "backend.h"

#include <string.h>

const struct compile_option options_nvrtc[] = {
	{"-std=c++17", OPTION_ALWAYS, OPTION_ANY},
	{"-default-device", OPTION_ALWAYS, OPTION_OURS},
	{"--ptxas-options=-v", OPTION_ALWAYS,
	 OPTION_ANY},                                /* registers, spills, shared memory in the log */
	{"--minimal", OPTION_IF_KNOWN, OPTION_OURS}, /* since 12.4: 3 to 4 ms less, no textures */
	{"--no-cache", OPTION_IF_KNOWN, OPTION_ANY}, /* since 12.9: the daemon has a cache of its own */
	{NULL, OPTION_ALWAYS, OPTION_ANY},
};

/*
 * -fno-gnu-unique and hidden visibility keep two objects from sharing one __shared__ array;
 * -fno-strict-aliasing because kernels read arrays through vectors; -fno-math-errno because device
 * code has no errno; -nostdinc because what is not in the unit is not in the key;
 * -fstack-clash-protection because a large frame would step over the guard below a fiber's stack;
 * -fno-tree-loop-vectorize because g++ 12.2 takes a part for the whole of sums that lie in two
 * types, i64 while they are added up and u64 behind the loop (test_hostcc has the least such loop).
 * Fibers and calls take the time of the cpu device: no version of g++ gains by vectors there.
 *
 * Checked kernels: -fsanitize=kernel-address is AddressSanitizer without its library, every check a
 * call that kernel_src/cpu/check.cuh answers; asan-globals puts zones behind variables.  -O1 and
 * scalar code keep each access of the source an access of its own.
 */
const struct compile_option options_host[] = {
	{"-x", OPTION_ALWAYS, OPTION_ANY},
	{"c++", OPTION_ALWAYS, OPTION_ANY},
	{"-std=c++17", OPTION_ALWAYS, OPTION_ANY},
	{"-O2", OPTION_ALWAYS, OPTION_PLAIN},
	{"-fno-tree-loop-vectorize", OPTION_GCC, OPTION_PLAIN},
	{"-g0", OPTION_ALWAYS, OPTION_PLAIN},
	{"-O1", OPTION_ALWAYS, OPTION_CHECKED},
	{"-fno-tree-vectorize", OPTION_ALWAYS, OPTION_CHECKED},
	{"-g1", OPTION_ALWAYS, OPTION_CHECKED},
	{"-gdwarf-4", OPTION_ALWAYS, OPTION_CHECKED},
	{"-gno-record-gcc-switches", OPTION_GCC, OPTION_CHECKED},
	{"-fsanitize=kernel-address,alignment", OPTION_ALWAYS, OPTION_CHECKED},
	{"-fsanitize=bounds", OPTION_GCC, OPTION_CHECKED},
	{"-fsanitize=array-bounds", OPTION_CLANG, OPTION_CHECKED}, /* the others trap */
	{"--param=asan-globals=1", OPTION_GCC, OPTION_CHECKED},
	{"-mllvm", OPTION_CLANG, OPTION_CHECKED},
	{"-asan-stack=0", OPTION_CLANG, OPTION_CHECKED},
	{"-mllvm", OPTION_CLANG, OPTION_CHECKED},
	{"-asan-instrumentation-with-call-threshold=0", OPTION_CLANG, OPTION_CHECKED},
	{"-shared", OPTION_ALWAYS, OPTION_ANY},
	{"-fPIC", OPTION_ALWAYS, OPTION_ANY},
	{"-nostdinc", OPTION_ALWAYS, OPTION_ANY},
	{"-nostdlib", OPTION_ALWAYS, OPTION_ANY},
	{"-fno-exceptions", OPTION_ALWAYS, OPTION_ANY},
	{"-fno-rtti", OPTION_ALWAYS, OPTION_ANY},
	{"-fvisibility=hidden", OPTION_ALWAYS, OPTION_ANY},
	{"-fsigned-char", OPTION_ALWAYS, OPTION_ANY},
	{"-ffp-contract=off", OPTION_ALWAYS, OPTION_ANY},
	{"-fno-math-errno", OPTION_ALWAYS, OPTION_ANY},
	{"-fno-strict-aliasing", OPTION_ALWAYS, OPTION_ANY},
	{"-fno-stack-protector", OPTION_ALWAYS, OPTION_ANY},
	{"-fstack-clash-protection", OPTION_ALWAYS, OPTION_ANY},
	{"-fno-ident", OPTION_ALWAYS, OPTION_ANY},
	{"-U_FORTIFY_SOURCE", OPTION_ALWAYS, OPTION_ANY},
	{"-Wl,--build-id=none", OPTION_ALWAYS, OPTION_ANY},
	{"-fno-gnu-unique", OPTION_GCC, OPTION_ANY},
	{"-fmax-errors=20", OPTION_GCC, OPTION_ANY},
	{"-ferror-limit=20", OPTION_CLANG, OPTION_ANY},
	{"-o", OPTION_ALWAYS, OPTION_ANY},
	{OPTIONS_HOST_OBJECT, OPTION_ALWAYS, OPTION_ANY},
	{OPTIONS_HOST_UNIT, OPTION_ALWAYS, OPTION_ANY},
	{"-lgcc", OPTION_IF_KNOWN, OPTION_ANY}, /* division of 128-bit integers */
	{NULL, OPTION_ALWAYS, OPTION_ANY},
};

/* The options that a user may give: none of them names a file or changes what else is compiled. */
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
	for (size_t i = 0; i < sizeof(user_options) / sizeof(*user_options); i++)
		if (strcmp(user_options[i], option) == 0)
			return true;
	return false;
}

bool options_user_counts(const char *option, const char *target)
{
	/* The shim in front of a source is C++17. */
	return !options_is_cpu(target) || strcmp(option, STANDARD "c++20") == 0;
}

static bool has_standard(const struct compile_job *job)
{
	for (int i = 0; i < job->option_count; i++)
		if (strncmp(job->options[i], STANDARD, strlen(STANDARD)) == 0 &&
			options_user_counts(job->options[i], job->target))
			return true;
	return false;
}

bool options_for_job(const struct compile_option *option, const struct compile_job *job)
{
	if ((option->whose == OPTION_CHECKED && !job->check) ||
		(option->whose == OPTION_PLAIN && job->check))
		return false;
	if (!job->user_files)
		return true;
	return option->whose != OPTION_OURS &&
		   !(strncmp(option->text, STANDARD, strlen(STANDARD)) == 0 && has_standard(job));
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
