/*
 * fuzz_raw: lines of text as the arguments of `kiln run raw`: through its options to a source, its
 * headers, macros and options, and a launch with its arguments, as far as the connection that
 * would follow.  It has a directory with files of its own, and names nothing else.  Whatever is
 * refused is refused in one line; what is taken is a launch that the library can be given.
 */
#define main kiln_main
int kiln_main(int argc, char **argv);
#include "client/cli/main.c"
#undef main

#include <fcntl.h>
#include <unistd.h>

#include "fuzz.h"
#include "said.h"

/* More than that is refused as if memory had run out: sizes are made up, and filled at random. */
#define BYTES_MOST ((size_t)1 << 20)
static void *less(size_t count, size_t size)
{
	size_t bytes;
	return __builtin_mul_overflow(count, size, &bytes) || bytes > BYTES_MOST ? NULL
																			 : calloc(count, size);
}
/* By names of its own, for the command's is linked, too. */
#define calloc less
#define raw_read bounded_read
#define raw_read_kernel bounded_read_kernel
#define raw_forget bounded_forget
#include "client/cli/commands/raw_args.c"
#undef calloc

#define ARGUMENTS 80

const char *const fuzz_words[] = {"k.cu\n",
								  "n.h",
								  "x.npy",
								  "--entry\nk",
								  "--entry\nk<float>",
								  "--grid",
								  "--block",
								  "--shared",
								  "--in\nx.npy\n",
								  "--inout\nx.npy=y.npy\n",
								  "--out\ny.npy:f32:4\n",
								  "--random\nf32:4x4\n",
								  "--scalar\ni32:4\n",
								  "--macro\nN=3\n",
								  "--include\nn.h\n",
								  "--include\na.h=n.h\n",
								  "--option=-std=c++20\n",
								  "--seed",
								  "--time",
								  "--check",
								  "--order\nshuffled\n",
								  "--timeout",
								  "--json\n",
								  "--device\ncpu\n",
								  "f32:",
								  "bf16:",
								  "c128:",
								  "bool:",
								  "u64:0",
								  "2x3x4",
								  "scalar",
								  "16,16",
								  "48K",
								  "2s",
								  "=",
								  ":",
								  "-\n",
								  "\n",
								  NULL};

static void check_arg(const struct raw_arg *arg)
{
	uint64_t bytes = kiln_dtype_size(arg->array.dtype);
	require(arg->access == 0 || arg->array.rank <= KILN_MAX_RANK, "more axes than there can be");
	if (!arg->access) {
		require(kiln_dtype_size(arg->dtype) > 0 && kiln_dtype_size(arg->dtype) <= 8,
				"a number of no type");
		return;
	}
	for (int i = 0; i < arg->array.rank; i++)
		bytes *= (uint64_t)arg->array.shape[i];
	require(arg->array.data && bytes == arg->array.bytes, "an array of another size");
	/* A sanitizer sees whether its last byte is there. */
	if (bytes)
		((volatile uint8_t *)arg->array.data)[bytes - 1] ^= 0;
	require(!(arg->access & KILN_WRITE) || (arg->path && arg->path[0]),
			"a result that goes nowhere");
}

static void check_run(const struct raw_run *run)
{
	const kiln_raw *raw = &run->raw;
	require(raw->entry && raw->source && strlen(raw->name) > 0, "no kernel");
	require(run->launch.arg_count >= 0 && run->launch.arg_count <= KILN_MAX_RAW_ARGS,
			"more arguments than there may be");
	for (int i = 0; i < 3; i++)
		require(run->launch.grid[i] >= 1 && run->launch.block[i] >= 1, "a launch of nothing");
	for (int i = 0; i < run->launch.arg_count; i++)
		check_arg(&run->args[i]);
	for (int i = 0; i < raw->header_count; i++)
		require(raw->headers[i].name && raw->headers[i].text, "a header without a name or text");
	for (int i = 0; i < raw->macro_count; i++)
		require(raw->macros[i].name, "a macro without a name");
	require(run->wait_ms > 0 && run->launch.timeout_ms > 0, "a launch that may take no time");
}

static void put_file(const char *name, const void *bytes, size_t size)
{
	FILE *file = fopen(name, "wb");
	require(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "no file");
}

/* Six floats, as NumPy writes them. */
static void put_array(void)
{
	static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
	uint8_t file[128 + 24] = "\x93NUMPY\x01";
	file[8] = 118;
	memset(file + 10, ' ', 118);
	memcpy(file + 10, text, sizeof(text) - 1);
	file[127] = '\n';
	put_file("x.npy", file, sizeof(file));
}

/* A place with nothing in it but these, made once. */
static int open_place(void)
{
	static char name[] = "/tmp/kiln-fuzz-raw-XXXXXX";
	static int place = -1;
	int here, nothing;
	if (place >= 0)
		return place;
	here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	nothing = open("/dev/null", O_RDONLY);
	require(here >= 0 && nothing >= 0 && mkdtemp(name) && chdir(name) == 0 &&
				dup2(nothing, STDIN_FILENO) == STDIN_FILENO,
			"no place for files");
	close(nothing);
	put_file("k.cu", "__global__ void k() {}\n", 23);
	put_file("n.h", "#define N 3\n", 12);
	put_array();
	place = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	require(place >= 0 && fchdir(here) == 0, "no way back");
	close(here);
	return place;
}

/* Reads the arguments there. */
static int read_all(struct cli *cli, int argc, char **argv)
{
	static struct raw_run run;
	int status;
	memset(&run, 0, sizeof(run));
	status = cli_parse(cli_groups, argc, argv, cli);
	if (status == CLI_OK && cli->command && !cli->help)
		status = check_settle(cli);
	if (status != CLI_OK || cli->help || !cli->command || strcmp(cli->command->name, "run raw"))
		return status;
	status = raw_read(cli, &run);
	if (status == CLI_OK)
		check_run(&run);
	raw_forget(&run);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cli cli;
	char *text = fuzz_text(data, size), *rest = text;
	char *argv[ARGUMENTS + 4] = {(char *)"kiln", (char *)"run", (char *)"raw"};
	int argc = 3, place = open_place(), here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	FILE *usual = stderr, *mine = fmemopen(said, sizeof(said) - 1, "w");

	require(mine && here >= 0 && fchdir(place) == 0, "no stream in memory, or no place");
	for (char *at = text; *at; at++)
		*at = *at == '/' ? '_' : *at;
	while (argc <= ARGUMENTS && (argv[argc] = fuzz_piece(&rest, "\n")))
		argc++;
	argv[argc] = NULL;
	stderr = mine;
	memset(said, 0, sizeof(said));
	rewind(stdin);
	int status = read_all(&cli, argc, argv);
	/* With --json there is an object besides. */
	if (!cli.json || status != CLI_FAILED)
		check_said(mine, status, true);
	stderr = usual;
	fclose(mine);
	require(fchdir(here) == 0, "no way back");
	close(here);
	free(text);
	return 0;
}
