/*
 * bugreport_files.c: makes the directory of a bug report and its files, and cuts directories of the
 * user's off.
 */
#include "bugreport.h"
#include "client/cli/failure.h"
#include "client/cli/json.h"
#include "client/cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- What is nobody's business ---- */

void bugreport_hide(struct bugreport *report, const char *text, size_t length)
{
	char *prefix = report->prefix_count < BUGREPORT_PREFIXES ? strndup(text, length) : NULL;

	for (int i = 0; prefix && i < report->prefix_count; i++)
		if (!strcmp(report->prefixes[i], prefix)) {
			free(prefix);
			return;
		}
	if (prefix)
		report->prefixes[report->prefix_count++] = prefix;
}

void bugreport_write(struct bugreport *report, const char *text, FILE *file)
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

FILE *bugreport_open(struct bugreport *report, const char *name)
{
	char path[PATH_MAX + 64];
	char *kept = report->file_count < BUGREPORT_FILES ? strdup(name) : NULL;

	if (!kept)
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", report->directory, name);
	report->files[report->file_count++] = kept;
	return fopen(path, "wb");
}

int bugreport_close(const struct bugreport *report, FILE *file)
{
	bool good = file && !ferror(file);

	if (file && fclose(file) != 0)
		good = false;
	return good ? CLI_OK
				: cli_failed_here(report->cli, KILN_EIO, "bugreport: %s cannot be written: %s",
								  report->directory, strerror(errno));
}

int bugreport_put(struct bugreport *report, const char *name, const char *text)
{
	FILE *file = bugreport_open(report, name);

	if (file)
		bugreport_write(report, text, file);
	return bugreport_close(report, file);
}

/* ---- The directory ---- */

static void forget(struct bugreport *report)
{
	while (report->prefix_count > 0)
		free(report->prefixes[--report->prefix_count]);
	while (report->file_count > 0)
		free(report->files[--report->file_count]);
}

int bugreport_begin(struct bugreport *report, const struct cli *cli, const char *name)
{
	const char *given = cli_value(cli, "output"), *home = getenv("HOME");
	char text[PATH_MAX];

	report->cli = cli;
	if (home && home[0] == '/' && home[1]) {
		snprintf(text, sizeof(text), "%s/", home);
		bugreport_hide(report, text, strlen(text));
	}
	snprintf(report->directory, sizeof(report->directory), "%s", given ? given : name);
	if (mkdir(report->directory, 0700) == 0)
		return CLI_OK;
	forget(report);
	return cli_failed_here(report->cli, KILN_EIO, "bugreport: %s cannot be made: %s",
						   report->directory, strerror(errno));
}

static void print_made(const struct bugreport *report, const char *key)
{
	if (!report->cli->json) {
		print_pair("directory", "%s", report->directory);
		for (int i = 0; i < report->file_count; i++)
			print_pair(i ? "" : "files", "%s", report->files[i]);
		return;
	}
	json_begin();
	if (key)
		json_string("key", key);
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

int bugreport_end(struct bugreport *report, int status, const char *key)
{
	char path[PATH_MAX + 64];

	for (int i = 0; status && i < report->file_count; i++) {
		snprintf(path, sizeof(path), "%s/%s", report->directory, report->files[i]);
		unlink(path);
	}
	if (status)
		rmdir(report->directory);
	else
		print_made(report, key);
	forget(report);
	return status;
}
