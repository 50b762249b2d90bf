/*
 * raw_scene.h: what the tests of users' kernels share: a kernel, floats to run it on, and a launch.
 */
#ifndef KILN_TESTS_RAW_SCENE_H
#define KILN_TESTS_RAW_SCENE_H

#include "harness.h"

#define RAW_FLOATS 1000 /* of a buffer */

/* y = 2 * a * x + y, with a header and a macro. */
static inline kiln_raw raw_saxpy(void)
{
	static const char saxpy[] =
		"#include <stdint.h>\n"
		"#include \"scale.h\"\n"
		"extern \"C\" __global__ void saxpy(const float *x, float *y, float a,\n"
		"                                  int64_t n)\n"
		"{\n"
		"	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
		"	if (i < n)\n"
		"		y[i] = SCALE * a * x[i] + y[i];\n"
		"}\n";
	static const kiln_text scale_h = {"scale.h", "#pragma once\n#define SCALE FACTOR\n", 0};
	static const kiln_text factor = {"FACTOR", "2.0f", 0};
	return (kiln_raw){.size = sizeof(kiln_raw),
					  .name = "saxpy.cu",
					  .source = saxpy,
					  .entry = "saxpy",
					  .headers = &scale_h,
					  .header_count = 1,
					  .macros = &factor,
					  .macro_count = 1};
}

/* A source without headers or macros. */
static inline kiln_raw raw_of(const char *source, const char *entry)
{
	return (kiln_raw){
		.size = sizeof(kiln_raw), .name = "mine.cu", .source = source, .entry = entry};
}

/* Launches and waits. */
static inline int raw_launch(kiln_client *client, kiln_call *call, const kiln_launch *how)
{
	kiln_ticket ticket;
	int status = kiln_submit_raw(call, how, 0, &ticket);
	return status ? status : kiln_wait(client, ticket, CALL_TIMEOUT_MS);
}

/* first, first + step and so on. */
static inline kiln_buffer *raw_floats(kiln_client *client, unsigned flags, float first, float step)
{
	float values[RAW_FLOATS];
	kiln_buffer *buffer;
	for (int i = 0; i < RAW_FLOATS; i++)
		values[i] = first + step * (float)i;
	assert_ok(kiln_alloc(client, sizeof(values), flags, NULL, &buffer));
	assert_ok(kiln_write(buffer, 0, values, sizeof(values)));
	return buffer;
}

#endif
