#!/bin/sh
# check_guards.sh: every header has an include guard, and no two have the same one: the second of
# them would be empty wherever the first was included before.
. "$(dirname "$0")/lib.sh"

sources .h .cuh | xargs awk '
	FNR == 1 { guard = "" }
	guard == "" && /^#pragma once$/ { guard = FILENAME }
	guard == "" && /^#ifndef [A-Za-z_0-9]+$/ {
		guard = $2
		if (guard in first)
			printf "%s:%d: %s is the guard of %s as well\n", FILENAME, FNR, guard, first[guard]
		else
			first[guard] = FILENAME
		getline
		if ($0 != "#define " guard)
			printf "%s:%d: #define %s belongs here\n", FILENAME, FNR, guard
	}
	{ guarded[FILENAME] = guarded[FILENAME] || guard != "" }
	END {
		for (file in guarded)
			if (!guarded[file])
				printf "%s:1: there is no include guard\n", file
	}
' | finish guards
