/*
 * tune_rows.c: the table of tuning's winners: list, export, import, forget.  A file has one flat
 * JSON object a line, so that the usual tools can join, sort and compare files.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/json.h"
#include "client/cli/table.h"
#include "tune.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MOST 8192
#define VALUE_MOST 2048

/* The members of a row, by the names that the daemon and the file use. */
static const struct member {
	const char *name;
	kiln_attr_kind kind;
} members[] = {
	{"op", KILN_ATTR_STRING},        {"model", KILN_ATTR_STRING}, {"target", KILN_ATTR_STRING},
	{"choice", KILN_ATTR_STRING},    {"micros", KILN_ATTR_REAL},  {"own_micros", KILN_ATTR_REAL},
	{"candidates", KILN_ATTR_INT},   {"when", KILN_ATTR_INT},     {"version", KILN_ATTR_STRING},
	{"signature", KILN_ATTR_STRING},
};
enum { MEMBERS = sizeof(members) / sizeof(members[0]) };

/* ---- List ---- */

static void print_winners(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {"OP",    "MODEL", "TARGET", "CHOICE",
										  ">TIME", ">OWN",  "DATE",   "CLASS"};
	char figure[FIGURE_MAX];
	struct table table;

	(void)cli;
	table_begin(&table, headers, 8);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		char day[FIGURE_MAX] = "unknown";
		figure_date(member_int(reply, "rows[%d].when", i), "%Y-%m-%d", day);
		table_cell(&table, "%s", member_str(reply, "rows[%d].op", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].model", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].target", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].choice", i));
		table_cell(&table, "%s", figure_micros(member_real(reply, "rows[%d].micros", i), figure));
		table_cell(&table, "%s",
				   figure_micros(member_real(reply, "rows[%d].own_micros", i), figure));
		table_cell(&table, "%s", day);
		table_cell(&table, "%s", member_str(reply, "rows[%d].signature", i));
	}
	table_end(&table);
}

int tune_list(struct cli *cli)
{
	return cli_answer(cli, "tuned.ls", NULL, 0, print_winners);
}

/* ---- Export ---- */

/* Texts of the daemon have no control characters. */
static void write_string(FILE *out, const char *value)
{
	fputc('"', out);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', out);
		fputc(*value, out);
	}
	fputc('"', out);
}

static void write_row(FILE *out, const kiln_reply *reply, int row)
{
	for (int m = 0; m < MEMBERS; m++) {
		const char *name = members[m].name;
		fprintf(out, "%s\"%s\": ", m ? ", " : "{", name);
		if (members[m].kind == KILN_ATTR_STRING)
			write_string(out, member_str(reply, "rows[%d].%s", row, name));
		else if (members[m].kind == KILN_ATTR_REAL)
			fprintf(out, "%.3f", member_real(reply, "rows[%d].%s", row, name));
		else
			fprintf(out, "%" PRId64, member_int(reply, "rows[%d].%s", row, name));
	}
	fputs("}\n", out);
}

/* Opens the file; "-" is standard input or output. */
static FILE *open_file(const char *path, const char *mode, FILE *standard)
{
	FILE *file = strcmp(path, "-") != 0 ? fopen(path, mode) : standard;

	if (!file)
		fprintf(stderr, "kiln: tune: '%s': %s\n", path, strerror(errno));
	return file;
}

static void tune_rows_report(const struct cli *cli, const char *done, int rows, const char *path)
{
	if (cli->json) {
		json_begin();
		json_int(done, rows);
		json_end();
	} else
		printf("%s %d %s '%s'\n", done, rows, !strcmp(done, "exported") ? "to" : "from", path);
}

int tune_export(struct cli *cli, const char *path)
{
	kiln_reply *reply;
	FILE *out;
	int rows;
	bool good;

	if (cli_request(cli, "tuned.ls", NULL, 0, &reply))
		return CLI_FAILED;
	out = open_file(path, "w", stdout);
	rows = kiln_reply_count(reply, "rows");
	for (int i = 0; out && i < rows; i++)
		write_row(out, reply, i);
	kiln_reply_free(reply);
	if (!out)
		return CLI_FAILED;
	good = !ferror(out);
	if (out == stdout)
		return CLI_OK;
	good = !fclose(out) && good;
	if (!good) {
		fprintf(stderr, "kiln: tune: '%s' cannot be written: %s\n", path, strerror(errno));
		return CLI_FAILED;
	}
	tune_rows_report(cli, "exported", rows, path);
	return CLI_OK;
}

/* ---- Import ---- */

/* A row of a file while it is read. */
struct line {
	const char *at;
	char texts[MEMBERS][VALUE_MOST];
	bool seen[MEMBERS];
};

static bool skip_to(struct line *line, char c)
{
	line->at += strspn(line->at, " \t\r\n");
	if (*line->at != c)
		return false;
	line->at++;
	return true;
}

/* Reads a string with the escapes that write_string() makes. */
static bool take_string(struct line *line, char *out, size_t size)
{
	size_t used = 0;

	if (!skip_to(line, '"'))
		return false;
	for (; *line->at && *line->at != '"'; line->at++) {
		if (*line->at == '\\' && *++line->at != '"' && *line->at != '\\')
			return false;
		if (used + 1 >= size)
			return false;
		out[used++] = *line->at;
	}
	out[used] = 0;
	return skip_to(line, '"');
}

static bool take_number(struct line *line, char *out, size_t size)
{
	size_t length;
	char *end;

	line->at += strspn(line->at, " \t");
	length = strspn(line->at, "+-.0123456789eE");
	if (!length || length >= size)
		return false;
	memcpy(out, line->at, length);
	out[length] = 0;
	line->at += length;
	strtod(out, &end);
	return !*end;
}

/* Reads one "name": value.  An unknown name is refused with a sentence. */
static bool take_member(struct line *line, const char **why)
{
	char name[64];
	int m = 0;

	*why = "expected \"name\": value";
	if (!take_string(line, name, sizeof(name)) || !skip_to(line, ':'))
		return false;
	while (m < MEMBERS && strcmp(members[m].name, name) != 0)
		m++;
	*why = "a member that rows do not have, or that is there twice";
	if (m == MEMBERS || line->seen[m])
		return false;
	line->seen[m] = true;
	*why = "a value that is too long or no text or number where one is expected";
	return members[m].kind == KILN_ATTR_STRING ? take_string(line, line->texts[m], VALUE_MOST)
											   : take_number(line, line->texts[m], VALUE_MOST);
}

/* Reads the line into arguments of "tuned.put"; NULL, or what is wrong with it. */
static const char *read_row(struct line *line, kiln_attr args[MEMBERS])
{
	const char *why = "expected an object in braces";

	memset(line->seen, 0, sizeof(line->seen));
	if (!skip_to(line, '{'))
		return why;
	do {
		if (!take_member(line, &why))
			return why;
	} while (skip_to(line, ','));
	if (!skip_to(line, '}') || line->at[strspn(line->at, " \t\r\n")])
		return "expected '}' and the end of the line";
	for (int m = 0; m < MEMBERS; m++) {
		if (!line->seen[m])
			return "a member is missing; a row has op, model, target, choice, micros, own_micros, "
				   "candidates, when, version and signature";
		args[m] = (kiln_attr){.name = members[m].name, .kind = members[m].kind};
		args[m].s = line->texts[m];
		args[m].f = strtod(line->texts[m], NULL);
		args[m].i = strtoll(line->texts[m], NULL, 10);
	}
	return NULL;
}

static int put_rows(const struct cli *cli, kiln_client *client, FILE *in, const char *path,
					int *count)
{
	static struct line line;
	static char text[LINE_MOST];

	for (int number = 1; fgets(text, sizeof(text), in); number++) {
		kiln_attr args[MEMBERS];
		kiln_reply *reply;
		line.at = text;
		if (!text[strspn(text, " \t\r\n")])
			continue;
		const char *why = read_row(&line, args);
		if (why) {
			fprintf(stderr, "kiln: tune: '%s', line %d: %s\n", path, number, why);
			return CLI_FAILED;
		}
		int status = kiln_request(client, "tuned.put", args, MEMBERS, &reply);
		if (status)
			return cli_failed(cli, status, "tune: '%s', line %d", path, number);
		kiln_reply_free(reply);
		++*count;
	}
	return CLI_OK;
}

int tune_import(struct cli *cli, const char *path)
{
	FILE *in = open_file(path, "r", stdin);
	kiln_client *client = NULL;
	int count = 0, status;

	if (!in)
		return CLI_FAILED;
	status = cli_connect(cli, &client);
	if (!status)
		status = put_rows(cli, client, in, path, &count);
	if (!status)
		tune_rows_report(cli, "imported", count, path);
	kiln_close(client);
	if (in != stdin)
		fclose(in);
	return status;
}

/* ---- Forget ---- */

static void print_forgot(struct cli *cli, const kiln_reply *reply)
{
	(void)cli;
	printf("forgot %" PRId64 "\n", kiln_reply_int(reply, "removed"));
}

int tune_forget(struct cli *cli, kiln_client *client, const kiln_reply *plan)
{
	kiln_attr args[3];
	kiln_reply *reply;
	int count = 0, status;

	if (plan) {
		args[count++] = cli_attr_string("model", kiln_reply_str(plan, "model"));
		args[count++] = cli_attr_string("target", kiln_reply_str(plan, "target"));
		args[count++] = cli_attr_string("signature", kiln_reply_str(plan, "signature"));
	}
	status = kiln_request(client, "tuned.rm", args, count, &reply);
	if (status)
		return cli_failed(cli, status, "tune --forget");
	return cli_show(cli, reply, print_forgot);
}
