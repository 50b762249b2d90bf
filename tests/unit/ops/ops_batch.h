/*
 * ops_batch.h: many kernels in one object for device cpu, and the compilers that make it.  The unit
 * is the daemon's own, with more than one kernel and entry; an object is loaded once for each
 * kernel, which a number in its data names.  Knows no cases.
 */
#ifndef KILN_TESTS_OPS_BATCH_H
#define KILN_TESTS_OPS_BATCH_H

#include "daemon/compile/compile.h"
#include "daemon/plan/kernel.h"
#include "daemon/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MOST 24 /* kernels of a unit */
#define BATCH_ENTRY 32
#define BATCH_COMPILERS 16
/* In front of the number. */
#define BATCH_MARK "the kernel is..."

struct batch {
	const struct kernel_plan *plans[BATCH_MOST];
	int count;
	const struct compile_file *files[COMPILE_MAX_HEADERS];
	int file_count;
	struct compile_result result;
};

/* The files of one more kernel come behind those that are there, or are there. */
static bool batch_add(struct batch *batch, struct compile_sources *sources,
					  const struct kernel_plan *plan, char error[KERNEL_ERROR_MAX])
{
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	int count;

	if (compile_sources_closure(sources, plan->source, "cpu", found, &count, error) != KILN_OK)
		return false;
	for (int i = 0; i < count; i++) {
		int k = 0;
		while (k < batch->file_count && batch->files[k] != found[i])
			k++;
		if (k == COMPILE_MAX_HEADERS) {
			snprintf(error, KERNEL_ERROR_MAX, "a unit has more than %d files", k);
			return false;
		}
		batch->files[k] = found[i];
		batch->file_count += k == batch->file_count;
	}
	batch->plans[batch->count++] = plan;
	return true;
}

/* The daemon's unit up to where its one kernel would be named. */
static bool batch_begin(const struct batch *batch, bool check, struct util_text *text,
						char error[KERNEL_ERROR_MAX])
{
	struct compile_file files[COMPILE_MAX_HEADERS];
	struct compile_job job = {.target = "cpu",
							  .source = batch->plans[0]->source,
							  .instantiation = "batch",
							  .files = files,
							  .file_count = batch->file_count,
							  .check = check};
	const char *end = check ? "}\n#line 1 \"instantiation\"" : "#line 1 \"instantiation\"";
	char *unit = NULL, *cut = NULL;

	for (int i = 0; i < batch->file_count; i++)
		files[i] = *batch->files[i];
	if (unit_make(&job, &unit, error) != KILN_OK)
		return false;
	cut = strstr(unit, end);
	if (cut)
		util_text_bytes(text, unit, (size_t)(cut - unit));
	else
		snprintf(error, KERNEL_ERROR_MAX, "no kernel is named in the unit");
	free(unit);
	return cut != NULL;
}

/* Two statements have the same names: each is in a namespace of its own. */
static void batch_name(const struct batch *batch, int i, struct util_text *text)
{
	if (batch->plans[i]->generated[0])
		util_text_add(text, "batch_%d::", i);
	util_text_add(text, "%s", batch->plans[i]->instantiation);
}

static void batch_entries(const struct batch *batch, struct util_text *text)
{
	util_text_add(text, "#ifndef KILN_CPU_UNCHECKED\n#define KILN_CPU_UNCHECKED\n#endif\n"
						"#define BATCH_SEEN __attribute__((visibility(\"default\")))\n");
	for (int i = 0; i < batch->count; i++) {
		util_text_add(text, "extern \"C\" BATCH_SEEN void batch_entry_%d(void **args)\n{\n", i);
		util_text_add(text, "\tkiln_cpu::kernel<decltype(&");
		batch_name(batch, i, text);
		util_text_add(text, ")>::run(&");
		batch_name(batch, i, text);
		util_text_add(text, ", args);\n}\n");
	}
	util_text_add(text, "static const kiln_cpu_module batch_modules[] = {\n");
	for (int i = 0; i < batch->count; i++) {
		util_text_add(text, "\t{KILN_CPU_ABI, kiln_cpu::kernel<decltype(&");
		batch_name(batch, i, text);
		util_text_add(text, ")>::count, kiln_cpu::kernel<decltype(&");
		batch_name(batch, i, text);
		util_text_add(text, ")>::bytes, \"kernel %d\", kiln_cpu::attach, KILN_CPU_VARIABLES},\n",
					  i);
	}
	util_text_add(text, "};\n"
						"static struct { char mark[17]; volatile unsigned char number; } "
						"batch_chosen = {\"" BATCH_MARK "\", 0};\n"
						"extern \"C\" BATCH_SEEN kiln_cpu_module kiln_cpu_module;\n"
						"struct kiln_cpu_module kiln_cpu_module;\n"
						"__attribute__((constructor)) KILN_CPU_UNCHECKED\n"
						"static void batch_choose()\n"
						"{\n\tkiln_cpu_module = batch_modules[batch_chosen.number];\n}\n");
}

/* False, with a sentence. */
static bool batch_compile(struct batch *batch, bool check, char error[KERNEL_ERROR_MAX])
{
	struct util_text text = {0};
	struct compile_file unit = {.name = "unit"};
	struct compile_job job = {.target = "cpu",
							  .source = "unit",
							  .instantiation = "batch",
							  .files = &unit,
							  .file_count = 1,
							  .whole = true,
							  .check = check};

	if (!batch_begin(batch, check, &text, error)) {
		util_text_free(&text);
		return false;
	}
	for (int i = 0; i < batch->count; i++)
		if (batch->plans[i]->generated[0])
			util_text_add(&text, "namespace batch_%d {\n%s}\n", i, batch->plans[i]->generated);
	if (check)
		util_text_add(&text, "}\n");
	batch_entries(batch, &text);
	if (text.failed) {
		snprintf(error, KERNEL_ERROR_MAX, "no memory for a unit");
		return false;
	}
	unit.text = text.text;
	unit.bytes = strlen(text.text);
	hostcc_compile(&job, &batch->result);
	util_text_free(&text);
	if (batch->result.status != KILN_OK)
		snprintf(error, KERNEL_ERROR_MAX, "%s", batch->result.error);
	return batch->result.status == KILN_OK;
}

/* The object's next load is this kernel. */
static bool batch_choose(struct batch *batch, int kernel, char entry[BATCH_ENTRY])
{
	unsigned char *mark =
		memmem(batch->result.object, batch->result.object_bytes, BATCH_MARK, sizeof(BATCH_MARK));

	snprintf(entry, BATCH_ENTRY, "batch_entry_%d", kernel);
	if (mark)
		mark[sizeof(BATCH_MARK)] = (unsigned char)kernel;
	return mark != NULL;
}

static void batch_free(struct batch *batch)
{
	compile_result_free(&batch->result);
}

/* ---- Compilers ---- */

struct batch_compiler {
	char name[16], version[128]; /* "(Debian 12.2.0-14) 12.2.0" */
};

/* Asks a program of this name who it is; false: there is none. */
static bool batch_ask(struct batch_compiler *compiler)
{
	char command[64], line[128] = "";
	FILE *answer;

	snprintf(command, sizeof(command), "%s --version 2>/dev/null", compiler->name);
	answer = popen(command, "r");
	if (!answer || !fgets(line, sizeof(line), answer))
		line[0] = 0;
	if (answer)
		pclose(answer);
	line[strcspn(line, "\n")] = 0;
	/* The first word of some is the name that they were called by. */
	snprintf(compiler->version, sizeof(compiler->version), "%s",
			 strchr(line, ' ') ? strchr(line, ' ') + 1 : "");
	return compiler->version[0] != 0;
}

/* Each once, whatever it is called by. */
static int batch_compilers(struct batch_compiler found[BATCH_COMPILERS])
{
	static const char *const families[] = {"g++", "clang++"};
	int count = 0;

	/* First by the name that has no number, which the daemon would take. */
	for (int family = 0; family < 2; family++)
		for (int version = 11; version <= 24 && count < BATCH_COMPILERS; version++) {
			struct batch_compiler one;
			int same = 0;
			if (version == 11)
				snprintf(one.name, sizeof(one.name), "%s", families[family]);
			else
				snprintf(one.name, sizeof(one.name), "%s-%d", families[family], version);
			if (!batch_ask(&one))
				continue;
			while (same < count && strcmp(found[same].version, one.version) != 0)
				same++;
			if (same == count)
				found[count++] = one;
		}
	return count;
}

#endif
