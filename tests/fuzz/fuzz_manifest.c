/*
 * fuzz_manifest: any text as a line of a manifest.  A refusal has a sentence with a column that
 * is on the line; what is read prints as a line that is read as the same one.
 */
#include "daemon/plan/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "fuzz_manifest: %s\n", what);
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char printed[MANIFEST_LINE_MAX], again[MANIFEST_LINE_MAX];
	struct kernel_problem problem, same;
	char error[KERNEL_ERROR_MAX] = "";
	int column = 0;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (manifest_read(text, &problem, error) != KILN_OK) {
		require(sscanf(error, "column %d: ", &column) == 1, "a refusal without a column");
		require(column >= 1 && (size_t)column <= strlen(text) + 1, "a column beyond the line");
	} else if (manifest_print(&problem, printed, sizeof(printed))) {
		require(manifest_read(printed, &same, error) == KILN_OK, "what is printed is refused");
		require(manifest_print(&same, again, sizeof(again)) && !strcmp(printed, again),
				"what is printed reads as another");
	}
	free(text);
	return 0;
}
