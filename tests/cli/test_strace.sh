#!/bin/sh
# test_strace.sh: what strace sees of a program that calls kiln_run again and again: between its
# "begin" and its "end" no system call at all, however often it runs.
. "$(dirname "$0")/lib.sh"

skip() {
	echo "$*"
	exit 77
}
[ -z "${KILN_SANITIZE:-}" ] || skip "a sanitizer makes system calls of its own"
[ "$(nproc)" -ge 2 ] || skip "with one processor neither end looks: both sleep at once"
command -v strace >/dev/null 2>&1 || skip "strace is not installed"
strace -o "$DIR/trace" true 2>/dev/null || skip "strace may not trace here"

# Both ends look for a second before they sleep: the machine may be busy.
daemon --test-lane-spin 1000000

# watch N: leaves in $count how many system calls the N runs make.
watch() {
	if ! strace -f -o "$DIR/trace" "$RUN_AGAIN" "$1" >"$DIR/out" 2>"$DIR/err"; then
		fails "run_again $1: $(cat "$DIR/err")"
	fi
	grep -q 'write(1, "begin' "$DIR/trace" && grep -q 'write(1, "end' "$DIR/trace" ||
		fails "run_again $1 said neither begin nor end"
	# Where the system has no faster way to read the clock, that is one, too.
	sed '1,/write(1, "begin/d; /write(1, "end/,$d; /clock_gettime(/d' "$DIR/trace" >"$DIR/between"
	count=$(wc -l <"$DIR/between")
}

# A program that did not run for a second has had its peer go to sleep: it may try again.
programs=0
runs=0
for n in 30 300 6000; do
	for _ in 1 2 3; do
		watch $n
		programs=$((programs + 1))
		runs=$((runs + n))
		[ "$count" -ne 0 ] || break
	done
	[ "$count" -eq 0 ] || fails "$n runs made $count system calls: $(head -n 5 "$DIR/between")"
done
# Each of the three was prepared once by each program.
json "j['counters']['requests'] == 3 * $programs" "$KILN" status
json "j['counters']['launches'] == 12 * $programs + $runs" "$KILN" status

# Without the lane, the same program makes some for each.
export KILN_LANE=off
watch 30
[ "$count" -ge 60 ] || fails "30 runs by message made only $count system calls"
finish
