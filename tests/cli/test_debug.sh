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
# What is asked of it before its end is seen would fail with it.
tries=0
while "$KILN" debug children | grep -qE "^executor +$pid "; do
	tries=$((tries + 1))
	[ $tries -le 200 ] || { fails "it is the same process" && break; }
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
"$KILN" debug children >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "debug without --test-requests"
grep -q -- '--test-requests' "$DIR/err" || fails "no remedy: $(cat "$DIR/err")"
finish
