#!/bin/sh
# write_operators.sh PROGRAM [TREE]: writes what is made of the operators' rows into TREE (this
# one): the table of docs/operators.md and the last helpers of include/kiln/ops.h.  PROGRAM is the
# build's operator_texts; `ninja operators` calls this.
set -eu

program=$1
tree=${2:-$(cd "$(dirname "$0")/.." && pwd)}
tmp=$(mktemp -d /tmp/kiln-operators.XXXXXX)
trap 'rm -rf "$tmp"' EXIT

# Puts a text in the place of the lines between two that match, which stay.
put() {
	awk -v text="$4" -v first="$2" -v last="$3" '
		index($0, last) == 1 { inside = 0 }
		!inside { print }
		index($0, first) == 1 { inside = 1; while ((getline line < text) > 0) print line }
	' "$1" >"$tmp/new"
	cmp -s "$tmp/new" "$1" || cp "$tmp/new" "$1"
}

"$program" table >"$tmp/table"
put "$tree/docs/operators.md" "<!-- operators -->" "<!-- end of operators -->" "$tmp/table"

helpers=$tree/include/kiln/ops.h
# The names of helpers that are written by hand, which stand before the others.
sed -n -e '/^\/\* ---- Helpers made of rows/q' -e 's/^static inline int kiln_\([a-z_]*\)(.*/\1/p' \
	"$helpers" >"$tmp/names"
# Word splitting of the names is meant.
# shellcheck disable=SC2046
{
	echo
	"$program" helpers $(sed 's/_with$//' "$tmp/names")
} >"$tmp/helpers.h"
cp "$helpers" "$tmp/ops.h"
put "$tmp/ops.h" "/* ---- Helpers made of rows" "#ifdef __cplusplus" "$tmp/helpers.h"
clang-format --style="file:$tree/.clang-format" "$tmp/ops.h" >"$tmp/formatted.h"
cmp -s "$tmp/formatted.h" "$helpers" || cp "$tmp/formatted.h" "$helpers"
