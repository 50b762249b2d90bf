#!/bin/sh
# check_operators.sh: the texts made of the operators' rows are as the rows have them.
. "$(dirname "$0")/lib.sh"

[ -x "${OPERATOR_TEXTS:-}" ] || { echo "no operator_texts was built" && exit 77; }
copy=$(mktemp -d /tmp/kiln-check-operators.XXXXXX)
mkdir -p "$copy/docs" "$copy/include/kiln"
cp .clang-format "$copy/"
cp docs/operators.md "$copy/docs/"
cp include/kiln/ops.h "$copy/include/kiln/"
sh scripts/write_operators.sh "$OPERATOR_TEXTS" "$copy"
for file in docs/operators.md include/kiln/ops.h; do
	cmp -s "$file" "$copy/$file" || echo "$file:1: not as the rows have it: ninja operators"
done | finish operators
rm -rf "$copy"
