#!/bin/sh
# check_format.sh: C files are as clang-format 14 leaves them.  Other versions disagree in details,
# so only 14 is asked.
. "$(dirname "$0")/lib.sh"

tool=
for name in clang-format-14 clang-format; do
	if command -v "$name" >/dev/null 2>&1 && "$name" --version | grep -q 'version 14\.'; then
		tool=$name
		break
	fi
done
[ -n "$tool" ] || skip "clang-format 14 is not here; the format is checked with that version only"

sources .c .h .cuh | xargs "$tool" --dry-run 2>&1 |
	sed -n 's/^\([^:]*:[0-9]*\):[0-9]*: warning: code should.*/\1: not as clang-format has it/p' |
	sort -u -t: -k1,1 | finish format
