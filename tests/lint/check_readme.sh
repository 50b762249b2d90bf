#!/bin/sh
# check_readme.sh: all C in README.md and in the pages that show programs is in the examples, word
# for word; the README's first piece is all of examples/permute.c, and its first Python all of
# examples/python/gather_map.py; README.md has at most 300 lines, docs/architecture.md at most 150;
# every path that a page names is there, so is every operator in its table, and every machine of
# states.
. "$(dirname "$0")/lib.sh"

pages="README.md CONTRIBUTING.md SECURITY.md $(echo docs/*.md)
	$(find client daemon kernel_src examples tests -name README.md)"

{
	[ "$(wc -l <README.md)" -le 300 ] || echo "README.md:300: more than 300 lines"
	[ "$(wc -l <docs/architecture.md)" -le 150 ] ||
		echo "docs/architecture.md:150: more than 150 lines"
	awk '/^```c$/ { on = 1; next } /^```$/ && on { exit } on' README.md |
		cmp -s - examples/permute.c || echo "README.md:1: its first C is not examples/permute.c"
	awk '/^```python$/ { on = 1; next } /^```$/ && on { exit } on' README.md |
		cmp -s - examples/python/gather_map.py ||
		echo "README.md:1: its first Python is not examples/python/gather_map.py"
	# shellcheck disable=SC2086
	awk 'FNR == 1 { page = FILENAME ~ /\.md$/ }
		!page { text[FILENAME] = text[FILENAME] $0 "\n"; next }
		/^```c$/ { begin = FNR; piece = "\n"; next }
		/^```$/ && begin {
			found = 0
			for (file_of in text)
				if (index("\n" text[file_of], piece))
					found = 1
			if (!found)
				printf "%s:%d: this C is in none of the examples\n", FILENAME, begin
			begin = 0
		}
		begin { piece = piece $0 "\n" }' examples/*.c $pages
	# shellcheck disable=SC2086
	grep -noE '`(include|client|daemon|kernel_src|tests|examples|scripts)/[a-z0-9_./]*`' $pages |
		tr -d '`' | sort -u | while IFS=: read -r page line path; do
		[ -e "$path" ] || echo "$page:$line: there is no $path"
	done
	grep -noE '`[a-z_]+_(state|phase)`' docs/architecture.md | tr -d '`' |
		while IFS=: read -r line name; do
			grep -rqE "^enum $name \{" client daemon ||
				echo "docs/architecture.md:$line: there is no enum $name"
		done
	ops=$(find daemon/plan -name '*.c' -exec \
		sed -n 's/^\t\t\.name = "\([a-z0-9_]*\)",$/\1/p' {} +)
	[ -n "$ops" ] || echo "daemon/plan/ops.c:1: no row of an operator is found"
	for op in $ops; do
		grep -q "^| \`$op\` |" docs/operators.md ||
			echo "docs/operators.md:1: its table has no operator $op"
	done
} | finish readme
