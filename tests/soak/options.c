/* options.c: the command line of soak. */
#include "soak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: soak [OPTION]...\n"
	"\n"
	"  --seconds N         how long (60)\n"
	"  --clients N         client processes (16)\n"
	"  --steps N           and no more than so many steps of each client (no limit)\n"
	"  --seed N            of all that is random (1)\n"
	"  --device NAME       cpu, cuda:0 (cpu)\n"
	"  --kill-every MS     how often a process is killed or frozen, on average; 0: never (800)\n"
	"  --copies            the driver runs no kernels: what they write is not judged\n"
	"  --repeat C:STEP[:N] client C alone, N steps from STEP on (1), and nobody is killed\n"
	"  --json FILE         the report for programs\n"
	"\n"
	"Starts $KILN_DAEMON, or kilnd beside this program.\n"
	"exit status: 0 all held, 1 something did not, 2 the command line is wrong\n";

static bool take_number(const char *text, int64_t least, int64_t most, int64_t *out)
{
	char *end = NULL;
	long long value = strtoll(text, &end, 10);

	if (end == text || *end || value < least || value > most)
		return false;
	*out = value;
	return true;
}

static bool take_repeat(const char *text, struct soak_options *out)
{
	long long client, step, count = 1;
	char more;
	int fields = sscanf(text, "%lld:%lld:%lld%c", &client, &step, &count, &more);

	if ((fields != 2 && fields != 3) || client < 0 || client >= SOAK_CLIENTS_MOST || step < 0 ||
		count < 1)
		return false;
	out->repeat = true;
	out->repeat_client = (int)client;
	out->repeat_step = step;
	out->repeat_count = count;
	return true;
}

/* An option with a value; false: unknown, or the value is wrong. */
static bool take_value(const char *name, const char *value, struct soak_options *out)
{
	int64_t number = 0;

	if (strcmp(name, "--device") == 0)
		return out->device = value, *value != 0;
	if (strcmp(name, "--json") == 0)
		return out->json = value, *value != 0;
	if (strcmp(name, "--repeat") == 0)
		return take_repeat(value, out);
	if (strcmp(name, "--seconds") == 0)
		return take_number(value, 1, 86400, &number) && (out->seconds = (int)number, true);
	if (strcmp(name, "--clients") == 0)
		return take_number(value, 1, SOAK_CLIENTS_MOST, &number) &&
			   (out->clients = (int)number, true);
	if (strcmp(name, "--steps") == 0)
		return take_number(value, 0, INT64_MAX, &out->steps);
	if (strcmp(name, "--seed") == 0)
		return take_number(value, 0, INT64_MAX, &number) && (out->seed = (uint64_t)number, true);
	if (strcmp(name, "--kill-every") == 0)
		return take_number(value, 0, 3600000, &number) && (out->kill_every_ms = (int)number, true);
	return false;
}

bool soak_options_read(int argc, char **argv, struct soak_options *out, int *code)
{
	*out = (struct soak_options){
		.device = "cpu", .seed = 1, .seconds = 60, .clients = 16, .kill_every_ms = 800};
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			*code = 0;
			return false;
		}
		if (strcmp(argv[i], "--copies") == 0) {
			out->copies = true;
		} else if (i + 1 < argc && take_value(argv[i], argv[i + 1], out)) {
			i++;
		} else {
			fprintf(stderr, "soak: option \"%s\" is unknown, or its value %s%s%s\n\n%s", argv[i],
					i + 1 < argc ? "\"" : "is missing", i + 1 < argc ? argv[i + 1] : "",
					i + 1 < argc ? "\" is wrong" : "", usage);
			*code = 2;
			return false;
		}
	}
	if (out->repeat) {
		out->kill_every_ms = 0;
		if (out->clients <= out->repeat_client)
			out->clients = out->repeat_client + 1;
	}
	return true;
}
