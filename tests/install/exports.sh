#!/bin/sh
# exports.sh [LIBKILN]: libkiln.so exports every function of kiln.h and nothing else, each that it
# ever had under the version that it had, and needs nothing but libc, libm, the loader and
# msgpack-c.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
library=${1:-${LIBKILN:?LIBKILN names libkiln.so}}
header=${SOURCE_DIR:-$(cd "$here/../.." && pwd)}/include/kiln/kiln.h
for tool in nm readelf; do
	command -v $tool >/dev/null 2>&1 || {
		echo "no $tool here"
		exit 77
	}
done
tmp=$(mktemp -d /tmp/kiln-exports.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failed=0

# The version's own name (type A) is no symbol of anything.
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
	LC_ALL=C sort -u >"$tmp/exported"
# A declaration: KILN_API, and the first kiln_ name that a parenthesis follows.
tr '\n' ' ' <"$header" | sed 's/KILN_API/\n&/g' | grep '^KILN_API [a-z]' |
	sed 's/^[^(]*[ *]\(kiln_[a-z_0-9]*\)(.*/\1/' | LC_ALL=C sort -u >"$tmp/declared"
count=$(wc -l <"$tmp/declared")
[ "$count" -ge 30 ] || {
	echo "only $count declarations were found in $header"
	failed=1
}
LC_ALL=C comm -23 "$tmp/exported" "$tmp/declared" >"$tmp/extra"
LC_ALL=C comm -13 "$tmp/exported" "$tmp/declared" >"$tmp/missing"
if [ -s "$tmp/extra" ]; then
	sed 's/$/: exported and not in kiln.h/' "$tmp/extra"
	failed=1
fi
if [ -s "$tmp/missing" ]; then
	sed 's/$/: in kiln.h and not exported/' "$tmp/missing"
	failed=1
fi

# Programs that were linked before find each name under its version: a line of this list is never
# taken away, and a new function has one, too.
recorded=${SOURCE_DIR:-$(cd "$here/../.." && pwd)}/tests/compat/libkiln.symbols
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@@/, " ", $3); print $3 }' |
	LC_ALL=C sort -u >"$tmp/versioned"
LC_ALL=C sort -u "$recorded" >"$tmp/recorded"
LC_ALL=C comm -13 "$tmp/versioned" "$tmp/recorded" >"$tmp/gone"
LC_ALL=C comm -23 "$tmp/versioned" "$tmp/recorded" >"$tmp/new"
if [ -s "$tmp/gone" ]; then
	sed 's/$/: was exported, and programs need it/' "$tmp/gone"
	failed=1
fi
if [ -s "$tmp/new" ]; then
	sed "s|\$|: exported, and not in $recorded|" "$tmp/new"
	failed=1
fi

# A sanitizer brings libraries of its own.
if [ -z "${KILN_SANITIZE:-}" ]; then
	readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$tmp/needed"
	if grep -vE '^(libc|libm|ld-linux[-a-z0-9_]*|libmsgpack-?c|libpthread|libdl)\.so\.[0-9]+$' \
		"$tmp/needed" >"$tmp/foreign"; then
		sed 's/$/: needed by libkiln and not allowed/' "$tmp/foreign"
		failed=1
	fi
	grep -q '^libc\.so' "$tmp/needed" || {
		echo "$library does not name what it needs"
		failed=1
	}
fi
readelf -d "$library" | grep -q 'SONAME.*\[libkiln\.so\.0\]' || {
	echo "$library is not libkiln.so.0 by its soname"
	failed=1
}
[ $failed = 0 ] && echo "$count functions exported, as declared"
exit $failed
