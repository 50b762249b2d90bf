#!/bin/sh
# test_debug.sh: the faults that tests ask for, and that they are refused where not allowed.
. "$(dirname "$0")/lib.sh"
daemon --workers 2

"$KILN" run permute --shape 8x9 --perm 1,0 >/dev/null || fails "run"
until "$KILN" status | grep -q 'idle 2'; do sleep 0.05; done
"$KILN" debug children >"$DIR/out" || fails "children"
prints 0 sh -c 'sed -E "s/ +[0-9]+ / PID /; s/  +/ /g; s/ $//" "$0"' "$DIR/out" <<'END'
ROLE PID STATE DEVICE
executor PID ready cpu
compiler PID idle
compiler PID idle
END
json 'sorted(r["role"] for r in j["rows"]) == ["compiler", "compiler", "executor"]' \
	"$KILN" debug children

# The list of those who wait, as people read it.
"$KILN" debug delay-compile 60000
"$KILN" run permute --shape 9x13 --perm 1,0 >/dev/null 2>&1 &
RUN=$!
until "$KILN" debug waits | grep -q ' compiling: '; do sleep 0.05; done
"$KILN" debug waits | sed -E 's/[0-9.]+ (ms|s)/TIME/g; s/ +/ /g; s/^ //' >"$DIR/waits"
grep -qE "^TIME TIME [0-9]+ $RUN $(id -u) kiln prepare compiler [0-9]+ compiling: its compile for \
cpu, key [0-9a-f]{12}$" "$DIR/waits" || fails "debug waits: $(cat "$DIR/waits")"
"$KILN" debug delay-compile 0
kill "$RUN" 2>/dev/null
wait "$RUN" 2>/dev/null

# A call that does not end in time is said to be that.  Where a machine stands still what comes
# before the call is late: it has longer the next time.
"$KILN" debug delay-launch 60000
for limit in 400 4000 20000; do
	"$KILN" run permute --shape 8x9 --perm 1,0 --timeout ${limit}ms >/dev/null 2>"$DIR/err"
	status=$?
	late="kiln: run permute: the call has not ended after $limit ms (--timeout)"
	! grep -qxF "$late" "$DIR/err" || break
done
[ $status -eq 1 ] && grep -qxF "$late" "$DIR/err" || fails "run --timeout: $(cat "$DIR/err")"
"$KILN" debug delay-launch 0

# One that fails: the sentence arrives, the next one works.
prints 0 "$KILN" debug fail-compile 1 <<'END'
END
"$KILN" run permute --shape 8x10 --perm 1,0 >/dev/null 2>"$DIR/err"
[ $? -eq 1 ] || fails "fail-compile"
grep -q '^kiln: run permute: .' "$DIR/err" || fails "no sentence: $(cat "$DIR/err")"
"$KILN" run permute --shape 8x10 --perm 1,0 >/dev/null 2>"$DIR/again"
[ $? -eq 1 ] && cmp -s "$DIR/err" "$DIR/again" || fails "after fail-compile: $(cat "$DIR/again")"
"$KILN" cache retry --all >/dev/null || fails "retry"
"$KILN" run permute --shape 8x10 --perm 1,0 >/dev/null || fails "after retry"
for fault in 'delay-compile 10' 'crash-compile 1' 'delay-launch 5' expire; do
	"$KILN" debug $fault || fails "debug $fault"
done
"$KILN" run permute --shape 8x11 --perm 1,0 >/dev/null || fails "run after a crash and with delays"

pid=$(sed -n -E 's/^executor +([0-9]+) .*/\1/p' "$DIR/out")
"$KILN" debug kill executor "$pid" || fails "kill"
# A request before the broker sees its end would fail with it.
tries=0
while "$KILN" debug children | grep -qE "^executor +$pid "; do
	tries=$((tries + 1))
	[ $tries -le 2000 ] || { fails "it is the same process" && break; }
	sleep 0.05
done
"$KILN" run permute --shape 8x9 --perm 1,0 >/dev/null || fails "run after the executor's end"
"$KILN" debug kill executor 1 2>"$DIR/err"
[ $? -eq 1 ] || fails "kill of a stranger"

# The daemon hangs up: that is a failure of the command, in a sentence.
"$KILN" debug drop >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "drop"
grep -q '^kiln: debug: .' "$DIR/err" || fails "no sentence: $(cat "$DIR/err")"
"$KILN" stop >/dev/null
wait "$DAEMON"
DAEMON=

"$KILND" --cache-dir "$DIR/cache" --device cpu 2>"$DIR/log" &
DAEMON=$!
until "$KILN" status >/dev/null 2>&1; do
	kill -0 "$DAEMON" || exit 1
	sleep 0.1
done
# Every operator may see who waits.
json 'j["all"] >= 0 and type(j["rows"]) is list' "$KILN" debug waits
headers='WAITED +LEFT +SESSION +PID +UID  NAME +ASKED +OF +FOR'
"$KILN" debug waits | head -n 1 | grep -qE "^ *$headers\$" ||
	fails "debug waits: $("$KILN" debug waits)"
"$KILN" debug waits now 2>"$DIR/err"
[ $? -eq 2 ] && grep -q "'now' is one argument too many for 'kiln debug waits'" "$DIR/err" ||
	fails "debug waits now: $(cat "$DIR/err")"
"$KILN" debug children >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "debug without --test-requests"
grep -q -- '--test-requests' "$DIR/err" || fails "no remedy: $(cat "$DIR/err")"
finish
