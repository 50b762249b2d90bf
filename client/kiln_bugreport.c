/*
 * kiln_bugreport: all that is needed to compile a kernel of the cache, or one that failed, once
 * more without kilnd, as files in a directory: the unit, what the compiler was told, what it said,
 * and a script.  Directories of the user's files and home are cut off.
 */
#include "kiln_bugreport.h"
#include "kiln_cli.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIXES 32 /* directories that are cut off */
#define FILES 8

struct bugreport {
	const struct cli *cli;
	const kiln_reply *reply;
	char directory[PATH_MAX];
	char *prefixes[PREFIXES];
	int prefix_count;
	const char *files[FILES];
	int file_count;
	bool host;
	bool cut; /* something was */
};

/* ---- What is nobody's business ---- */

static void add_prefix(struct bugreport *report, const char *text, size_t length)
{
	char *prefix = report->prefix_count < PREFIXES ? strndup(text, length) : NULL;

	for (int i = 0; prefix && i < report->prefix_count; i++)
		if (!strcmp(report->prefixes[i], prefix)) {
			free(prefix);
			return;
		}
	if (prefix)
		report->prefixes[report->prefix_count++] = prefix;
}

/* The directories of #line "/dir/name", and the home directory. */
static void find_prefixes(struct bugreport *report)
{
	const char *at = kiln_reply_str(report->reply, "source"), *home = getenv("HOME");

	while ((at = strstr(at, "#line "))) {
		size_t line = strcspn(at, "\n"), begin = strcspn(at, "\"") + 1, slash = 0;
		for (size_t i = begin; i < line && at[i] != '"'; i++)
			if (at[i] == '/')
				slash = i + 1;
		if (begin < line && at[begin] == '/' && slash)
			add_prefix(report, at + begin, slash - begin);
		at += line;
	}
	if (home && home[0] == '/' && home[1]) {
		char text[PATH_MAX];
		snprintf(text, sizeof(text), "%s/", home);
		add_prefix(report, text, strlen(text));
	}
}

/* Writes the text without the prefixes. */
static void write_cut(struct bugreport *report, const char *text, FILE *file)
{
	while (*text) {
		size_t skip = 0;
		for (int i = 0; i < report->prefix_count; i++) {
			size_t length = strlen(report->prefixes[i]);
			if (length > skip && !strncmp(text, report->prefixes[i], length))
				skip = length;
		}
		if (!skip)
			fputc(*text++, file);
		text += skip;
		report->cut = report->cut || skip;
	}
}

/* ---- Files ---- */

static FILE *begin_file(struct bugreport *report, const char *name)
{
	char path[PATH_MAX + 32];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", report->directory, name);
	file = fopen(path, "wb");
	if (file)
		report->files[report->file_count++] = name;
	return file;
}

static int end_file(const struct bugreport *report, FILE *file)
{
	bool good = file && !ferror(file);

	if (file && fclose(file) != 0)
		good = false;
	return good ? CLI_OK
				: cli_failed_here(report->cli, KILN_EIO, "bugreport: %s cannot be written: %s",
								  report->directory, strerror(errno));
}

static int put_text(struct bugreport *report, const char *name, const char *text)
{
	FILE *file = begin_file(report, name);

	if (file)
		write_cut(report, text, file);
	return end_file(report, file);
}

/* A word of a shell's. */
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

static const char *argument(const struct bugreport *report, int i, bool *optional)
{
	char path[48];

	snprintf(path, sizeof(path), "arguments[%d].optional", i);
	*optional = kiln_reply_int(report->reply, path) != 0;
	snprintf(path, sizeof(path), "arguments[%d].text", i);
	return kiln_reply_str(report->reply, path);
}

/* The value of a line of the key's text, to be freed. */
static char *key_value(const struct bugreport *report, const char *name)
{
	const char *at = kiln_reply_str(report->reply, "key_text");
	size_t length = strlen(name);

	while (at && (strncmp(at, name, length) != 0 || at[length] != ' '))
		at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
	return at ? strndup(at + length + 1, strcspn(at + length + 1, "\n")) : strdup("unknown");
}

/* What NVRTC calls the unit: the name behind the last '/'. */
static void put_name(const struct bugreport *report, FILE *file)
{
	char *source = key_value(report, "source"), *slash = source ? strrchr(source, '/') : NULL;

	put_word(source && source[0] == '/' && slash ? slash + 1 : source ? source : "", file);
	free(source);
}

static int put_script(struct bugreport *report)
{
	FILE *file = begin_file(report, "reproduce.sh");
	int count = kiln_reply_count(report->reply, "arguments");
	bool optional;

	if (!file)
		return end_file(report, file);
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
		const char *text = argument(report, i, &optional);
		char marked[256];
		snprintf(marked, sizeof(marked), "%s%s", optional && !report->host ? "?" : "", text);
		put_word(marked, file);
	}
	fputc('\n', file);
	return end_file(report, file);
}

static int put_report(struct bugreport *report)
{
	const kiln_reply *reply = report->reply;
	bool failed = kiln_reply_int(reply, "failed") != 0;
	char *compiler = key_value(report, "toolchain");
	FILE *file = begin_file(report, "report.txt");

	if (file) {
		fprintf(file, "key            %s\nop             %s\ntarget         %s\n",
				kiln_reply_str(reply, "key"), kiln_reply_str(reply, "op"),
				kiln_reply_str(reply, "target"));
		fprintf(file, "instantiation  %s\ncompiler       %s\nkiln           %s\n",
				kiln_reply_str(reply, "instantiation"), compiler ? compiler : "", kiln_version());
		fprintf(file, "result         %s", failed ? kiln_reply_str(reply, "status") : "compiled, ");
		if (failed) {
			fputs(": ", file);
			write_cut(report, kiln_reply_str(reply, "error"), file);
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
		if (report->cut)
			fputs("Directories of files are left out, so key.txt may not hash to the key.\n", file);
	}
	free(compiler);
	return end_file(report, file);
}

static int put_all(struct bugreport *report)
{
	const kiln_reply *reply = report->reply;
	bool script = kiln_reply_count(reply, "arguments") > 0;
	int status =
		put_text(report, report->host ? "unit.cc" : "unit.cu", kiln_reply_str(reply, "source"));

	if (!status)
		status = put_text(report, "key.txt", kiln_reply_str(reply, "key_text"));
	if (!status)
		status = put_text(report, "plan.txt", kiln_reply_str(reply, "plan"));
	if (!status)
		status = put_text(report, "log.txt", kiln_reply_str(reply, "log"));
	if (!status && script)
		status = put_script(report);
	if (!status && script && !report->host)
		status = put_text(report, "nvrtc.c", bugreport_nvrtc);
	return status ? status : put_report(report);
}

/* ---- The command ---- */

static int make_directory(struct bugreport *report)
{
	const char *given = cli_value(report->cli, "output");

	if (given)
		snprintf(report->directory, sizeof(report->directory), "%s", given);
	else
		snprintf(report->directory, sizeof(report->directory), "kiln-bugreport-%.*s", CLI_SHORT_KEY,
				 kiln_reply_str(report->reply, "key"));
	if (mkdir(report->directory, 0700) == 0)
		return CLI_OK;
	return cli_failed_here(report->cli, KILN_EIO, "bugreport: %s cannot be made: %s",
						   report->directory, strerror(errno));
}

static void remove_all(const struct bugreport *report)
{
	char path[PATH_MAX + 32];

	for (int i = 0; i < report->file_count; i++) {
		snprintf(path, sizeof(path), "%s/%s", report->directory, report->files[i]);
		unlink(path);
	}
	rmdir(report->directory);
}

static void print_made(const struct bugreport *report)
{
	if (!report->cli->json) {
		print_pair("directory", "%s", report->directory);
		for (int i = 0; i < report->file_count; i++)
			print_pair(i ? "" : "files", "%s", report->files[i]);
		return;
	}
	json_begin();
	json_string("key", kiln_reply_str(report->reply, "key"));
	json_string("directory", report->directory);
	json_list_begin("files");
	for (int i = 0; i < report->file_count; i++) {
		json_item_begin();
		json_string("name", report->files[i]);
		json_item_end();
	}
	json_list_end();
	json_end();
}

int cli_bugreport(struct cli *cli)
{
	kiln_attr key = cli_attr_string("key", cli->positional[0]);
	struct bugreport report = {.cli = cli};
	kiln_reply *reply;
	int status;

	if (cli_request(cli, "cache.show", &key, 1, &reply))
		return CLI_FAILED;
	report.reply = reply;
	report.host = !strcmp(kiln_reply_str(reply, "target"), "cpu");
	find_prefixes(&report);
	status = make_directory(&report);
	if (!status) {
		status = put_all(&report);
		if (status)
			remove_all(&report);
		else
			print_made(&report);
	}
	for (int i = 0; i < report.prefix_count; i++)
		free(report.prefixes[i]);
	kiln_reply_free(reply);
	return status;
}
