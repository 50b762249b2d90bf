#!/bin/sh
# check_readme.sh: all C in the README is in the examples, word for word; the first piece is all of
# examples/permute.c; every path that the README names is there, and so is every operator.
. "$(dirname "$0")/lib.sh"

{
	awk '/^```c$/ { on = 1; next } /^```$/ && on { exit } on' README.md |
		cmp -s - examples/permute.c || echo "README.md:1: its first C is not examples/permute.c"
	awk 'FNR == 1 { file = FILENAME }
		file != "README.md" { text[file] = text[file] $0 "\n"; next }
		/^```c$/ { begin = FNR; piece = "\n"; next }
		/^```$/ && begin {
			found = 0
			for (file_of in text)
				if (index("\n" text[file_of], piece))
					found = 1
			if (!found)
				printf "README.md:%d: this C is in none of the examples\n", begin
			begin = 0
		}
		begin { piece = piece $0 "\n" }' examples/*.c README.md
	grep -oE '`(include|client|daemon|kernel_src|tests|examples|scripts)/[a-z0-9_./]*`' README.md |
		tr -d '`' | sort -u | while read -r path; do
		[ -e "$path" ] || echo "README.md:1: there is no $path"
	done
	sed -n 's/^\t\t\.name = "\([a-z0-9_]*\)",$/\1/p' daemon/plan/ops.c | while read -r op; do
		grep -q "^| \`$op\` |" README.md || echo "README.md:1: its table has no operator $op"
	done
} | finish readme
