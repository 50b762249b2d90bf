#!/bin/sh
# test_run.sh: run, explain and compile: what they print, that run verifies, and where kernels
# come from.
. "$(dirname "$0")/lib.sh"
daemon

# The planner's decisions may change, so their lines keep their names alone.
plain() {
	"$KILN" "$@" >"$DIR/plain" 2>"$DIR/plain.err"
	status=$?
	kept='variant|choice|instantiation|grid x block|shared memory|note|candidates'
	sed -E -e "s/^($kept) .*/\1/" \
		-e 's/aligned to [0-9]+/aligned/' -e '/^source/d' "$DIR/plain"
	cat "$DIR/plain.err" >&2
	return $status
}

prints 0 plain explain permute --shape 60x100 --perm 1,0 <<'END'
op             permute
target         cpu
variant
choice
instantiation
grid x block
shared memory
x              24000 bytes read, aligned
y              24000 bytes written, aligned
bytes moved    48000
note
candidates
key            KEY
cached         no
END
json 'not j["cached"] and len(j["key"]) == 64 and j["plan"]["bytes_moved"] == 48000
	and len(j["plan"]["choice"]) > 0 and j["plan"]["scratch"] == 0' \
	"$KILN" explain permute --shape 60x100 --perm 1,0

prints 0 plain run permute --shape 60x100 --perm 1,0 <<'END'
op             permute
target         cpu
variant
choice
instantiation
grid x block
shared memory
x              24000 bytes read, aligned
y              24000 bytes written, aligned
bytes moved    48000
note
device         cpu
data           60x100 f32, seed 1, SIZE
origin         compiled
verified       6000 elements, every bit
first call     TIME, of it TIME to prepare
warm call      TIME, best TIME of 5
END

# The same kernel again: found; and timed.
without_plan() {
	"$KILN" "$@" | sed '1,/^note/d'
}
prints 0 without_plan run permute --shape 60x100 --perm 1,0 --seed 7 --time 12 <<'END'
device         cpu
data           60x100 f32, seed 7, SIZE
origin         hit
verified       6000 elements, every bit
first call     TIME, of it TIME to prepare
warm call      TIME, best TIME of 12
moved          SIZE
device time    TIME, SIZE
END
"$KILN" explain permute --shape 60x100 --perm 1,0 >"$DIR/out"
grep -q '^cached         yes$' "$DIR/out" || fails "not cached: $(cat "$DIR/out")"
grep -q '^source         ops/permute[a-z_]*\.cuh$' "$DIR/out" || fails "no file: $(cat "$DIR/out")"
json 'j["origin"] == "hit" and j["verified"] == 6000 and j["device"] == "cpu"
	and j["shape"] == [60, 100] and j["stride"] == [100, 1] and j["perm"] == [1, 0]
	and j["dtype"] == "f32" and j["warm_calls"] == 100
	and j["first_us"] >= j["prepare_us"] > 0 and j["warm_us"] >= j["warm_best_us"] > 0' \
	"$KILN" run permute --shape 60,100 --perm 1x0 --time


# explain lists what --choice may name; one name is not a list.
"$KILN" explain permute --shape 60x100 --perm 1,0 >"$DIR/out"
other=$(sed -n -E 's/^candidates +[^,]+, ([^,]+),.*/\1/p' "$DIR/out")
json "j['plan'].startswith('op') and 'choice         $other\n' in j['plan']" \
	"$KILN" run permute --shape 60x100 --perm 1,0 --choice "$other"
"$KILN" run permute --shape scalar --perm '' | grep -q '^verified       1 element, every bit$' ||
	fails "one element"

# Calls that take long are fewer; on a terminal it is said what goes on.
"$KILN" debug delay-launch 700 || fails "delay-launch"
json 'j["warm_calls"] == 3' "$KILN" run permute --shape 60x100 --perm 1,0
"$KILN" debug delay-launch 0 || fails "delay-launch 0"
python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' \
	"$KILN" run permute --shape 4096x4096 --dtype u16 --perm 0,1 >"$DIR/out" </dev/null
for words in "making the data, and calling" "verifying by plain loops" \
	"calling again, for the times"; do
	grep -q "^kiln: run: $words" "$DIR/out" || fails "not told: $words: $(cat "$DIR/out")"
done

# Every element type, and each of the variants by shape; rank 0, no elements, strides, offsets.
for dtype in f16 bf16 f32 f64 i8 u8 i16 u16 i32 u32 i64 u64 bool c64 c128 f8e4m3 f8e5m2; do
	json "j['verified'] == 1260 and j['dtype'] == '$dtype'" \
		"$KILN" run permute --shape 35x36 --perm 1,0 --dtype $dtype
done
json 'j["verified"] == 1 and j["origin"] == "copy"' "$KILN" run permute --shape scalar --perm ''
json 'j["verified"] == 0 and j["origin"] == "copy"' "$KILN" run permute --shape 3x0x2 --perm 2,1,0
json 'j["origin"] == "copy"' "$KILN" run permute --shape 4x5 --perm 0,1
json 'j["verified"] == 120 and j["stride"] == [60, 7, 1]' \
	"$KILN" run permute --shape 4x6x5 --stride 60,7,1 --perm 2,0,1
json 'j["verified"] == 24 and j["stride"] == [0, 1]' \
	"$KILN" run permute --shape 4x6 --stride 0,1 --perm 1,0
json 'j["verified"] == 1024 and j["offset"] == 3' \
	"$KILN" run permute --shape 32x32 --perm 1,0 --dtype u8 --offset 3

# compile: into the cache, for the device and for others.
"$KILN" compile permute --shape 50x70 --perm 1,0 >"$DIR/out" || fails "compile"
prints 0 sed '1,/^note/d' "$DIR/out" <<'END'
key            KEY
origin         compiled
object         SIZE
took           TIME
END
"$KILN" run permute --shape 50x70 --perm 1,0 | grep -q '^origin         hit$' ||
	fails "compiled for nothing"
if "$KILN" compile permute --shape 50x70 --perm 1,0 --target sm_90 >/dev/null 2>"$DIR/err"; then
	for target in sm_75 sm_80 sm_90 sm_100 sm_120; do
		json 'j["bytes"] > 1000 and "target         '$target'" in j["text"]' \
			"$KILN" compile permute --shape 50x70 --perm 1,0 --target $target
	done
else
	grep -qi nvrtc "$DIR/err" || fails "no reason: $(cat "$DIR/err")"
	echo "not tested, compiling for GPUs: $(cat "$DIR/err")"
fi

# A command that fails ends with 1 and a sentence.
"$KILN" explain nosuchop --shape 4x5 >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "explain of an unknown op"
grep -q '^kiln: explain nosuchop: .*nosuchop' "$DIR/err" || fails "no sentence: $(cat "$DIR/err")"
"$KILN" compile permute --shape 4x5 --perm 1,0 --target sm_3 >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "compile for an unknown target"
grep -q '^kiln: compile permute: .*sm_3' "$DIR/err" || fails "no sentence: $(cat "$DIR/err")"
"$KILN" --device cuda:7 run permute --shape 4x5 --perm 1,0 >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "run on a device that is not there"
grep -q 'no device "cuda:7"' "$DIR/err" || fails "the device is not named: $(cat "$DIR/err")"

# A daemon that does not answer any more is waited for once: nothing else is asked of it.
between write= free= release=
KILN_SOCKET="$DIR/between.sock" "$KILN" run permute --shape 50x70 --perm 1,0 --timeout 2s \
	>"$DIR/out" 2>"$DIR/err" && fails "no answer to write"
between_ends
printf 'kiln: run: filling x: kilnd at %s did not answer "write" before the deadline\n' \
	"$DIR/between.sock" | diff -u - "$DIR/err" || fails "a silent daemon"
[ "$(cat "$DIR/between.out")" = write ] || fails "it was asked $(cat "$DIR/between.out")"
finish
