/* includes_state: what the files of includes share among themselves, and nobody else includes. */
#ifndef KILN_CLIENT_INCLUDES_STATE_H
#define KILN_CLIENT_INCLUDES_STATE_H

#include "includes.h"

#include <stdbool.h>
#include <sys/stat.h>

#define INCLUDES_HEADERS 2048 /* of one source: as many as the daemon takes */
#define INCLUDES_BYTES ((size_t)16 << 20)
#define INCLUDES_FOLDERS 64
#define INCLUDES_NAME 512  /* bytes of a name with its zero */
#define INCLUDES_TOOLKIT 3 /* folders of a toolkit */
#define INCLUDES_VALUES 64 /* of an include by a macro */

/* A directive, or a __has_include. */
struct include {
	struct include *next;
	const char *name;
	bool quoted;
	const char *begin, *end; /* of the name in the text */
};

/* A macro that may be a part of a name; of a word alone, value is NULL. */
struct define {
	struct define *next;
	const char *name, *value;
};

struct text {
	const char *text;
	size_t bytes;
	struct include *includes;
	struct define *words;   /* includes by a macro: the macro's name */
	struct define *defines; /* only after text_defines() */
	bool defined;
};

enum where { WHERE_BESIDE, WHERE_FOLDER, WHERE_TOOLKIT };

/* The file that a name means from within a folder (NULL: none); path NULL: there is none. */
struct place {
	const char *folder, *name;
	const char *path;
	enum where where;
	dev_t device;
	ino_t inode;
	off_t size;
};

struct rename {
	struct rename *next;
	const struct include *include;
	const char *name;
};

/* A header among those of the source, or the source itself. */
struct header {
	struct header *next;    /* in the order in which they were found */
	struct header *waiting; /* whose includes have not been looked at either */
	const char *name, *folder, *label;
	struct text *text;
	struct rename *renames;
};

/* A file that was found, and the headers that it is: one for each meaning of its own includes. */
struct file {
	dev_t device;
	ino_t inode;
	struct text *text;
	struct known {
		struct known *next;
		const char *folder;
		struct header *header;
	} * known;
};

struct missing {
	struct missing *next;
	const char *name, *label; /* of the first that includes it */
};

struct asked {
	struct asked *next;
	const char *name, *folder;
};

struct kept;

struct includes {
	kiln_raw raw;      /* with what was found */
	int status;        /* KILN_OK, or what it ended with; the message is set */
	struct kept *kept; /* all memory */
	const char *folders[INCLUDES_FOLDERS];
	int folder_count;
	const char *toolkit[INCLUDES_TOOLKIT];
	int toolkit_count; /* -1: nobody has looked for one */
	void *files;       /* a tree of tsearch(3), by device and inode */

	/* One walk: a second follows where a header of the toolkit needs the toolkit's cuda_fp16.h. */
	bool whole;
	bool has_toolkit, has_short;
	void *places, *names; /* trees: of struct place, and of struct header by their names */
	struct header main, *headers, **headers_end, *waiting;
	int header_count;
	size_t bytes;
	struct missing *missing;
	struct asked *asked; /* includes by macros that were looked for */
	void *macros;        /* a tree of struct macro */
	int steps;           /* of what macros may become */
};

/* Zeroed memory that lives as long as found; NULL: there is none, and found->status says so. */
void *includes_keep(struct includes *found, size_t bytes);
const char *includes_copy(struct includes *found, const char *text, size_t bytes);
/* Frees all that was kept. */
void includes_let_go(struct includes *found);
/* Ends the search with a message. */
int includes_fail(struct includes *found, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- includes_find.c ---- */

int find_folders(struct includes *found, const kiln_raw *raw);
/* NULL: the search has failed; its path is NULL where no folder has the name. */
const struct place *find_place(struct includes *found, const char *name, const char *folder);
/* The file of a place, read; NULL: the search has failed. */
struct file *find_file(struct includes *found, const struct place *place);
/* The path without its last part; "" where it has one alone. */
const char *find_parent(struct includes *found, const char *path);
/* folder/name without "." and "..", as far as the names allow. */
const char *find_joined(struct includes *found, const char *folder, const char *name);
/* The name by which #include <> finds a file that lies beside another; NULL: no folder has it. */
const char *find_below(struct includes *found, const struct place *place);

/* ---- includes_text.c ---- */

struct text *text_scan(struct includes *found, const char *text, size_t bytes);
/* Finds its defines. */
void text_defines(struct includes *found, struct text *text);

/* ---- includes_macro.c ---- */

/* All that a macro's word may become, whatever the conditions around its definitions. */
int macro_values(struct includes *found, const char *word, const char *values[INCLUDES_VALUES]);
/* Learns the macros of the options and of all texts so far. */
void macro_learn(struct includes *found);
void macro_forget(struct includes *found);

#endif
