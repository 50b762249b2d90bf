#!/bin/sh
# check_paths.sh: each way into the daemon that SECURITY.md lists names a test that is there, and
# the functions, `FILE:FUNCTION`, that check what comes that way.
. "$(dirname "$0")/lib.sh"

page=SECURITY.md
heading='Every way in'
{
	grep -qx "## $heading" $page || echo "$page:1: has no section \"$heading\""
	named_tests $page 4 "$heading"
	awk -F' *[|] *' -v heading="$heading" '
		/^## / { on = $0 == "## " heading }
		!on || !/^\|/ { row = 0; next }
		++row > 2 {
			count = split($4, part, "`")
			for (i = 2; i <= count; i += 2)
				print FNR ":" part[i]
		}' $page | while IFS=: read -r line file function; do
		found=$(find daemon client -name "$file")
		if [ -z "$found" ]; then
			echo "$page:$line: there is no file $file in daemon/ or client/"
		elif ! grep -qE "^[a-z].*[ *]$function\(" $found; then
			echo "$page:$line: $file has no function $function"
		fi
	done
} | finish paths
