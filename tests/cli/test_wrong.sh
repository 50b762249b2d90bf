#!/bin/sh
# test_wrong.sh: run finds kernels that are wrong: by values, and by results that change from call
# to call.  The kernels here have a reciprocal square root of their own, which norms use: in f64 it
# is off by a thousandth, in f32 it grows by a hundred-millionth each time; beyond 999 it changes
# once, to values that are right as well.  The generic kernel adds a little to eps, so that its
# results have other bits than those of the exact kernel that takes over.
. "$(dirname "$0")/lib.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
cp -R "$root/kernel_src" "$DIR/kernels"
rm -f "$DIR/kernels/CMakeLists.txt"

# changed FILE COUNT SED-ARGUMENT... : changes so many lines of a kernel source.
changed() {
	file=$1 count=$2
	shift 2
	sed "$@" "$root/kernel_src/$file" >"$DIR/kernels/$file"
	[ "$(diff "$root/kernel_src/$file" "$DIR/kernels/$file" | grep -c '^>')" -eq "$count" ] ||
		fails "$file does not have the lines that are to change"
}
growing='static double g = 1; static int n; g += 1e-8; '
growing=$growing'return (float)((x < 999 ? g : x < 2e3 \&\& n++ < 100 ? 1 : 1.0000003)'
growing="$growing / sqrt((double)x));"
changed cpu/math.cuh 2 -e 's|return 1.0 / sqrt(x);|return 1.001 / sqrt(x);|' \
	-e "s|return (float)(1.0 / sqrt((double)x));|$growing|"
changed ops/norm_held_generic.cuh 1 -e 's|(held, row, eps);|(held, row, eps * Compute(1.000001));|'
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
differ='results differ from call to call: element 0 of y has other bits in a later one'
wrong "y\[0,0\] is $number and must be $number, within $number" rms_norm --shape 3x8 --dtype f64
wrong "$differ" layer_norm --shape 1x8
# Each result is right, and all but the first hundred are alike.
wrong "$differ" layer_norm --shape 1x8 --eps 1000 --time 200

# An exact kernel takes over while calls are made: the cache has it, and gives it only then.
exact='layer_norm --shape 1x8 --eps 3000'
"$KILN" run $exact >"$DIR/out" || fails "the exact kernel fails"
kill -TERM "$DAEMON"
wait "$DAEMON"
daemon --kernel-dir "$DIR/kernels" --specialize lazy
"$KILN" run layer_norm --shape 1x12 --eps 3000 >"$DIR/out" || fails "the generic kernel fails"
launches() {
	"$KILN" status --json |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["counters"]["launches"])'
}
before=$(launches)
"$KILN" debug store-deadline 600000
"$KILN" debug delay-store 600000
"$KILN" run $exact --time 50000 >"$DIR/out" 2>"$DIR/err" &
running=$!
tries=0
until [ "$(launches)" -gt $((before + 1)) ] || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.02
done
"$KILN" debug delay-store 0
wait $running || fails "run $exact: $(cat "$DIR/err")"
grep -qx 'later calls    other bits, verified, too: another kernel took over' "$DIR/out" ||
	fails "a kernel that another one replaced is not told of: $(cat "$DIR/out")"
finish
