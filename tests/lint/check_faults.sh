#!/bin/sh
# check_faults.sh: each row of a table in docs/faults.md names a test, `FILE:NAME`, and each that is
# named is there: a program FILE under tests/, and in its text the word, or case of a table, NAME.
. "$(dirname "$0")/lib.sh"

page=docs/faults.md
{
	awk -F' *[|] *' -v page="$page" '
		!/^\|/ { row = 0; next }
		++row <= 2 { next }
		NF != 6 { printf "%s:%d: a row has 4 columns, this one %d\n", page, FNR, NF - 2; next }
		$5 !~ /`[a-z0-9_]+:[^`]+`/ {
			printf "%s:%d: names no test, `FILE:NAME`\n", page, FNR
		}' "$page"
	awk -F' *[|] *' '
		!/^\|/ { row = 0; next }
		++row > 2 {
			count = split($5, part, "`")
			for (i = 2; i <= count; i += 2)
				print FNR ":" part[i]
		}' "$page" | while IFS=: read -r line file name; do
		found=$(find tests -name "$file.c" -o -name "$file.sh" -o -name "$file.py")
		if [ -z "$found" ]; then
			echo "$page:$line: there is no program $file under tests/"
		elif ! grep -qwF -e "$name" $found; then
			echo "$page:$line: $file has no test $name"
		fi
	done
} | finish faults
