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

"$KILN" trace --output "$DIR/busy.pftrace" --seconds 2 >"$DIR/out" 2>"$DIR/err" &
tracer=$!
tries=0
until "$KILN" debug waits | grep -q trace || [ $tries -ge 100 ]; do
	tries=$((tries + 1))
	sleep 0.02
done
"$KILN" trace --output "$DIR/second.pftrace" --seconds 1 2>"$DIR/err2" && fails "two at once"
grep -q 'another trace is being made' "$DIR/err2" || fails "$(cat "$DIR/err2")"
"$KILN" run permute --shape 64x48 --perm 1,0 --time >/dev/null || fails "run"
KILN_LANE=off "$KILN" run permute --shape 64x48 --perm 1,0 >/dev/null || fails "run by message"
launches=$(counted launches)
wait $tracer || fails "trace: $(cat "$DIR/err")"
grep -qE '^wrote [0-9]+ spans to ' "$DIR/out" || fails "$(cat "$DIR/out")"
grep -q missed "$DIR/out" && fails "$(cat "$DIR/out")"
[ "$(counted launches)" = "$launches" ] || fails "launches went on"

python=python3
[ ! -x "$BUILD_DIR/../venv-python/bin/python" ] || python=$BUILD_DIR/../venv-python/bin/python
"$python" "$TOOLS/trace.py" "$DIR/busy.pftrace" "$launches" "$(counted jobs_done)" >"$DIR/out" 2>&1
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
