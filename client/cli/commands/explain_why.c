/*
 * explain_why.c: 'kiln explain --why': whether a call finds its kernel in the cache, and else how
 * the nearest kernel there differs.
 */
#include "client/cli/problem.h"
#include "client/cli/table.h"
#include "explain.h"

#include <stdio.h>

#define INDENT "               "

static const char *near_str(const kiln_reply *reply, int row, const char *member)
{
	char path[96];
	snprintf(path, sizeof(path), "near[%d].%s", row, member);
	return kiln_reply_str(reply, path);
}

static int64_t near_int(const kiln_reply *reply, int row, const char *member)
{
	char path[96];
	snprintf(path, sizeof(path), "near[%d].%s", row, member);
	return kiln_reply_int(reply, path);
}

/* Prints the differences with `between` between them. */
static void print_differences(const kiln_reply *reply, int row, const char *between)
{
	int count = 0;
	int64_t more = near_int(reply, row, "left_out");
	char path[64];

	snprintf(path, sizeof(path), "near[%d].differences", row);
	count = kiln_reply_count(reply, path);
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "differences[%d].text", i);
		printf("%s%s", i ? between : "", near_str(reply, row, path));
	}
	if (more)
		printf("%sand %lld more", between, (long long)more);
	putchar('\n');
}

static void print_near(const kiln_reply *reply)
{
	int rows = kiln_reply_count(reply, "near");

	print_pair("why", "a miss; nearest is %s %.*s, the same but for",
			   near_int(reply, 0, "failed") ? "failure" : "kernel", CLI_SHORT_KEY,
			   near_str(reply, 0, "key"));
	fputs(INDENT, stdout);
	print_differences(reply, 0, "\n" INDENT);
	for (int i = 1; i < rows; i++) {
		printf("%-14s %.*s: ", i == 1 ? "also near" : "", CLI_SHORT_KEY, near_str(reply, i, "key"));
		print_differences(reply, i, "; ");
	}
}

void why_print(const kiln_reply *reply)
{
	const char *key = kiln_reply_str(reply, "key");

	if (!key[0])
		print_pair("why", "no kernel is needed, or there is no compiler for it (kiln status)");
	else if (kiln_reply_int(reply, "cached"))
		print_pair("why", "a hit: the cache has it");
	else if (kiln_reply_int(reply, "failed"))
		print_pair("why", "it does not compile, which is remembered: 'kiln cache show %.*s --log'",
				   CLI_SHORT_KEY, key);
	else if (kiln_reply_count(reply, "near") == 0)
		print_pair("why", "a miss; the cache has no kernel of %s",
				   kiln_reply_str(reply, "plan.op"));
	else
		print_near(reply);
}
