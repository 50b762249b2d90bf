/*
 * compiler_log.c: picks the sentence and the figures out of what a compiler printed.  Knows the
 * words of ptxas, the CUDA front end, gcc and clang, and starts none of them.
 */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

static bool line_says_error(const char *line, size_t bytes)
{
	static const char *const words[] = {": error", "error:", "Error:", " fatal "};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (memmem(line, bytes, words[i], strlen(words[i])))
			return true;
	return false;
}

/* Returns how many bytes of a line name the place in somebody's own source that led to an error in
 * what stands for the device; 0: it is no such line. */
static size_t place_bytes(const char *line, size_t bytes)
{
	static const char *const words[] = {":   required from here", ": note: in expansion of macro",
										": note: in instantiation of"};
	const char *at;

	if (strncmp(line, "cpu/", 4) == 0)
		return 0;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if ((at = memmem(line, bytes, words[i], strlen(words[i]))))
			return (size_t)(at - line);
	return 0;
}

/* "k.cu:3:9: error: textures are not available": says of an error in cpu/ whose line led there. */
static void name_place(const char *log, const char *line, size_t bytes,
					   char error[KERNEL_ERROR_MAX])
{
	static const char assertion[] = "static assertion failed: ", plain[] = "error: ";
	const char *what = memmem(line, bytes, assertion, sizeof(assertion) - 1);
	size_t skip = what ? sizeof(assertion) - 1 : sizeof(plain) - 1, place = 0;
	const char *at = log;

	if (!what && (what = memmem(line, bytes, plain, sizeof(plain) - 1)) == NULL)
		return;
	what += skip;
	/* GCC says it before an error in a template, and after one in a macro. */
	while (*at && (at <= line || !line_says_error(at, strcspn(at, "\n")))) {
		size_t length = strcspn(at, "\n");
		place = place_bytes(at, length);
		if (place)
			break;
		at += length + (at[length] == '\n');
	}
	if (place)
		snprintf(error, KERNEL_ERROR_MAX, "%.*s: error: %.*s", (int)place, at,
				 (int)(line + bytes - what), what);
}

void log_first_error(const char *log, char error[KERNEL_ERROR_MAX])
{
	const char *best = NULL;
	size_t best_bytes = 0;

	for (const char *at = log; *at;) {
		size_t bytes = strcspn(at, "\n");
		bool is_error = line_says_error(at, bytes);

		if (is_error || (!best && bytes)) {
			best = at;
			best_bytes = bytes;
		}
		if (is_error)
			break;
		at += bytes + (at[bytes] == '\n');
	}
	if (best)
		snprintf(error, KERNEL_ERROR_MAX, "%.*s", (int)best_bytes, best);
	else
		snprintf(error, KERNEL_ERROR_MAX, "the compiler failed without a word");
	if (best && strncmp(best, "cpu/", 4) == 0)
		name_place(log, best, best_bytes, error);
}

void log_name_entry(const char *entry, char error[KERNEL_ERROR_MAX])
{
	static const char word[] = ": error: ";
	const char *what = strstr(error, word);
	char rest[KERNEL_ERROR_MAX];

	if (!what || (strncmp(error, "entry:", 6) != 0 && strncmp(error, "__nv_name_map", 13) != 0))
		return;
	snprintf(rest, sizeof(rest), "%s", what + sizeof(word) - 1);
	util_fail(error, KERNEL_ERROR_MAX, KILN_ECOMPILE, "the entry %.*s: %s", PLAIN_CUT(entry, 200),
			  rest);
}

int log_refuse_entry(const char *entry, char error[KERNEL_ERROR_MAX])
{
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ECOMPILE,
					 "the entry %.*s is a function that is not declared __global__, and so no "
					 "kernel",
					 PLAIN_CUT(entry, 200));
}

/* "3 warnings generated.", of clang */
static bool is_count(const char *line, size_t bytes)
{
	static const char words[] = " generated.";
	size_t length = sizeof(words) - 1;

	return bytes > length && memcmp(line + bytes - length, words, length) == 0 &&
		   strspn(line, "0123456789") > 0;
}

/* "entry: At global scope:", of g++: it says where the warning below it lies. */
static bool is_place(const char *line, size_t bytes)
{
	return bytes > 1 && line[bytes - 1] == ':' && memmem(line, bytes, ": ", 2) != NULL;
}

bool log_take_warnings(char *log, const char *text)
{
	char *kept = log, *place = NULL;
	bool found = false, taking = false;

	for (const char *at = log; *at;) {
		size_t bytes = strcspn(at, "\n"), whole = bytes + (at[bytes] == '\n');
		bool has_text = memmem(at, bytes, text, strlen(text)) != NULL;

		found = found || has_text;
		taking = has_text || (taking && memmem(at, bytes, ": note: ", 8));
		if (has_text && place)
			kept = place;
		place = is_place(at, bytes) ? kept : NULL;
		if (!taking && !(found && is_count(at, bytes))) {
			memmove(kept, at, whole);
			kept += whole;
		}
		at += whole;
	}
	*kept = 0;
	return found;
}

bool log_says_no_memory(const char *log)
{
	return strstr(log, "out of memory") || strstr(log, "memory exhausted") ||
		   strstr(log, "Killed signal terminated program");
}

bool log_says_no_room(const char *log)
{
	return strstr(log, "No space left on device") || strstr(log, "Disk quota exceeded") ||
		   strstr(log, "Read-only file system");
}

bool log_says_no_process(const char *log)
{
	return strstr(log, "Resource temporarily unavailable") != NULL;
}

bool log_says_too_large(const char *log)
{
	return strstr(log, "File too large") != NULL;
}

/* The number before the words; -1 if they are not there. */
static int64_t number_before(const char *log, const char *words)
{
	const char *at = strstr(log, words), *begin;

	if (!at)
		return -1;
	for (begin = at; begin > log && begin[-1] >= '0' && begin[-1] <= '9';)
		begin--;
	return begin == at ? -1 : strtoll(begin, NULL, 10);
}

void log_figures(const char *log, struct compile_result *out)
{
	int64_t stores = number_before(log, " bytes spill stores");
	int64_t loads = number_before(log, " bytes spill loads");

	out->registers = number_before(log, " registers");
	out->local_bytes = number_before(log, " bytes stack frame");
	if (stores >= 0 && loads >= 0)
		out->spill_bytes = stores + loads;
	out->shared_bytes = number_before(log, " bytes smem");
	/* A kernel without any is not mentioned. */
	if (out->shared_bytes < 0 && out->registers >= 0)
		out->shared_bytes = 0;
}
