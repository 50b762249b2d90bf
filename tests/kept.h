/*
 * kept.h: keeps what a compiler made of a kernel, so that the next run of the tests compiles only
 * what has changed since.  Compiling is most of what tests of the operators do.
 *
 * The key is the product's own (compile.h): it covers the sources, the options and the compiler.
 * KILN_TEST_KERNELS names the folder; unset, nothing is kept.  Only what compiled is kept.
 * tests/run.sh removes what no test has asked for in two weeks.
 */
#ifndef KILN_TESTS_KEPT_H
#define KILN_TESTS_KEPT_H

#include "daemon/compile/compile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct kept_head {
	char key[KERNEL_KEY_HEX];
	uint64_t entry_bytes, object_bytes, body_bytes; /* body: of the object that is in the file */
	int64_t registers, shared_bytes, spill_bytes, local_bytes, micros;
};

/* A copy of the next bytes of a file; NULL: they are not there. */
static inline void *kept_read(FILE *file, uint64_t bytes)
{
	char *copy = bytes < 1u << 30 ? calloc(1, (size_t)bytes + 1) : NULL;

	if (copy && fread(copy, 1, (size_t)bytes, file) != bytes) {
		free(copy);
		copy = NULL;
	}
	return copy;
}

static inline bool kept_find(const char *path, const char *key, struct compile_result *result)
{
	FILE *file = fopen(path, "rb");
	struct kept_head head;
	bool found;

	if (!file)
		return false;
	*result = (struct compile_result){0};
	found = fread(&head, sizeof(head), 1, file) == 1 && strcmp(head.key, key) == 0;
	if (found) {
		result->entry = kept_read(file, head.entry_bytes);
		result->object = kept_read(file, head.body_bytes);
		found = result->entry && result->object && fgetc(file) == EOF;
		result->object_bytes = (size_t)head.object_bytes;
		result->registers = head.registers;
		result->shared_bytes = head.shared_bytes;
		result->spill_bytes = head.spill_bytes;
		result->local_bytes = head.local_bytes;
		result->micros = head.micros;
	}
	fclose(file);
	if (found)
		(void)utimensat(AT_FDCWD, path, NULL, 0);
	else
		compile_result_free(result);
	return found;
}

static inline void kept_add(const char *path, const char *key, bool object,
							const struct compile_result *result)
{
	struct kept_head head = {.entry_bytes = result->entry ? strlen(result->entry) : 0,
							 .object_bytes = result->object_bytes,
							 .body_bytes = object ? result->object_bytes : 0,
							 .registers = result->registers,
							 .shared_bytes = result->shared_bytes,
							 .spill_bytes = result->spill_bytes,
							 .local_bytes = result->local_bytes,
							 .micros = result->micros};
	char part[4096];
	bool good;
	FILE *file;

	snprintf(head.key, sizeof(head.key), "%s", key);
	snprintf(part, sizeof(part), "%s.%d", path, (int)getpid());
	file = fopen(part, "wb");
	if (!file)
		return;
	good =
		fwrite(&head, sizeof(head), 1, file) == 1 &&
		fwrite(result->entry ? result->entry : "", 1, head.entry_bytes, file) == head.entry_bytes &&
		(!head.body_bytes || fwrite(result->object, 1, head.body_bytes, file) == head.body_bytes);
	if (fclose(file) || !good || rename(part, path))
		(void)remove(part);
}

/* Compiles, or takes what the same job gave before.  object: it is wanted, not only its size. */
static inline void kept_compile(const struct compile_job *job, const char *toolchain_id,
								void (*compile)(const struct compile_job *job,
												struct compile_result *result),
								bool object, struct compile_result *result)
{
	const char *folder = getenv("KILN_TEST_KERNELS");
	struct compile_key key = {0};
	char path[4000] = "";

	if (folder && compile_key_make(job, toolchain_id, &key) == KILN_OK) {
		(void)mkdir(folder, 0777);
		snprintf(path, sizeof(path), "%s/%s%s", folder, key.hex, object ? "" : ".figures");
	}
	if (!path[0] || !kept_find(path, key.hex, result)) {
		compile(job, result);
		if (path[0] && result->status == KILN_OK)
			kept_add(path, key.hex, object, result);
	}
	compile_key_free(&key);
}

#endif
