/*
 * test_includes: the headers of a source are found as compilers find them, each under one name, and
 * nothing is read that is no ordinary file.
 */
#include "client/lib/includes.h"
#include "client/lib/includes_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- A folder of headers ---- */

static char folder[] = "/tmp/kiln-includes.XXXXXX";

static int scene_open(void **state)
{
	(void)state;
	memcpy(strrchr(folder, '.'), ".XXXXXX", sizeof(".XXXXXX"));
	if (!mkdtemp(folder))
		return -1;
	return setenv("KILN_CUDA_DIR", folder, 1);
}

static int scene_close(void **state)
{
	char command[96];
	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static const char *path_of(const char *name)
{
	static char path[4][160];
	static int turn;
	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s%s%s", folder, *name ? "/" : "", name);
	return path[turn];
}

static void put(const char *name, const char *text)
{
	char command[256];
	const char *path = path_of(name);
	snprintf(command, sizeof(command), "mkdir -p $(dirname %s)", path);
	assert_int_equal(system(command), 0);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* ---- Searches ---- */

static struct includes *found;

static int look(const char *source, const char *const *folders, int count)
{
	kiln_raw raw = {.size = sizeof(raw),
					.name = "k.cu",
					.source = source,
					.entry = "k",
					.folders = folders,
					.folder_count = count};
	includes_free(found);
	found = NULL;
	return includes_find(&raw, &found);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const kiln_text *)a)->name, ((const kiln_text *)b)->name);
}

/* Compares the names of the headers, in their order, with a list. */
static void assert_names(const char *names)
{
	char all[1024] = "";
	kiln_text sorted[64];
	const kiln_raw *raw = includes_raw(found);
	assert_in_range(raw->header_count, 0, 64);
	memcpy(sorted, raw->headers, (size_t)raw->header_count * sizeof(*sorted));
	qsort(sorted, (size_t)raw->header_count, sizeof(*sorted), by_name);
	for (int i = 0; i < raw->header_count; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "",
				 sorted[i].name);
	assert_string_equal(all, names);
}

static void finds(const char *source, const char *names)
{
	const char *folders[] = {folder};
	assert_int_equal(look(source, folders, 1), KILN_OK);
	assert_names(names);
}

static const char *text_of(const char *name)
{
	const kiln_raw *raw = includes_raw(found);
	for (int i = 0; i < raw->header_count; i++)
		if (strcmp(raw->headers[i].name, name) == 0)
			return raw->headers[i].text;
	fail_msg("there is no %s", name);
	return NULL;
}

static void refuses(const char *source, const char *const *folders, int count, int status,
					const char *sentence)
{
	assert_int_equal(look(source, folders, count), status);
	if (!strstr(kiln_errmsg(), sentence))
		fail_msg("\"%s\" does not say \"%s\"", kiln_errmsg(), sentence);
}

/* ---- What is found ---- */

static void whatever_a_branch_includes_is_found(void **state)
{
	(void)state;
	put("a.h", "#if 0\n# include <in/b.h>\n#endif\n#include \"absent.h\"\n#include <stdint.h>\n");
	put("in/b.h",
		"#include \"c.h\"\n#if __has_include(\"../a.h\") && KILN_HAS_INCLUDE( \"d.h\" )\n#endif\n");
	put("in/c.h",
		"/* #include \"n.h\"\n#include <n.h> */ const char *r = R\"(\n#include <n.h>\n)\";\n");
	put("in/d.h", "#include \"b.h\"\n"); /* a circle */
	put("n.h", "");
	finds("#include <a.h>\n", "a.h in/b.h in/c.h in/d.h");
	assert_non_null(strstr(text_of("in/b.h"), "#include \"in/c.h\"\n#if __has_include(\"a.h\")"));
	assert_non_null(strstr(text_of("in/b.h"), "KILN_HAS_INCLUDE( \"in/d.h\" )"));
	assert_non_null(strstr(text_of("in/d.h"), "\"in/b.h\""));
	finds("// #include <a.h>\nint x;", "");
}

static void two_files_of_one_name_are_two_headers(void **state)
{
	(void)state;
	put("first/same.h", "#include <only.h>\n");
	put("second/same.h", "");
	put("second/only.h", "");
	put("second/beside.h", "#include \"same.h\"\n");
	const char *folders[] = {path_of("first"), path_of("second")};
	assert_int_equal(look("#include <same.h>\n#include \"beside.h\"\n", folders, 2), KILN_OK);
	assert_names("beside.h only.h same.h same.h@2");
	assert_string_equal(text_of("beside.h"), "#include \"same.h@2\"\n");
	assert_string_equal(includes_raw(found)->source, "#include <same.h>\n#include \"beside.h\"\n");
}

static void one_file_in_two_folders_is_one_header_where_it_means_one(void **state)
{
	(void)state;
	put("one/use.h", "#include \"same.h\"\n#include \"use.h\"\n");
	put("one/same.h", "const int one = 1;");
	put("one/once.h", "#include \"alike.h\"\n");
	put("one/alike.h", "");
	put("two/same.h", "const int two = 2;");
	assert_int_equal(symlink("../one/use.h", path_of("two/use.h")), 0);
	assert_int_equal(link(path_of("one/once.h"), path_of("two/once.h")), 0);
	assert_int_equal(link(path_of("one/alike.h"), path_of("two/alike.h")), 0);
	finds("#include <one/use.h>\n#include <two/use.h>\n",
		  "one/same.h one/use.h two/same.h two/use.h");
	finds("#include <one/once.h>\n#include <two/once.h>\n", "one/alike.h one/once.h");
	assert_string_equal(includes_raw(found)->source,
						"#include <one/once.h>\n#include <one/once.h>\n");
	finds("#include \"one/../two/same.h\"\n", "one/../two/same.h");
}

static void macros_name_headers(void **state)
{
	(void)state;
	put("there.h", "");
	put("lib/part.h", "");
	put("lib/main.h", "#if A\n#define DIR lib\n#else\n#define DIR none\n#endif\n"
					  "#define PART <DIR/part.h> // of it\n#include PART\n");
	finds("#include <lib/main.h>\n", "lib/main.h lib/part.h");
	finds("#define SELF SELF\n#define H \"there.h\"\n#include SELF\n#include H\n", "there.h");
	finds("#define H /**/ \"the\\\nre.h\"\n%:include/**/H", "there.h");
	finds("#define A(x) \"there.h\"\n#define B \"there.h\" x\n#include A\n#include B\n", "");
	/* Macros of macros grow without end. */
	char text[4096] = "";
	for (int i = 0; i < 40; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
				 "#define M%d M%d/M%d/M%d\n#define M%d M%d-M%d\n", i, i + 1, i + 1, i + 1, i, i + 1,
				 i + 1);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), "#include M0\n");
	finds(text, "");
}

static void a_header_that_came_along_takes_precedence(void **state)
{
	(void)state;
	const char *folders[] = {folder};
	const kiln_text given[] = {{"a.h", "#include <b.h>\n", 0}, {"unused.h", "", 0}};
	put("a.h", "#error\n");
	put("b.h", "");
	kiln_raw raw = {.size = sizeof(raw),
					.source = "#include \"a.h\"\n",
					.entry = "k",
					.headers = given,
					.header_count = 2,
					.folders = folders,
					.folder_count = 1};
	includes_free(found);
	assert_int_equal(includes_find(&raw, &found), KILN_OK);
	assert_names("a.h b.h");
	assert_string_equal(text_of("a.h"), "#include <b.h>\n");
}

static void a_toolkit_is_looked_into_last(void **state)
{
	(void)state;
	put("include/cuda.h", "");
	put("include/cuda_fp16.h", "#include \"half.h\"\n");
	put("include/half.h", "");
	put("include/cccl/cub/x.h", "#include <cuda_fp16.h>\n#include <stddef.h>\n");
	put("mine/own.h", "");
	const char *folders[] = {path_of("mine")};
	/* The daemon has a short form of it. */
	assert_int_equal(look("#include <own.h>\n#include <cuda_fp16.h>\n", folders, 1), KILN_OK);
	assert_names("own.h");
	/* The toolkit's own headers need the whole one. */
	assert_int_equal(look("#include <cuda_fp16.h>\n#include <cub/x.h>\n", folders, 1), KILN_OK);
	assert_names("cub/x.h cuda_fp16.h half.h");
	/* A folder with cuda.h is a toolkit's, and its cccl is looked into. */
	setenv("KILN_CUDA_DIR", "/nowhere", 1);
	folders[0] = path_of("include");
	assert_int_equal(look("#include <cub/x.h>\n", folders, 1), KILN_OK);
	assert_names("cub/x.h cuda_fp16.h half.h");
}

static int look_beyond(const char *source, const char *const *toolkits, int count)
{
	const kiln_raw raw = {.size = sizeof(raw),
						  .source = source,
						  .entry = "k",
						  .toolkits = toolkits,
						  .toolkit_count = count};
	includes_free(found);
	found = NULL;
	return includes_find(&raw, &found);
}

static void of_toolkits_one_with_cub_comes_first(void **state)
{
	(void)state;
	static const char source[] = "#include <cub/x.h>\n#include <only.h>\n#include <cuda.h>\n";
	static const char *const names[] = {"none", "old/runtime/include", "new/include"};
	char paths[3][160];
	const char *const toolkits[] = {paths[0], paths[1], paths[2]};
	for (int i = 0; i < 3; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s", path_of(names[i]));
	setenv("KILN_CUDA_DIR", "", 1);
	setenv("CUDA_HOME", "", 1);
	setenv("CUDA_PATH", "", 1);
	put("old/runtime/include/cuda.h", "");
	put("old/runtime/include/only.h", "");
	put("new/include/cuda.h", "");
	put("new/include/cccl/cub/x.h", "");
	assert_int_equal(look_beyond(source, toolkits, 3), KILN_OK);
	assert_names("cub/x.h cuda.h");
	/* Packages for CUDA 12 have it in one of its own. */
	put("old/cuda_cccl/include/cub/x.h", "");
	assert_int_equal(look_beyond(source, toolkits, 3), KILN_OK);
	assert_names("cub/x.h cuda.h only.h");
	/* A folder that the environment names is taken as it is. */
	setenv("KILN_CUDA_DIR", folder, 1);
	put("include/cuda.h", "");
	assert_int_equal(look_beyond(source, toolkits, 3), KILN_OK);
	assert_names("cuda.h");
	assert_int_equal(look_beyond("", &(const char *){NULL}, 1), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "toolkit 0 of raw is NULL");
}

static void programs_of_earlier_releases_have_no_toolkits(void **state)
{
	(void)state;
	const char *folders[] = {folder};
	kiln_raw raw = {.size = offsetof(kiln_raw, toolkits),
					.source = "#include <a.h>\n",
					.entry = "k",
					.folders = folders,
					.folder_count = 1,
					.toolkit_count = 99};
	put("a.h", "");
	includes_free(found);
	assert_int_equal(includes_find(&raw, &found), KILN_OK);
	assert_names("a.h");
}

/* ---- Directives as compilers read them ---- */

#define DIRECTIVES 22 /* of directives.txt that include something, and some that do not */

static int look_among(const char *source, char *const *names, int count)
{
	char hidden[20][8];
	kiln_text given[DIRECTIVES + 20];
	for (int i = 0; i < count; i++)
		given[i] = (kiln_text){names[i], "", 0};
	for (int i = 0; i < 20; i++) {
		snprintf(hidden[i], sizeof(hidden[i]), "n%02d.h", i);
		given[count + i] = (kiln_text){hidden[i], "", 0};
	}
	const kiln_raw raw = {.size = sizeof(raw),
						  .source = source,
						  .entry = "k",
						  .headers = given,
						  .header_count = count + 20};
	includes_free(found);
	found = NULL;
	return includes_find(&raw, &found);
}

static void read_all(FILE *file, char *out, size_t size)
{
	assert_non_null(file);
	out[fread(out, 1, size - 1, file)] = 0;
}

/* Asks a compiler which files a file includes. */
static int ask_compiler(const char *path, char *said, size_t size, char *names[DIRECTIVES])
{
	const char *compiler = getenv("CXX");
	char command[512], *rest;
	int count = 0;
	snprintf(command, sizeof(command), "%s -x c++ -std=c++17 -w -M -MG %s",
			 compiler ? compiler : "c++", path);
	FILE *rule = popen(command, "r");
	read_all(rule, said, size);
	assert_int_equal(pclose(rule), 0);
	for (char *name = strtok_r(said, " \n", &rest); name; name = strtok_r(NULL, " \n", &rest)) {
		assert_int_not_equal(name[0], 'n');
		if (name[0] == 'y') {
			assert_in_range(count, 0, DIRECTIVES - 1);
			names[count++] = name;
		}
	}
	return count;
}

static void a_compiler_finds_the_same(void **state)
{
	char path[256], text[8192], lines[2 * sizeof(text)], said[4096], all[1024] = "";
	char *names[DIRECTIVES];
	(void)state;
	snprintf(path, sizeof(path), "%s/tests/unit/compile/directives.txt", getenv("SOURCE_DIR"));
	FILE *file = fopen(path, "r");
	read_all(file, text, sizeof(text));
	fclose(file);
	assert_int_equal(ask_compiler(path, said, sizeof(said), names), DIRECTIVES);
	for (int i = 0; i < DIRECTIVES; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "", names[i]);
	assert_int_equal(look_among(text, names, DIRECTIVES), KILN_OK);
	assert_names(all);
	/* So it is where lines end as in files of Windows. */
	size_t used = 0;
	for (const char *at = text; *at; at++) {
		if (*at == '\n')
			lines[used++] = '\r';
		lines[used++] = *at;
	}
	lines[used] = 0;
	assert_int_equal(look_among(lines, names, DIRECTIVES), KILN_OK);
	assert_names(all);
}

static void each_directive_is_the_only_one_of_its_text(void **state)
{
	static const char *const seen[] = {
		"/**/ #include \"there.h\"",
		"%:include \"there.h\"",
		"#/**/include \"there.h\"",
		"# \\\ninclude \"there.h\"",
		"#inc\\\nlude \"there.h\"",
		"#include/**/\"there.h\"",
		"#include \\\n\"there.h\"",
		"#include \"the\\ \nre.h\"",
		"/*\"*/ # include <there.h>",
		"R\"(')\"\n#include <there.h>",
		"#if __has_include( /**/ <there.h>)\n#endif",
		"#if __has_include /**/ (<there.h>)\n#endif",
		"#if __has_include( \\\n <there.h>)\n#endif",
		"#define /**/ H \"there.h\"\n#include H",
		"#define H /**/ \"there.h\"\n#include H",
		"#define H \\\n \"there.h\"\n#include H",
		"%:define H \"there.h\"\n#include H",
		"/**/ #define H \"there.h\"\n#include/**/H",
	};
	static const char *const hidden[] = {
		"/*\n#include \"there.h\"\n*/",    "/*/\n#include \"there.h\"\n*/",
		"// \\\n#include \"there.h\"",     "R\"(\n#include \"there.h\"\n)\"",
		"\"\\\n#include <there.h>\"",      "int a; /*\n*/ #include \"there.h\"",
		"/\\\n/ \\\n#include \"there.h\"",
	};
	char there[] = "there.h", *names[] = {there};
	(void)state;
	for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++) {
		assert_int_equal(look_among(seen[i], names, 1), KILN_OK);
		assert_names("there.h");
	}
	for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++) {
		assert_int_equal(look_among(hidden[i], names, 1), KILN_OK);
		assert_names("");
	}
}

/* ---- What is refused ---- */

static void folders_are_folders(void **state)
{
	(void)state;
	const char *many[INCLUDES_FOLDERS + 1];
	put("a.h", "");
	const char *const none = path_of("none"), *const file = path_of("a.h"), *const empty = "";
	refuses("", &none, 1, KILN_ENOENT, "to include from cannot be read: No such file");
	refuses("", &file, 1, KILN_EINVAL, "a.h is no folder to include from");
	refuses("", &empty, 1, KILN_EINVAL, "folder 0 of raw is empty");
	for (int i = 0; i <= INCLUDES_FOLDERS; i++)
		many[i] = folder;
	refuses("", many, INCLUDES_FOLDERS + 1, KILN_ELIMIT, "raw has 65 folders; the most is 64");
}

static void only_ordinary_files_are_read(void **state)
{
	(void)state;
	const char *folders[] = {folder}, *const self = "/proc/self";
	char command[128];
	snprintf(command, sizeof(command), "mkfifo %s/pipe.h && mkdir %s/folder.h", folder, folder);
	assert_int_equal(system(command), 0);
	assert_int_equal(symlink("/dev/zero", path_of("zero.h")), 0);
	assert_int_equal(symlink("loop.h", path_of("loop.h")), 0);
	refuses("#include <pipe.h>\n", folders, 1, KILN_EINVAL, "pipe.h is a FIFO; only ordinary");
	refuses("#include \"zero.h\"\n", folders, 1, KILN_EINVAL, "zero.h is a device; only ordinary");
	refuses("#include <mem>\n", &self, 1, KILN_EIO, "the header /proc/self/mem cannot be read: ");
	finds("#include <folder.h>\n#include <loop.h>\n", "");
	assert_int_equal(symlink("/proc/version", path_of("version.h")), 0);
	finds("#include <version.h>\n", "version.h");
	assert_true(includes_raw(found)->headers[0].bytes > 0);
}

static void headers_have_a_limit(void **state)
{
	(void)state;
	const char *folders[] = {folder};
	char *source = calloc(1, 64 * 2100), name[32];
	assert_non_null(source);
	for (int i = 0, used = 0; i <= INCLUDES_HEADERS; i++) {
		snprintf(name, sizeof(name), "h/%d.h", i);
		FILE *file = i ? fopen(path_of(name), "w") : (put(name, ""), NULL);
		if (file)
			fclose(file);
		used += snprintf(source + used, 64, "#include <%s>\n", name);
	}
	refuses(source, folders, 1, KILN_ELIMIT, "more than 2048 headers or 16 MiB of them");
	*strrchr(source, '#') = 0;
	assert_int_equal(look(source, folders, 1), KILN_OK);
	free(source);
	put("large.h", "");
	assert_int_equal(truncate(path_of("large.h"), (16 << 20) + 1), 0);
	refuses("#include <large.h>\n", folders, 1, KILN_ELIMIT, "large.h has over 16 MiB");
}

static void leave(void)
{
	includes_free(found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define SCENE(test) cmocka_unit_test_setup_teardown(test, scene_open, scene_close)
		SCENE(whatever_a_branch_includes_is_found),
		SCENE(two_files_of_one_name_are_two_headers),
		SCENE(one_file_in_two_folders_is_one_header_where_it_means_one),
		SCENE(macros_name_headers),
		SCENE(a_header_that_came_along_takes_precedence),
		SCENE(a_toolkit_is_looked_into_last),
		SCENE(of_toolkits_one_with_cub_comes_first),
		SCENE(programs_of_earlier_releases_have_no_toolkits),
		SCENE(a_compiler_finds_the_same),
		SCENE(each_directive_is_the_only_one_of_its_text),
		SCENE(folders_are_folders),
		SCENE(only_ordinary_files_are_read),
		SCENE(headers_have_a_limit),
	};
	atexit(leave);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
