# lib.sh: what the lints share: where the tree is, its files, and how a finding is printed.
# Sourced by check_*.sh; every finding is one line FILE:LINE: sentence, and the lint then fails.
set -u

SOURCE_DIR=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD_DIR=${BUILD_DIR:-$SOURCE_DIR/build/dev}
cd "$SOURCE_DIR" || exit 1

# sources EXTENSION...: our files with these name ends, made pictures and fuzz corpora left out.
sources() {
	for extension in "$@"; do
		find include client daemon kernel_src tests examples scripts .ci -type f \
			-name "*$extension" ! -path 'tests/fuzz/corpus/*' ! -path 'examples/data/*'
	done | sort
}

# named_tests PAGE COLUMNS [HEADING]: each row of a table in PAGE has so many columns, and names in
# the last tests, `FILE:NAME`, that are there: a program FILE under tests/, and in its text the
# word, or case of a table, NAME.  "no test: WHY" will do.  With HEADING only the tables below it
# count.
named_tests() {
	awk -F' *[|] *' -v page="$1" -v columns="$2" -v heading="${3-}" '
		/^## /  { on = $0 == "## " heading }
		heading != "" && !on { next }
		!/^\|/ { row = 0; next }
		++row <= 2 { next }
		NF != columns + 2 {
			printf "%s:%d: a row has %d columns, this one %d\n", page, FNR, columns, NF - 2
			next
		}
		$(NF - 1) !~ /`[a-z0-9_]+:[^`]+`|^no test: / {
			printf "%s:%d: names no test, `FILE:NAME`\n", page, FNR
		}' "$1"
	awk -F' *[|] *' -v heading="${3-}" '
		/^## /  { on = $0 == "## " heading }
		heading != "" && !on { next }
		!/^\|/ { row = 0; next }
		++row > 2 {
			count = split($(NF - 1), part, "`")
			for (i = 2; i <= count; i += 2)
				if (part[i] ~ /:/)
					print FNR ":" part[i]
		}' "$1" | while IFS=: read -r line file name; do
		found=$(find tests -name "$file.c" -o -name "$file.sh" -o -name "$file.py")
		if [ -z "$found" ]; then
			echo "$1:$line: there is no program $file under tests/"
		elif ! grep -qwF -e "$name" $found; then
			echo "$1:$line: $file has no test $name"
		fi
	done
}

# finish NAME: reads the findings from standard input, prints them, and ends the lint.
finish() {
	findings=$(cat)
	if [ -n "$findings" ]; then
		printf '%s\n' "$findings"
		echo "$1: $(printf '%s\n' "$findings" | wc -l) finding(s)"
		exit 1
	fi
	echo "$1: nothing found"
	exit 0
}

skip() {
	echo "$*"
	exit 77
}
