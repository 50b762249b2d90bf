/* child_spawn.c: starts kilnd in a role: its arguments, environment and descriptors. */
#include "child.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define CHILD_ARGUMENTS 16
#define WRAPPER_WORDS 32
#define CHILD_FD 3
#define VARIABLES_MOST 510

extern char **environ;

/* Cuts a copy of the command at its blanks; returns how many words there are. */
static int cut_words(const char *command, char copy[PATH_MAX], char *words[WRAPPER_WORDS])
{
	int count = 0;
	char *rest = copy, *word;
	snprintf(copy, PATH_MAX, "%s", command);
	while (count < WRAPPER_WORDS && (word = strsep(&rest, " \t")))
		if (*word)
			words[count++] = word;
	return count;
}

/* Whether the variable "NAME=value" begins with one of the words. */
static bool begins(const char *variable, const char *const *words)
{
	for (; *words; words++)
		if (strncmp(variable, *words, strlen(*words)) == 0)
			return true;
	return false;
}

static void make_environment(const struct child_program *program, char *journal,
							 char *envp[VARIABLES_MOST + 1])
{
	static const char *const never[] = {"LISTEN_", "NOTIFY_SOCKET=", "JOURNAL_STREAM=", NULL};
	static const char *const spare[] = {
		"PATH=",         "HOME=",         "TMPDIR=",        "LD_LIBRARY_PATH=", "LD_PRELOAD=",
		"KILN_CXX=",     "KILN_NVRTC=",   "KILN_CUDA_DIR=", "KILN_NVRTC_ID=",   "KILN_CXX_ID=",
		"ASAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS=",  "UBSAN_OPTIONS=",   NULL};
	const char *const *environment = program->environment;
	int count = 0;
	/* getenv() finds the first definition of a name. */
	for (; environment && *environment && count < 32; environment++)
		envp[count++] = (char *)*environment;
	if (*journal)
		envp[count++] = journal;
	for (char **entry = environ; *entry && count < VARIABLES_MOST; entry++)
		if (program->spare_environment ? begins(*entry, spare) : !begins(*entry, never))
			envp[count++] = *entry;
	envp[count] = NULL;
}

int child_spawn(uv_loop_t *loop, uv_process_t *process, const struct child_program *program,
				int sock, int said, char *journal)
{
	char self[PATH_MAX], image[PATH_MAX];
	char *argv[WRAPPER_WORDS + CHILD_ARGUMENTS + 3], words[PATH_MAX];
	char *envp[VARIABLES_MOST + 1];
	const char *const *arguments = program->arguments;
	int count = cut_words(program->wrapper ? program->wrapper : "", words, argv);
	/* The program on disk may have been replaced or removed: /proc has this build for as long as it
	 * runs.  A wrapper finds it by the daemon's id; without a wrapper it is the new process's own,
	 * which that may open even where the daemon keeps secrets. */
	if (util_program(self) == UTIL_PROGRAM_CURRENT)
		snprintf(image, sizeof(image), "%s", self);
	else if (count)
		snprintf(image, sizeof(image), "/proc/%d/exe", (int)getpid());
	else
		snprintf(image, sizeof(image), "/proc/self/exe");
	argv[count] = count ? image : self;
	count++;
	for (int i = 1; *arguments && i < CHILD_ARGUMENTS; i++, arguments++)
		argv[count++] = (char *)*arguments;
	argv[count++] = (char *)"--fd=3";
	if (program->trail >= 0)
		argv[count++] = (char *)"--trail=4";
	argv[count] = NULL;
	make_environment(program, journal, envp);

	uv_stdio_container_t stdio[CHILD_FD + 2] = {
		{.flags = UV_IGNORE},
		{.flags = UV_INHERIT_FD, .data.fd = said},
		{.flags = UV_INHERIT_FD, .data.fd = said},
		{.flags = UV_INHERIT_FD, .data.fd = sock},
		{.flags = UV_INHERIT_FD, .data.fd = program->trail},
	};
	uv_process_options_t options = {
		.file = argv[0] == self ? image : argv[0],
		.args = argv,
		.env = envp,
		.flags = UV_PROCESS_DETACHED, /* a process group of its own, killed as a whole */
		.stdio_count = CHILD_FD + 1 + (program->trail >= 0),
		.stdio = stdio,
	};
	return uv_spawn(loop, process, &options);
}
