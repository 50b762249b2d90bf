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
	"$KILN" trace --output "$DIR/second.pftrace" --seconds 1 2>"$DIR/err2" && fails "two at once"
	"$KILN" run permute --shape 64x4$seconds --perm 1,0 --time >/dev/null || fails "run"
	KILN_LANE=off "$KILN" run permute --shape 64x4$seconds --perm 1,0 >/dev/null ||
		fails "run by message"
	launches=$(($(counted launches) - launches))
	compiles=$(($(counted jobs_done) - compiles))
	kill -0 $tracer 2>/dev/null && whole=1 || whole=0
	wait $tracer || fails "trace: $(cat "$DIR/err")"
	[ $whole = 0 ] || break
done
grep -q 'another trace is being made' "$DIR/err2" || fails "$(cat "$DIR/err2")"
grep -qE '^wrote [0-9]+ spans to ' "$DIR/out" || fails "$(cat "$DIR/out")"
grep -q missed "$DIR/out" && fails "$(cat "$DIR/out")"

python=python3
[ ! -x "$BUILD_DIR/../venv-python/bin/python" ] || python=$BUILD_DIR/../venv-python/bin/python
"$python" "$TOOLS/trace.py" "$DIR/busy.pftrace" "$launches" "$compiles" >"$DIR/out" 2>&1
case $? in
0) cat "$DIR/out" ;;
77) echo "no Perfetto: the trace is not read" ;;
*) fails "$(cat "$DIR/out")" ;;
esac

# One whose program goes leaves the daemon as it was.
timeout 0.5 "$KILN" trace --output "$DIR/none.pftrace" --seconds 30 >/dev/null 2>&1
[ ! -e "$DIR/none.pftrace" ] || fails "half a trace"
"$KILN" trace --output "$DIR/no/such" --seconds 1 >/dev/null 2>"$DIR/err" && fails "written"
grep -q "^kiln: trace: '$DIR/no/such': No such file" "$DIR/err" || fails "$(cat "$DIR/err")"
"$KILN" run permute --shape 64x48 --perm 1,0 >/dev/null || fails "run after it"
finish
