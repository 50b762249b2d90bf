/*
 * unit: the one text that a compiler sees, from the files of a job.  The caller's own file names
 * and line numbers are kept by #line.  Knows no compiler.
 */
#include "backend.h"

#include <string.h>

#define ABOUT_MENTIONS "#pragma GCC diagnostic %s \"-Wdeprecated-declarations\"\n"

/* Nothing in it may end the line or the text. */
static bool is_line(const char *text)
{
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			return false;
	return true;
}

static int check_unit(const struct compile_job *job, char error[KERNEL_ERROR_MAX])
{
	if (!job->instantiation || job->instantiation[0] == 0 || !is_line(job->instantiation))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the instantiation must be one line that is not empty");
	if (job->file_count < 1 || job->file_count > COMPILE_MAX_FILES)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a kernel has 1 to %d source files, not %d", COMPILE_MAX_FILES,
						 job->file_count);
	for (int i = 0; i < job->file_count; i++) {
		const struct compile_file *file = &job->files[i];

		if (i < job->file_count - job->user_files && !scan_name_ok(file->name))
			return util_fail(
				error, KERNEL_ERROR_MAX, KILN_EINVAL,
				"the name of a kernel source has only letters, digits and _-+./: %.80s",
				file->name);
		if (!file->text)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "the text of %.80s did not come with it", file->name);
		if (file->bytes && memchr(file->text, 0, file->bytes))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "kernel source %s has a zero byte in it", file->name);
	}
	return KILN_OK;
}

/* The directives are blanked, not cut, so that what follows them keeps its line and column. */
static void unit_add_file(struct util_text *text, const struct compile_file *file)
{
	struct scan scan;
	struct scan_line line;
	enum scan_kind kind;

	util_text_add(text, "#line 1 \"%s\"\n", file->name);
	scan_begin(&scan, file);
	while ((kind = scan_next(&scan, &line)) != SCAN_END) {
		if (kind == SCAN_INCLUDE || kind == SCAN_ONCE) {
			size_t after = line.mark + line.mark_bytes;

			util_text_bytes(text, line.text, line.mark);
			for (size_t i = line.mark; i < after; i++)
				util_text_bytes(text, line.text[i] == '\n' ? "\n" : " ", 1);
			util_text_bytes(text, line.text + after, line.bytes - after);
		} else {
			util_text_bytes(text, line.text, line.bytes);
		}
	}
	if (file->bytes && file->text[file->bytes - 1] != '\n')
		util_text_add(text, "\n");
}

/* Counts the files at the beginning that stand for the device. */
static int count_shim(const struct compile_job *job)
{
	int count = 0;

	while (count < job->file_count - job->user_files &&
		   strncmp(job->files[count].name, "cpu/", 4) == 0)
		count++;
	return count;
}

/* Mentions the entry.  The compiler warns here alone, and only if the entry is declared __global__:
 * host C++ has no other way to ask for that.  The line belongs to no system header, whatever a line
 * of the user's says. */
static void name_entry(struct util_text *text, const char *entry)
{
	util_text_add(text, "# 1 \"entry\"\n");
	util_text_add(text, ABOUT_MENTIONS, "warning");
	util_text_add(text, "#line 1 \"entry\"\ntypedef decltype(&%s) kiln_cpu_named;\n", entry);
	util_text_add(text, ABOUT_MENTIONS, "ignored");
}

static int write_unit(const struct compile_job *job, struct util_text *text,
					  char error[KERNEL_ERROR_MAX])
{
	bool cpu = options_is_cpu(job->target);
	int shim = count_shim(job), status = KILN_OK;

	util_text_add(text, "#define KILN_CPU %d\n", cpu);
	if (cpu && job->user_files)
		util_text_add(text, "#define KILN_CPU_KERNEL \"" UNIT_CPU_KERNEL "\"\n" ABOUT_MENTIONS,
					  "ignored");
	if (job->check)
		util_text_add(text, "#define KILN_CPU_CHECK 1\n");
	for (int i = 0; i < shim; i++)
		unit_add_file(text, &job->files[i]);
	/* Compilers put zones only around variables that no other object can have: not around those of
	 * templates, unless they are in a namespace without a name. */
	if (job->check)
		util_text_add(text, "namespace {\n");
	for (int i = shim; i < job->file_count - job->user_files; i++)
		unit_add_file(text, &job->files[i]);
	if (job->user_files)
		status = user_add(job, text, error);
	if (job->check)
		util_text_add(text, "}\n");
	if (cpu && job->user_files)
		name_entry(text, job->instantiation);
	if (cpu)
		util_text_add(text, "#line 1 \"%s\"\nKILN_CPU_ENTRY(%s)\n",
					  job->user_files ? "entry" : "instantiation", job->instantiation);
	return status;
}

int unit_make(const struct compile_job *job, char **out, char error[KERNEL_ERROR_MAX])
{
	struct util_text text = {0};
	int status = check_unit(job, error);

	if (status == KILN_OK && job->whole) {
		util_text_bytes(&text, job->files[0].text,
						strnlen(job->files[0].text, job->files[0].bytes));
	} else if (status == KILN_OK) {
		status = job->user_files ? compile_check_user(job, error) : KILN_OK;
		if (status == KILN_OK)
			status = write_unit(job, &text, error);
	}
	if (status == KILN_OK && text.failed)
		status =
			util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "no memory for the translation unit");
	if (status == KILN_OK)
		*out = text.text;
	else
		util_text_free(&text);
	return status;
}
