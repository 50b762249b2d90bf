/*
 * explain_why.c: 'kiln explain --why': whether a call finds its kernel in the cache, and else how
 * the nearest kernel there differs.
 */
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "explain.h"

#include <stdio.h>

#define INDENT "               "

/* Prints the differences with `between` between them. */
static void print_differences(const kiln_reply *reply, int row, const char *between)
{
	int count = member_count(reply, "near[%d].differences", row);
	int64_t more = member_int(reply, "near[%d].left_out", row);

	for (int i = 0; i < count; i++)
		printf("%s%s", i ? between : "",
			   member_str(reply, "near[%d].differences[%d].text", row, i));
	if (more)
		printf("%sand %lld more", between, (long long)more);
	putchar('\n');
}

static void print_near(const kiln_reply *reply)
{
	int rows = kiln_reply_count(reply, "near");

	print_pair("why", "a miss; nearest is %s %.*s, the same but for",
			   kiln_reply_int(reply, "near[0].failed") ? "failure" : "kernel", CLI_SHORT_KEY,
			   kiln_reply_str(reply, "near[0].key"));
	fputs(INDENT, stdout);
	print_differences(reply, 0, "\n" INDENT);
	for (int i = 1; i < rows; i++) {
		printf("%-14s %.*s: ", i == 1 ? "also near" : "", CLI_SHORT_KEY,
			   member_str(reply, "near[%d].key", i));
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
