#!/bin/sh
# operator.sh: an operator is three files.  A copy of the tree without those of cumsum does not name
# cumsum.  With KILN_TEST_ALL set it is built, and knows no cumsum; with the three files in place
# again it builds, and `kiln run` verifies cumsum.  docs/adding-an-operator.md explains the three.
set -eu

[ -z "${KILN_SANITIZE:-}" ] || { echo "builds the product anew, without sanitizers" && exit 77; }
source=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
tmp=$(mktemp -d /tmp/kiln-operator.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
operator="daemon/plan/ops/cumsum.c kernel_src/ops/cumsum.cuh tests/ops/cumsum.c"

mkdir "$tmp/tree" "$tmp/patch"
# Programs and their tables; of the tests the references, by which `kiln run` verifies.
(cd "$source" && tar -cf - CMakeLists.txt CMakePresets.json client daemon include kernel_src \
	scripts tests/ops) | tar -xf - -C "$tmp/tree"
for file in $operator; do
	[ -f "$tmp/tree/$file" ]
	mkdir -p "$tmp/patch/$(dirname "$file")"
	mv "$tmp/tree/$file" "$tmp/patch/$file"
done
# The helpers at the end of kiln/ops.h are made of the rows, and checked in.
if grep -rl --exclude='*.md' cumsum "$tmp/tree" | grep -v /include/kiln/ops.h; then
	echo "these files know cumsum besides the three"
	exit 1
fi
# Each commit that adds an operator shows the rest by its diff; the build takes most of a minute.
[ -n "${KILN_TEST_ALL:-}" ] || exit 0

build() {
	ninja -C "$tmp/build" kilnd kiln_cli >"$tmp/log" 2>&1 || {
		tail -n 40 "$tmp/log"
		exit 1
	}
}
cmake -S "$tmp/tree" -B "$tmp/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 \
	-DKILN_BUILD_TESTS=OFF -DKILN_BUILD_EXAMPLES=OFF >"$tmp/log" 2>&1 || {
	cat "$tmp/log"
	exit 1
}
build
kiln=$(find "$tmp/build" -name kiln -type f -perm -u+x | head -n 1)
"$kiln" help run >"$tmp/without"
if grep cumsum "$tmp/without"; then
	echo "a build without cumsum lists it"
	exit 1
fi

cp -R "$tmp/patch/." "$tmp/tree/"
build
grep -c '\[' "$tmp/log" | sed 's/$/ steps build the operator/'
"$kiln" help run >"$tmp/with"
for op in cumsum cumsum_backward; do
	grep -q "^  $op  *--axis\$" "$tmp/with" || {
		echo "help does not list $op with its option"
		exit 1
	}
done
"$kiln" run cumsum --shape 4x1000 --check
"$kiln" run cummax --shape 4x33x5 --axis 1 --check
"$kiln" run cumsum_backward --shape 5x30x7 --dtype f16 --axis 1 --check
