/*
 * map_problem.h: one statement of map as the command line describes it: `run map`, `explain map`,
 * `compile map`.
 */
#ifndef KILN_CLI_MAP_PROBLEM_H
#define KILN_CLI_MAP_PROBLEM_H

#include "problem.h"

#define MAP_OPTIONS                                                                                \
	{"set", "NAME=NUMBER", "a scalar of the statement, by value", CLI_MANY},                       \
		{"shape", "NAME=2x3x4", "shape of an operand (the output's follows)", CLI_MANY},           \
		{"dtype", "NAME=TYPE", "its element type (f32; i32 in subscripts; output's: the first's)", \
		 CLI_MANY},                                                                                \
		{"bounds", "WORD", "subscripts out of range: check, clamp or zero (check)"},               \
		{"checked", NULL, "check every access and name the first bad one"},                        \
	{                                                                                              \
		"choice", "NAME", "the candidate to take: one that explain lists, or generic"              \
	}

/* Like cli_problem(), for a statement.  There is one problem of map at a time. */
int cli_map_problem(const struct cli *cli, struct files *files, struct cli_problem *problem);

#endif
