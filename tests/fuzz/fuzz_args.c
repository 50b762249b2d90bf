/*
 * fuzz_args: lines of text as the arguments of the kiln command: through its options, the problem
 * that they describe and every reader of values.  Whatever is refused is refused in one line, on
 * standard error, with status 2; nothing is connected to, read or written.
 */
#define main kiln_main
int kiln_main(int argc, char **argv);
#include "client/cli/main.c"
#undef main

#include "client/cli/map_problem.h"
#include "client/cli/values.h"
#include "tests/ops/map/eval.h"
#include "said.h"
#include "words.h"
#include <string.h>

#define ARGUMENTS 48

const char *const fuzz_words[] = {"run\n",
								  "explain\n",
								  "compile\n",
								  "map\n",
								  "raw\n",
								  "cache\n",
								  "ls\n",
								  "trim\n",
								  "verify\n",
								  "tune\n",
								  "key\n",
								  "top\n",
								  "debug\n",
								  "--shape",
								  "--dtype",
								  "--stride",
								  "--offset",
								  "--mask",
								  "--with",
								  "--last",
								  "--choice",
								  "--set",
								  "--time",
								  "--seed",
								  "--check",
								  "--order",
								  "--timeout",
								  "--json",
								  "--socket",
								  "--device",
								  "--target",
								  "--why",
								  "--limit",
								  "--older-than",
								  "2x3x4",
								  "1,0",
								  "scalar",
								  "x=",
								  "64K",
								  "1.5G",
								  "2MiB",
								  "30s",
								  "500ms",
								  "=",
								  "\n",
								  FUZZ_OPERATOR "\n",
								  "--" FUZZ_ATTRIBUTE,
								  "--" FUZZ_ATTRIBUTE "=" FUZZ_VALUE,
								  "--" FUZZ_OPERAND "-dtype",
								  FUZZ_VALUE,
								  FUZZ_DTYPE,
								  FUZZ_OPERAND,
								  FUZZ_OPERAND "," FUZZ_OPERAND,
								  FUZZ_DTYPE ":2.5",
								  FUZZ_DTYPE ":-1",
								  NULL};

static void print_nothing(FILE *to)
{
	rewind(to);
	memset(said, 0, sizeof(said));
}

static void check_values(FILE *to, const char *text)
{
	int64_t values[KILN_MAX_RANK + 1], value;
	uint8_t bits[8];
	kiln_dtype dtype;
	uint64_t bytes;
	double real;
	int count, milliseconds, status;

#define READER(call)   \
	print_nothing(to); \
	status = call;     \
	check_said(to, status, false)
	READER(cli_dims("--shape", text, values, &count));
	require(status || (count >= 0 && count <= KILN_MAX_RANK), "more axes than there can be");
	READER(cli_perm("--perm", text, values, &count));
	READER(cli_dtype("--dtype", text, &dtype));
	READER(cli_bytes("--bytes", text, &bytes));
	READER(cli_integer("--n", text, -5, 5, &value));
	require(status || (value >= -5 && value <= 5), "an integer out of range");
	READER(cli_real("--x", text, &real));
	READER(cli_time("--timeout", text, &milliseconds));
	require(status || milliseconds > 0, "a time that is none");
	READER(cli_scalar("--scalar", text, &dtype, bits));
#undef READER
}

static void check_problem(FILE *to, const struct cli *cli)
{
	static struct cli_problem problem;
	bool map = strstr(cli->command->name, "map") != NULL;
	print_nothing(to);
	/* Without an operator some commands have something else to do. */
	if ((!map && !cli_describes_problem(cli->command)) || !cli->positional[0])
		return;
	int status = map ? cli_map_problem(cli, NULL, &problem) : cli_problem(cli, NULL, &problem);
	check_said(to, status, false);
	if (status != CLI_OK)
		return;
	require(problem.tensor_count >= 0 && problem.tensor_count <= KILN_MAX_OPERANDS &&
				problem.attr_count >= 0 && problem.attr_count <= KILN_MAX_ATTRS,
			"more of a problem than there is room for");
	for (int i = 0; i < problem.tensor_count; i++)
		require(problem.tensors[i].rank >= 0 && problem.tensors[i].rank <= KILN_MAX_RANK,
				"a rank that no tensor has");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cli cli;
	char *text = fuzz_text(data, size), *rest = text;
	char *argv[ARGUMENTS + 2] = {(char *)"kiln"};
	int argc = 1;
	FILE *usual = stderr, *mine = fmemopen(said, sizeof(said) - 1, "w");

	require(mine, "no stream in memory");
	while (argc <= ARGUMENTS && (argv[argc] = fuzz_piece(&rest, "\n")))
		argc++;
	argv[argc] = NULL;
	stderr = mine;
	print_nothing(mine);
	int status = cli_parse(cli_groups, argc, argv, &cli);
	check_said(mine, status, false);
	if (status == CLI_OK && cli.command && !cli.help)
		check_problem(mine, &cli);
	for (int i = 1; i < argc && i < 4; i++)
		check_values(mine, argv[i]);
	stderr = usual;
	fclose(mine);
	free(text);
	return 0;
}
