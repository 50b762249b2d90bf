/*
 * bugreport.c: 'kiln bugreport KEY': writes a directory with all that compiles a kernel of the
 * cache, or a failed one, without kilnd: the unit, the compiler's options, its log, and a script.
 * Directories of the user's files and home are cut off.
 */
#include "bugreport.h"
#include "client/cli/daemon.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One report, of a kernel or of a failure. */
struct kernel_report {
	struct bugreport files;
	const kiln_reply *reply;
	bool host;
};

/* ---- What is nobody's business ---- */

/* Hides the directory of a path that begins at the root; it ends before the first of `ends`. */
static void hide_directory(struct kernel_report *report, const char *path, const char *ends)
{
	size_t slash = 0;

	for (size_t i = 0; i < strcspn(path, ends); i++)
		if (path[i] == '/')
			slash = i + 1;
	if (path[0] == '/' && slash)
		bugreport_hide(&report->files, path, slash);
}

/* Hides the directories of #line "/dir/name", and of the source in the key: of a compiler that died
 * there is no unit. */
static void find_prefixes(struct kernel_report *report)
{
	static const char source[] = "\nsource /";
	const char *at = kiln_reply_str(report->reply, "source");

	while ((at = strstr(at, "#line "))) {
		size_t line = strcspn(at, "\n"), begin = strcspn(at, "\"") + 1;
		if (begin < line)
			hide_directory(report, at + begin, "\"\n");
		at += line;
	}
	at = strstr(kiln_reply_str(report->reply, "key_text"), source);
	if (at)
		hide_directory(report, at + sizeof(source) - 2, "\n");
}

/* ---- Files ---- */

/* Writes a word for the shell. */
static void put_word(const char *word, FILE *file)
{
	fputs(" '", file);
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", file);
		else
			fputc(*word, file);
	fputs("'", file);
}

/* The value of a line of the key's text; the caller frees it. */
static char *key_value(const struct kernel_report *report, const char *name)
{
	const char *at = kiln_reply_str(report->reply, "key_text");
	size_t length = strlen(name);

	while (at && (strncmp(at, name, length) != 0 || at[length] != ' '))
		at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
	return at ? strndup(at + length + 1, strcspn(at + length + 1, "\n")) : strdup("unknown");
}

/* The unit's name for NVRTC: what stands behind the last '/'. */
static void put_name(const struct kernel_report *report, FILE *file)
{
	char *source = key_value(report, "source"), *slash = source ? strrchr(source, '/') : NULL;

	put_word(source && source[0] == '/' && slash ? slash + 1 : source ? source : "", file);
	free(source);
}

static int put_script(struct kernel_report *report)
{
	FILE *file = bugreport_open(&report->files, "reproduce.sh");
	int count = kiln_reply_count(report->reply, "arguments");

	if (!file)
		return bugreport_close(&report->files, file);
	fputs("#!/bin/sh\n", file);
	if (report->host)
		fputs("# reproduce.sh: compiles unit.cc as kilnd did, by $CXX or g++.  Exit status: the "
			  "compiler's.\ncd \"$(dirname \"$0\")\" || exit 2\nexec \"${CXX:-g++}\"",
			  file);
	else
		fputs(
			"# reproduce.sh [LIBNVRTC]: compiles unit.cu as kilnd did, by this library or "
			"$KILN_NVRTC.\n# Exit status: 0 compiled, 1 refused, 2 it could not be tried, 128 and "
			"more: NVRTC died.\ncd \"$(dirname \"$0\")\" || exit 2\n\"${CC:-cc}\" -o nvrtc nvrtc.c "
			"-ldl || exit 2\nexec ./nvrtc \"${1:-${KILN_NVRTC:-}}\" unit.cu",
			file);
	if (!report->host) {
		put_name(report, file);
		put_word(kiln_reply_str(report->reply, "instantiation"), file);
		fprintf(file, " object.cubin -arch=%s", kiln_reply_str(report->reply, "target"));
	}
	for (int i = 0; i < count; i++) {
		bool optional = !report->host && member_int(report->reply, "arguments[%d].optional", i);
		char marked[256];
		snprintf(marked, sizeof(marked), "%s%s", optional ? "?" : "",
				 member_str(report->reply, "arguments[%d].text", i));
		put_word(marked, file);
	}
	fputc('\n', file);
	return bugreport_close(&report->files, file);
}

static int put_report(struct kernel_report *report)
{
	const kiln_reply *reply = report->reply;
	bool failed = kiln_reply_int(reply, "failed") != 0;
	char *compiler = key_value(report, "toolchain");
	FILE *file = bugreport_open(&report->files, "report.txt");

	if (file) {
		fprintf(file, "key            %s\nop             %s\ntarget         %s\n",
				kiln_reply_str(reply, "key"), kiln_reply_str(reply, "op"),
				kiln_reply_str(reply, "target"));
		fprintf(file, "instantiation  %s\ncompiler       %s\nkiln           %s\n",
				kiln_reply_str(reply, "instantiation"), compiler ? compiler : "", kiln_version());
		fprintf(file, "result         %s", failed ? kiln_reply_str(reply, "status") : "compiled, ");
		if (failed) {
			fputs(": ", file);
			bugreport_write(&report->files, kiln_reply_str(reply, "error"), file);
		} else {
			fprintf(file, "%" PRId64 " bytes", kiln_reply_int(reply, "bytes"));
		}
		fputs(
			"\n\nunit.* is all that was compiled, key.txt all that its key is made from, plan.txt "
			"what was\nasked for, log.txt what the compiler said.  ",
			file);
		fputs(kiln_reply_count(reply, "arguments")
				  ? "'sh reproduce.sh' compiles it once more.\n"
				  : "This kilnd would give the compiler other options, so there is no\nscript.\n",
			  file);
		if (report->files.cut)
			fputs("Directories of files are left out, so key.txt may not hash to the key.\n", file);
	}
	free(compiler);
	return bugreport_close(&report->files, file);
}

static int put_all(struct kernel_report *report)
{
	const kiln_reply *reply = report->reply;
	bool script = kiln_reply_count(reply, "arguments") > 0;
	int status = bugreport_put(&report->files, report->host ? "unit.cc" : "unit.cu",
							   kiln_reply_str(reply, "source"));

	if (!status)
		status = bugreport_put(&report->files, "key.txt", kiln_reply_str(reply, "key_text"));
	if (!status)
		status = bugreport_put(&report->files, "plan.txt", kiln_reply_str(reply, "plan"));
	if (!status)
		status = bugreport_put(&report->files, "log.txt", kiln_reply_str(reply, "log"));
	if (!status && script)
		status = put_script(report);
	if (!status && script && !report->host)
		status = bugreport_put(&report->files, "nvrtc.c", bugreport_nvrtc);
	return status ? status : put_report(report);
}

/* ---- The command ---- */

static int bugreport_kernel(struct cli *cli)
{
	kiln_attr key = cli_attr_string("key", cli->positional[0]);
	struct kernel_report report = {.reply = NULL};
	char name[64];
	kiln_reply *reply;
	int status;

	if (cli_request(cli, "cache.show", &key, 1, &reply))
		return CLI_FAILED;
	report.reply = reply;
	report.host = !strcmp(kiln_reply_str(reply, "target"), "cpu");
	snprintf(name, sizeof(name), "kiln-bugreport-%.*s", CLI_SHORT_KEY,
			 kiln_reply_str(reply, "key"));
	status = bugreport_begin(&report.files, cli, name);
	if (!status) {
		find_prefixes(&report);
		status = put_all(&report);
		bugreport_end(&report.files, status, kiln_reply_str(reply, "key"));
	}
	kiln_reply_free(reply);
	return status;
}

static int cli_bugreport(struct cli *cli)
{
	return cli->positional_count ? bugreport_kernel(cli) : bugreport_all(cli);
}

/* ---- The command ---- */

static const struct cli_option bugreport_options[] = {
	{"output", "DIR", "the directory, which is made (kiln-bugreport-KEY, or -DATE)"},
	{0},
};

static const struct cli_example bugreport_examples[] = {
	{"kiln bugreport --output report", "all of the daemon that a maintainer asks for"},
	{"kiln bugreport 3f9a", "one kernel, to be compiled elsewhere"},
	{0}};

const struct cli_command command_bugreport = {"bugreport",
											  cli_bugreport,
											  "[KEY]",
											  "the daemon, or a compile, in a directory to be sent",
											  {0, 1},
											  bugreport_options,
											  .examples = bugreport_examples};
