#!/bin/sh
# check_comments.sh: every file begins with a comment that says what it is for.
. "$(dirname "$0")/lib.sh"

{
	sources .c .h .cuh .S | while read -r file; do
		# "/*" and words behind it or on the next line, or "//" and words
		head -n 2 "$file" | tr '\n' ' ' |
			grep -qE '^(/\*[[:space:]*]*[A-Za-z].{12}|//[[:space:]]*[A-Za-z].{12})' ||
			echo "$file:1: begins without a comment that says what the file is for"
	done
	sources .sh | while read -r file; do
		sed '/^#!/d' "$file" | head -n 1 | grep -qE '^# .{12}' ||
			echo "$file:1: begins without a comment that says what the script is for"
	done
	sources CMakeLists.txt .cmake | while read -r file; do
		head -n 1 "$file" | grep -qE '^# .{12}' ||
			echo "$file:1: begins without a comment that says what it does"
	done
} | finish comments
