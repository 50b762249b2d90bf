#!/bin/sh
# check_limits.sh: each row of a table in docs/limits.md names a test that is there, and a constant
# that is there where it names one; and each option of kilnd that is a limit has a row.
. "$(dirname "$0")/lib.sh"

page=docs/limits.md
table=daemon/options/options_table.c
{
	named_tests $page 5
	awk -F' *[|] *' '/^\|/ { print FNR, $4 }' $page | while read -r line words; do
		for name in $(printf '%s\n' "$words" | grep -o '`[A-Z_]*`' | tr -d '`'); do
			grep -rqE "define $name\b" include client daemon ||
				echo "$page:$line: there is no constant $name"
		done
	done
	sed -n 's/^\t{"\(max-[a-z-]*\)", .*/\1/p' $table | while read -r option; do
		grep -q "^|.*| .*\`--$option\`" $page || echo "$table:1: --$option has no row in $page"
	done
} | finish limits
