/*
 * fuzz_unit: texts as a user's source and headers, with macros and options, to the one text that a
 * compiler sees: the scanner of lines, includes in place, shared memory rewritten.  Its lines are
 * accounted for, and what is refused is refused in one sentence.
 *
 * "\n//FILE NAME\n" begins a header, "//MACRO NAME VALUE" and "//OPTION TEXT" lines stand in the
 * source.
 */
#include "daemon/compile/backend.h"
#include "fuzz.h"

const char *const fuzz_words[] = {"#include \"a.cuh\"\n",
								  "#include <a.cuh>\n",
								  "#include_next",
								  "#pragma once\n",
								  "#import",
								  "#embed",
								  "_Pragma(\"once\")",
								  "#if 0\n",
								  "#else\n",
								  "#endif\n",
								  "#elif defined(X)\n",
								  "\\\n",
								  "/*",
								  "*/",
								  "//",
								  "R\"(",
								  ")\"",
								  "'\\''",
								  "\"\\\"\"",
								  "extern __shared__ float tile[];\n",
								  "extern __shared__ ",
								  "__align__(16) ",
								  "__shared__",
								  "[];",
								  "\n//FILE a.cuh\n",
								  "\n//FILE b.cuh\n",
								  "\n//FILE ",
								  "\n//MACRO N 4\n",
								  "\n//MACRO F(a, b) a\n",
								  "\n//OPTION --use_fast_math\n",
								  "\n//OPTION -std=c++20\n",
								  "__global__ void k(float *x) {}\n",
								  "?"
								  "?/\n",
								  "%:include \"a.cuh\"\n",
								  "# /* */ include \"a.cuh\"\n",
								  NULL};

struct job {
	struct compile_job job;
	struct compile_job_room room;
};

static void read_directives(struct job *j, char *line)
{
	struct compile_job *job = &j->job;
	while (line && *line) {
		char *next = strchr(line, '\n');
		char *macro = !strncmp(line, "//MACRO ", 8) ? line + 8 : NULL;
		char *option = !strncmp(line, "//OPTION ", 9) ? line + 9 : NULL;
		if ((macro || option) && next)
			*next = ' ';
		if (macro && job->macro_count < COMPILE_MAX_MACROS) {
			char *value = strchr(macro, ' ');
			if (value && next) {
				*value = 0;
				*next = 0;
				j->room.macros[job->macro_count++] = (struct compile_macro){macro, value + 1};
			}
		} else if (option && job->option_count < COMPILE_MAX_USER_OPTIONS && next) {
			*next = 0;
			j->room.options[job->option_count++] = option;
		}
		line = next ? next + 1 : NULL;
	}
}

static void make(struct compile_job *job, const char *target)
{
	char error[KERNEL_ERROR_MAX] = "";
	char *text = NULL;
	snprintf(job->target, sizeof(job->target), "%s", target);
	if (unit_make(job, &text, error) != KILN_OK) {
		require_sentence(error);
		return;
	}
	require(text && strstr(text, "#define KILN_CPU"), "a unit without its first line");
	free(text);
}

/* The scanner goes through all of a text, and no line twice. */
static void scan(const struct compile_file *file)
{
	struct scan state;
	struct scan_line line;
	size_t bytes = 0;
	scan_begin(&state, file);
	while (scan_next(&state, &line) != SCAN_END) {
		require(line.text == file->text + bytes && line.bytes > 0, "a line is left out");
		require(line.mark + line.mark_bytes <= line.bytes, "a directive beyond its line");
		bytes += line.bytes;
	}
	require(bytes == file->bytes, "the scanner does not come to the end");
}

static void check_key(const struct compile_job *job)
{
	struct compile_key key;
	struct compile_differences found;
	require(compile_key_make(job, "nvrtc 13.0 abcd", &key) == KILN_OK, "no key");
	compile_key_differences(key.text, key.text, NULL, 0, &found);
	require(found.distance == 0, "a key differs from itself");
	compile_key_free(&key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct job j;
	char *text = fuzz_text(data, size), *copy, *next = text;
	struct compile_job *job = &j.job;

	if (size > 65536) {
		free(text);
		return 0;
	}
	memset(&j, 0, sizeof(j));
	job->files = j.room.files;
	job->macros = j.room.macros;
	job->options = j.room.options;
	job->instantiation = "k";
	job->source = "user.cu";
	j.room.files[job->file_count++] = (struct compile_file){"user.cu", text, 0};
	while ((next = strstr(next, "\n//FILE ")) && job->file_count < COMPILE_MAX_HEADERS) {
		char *name = next + 8, *end = strchr(name, '\n');
		next[1] = 0;
		next += 2;
		if (!end)
			break;
		*end = 0;
		next = end + 1;
		j.room.files[job->file_count++] = (struct compile_file){name, next, 0};
		next--;
		*next = 0;
		next++;
		if (!strncmp(next, "//FILE ", 7))
			break;
	}
	for (int i = 0; i < job->file_count; i++)
		j.room.files[i].bytes = strlen(j.room.files[i].text);
	job->user_files = job->file_count;
	copy = strdup(text);
	require(copy, "no memory");
	read_directives(&j, copy);
	for (int i = 0; i < job->file_count; i++)
		scan(&j.room.files[i]);
	make(job, "cpu");
	make(job, "sm_90");
	check_key(job);
	free(copy);
	free(text);
	return 0;
}
