#!/bin/sh
# test_mismatch.sh: a result that is wrong in one bit: run says where, and ends with 1.  The bit is
# flipped between the daemon and the command by a library loaded before libkiln.
. "$(dirname "$0")/lib.sh"

case "${KILN_SANITIZE:-}" in
*address* | *thread*)
	echo "a sanitizer must come first in the list of libraries"
	exit 77
	;;
esac
cat >"$DIR/flip.c" <<'END'
#include <dlfcn.h>
#include <stdint.h>

int kiln_read(void *buffer, uint64_t offset, void *destination, uint64_t bytes)
{
	int (*read)(void *, uint64_t, void *, uint64_t) =
		(int (*)(void *, uint64_t, void *, uint64_t))(uintptr_t)dlsym(RTLD_NEXT, "kiln_read");
	int status = read(buffer, offset, destination, bytes);
	((uint8_t *)destination)[5 * 9 + 4] ^= 0x10;
	return status;
}
END
"${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o "$DIR/flip.so" "$DIR/flip.c" -ldl || {
	echo "no compiler"
	exit 77
}
daemon
LD_PRELOAD="$DIR/flip.so" "$KILN" run permute --shape 9x7 --perm 1,0 --dtype u8 \
	>"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "a wrong result ends well"
[ ! -s "$DIR/out" ] || fails "a report of a wrong result: $(cat "$DIR/out")"
sed -E 's/0x[0-9a-f]{2}/0xNN/g' "$DIR/err" >"$DIR/sentence"
prints 0 cat "$DIR/sentence" <<'END'
kiln: run permute: wrong result: y[5,4] is 0xNN and must be 0xNN
END
# The two differ in the bit that was flipped.
python3 -c 'import re, sys
a, b = (int(x, 16) for x in re.findall("0x([0-9a-f]{2})", open(sys.argv[1]).read()))
sys.exit(a ^ b != 0x10)' "$DIR/err" || fails "not the byte that is wrong: $(cat "$DIR/err")"
finish
