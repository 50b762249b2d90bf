#!/bin/sh
# test_trace.sh: kiln trace, read by Perfetto's own definitions: what it shows is what the daemon
# counts.
. "$(dirname "$0")/lib.sh"

daemon
# counted NAME: a counter of the daemon.
counted() {
	"$KILN" status --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["counters"][sys.argv[1]])' "$1"
}

# A trace that is over before the calls, on a busy machine, is made again for longer.
for seconds in 2 10 50; do
	launches=$(counted launches)
	compiles=$(counted jobs_done)
	"$KILN" trace --output "$DIR/busy.pftrace" --seconds $seconds >"$DIR/out" 2>"$DIR/err" &
	tracer=$!
	until "$KILN" debug waits | grep -q trace || ! kill -0 $tracer 2>/dev/null; do
		sleep 0.02
	done
	two=1
	"$KILN" trace --output "$DIR/second.pftrace" --seconds 1 >/dev/null 2>"$DIR/err2" || two=0
	"$KILN" run permute --shape 64x4$seconds --perm 1,0 --time >/dev/null || fails "run"
	KILN_LANE=off "$KILN" run permute --shape 64x4$seconds --perm 1,0 >/dev/null ||
		fails "run by message"
	launches=$(($(counted launches) - launches))
	compiles=$(($(counted jobs_done) - compiles))
	kill -0 $tracer 2>/dev/null && whole=1 || whole=0
	wait $tracer || fails "trace: $(cat "$DIR/err")"
	[ $whole = 0 ] || break
done
[ $two = 0 ] || fails "two at once"
grep -q 'another trace is being made' "$DIR/err2" || fails "$(cat "$DIR/err2")"
grep -qE '^wrote [0-9]+ spans to ' "$DIR/out" || fails "$(cat "$DIR/out")"
grep -q missed "$DIR/out" && fails "$(cat "$DIR/out")"

python=python3
[ ! -x "$BUILD_DIR/../venv-python/bin/python" ] || python=$BUILD_DIR/../venv-python/bin/python
# reads FILE ARGUMENT...: what must hold in a trace holds.
reads() {
	"$python" "$TOOLS/trace.py" "$@" >"$DIR/out" 2>&1
	case $? in
	0) cat "$DIR/out" ;;
	77) echo "no Perfetto: the trace is not read" ;;
	*) fails "$(cat "$DIR/out")" ;;
	esac
}
reads "$DIR/busy.pftrace" "$launches" "$compiles"

# A program that writes, reads and frees its buffers.
if [ -x "$BUILD_DIR/bin/softmax" ]; then
	for seconds in 1 10 50; do
		"$KILN" trace --output "$DIR/waits.pftrace" --seconds $seconds >"$DIR/out" &
		tracer=$!
		until "$KILN" debug waits | grep -q trace || ! kill -0 $tracer 2>/dev/null; do
			sleep 0.02
		done
		"$BUILD_DIR/bin/softmax" >/dev/null || fails "softmax"
		kill -0 $tracer 2>/dev/null && whole=1 || whole=0
		wait $tracer || fails "trace: $(cat "$DIR/out")"
		[ $whole = 0 ] || break
	done
	reads "$DIR/waits.pftrace" waits
else
	echo "no examples: no program that copies and frees is traced"
fi

# The trace of one run, beside another program that calls all the while.
"$KILN" run cumsum --shape 5x7 --time 100000 >/dev/null 2>&1 &
other=$!
"$KILN" run softmax --shape 33x44 --time 6 --trace "$DIR/run.pftrace" >"$DIR/out" 2>"$DIR/err" ||
	fails "run --trace: $(cat "$DIR/err")"
kill $other 2>/dev/null
wait $other 2>/dev/null
grep -qE "^wrote [0-9]+ spans to '$DIR/run.pftrace'" "$DIR/out" || fails "$(cat "$DIR/out")"
reads "$DIR/run.pftrace" alone softmax 7
"$KILN" run softmax --shape 33x44 --trace "$DIR/run.pftrace" --json >"$DIR/out" ||
	fails "run --json"
python3 -c 'import json, sys
run = json.load(sys.stdin)
assert run["spans"] > 0 and run["dropped"] == 0 and run["trace"], run' <"$DIR/out" ||
	fails "$(cat "$DIR/out")"
"$KILN" run softmax --shape 33x44 --trace "$DIR/no/such" >"$DIR/out" 2>"$DIR/err" && fails "written"
[ ! -s "$DIR/out" ] || fails "it ran all the same"
grep -q "^kiln: run: '$DIR/no/such': No such file" "$DIR/err" || fails "$(cat "$DIR/err")"
"$KILN" run softmax --shape 33x44 --trace /dev/full >/dev/null 2>"$DIR/err" && fails "a full disk"
grep -q "^kiln: run: '/dev/full': No space left on device" "$DIR/err" || fails "$(cat "$DIR/err")"

# One whose program goes leaves the daemon as it was.
timeout 0.5 "$KILN" trace --output "$DIR/none.pftrace" --seconds 30 >/dev/null 2>&1
[ ! -e "$DIR/none.pftrace" ] || fails "half a trace"
"$KILN" trace --output "$DIR/no/such" --seconds 1 >/dev/null 2>"$DIR/err" && fails "written"
grep -q "^kiln: trace: '$DIR/no/such': No such file" "$DIR/err" || fails "$(cat "$DIR/err")"
"$KILN" run permute --shape 64x48 --perm 1,0 >/dev/null || fails "run after it"

# A GPU that a fake driver stands for, whose kernels do nothing: loads wait for a quiet point.
if [ -e "$BUILD_DIR/fake/libcuda.so.1" ] &&
	"$KILN" compile permute --shape 2x3 --perm 1,0 --target sm_90 >/dev/null 2>&1; then
	kill $DAEMON && wait $DAEMON
	export LD_LIBRARY_PATH="$BUILD_DIR/fake" KILN_FAKE_CUDA_IMAGES=1
	daemon --device cuda:0 --specialize eager
	"$KILN" --device cuda:0 run permute --shape 64x48 --perm 1,0 --trace "$DIR/gpu.pftrace" \
		>/dev/null 2>"$DIR/err" && fails "a kernel that does nothing is right"
	grep -q "wrong result" "$DIR/err" || fails "$(cat "$DIR/err")"
	reads "$DIR/gpu.pftrace" cuda
else
	echo "no fake driver, or no NVRTC: the trace of a GPU is left out"
fi
finish
