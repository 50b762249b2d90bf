#!/bin/sh
# test_wrong.sh: run finds kernels that are wrong: by values, and by results that change from call
# to call.  The kernels here have a reciprocal square root of their own, which norms use: in f64 it
# is off by a thousandth, in f32 it grows by a hundred-millionth each time; beyond 999 it changes
# once, as where an exact kernel takes over from a generic one.
. "$(dirname "$0")/lib.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
cp -R "$root/kernel_src" "$DIR/kernels"
rm -f "$DIR/kernels/CMakeLists.txt"
math=$DIR/kernels/cpu/math.cuh
growing='static double g = 1; static int n; g += 1e-8; '
growing=$growing'return (float)((x < 999 ? g : n++ < 100 ? 1 : 1.0000003) / sqrt((double)x));'
sed -e 's|return 1.0 / sqrt(x);|return 1.001 / sqrt(x);|' \
	-e "s|return (float)(1.0 / sqrt((double)x));|$growing|" \
	"$root/kernel_src/cpu/math.cuh" >"$math"
[ "$(diff "$root/kernel_src/cpu/math.cuh" "$math" | grep -c '^>')" -eq 2 ] ||
	fails "the square roots are not where they were"
daemon --kernel-dir "$DIR/kernels"

# wrong PATTERN OPTION... : the sentence, and nothing else.
wrong() {
	pattern=$1
	shift
	"$KILN" run "$@" >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 1 ] || fails "run $*: a wrong result is no failure"
	[ ! -s "$DIR/out" ] || fails "run $*: standard output has $(cat "$DIR/out")"
	[ "$(grep -c . "$DIR/err")" -eq 1 ] || fails "run $*: more than a sentence: $(cat "$DIR/err")"
	grep -qE "^kiln: run $1: wrong result: $pattern\$" "$DIR/err" ||
		fails "run $*: $(cat "$DIR/err")"
}
number='-?[0-9.]+(e-?[0-9]+)?'
wrong "y\[0,0\] is $number and must be $number, within $number" rms_norm --shape 3x8 --dtype f64
wrong "element 0 of y has other bits in a later call" layer_norm --shape 1x8
# Other bits that are right, and stay, are another kernel's.
"$KILN" run layer_norm --shape 1x8 --eps 1000 --time 200 >"$DIR/out" 2>"$DIR/err" ||
	fails "a kernel that changed once: $(cat "$DIR/err")"
grep -qx 'later calls    other bits, verified, too: another kernel took over' "$DIR/out" ||
	fails "a kernel that changed once is not told of: $(cat "$DIR/out")"
finish
