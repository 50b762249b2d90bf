# lib.sh: what the lints share: where the tree is, its files, and how a finding is printed.
# Sourced by check_*.sh; every finding is one line FILE:LINE: sentence, and the lint then fails.
set -u

SOURCE_DIR=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
BUILD_DIR=${BUILD_DIR:-$SOURCE_DIR/build/dev}
cd "$SOURCE_DIR" || exit 1

# sources EXTENSION...: our files with these name ends, made pictures and fuzz corpora left out.
sources() {
	for extension in "$@"; do
		find include client daemon kernel_src tests examples scripts cmake .ci -type f \
			-name "*$extension" ! -path 'tests/fuzz/corpus/*' ! -path 'examples/data/*'
	done | sort
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
