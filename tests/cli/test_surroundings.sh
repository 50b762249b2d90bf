#!/bin/sh
# test_surroundings.sh: a daemon, and a command, with what a careless parent has left them: without
# standard descriptors, with signals blocked, a mask that forbids all, a small stack.
. "$(dirname "$0")/lib.sh"
export DIR

# serves WHAT SETTING [REDIRECTION]: a daemon started so compiles, runs, and ends by SIGTERM.
serves() {
	rm -rf "$DIR/cache"
	sh -c "$2 \"\$KILND\" --cache-dir \"\$DIR/cache\" --device cpu --specialize eager ${3:-}" \
		2>"$DIR/log" &
	DAEMON=$!
	tries=0
	until "$KILN" status >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ $tries -gt 2000 ] || ! kill -0 "$DAEMON" 2>/dev/null; then
			fails "$1: the daemon does not answer: $(cat "$DIR/log")"
			DAEMON=
			return
		fi
		sleep 0.1
	done
	"$KILN" run permute --shape 16x16 --perm 1,0 >"$DIR/out" 2>&1 ||
		fails "$1: $(cat "$DIR/out")"
	kill -TERM "$DAEMON"
	wait "$DAEMON" || fails "$1: ended with status $?"
	DAEMON=
}

for missing in '<&-' '>&-' '2>&-' '<&- >&-' '>&- 2>&-' '<&- >&- 2>&-'; do
	serves "without $missing" exec "$missing"
done
serves "a mask of 0777" "umask 0777; exec"
serves "a small stack" "ulimit -Ss 64; exec"
if env --block-signal=TERM true 2>/dev/null; then
	serves "signals blocked" "exec env --block-signal"
else
	echo "signals blocked: left out, for env has no --block-signal here"
fi
serves "signals ignored" "trap '' TERM CHLD PIPE; exec"

# Less than it can do with, and no way to more: one sentence.
sh -c 'ulimit -s 64; exec "$KILND" --cache-dir "$DIR/cache"' >"$DIR/out" 2>&1
status=$?
[ $status -eq 1 ] || fails "a stack of 64 KiB: status $status"
grep -qx 'kilnd: a stack may have 64 KiB here, .*: raise the limit (ulimit -s)' "$DIR/out" &&
	[ "$(grep -c . "$DIR/out")" -eq 1 ] || fails "a stack of 64 KiB: $(cat "$DIR/out")"

sh -c 'ulimit -n 8; exec "$KILND" --cache-dir "$DIR/cache"' >"$DIR/out" 2>&1
status=$?
[ $status -eq 1 ] || fails "8 open files: status $status"
grep -q ' error 8 files may be open here at once, .*: raise the limit (ulimit -n)$' "$DIR/out" ||
	fails "8 open files: $(cat "$DIR/out")"

# Threads that could not be started later would be the end of a daemon that serves.
if [ -z "${KILN_SANITIZE:-}" ]; then
	sh -c 'ulimit -s 8192; ulimit -d 24000; exec "$KILND" --cache-dir "$DIR/cache" --idle-exit 1' \
		>"$DIR/out" 2>&1
	status=$?
	[ $status -eq 1 ] || fails "24 MB of data: status $status"
	grep -q ' error kilnd cannot start its threads: raise the limits .*(ulimit -u, -v, -d)$' \
		"$DIR/out" || fails "24 MB of data: $(cat "$DIR/out")"
fi

# What a child lacks is named by whoever asks for it.
lacks() {
	rm -rf "$DIR/cache"
	sh -c "$1; exec \"\$KILND\" --cache-dir \"\$DIR/cache\" --device cpu" 2>"$DIR/log" &
	DAEMON=$!
	"$KILN" run permute --shape 16x16 --perm 1,0 >"$DIR/out" 2>"$DIR/err" && fails "$1: it runs"
	tries=0
	until ! grep -q 'no kilnd answers' "$DIR/err" || [ $tries -gt 2000 ]; do
		tries=$((tries + 1))
		sleep 0.1
		"$KILN" run permute --shape 16x16 --perm 1,0 >"$DIR/out" 2>"$DIR/err" &&
			fails "$1: it runs"
	done
	grep -qE "$2" "$DIR/err" || fails "$1: $(cat "$DIR/err")"
	kill -TERM "$DAEMON"
	wait "$DAEMON" || fails "$1: ended with status $?"
	DAEMON=
}
lacks 'export TMPDIR=/nonexistent' \
	'a directory in /nonexistent, and cannot have one: No such file or directory: name another '
[ -n "${KILN_SANITIZE:-}" ] ||
	lacks 'ulimit -v 300000' 'no address space for the stacks of a cpu worker: .* \(ulimit -v\)'

# The command: what it opens becomes no standard descriptor, and what it cannot say is a failure.
daemon --specialize eager
for missing in '<&-' '2>&-' '<&- 2>&-'; do
	sh -c "\"\$KILN\" run permute --shape 16x16 --perm 1,0 $missing" >"$DIR/out" ||
		fails "kiln $missing: status $?: $(cat "$DIR/out")"
done
sh -c '"$KILN" run permute --shape 16x16 --perm 1,0 >&-' 2>"$DIR/err" &&
	fails "kiln without standard output is no failure"
grep -qx 'kiln: standard output cannot be written' "$DIR/err" || fails "$(cat "$DIR/err")"
finish
