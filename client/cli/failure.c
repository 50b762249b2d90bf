/*
 * failure.c: failures in words.
 */
#include "failure.h"
#include "json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int cli_usage(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fputs("kiln: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	return CLI_USAGE;
}

/* A program that reads standard output as JSON finds the failure there, too. */
static void print_failure(int status, const char *message, const char *log)
{
	json_begin();
	json_string("error", kiln_status_name(status));
	json_string("message", message);
	if (log[0])
		json_string("log", log);
	json_end();
}

/* Prints the log without the line that is the sentence. */
static void print_log(const char *log, const char *sentence)
{
	size_t said = strlen(sentence);
	bool left_out = false;

	while (*log) {
		size_t length = strcspn(log, "\n");
		if (!left_out && length == said && !memcmp(log, sentence, said))
			left_out = true;
		else
			fprintf(stderr, "%.*s\n", (int)length, log);
		log += length + (log[length] == '\n');
	}
}

int cli_failed(const struct cli *cli, int status, const char *format, ...)
{
	const char *log = kiln_errlog(), *message = kiln_errmsg(), *last;
	char what[1024];
	size_t length;
	va_list list;

	va_start(list, format);
	vsnprintf(what, sizeof(what), format, list);
	va_end(list);
	/* The planner's sentences begin with the operator's name, which ends `what` already. */
	last = strrchr(what, ' ') ? strrchr(what, ' ') + 1 : what;
	length = strlen(last);
	if (length && !strncmp(message, last, length) && !strncmp(message + length, ": ", 2))
		message += length + 2;
	fprintf(stderr, "kiln: %s: %s\n", what, message);
	print_log(log, kiln_errmsg());
	if (cli->json)
		print_failure(status, kiln_errmsg(), log);
	return CLI_FAILED;
}

int cli_failed_here(const struct cli *cli, int status, const char *format, ...)
{
	char sentence[1024];
	va_list list;

	va_start(list, format);
	vsnprintf(sentence, sizeof(sentence), format, list);
	va_end(list);
	fprintf(stderr, "kiln: %s\n", sentence);
	if (cli->json)
		print_failure(status, sentence, "");
	return CLI_FAILED;
}

int cli_failed_wait(const struct cli *cli, int status, int timeout_ms, const char *what)
{
	if (status != KILN_EAGAIN)
		return cli_failed(cli, status, "%s", what);
	return cli_failed_here(cli, KILN_ETIMEDOUT,
						   "%s: the call has not ended after %d ms (--timeout)", what, timeout_ms);
}
