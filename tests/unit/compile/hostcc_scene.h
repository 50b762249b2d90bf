/*
 * hostcc_scene.h: a compiler of this machine with a $TMPDIR of its own, and a kernel for it.
 */
#ifndef KILN_TESTS_HOSTCC_SCENE_H
#define KILN_TESTS_HOSTCC_SCENE_H

#include "daemon/compile/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct compile_toolchain toolchain;
static char temporary[64];

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

/* Returns 0, or the exit status of a test that cannot run. */
static int scene_open(void)
{
	snprintf(temporary, sizeof(temporary), "/tmp/kiln-hostcc.XXXXXX");
	if (mkdtemp(temporary) == NULL)
		return 1;
	setenv("TMPDIR", temporary, 1);
	if (hostcc_open(&toolchain) != KILN_OK) {
		printf("skipped: %s\n", toolchain.reason);
		rmdir(temporary);
		return 77;
	}
	return 0;
}

static int scene_close(void **state)
{
	(void)state;
	hostcc_close();
	return rmdir(temporary); /* fails if anything was left */
}

#endif
