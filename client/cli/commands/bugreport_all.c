/*
 * bugreport_all.c: writes the daemon's state as files in a directory that a user may send: reports,
 * figures, waits, the list of kernels, the log.  The daemon leaves secrets out; this file cuts off
 * directories below the user's home.
 */
#include "bugreport.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/table.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define REPORTS_MOST 64
#define ROWS_MOST 2000

/* The requests, each of which fills a file. */
static const struct question {
	const char *file, *request, *what;
} questions[] = {
	{"now.txt", "fault.now", "how the daemon is, its versions, settings and the end of its log"},
	{"status.json", "info", "figures, settings and limits"},
	{"waits.json", "waits", "who waits for whom"},
	{"cache.json", "cache.ls", "the compiled kernels"},
};
#define QUESTIONS ((int)(sizeof(questions) / sizeof(questions[0])))

/* Sends one request; CLI_OK with *reply NULL if the daemon does not know it. */
static int bugreport_all_ask(struct cli *cli, kiln_client *client, const char *request,
							 const kiln_attr *args, int count, kiln_reply **reply)
{
	int status = kiln_request(client, request, args, count, reply);

	if (status == KILN_EINVAL || status == KILN_EVERSION) {
		*reply = NULL;
		return CLI_OK;
	}
	return status == KILN_OK ? CLI_OK : cli_failed(cli, status, "bugreport: %s", request);
}

static int put_answer(struct bugreport *report, struct cli *cli, kiln_client *client,
					  const struct question *question)
{
	bool info = !strcmp(question->request, "info"), list = !strcmp(question->request, "cache.ls");
	const kiln_attr arg =
		info ? cli_attr_string("section", "all") : cli_attr_int("limit", ROWS_MOST);
	kiln_reply *reply = NULL;
	int status = bugreport_all_ask(cli, client, question->request, &arg, info || list, &reply);

	if (!status && reply)
		status = bugreport_put(report, question->file,
							   strstr(question->file, ".json") ? kiln_reply_json(reply)
															   : kiln_reply_str(reply, "text"));
	kiln_reply_free(reply);
	return status;
}

/* A report that made room for others meanwhile is left out. */
static int put_fault(struct bugreport *report, kiln_client *client, const char *id)
{
	kiln_attr named = cli_attr_string("report", id);
	kiln_reply *reply = NULL;
	char name[64];
	int status = CLI_OK;

	snprintf(name, sizeof(name), "fault-%.40s.txt", id);
	if (kiln_request(client, "fault.show", &named, 1, &reply) == KILN_OK)
		status = bugreport_put(report, name, kiln_reply_str(reply, "text"));
	kiln_reply_free(reply);
	return status;
}

static int put_faults(struct bugreport *report, struct cli *cli, kiln_client *client)
{
	kiln_reply *reply = NULL;
	int status = bugreport_all_ask(cli, client, "fault.ls", NULL, 0, &reply);
	int rows = reply ? kiln_reply_count(reply, "rows") : 0;

	for (int i = 0; !status && i < rows && i < REPORTS_MOST; i++)
		status = put_fault(report, client, member_str(reply, "rows[%d].report", i));
	kiln_reply_free(reply);
	return status;
}

static int put_index(struct bugreport *report)
{
	FILE *file = bugreport_open(report, "report.txt");

	if (file) {
		fprintf(file, "kiln           %s\n\n", kiln_version());
		for (int i = 0; i < QUESTIONS; i++)
			fprintf(file, "%s%-14s %s\n",
					i == 1 ? "fault-*.txt    what went wrong before, a report each\n" : "",
					questions[i].file, questions[i].what);
		if (report->cut)
			fputs("\nDirectories below the user's home are without it.\n", file);
	}
	return bugreport_close(report, file);
}

int bugreport_all(struct cli *cli)
{
	struct bugreport report = {.cli = cli};
	kiln_client *client;
	char name[FIGURE_MAX] = "kiln-bugreport";
	int status;

	if (cli_connect(cli, &client))
		return CLI_FAILED;
	figure_date((int64_t)time(NULL), "kiln-bugreport-%Y%m%d-%H%M%S", name);
	status = bugreport_begin(&report, cli, name);
	if (!status) {
		for (int i = 0; !status && i < QUESTIONS; i++)
			status = put_answer(&report, cli, client, &questions[i]);
		if (!status)
			status = put_faults(&report, cli, client);
		if (!status)
			status = put_index(&report);
		bugreport_end(&report, status, NULL);
	}
	kiln_close(client);
	return status;
}
