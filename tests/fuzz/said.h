/* said.h: standard error of the command in a fuzz target: what it said of one input. */
#ifndef KILN_TESTS_FUZZ_SAID_H
#define KILN_TESTS_FUZZ_SAID_H

#include "client/cli/cli.h"
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

static char said[8192];

/* Checks what was said on `to`, which writes into said: a refusal says one line, success nothing.
 * failed: the input may also name what is not there. */
static void check_said(FILE *to, int status, bool failed)
{
	size_t length;
	fflush(to);
	length = strlen(said);
	if (status == CLI_OK) {
		require(length == 0, "it complains and goes on");
		return;
	}
	require(status == CLI_USAGE || (failed && status == CLI_FAILED), "a status that there is not");
	require(!strncmp(said, "kiln: ", 6) && length > 10, "a refusal that says nothing");
	/* A line longer than the room for it has lost its end. */
	require(length >= sizeof(said) - 3 || strchr(said, '\n') == said + length - 1,
			"a refusal that is not one line");
}

#endif
