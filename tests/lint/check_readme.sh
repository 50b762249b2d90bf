#!/bin/sh
# check_readme.sh: the README's program is examples/permute.c itself, and every path that the README
# names is there.
. "$(dirname "$0")/lib.sh"

{
	awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md |
		cmp -s - examples/permute.c || echo "README.md:1: its C program is not examples/permute.c"
	grep -oE '`(include|client|daemon|kernel_src|tests|examples|scripts)/[a-z0-9_./]*`' README.md |
		tr -d '`' | sort -u | while read -r path; do
		[ -e "$path" ] || echo "README.md:1: there is no $path"
	done
} | finish readme
