#!/bin/sh
# hooks.sh: a release that is built without the tests has nothing that breaks it on purpose, and
# refuses --test-requests; a build with the tests has all of it.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
plain=$root/build/optimised
tmp=$(mktemp -d /tmp/kiln-hooks.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
hooks='misdeed_name|cache_fault|cache_corrupt|cache_drop_memory|cache_db_flip|serve_debug'
hooks="$hooks|child_spare|closer_crowd|closer_spin|admit_rights"

# tests/run.sh has built it already.
set -- "-DKILN_WERROR=ON"
if [ -f "$plain/Makefile" ] || ! command -v ninja >/dev/null 2>&1; then
	set -- -G "Unix Makefiles" "$@"
fi
unset CMAKE_GENERATOR
{ cd "$root" && cmake --preset release -B "$plain" "$@" &&
	cmake --build "$plain" --target kilnd --parallel "$(nproc 2>/dev/null || echo 2)"; } \
	>"$tmp/log" 2>&1 || {
	cat "$tmp/log"
	exit 1
}

nm "$KILND" >"$tmp/with"
for hook in $(echo "$hooks" | tr '|' ' '); do
	grep -q "$hook" "$tmp/with" || {
		echo "$KILND has no $hook: the list of hooks is wrong"
		exit 1
	}
done
nm "$plain/bin/kilnd" >"$tmp/symbols"
if grep -E "$hooks" "$tmp/symbols"; then
	echo "a release has hooks of tests"
	exit 1
fi
if "$plain/bin/kilnd" --test-requests --socket "$tmp/s" --cache-dir "$tmp/cache" 2>"$tmp/err"; then
	echo "a release takes --test-requests"
	exit 1
fi
grep -q -- '--test-requests is for tests, and this kilnd is built without them' "$tmp/err" || {
	cat "$tmp/err"
	exit 1
}
if "$plain/bin/kilnd" --help | grep -e --test-requests; then
	echo "the help of a release names --test-requests"
	exit 1
fi
