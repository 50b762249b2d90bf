#!/bin/sh
# test_top.sh: top: frames for scripts, what compiles, and the live view on a terminal.
. "$(dirname "$0")/lib.sh"
daemon

prints 2 "$KILN" top <<'END'
! kiln: top: standard output is no terminal; --once prints one frame
END
prints 2 "$KILN" top --json <<'END'
! kiln: top: --json goes with --once; 'kiln status --json' gives all figures
END
prints 2 "$KILN" top --once --interval 10ms <<'END'
! kiln: --interval: '10ms' is not from TIME to an hour
END

# Two who want the same kernel: one compile, with its owner and both waiters.
"$KILN" debug delay-compile 60000 >/dev/null || fails "debug"
"$KILN" run permute --shape 70x90 --perm 1,0 >/dev/null 2>&1 &
first=$!
"$KILN" run permute --shape 70x90 --perm 1,0 >/dev/null 2>&1 &
second=$!
tries=0
until "$KILN" top --once --interval 100ms --json | grep -q '"waiters":2' || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
done
json "len(j['compiles']) == 1 and j['compiles'][0]['waiters'] == 2
	and j['compiles'][0]['op'] == 'permute' and j['compiles'][0]['state'] == 'compiling'
	and j['compiles'][0]['pid'] in ($first, $second) and j['compiles'][0]['age_us'] > 0
	and j['compiles'][0]['owner'] in [s['id'] for s in j['sessions']]" \
	"$KILN" top --once --interval 100ms
"$KILN" top --once --interval 100ms >"$DIR/out" || fails "top --once"
grep -qE '^permute +compiling +[0-9.]+ (ms|s) +2 +[0-9]+ +[0-9]+ +cpu +[0-9a-f]{12}$' "$DIR/out" ||
	fails "no compile: $(cat "$DIR/out")"
grep -qE "^ +[0-9]+ +($first|$second) +cpu " "$DIR/out" || fails "no session: $(cat "$DIR/out")"
kill "$first" "$second"
wait "$first" "$second" 2>/dev/null
"$KILN" debug delay-compile 0 >/dev/null || fails "debug"

# A sum over many boxes needs scratch memory; and rates.
"$KILN" run giou_loss --shape 70000x4 --time 1 >/dev/null || fails "run"
"$KILN" run softmax --shape 64x64 --time 1000000 >/dev/null 2>&1 &
runner=$!
tries=0
until "$KILN" top --once --interval 100ms >"$DIR/out" &&
	grep -qE '^per second +[1-9]' "$DIR/out"; do
	tries=$((tries + 1))
	[ $tries -lt 2000 ] || break
done
[ $tries -lt 2000 ] || fails "no calls a second: $(cat "$DIR/out")"
tries=0
until "$KILN" top --once --interval 300ms --json >"$DIR/rates" &&
	grep -qE '"calls_per_s":[0-9.]*[1-9]' "$DIR/rates"; do
	tries=$((tries + 1))
	[ $tries -lt 2000 ] || break
done
json 'j["calls_per_s"] > 0 and j["launches"] > 0 and j["sessions"][0]["calls_per_s"] > 0
	and j["sessions"][0]["held_bytes"] == 2 * 64 * 64 * 4
	and j["devices"][0]["held_bytes"] == 2 * 64 * 64 * 4 and "scratch_bytes" in j["devices"][0]' \
	sh -c 'cat "$0"' "$DIR/rates"
awk 'length > 80 { print; bad = 1 } END { exit bad }' "$DIR/out" ||
	fails "lines of more than 80 columns"
grep -qE '^softmax +1 +0 % ' "$DIR/out" || fails "no operator: $(cat "$DIR/out")"
kill "$runner"
wait "$runner" 2>/dev/null

# Its last step ends the daemon.
python3 "$TOOLS/top.py" "$KILN" "$DAEMON" >"$DIR/why" 2>&1
case $? in
0)
	wait "$DAEMON"
	DAEMON=
	;;
77)
	cat "$DIR/why"
	[ $failures -gt 0 ] || exit 77
	;;
*) fails "$(cat "$DIR/why")" ;;
esac
finish
