/*
 * compilers.c: who the compilers of this machine are, as a daemon's worker would find out by
 * hashing 150 MB: lines NAME=VALUE for its environment.  For whoever starts many daemons with
 * caches of their own.  Must not know what starts them.
 */
#include "daemon/compile/backend.h"

#include <stdio.h>

int main(void)
{
	struct compile_toolchain nvrtc = {0}, host = {0};

	if (nvrtc_open(&nvrtc) == KILN_OK)
		printf("%s=%s:%s\n", COMPILE_NVRTC_ID, nvrtc.stamp, nvrtc.id);
	if (hostcc_open(&host) == KILN_OK)
		printf("%s=%s:%s\n", COMPILE_CXX_ID, host.stamp, host.id);
	hostcc_close();
	return 0;
}
