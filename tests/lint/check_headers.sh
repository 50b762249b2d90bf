#!/bin/sh
# check_headers.sh: every C header compiles by itself, with the warnings of the build.
. "$(dirname "$0")/lib.sh"

cache=$BUILD_DIR/CMakeCache.txt
cc=${CC:-$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$cache" 2>/dev/null)}
cc=${cc:-cc}
command -v "$cc" >/dev/null 2>&1 || skip "no C compiler named $cc"
cuda=$(sed -n 's/^KILN_CUDA_H:PATH=//p' "$cache" 2>/dev/null)
flags="-std=c11 -D_GNU_SOURCE -DKILN_TEST_HOOKS -Wall -Wextra -Wpedantic"
flags="$flags -Wno-missing-field-initializers -Wno-overlength-strings -Werror -I. -Iinclude -Itests"
python=$(sed -n 's/^_*Python_INCLUDE_DIR:PATH=//p' "$cache" 2>/dev/null)
[ -z "$python" ] || flags="$flags -DPy_LIMITED_API=0x030A0000 -isystem $python"
for library in libuv msgpack-c msgpack sqlite3 libsodium cmocka; do
	flags="$flags $(pkg-config --cflags "$library" 2>/dev/null)"
done
case $cuda in
'' | *NOTFOUND) ;;
*) flags="$flags -isystem $cuda -DKILN_HAVE_CUDA_H=1" ;;
esac

sources .h | while read -r header; do
	if [ "${cuda%NOTFOUND}" != "$cuda" ] || [ -z "$cuda" ]; then
		grep -q 'include <cuda.h>' "$header" && continue
	fi
	[ "$header" = include/kiln/dlpack.h ] && continue # wants its user's dlpack.h before it
	case $header in
	client/python/*) [ -n "$python" ] || continue ;;
	esac
	# Twice, so that a missing guard shows.
	# Word splitting of the flags is meant.
	# shellcheck disable=SC2086
	printf '#include "%s"\n#include "%s"\nextern int kiln_lint;\n' "$header" "$header" |
		"$cc" $flags -x c -fsyntax-only - 2>&1 | sed -n "s|^|$header:1: |p" | head -n 3
done | finish headers
