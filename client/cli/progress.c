/*
 * progress.c: the line of progress.
 */
#include "progress.h"
#include "sink.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static bool is_shown(const struct cli *cli)
{
	return isatty(STDERR_FILENO) && !cli->json;
}

void progress_print(const struct cli *cli, const char *format, ...)
{
	va_list list;

	if (!is_shown(cli))
		return;
	va_start(list, format);
	fputc('\r', sink_terminal());
	vfprintf(sink_terminal(), format, list);
	fputs(" \033[K", sink_terminal());
	va_end(list);
}

void progress_end(const struct cli *cli)
{
	if (is_shown(cli))
		fputs("\r\033[K", sink_terminal());
}
