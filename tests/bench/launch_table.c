/*
 * launch_table.c: the table: a row a figure, as soon as it is there, with its aim and whether it
 * was met.  A missed aim is a figure, not a failure.
 */
#include "launch.h"

#include <stdio.h>

static const char *section = "";
static int met, missed;

void table_section(const char *name)
{
	if (!section[0])
		printf("%-46s %12s %-10s %8s %-14s %-10s\n", "", "figure", "unit", "ratio", "to", "target");
	section = name;
	printf("%s\n", name);
}

static bool is_met(const struct figure *figure)
{
	double value = figure->of ? figure->ratio : figure->value;
	return figure->aim == AIM_AT_MOST ? value <= figure->target : value >= figure->target;
}

static void write_json(const struct bench *bench, const struct figure *figure)
{
	const char *path = bench->options.json;
	FILE *json = path ? fopen(path, "a") : NULL;
	if (!json)
		return;
	fprintf(json, "{\"program\": \"%s\", \"figure\": \"%s: %s\", \"value\": %.4f, \"unit\": \"%s\"",
			bench->options.program, section, figure->name, figure->value, figure->unit);
	if (figure->of)
		fprintf(json, ", \"ratio\": %.4f, \"to\": \"%s\"", figure->ratio, figure->of);
	if (figure->aim != AIM_NONE)
		fprintf(json, ", \"%s\": %g, \"met\": %s",
				figure->aim == AIM_AT_MOST ? "at_most" : "at_least", figure->target,
				is_met(figure) ? "true" : "false");
	fprintf(json, "}\n");
	fclose(json);
}

void table_row(const struct bench *bench, const struct figure *figure)
{
	bool small = figure->value > 0 && figure->value < 1;
	printf("  %-44s %12.*f %-10s", figure->name, small ? 4 : 2, figure->value, figure->unit);
	if (figure->of)
		printf(" %8.3f %-14s", figure->ratio, figure->of);
	else if (figure->aim != AIM_NONE)
		printf(" %8s %-14s", "", "");
	if (figure->aim != AIM_NONE) {
		printf(" %s %-7g %s", figure->aim == AIM_AT_MOST ? "<=" : ">=", figure->target,
			   is_met(figure) ? "met" : "MISSED");
		*(is_met(figure) ? &met : &missed) += 1;
	}
	printf("\n");
	fflush(stdout);
	write_json(bench, figure);
}

void table_left_out(const char *name, const char *why)
{
	printf("  %-44s left out: %s\n", name, why);
	fflush(stdout);
}

void table_end(void)
{
	printf("targets: %d met, %d missed\n", met, missed);
}
