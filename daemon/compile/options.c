/*
 * options: the options that each compiler gets, in one place, because they are part of the key.
 */
#include "backend.h"

#include <string.h>

const struct compile_option options_nvrtc[] = {
	{"-std=c++17", OPTION_ALWAYS},
	{"-default-device", OPTION_ALWAYS},
	{"--ptxas-options=-v", OPTION_ALWAYS}, /* registers, spills and shared memory in the log */
	{"--minimal", OPTION_IF_KNOWN},        /* since 12.4: 3 to 4 ms less */
	{"--no-cache", OPTION_IF_KNOWN},       /* since 12.9: the daemon has a cache of its own */
	{NULL, OPTION_ALWAYS},
};

/*
 * -fno-gnu-unique and hidden visibility keep two objects from sharing one __shared__ array;
 * -fno-strict-aliasing because kernels read arrays through vectors; -fno-math-errno because device
 * code has no errno; -nostdinc because what is not in the unit is not in the key.
 */
const struct compile_option options_host[] = {
	{"-x", OPTION_ALWAYS},
	{"c++", OPTION_ALWAYS},
	{"-std=c++17", OPTION_ALWAYS},
	{"-O2", OPTION_ALWAYS},
	{"-g0", OPTION_ALWAYS},
	{"-shared", OPTION_ALWAYS},
	{"-fPIC", OPTION_ALWAYS},
	{"-nostdinc", OPTION_ALWAYS},
	{"-nostdlib", OPTION_ALWAYS},
	{"-fno-exceptions", OPTION_ALWAYS},
	{"-fno-rtti", OPTION_ALWAYS},
	{"-fvisibility=hidden", OPTION_ALWAYS},
	{"-fsigned-char", OPTION_ALWAYS},
	{"-ffp-contract=off", OPTION_ALWAYS},
	{"-fno-math-errno", OPTION_ALWAYS},
	{"-fno-strict-aliasing", OPTION_ALWAYS},
	{"-fno-stack-protector", OPTION_ALWAYS},
	{"-fno-ident", OPTION_ALWAYS},
	{"-U_FORTIFY_SOURCE", OPTION_ALWAYS},
	{"-Wl,--build-id=none", OPTION_ALWAYS},
	{"-fno-gnu-unique", OPTION_GCC},
	{"-fmax-errors=20", OPTION_GCC},
	{"-ferror-limit=20", OPTION_CLANG},
	{"-o", OPTION_ALWAYS},
	{OPTIONS_HOST_OBJECT, OPTION_ALWAYS},
	{OPTIONS_HOST_UNIT, OPTION_ALWAYS},
	{"-lgcc", OPTION_IF_KNOWN}, /* division of 128-bit integers */
	{NULL, OPTION_ALWAYS},
};

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
