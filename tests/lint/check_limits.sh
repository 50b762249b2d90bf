#!/bin/sh
# check_limits.sh: each row of a table in docs/limits.md names a test that is there, and each option
# of kilnd that is a limit has a row.
. "$(dirname "$0")/lib.sh"

page=docs/limits.md
{
	named_tests $page 5
	sed -n 's/^\t{"\(max-[a-z-]*\)", .*/\1/p' daemon/options/options.c | while read -r option; do
		grep -q "^|.*| .*\`--$option\`" $page ||
			echo "daemon/options/options.c:1: --$option has no row in $page"
	done
} | finish limits
