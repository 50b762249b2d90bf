#!/bin/sh
# test_kernels.sh: bench_kernels itself, without a GPU: that it lists, plans and compiles; that it
# finds results right on the cpu device, where they are; and over the fake driver, whose kernels do
# nothing, that it times them and finds their results wrong.
#
# Needs BENCH_KERNELS; KILND for the cpu device, FAKE_CUDA (a directory) for the fake driver.
set -u

work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-bench-test.XXXXXX") || exit 1
daemon=
failed=0

clean_up() {
	if [ -n "$daemon" ]; then
		kill -TERM "$daemon" 2>/dev/null
		wait "$daemon" 2>/dev/null
	fi
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

complain() {
	echo "FAIL $*"
	failed=1
}

# expect STATUS NAME ARGUMENT...: what bench_kernels says is in $work/out
expect() {
	wanted=$1
	name=$2
	shift 2
	"$BENCH_KERNELS" "$@" >"$work/out" 2>"$work/err"
	got=$?
	[ $got -eq "$wanted" ] || {
		complain "$name: exit status $got instead of $wanted"
		tail -n 20 "$work/out" "$work/err"
	}
}

rows() {
	grep -cE '^ +[0-9.]+ +[0-9.]+ +[0-9.]+ ' "$work/out"
}

expect 0 "list" --list
listed=$(wc -l <"$work/out")
[ "$listed" -gt 50 ] || complain "only $listed cases are to be timed"
if command -v python3 >/dev/null 2>&1; then
	python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' <"$work/out" ||
		complain "the list is not JSON"
fi
expect 0 "plan" --plan
grep -q '^permute f32 8192x8192 (1,0)  (target 0.92)$' "$work/out" || complain "a target is missing"
expect 0 "plans of candidates" --plan --choices --ops permute
expect 2 "an unknown option" --nonsense

# ---- The cpu device ----

if [ -n "${KILND:-}" ] && [ -x "${KILND:-}" ]; then
	"$KILND" --socket "$work/socket" --cache-dir "$work/cache" --device cpu >"$work/log" 2>&1 &
	daemon=$!
	tries=0
	while [ ! -S "$work/socket" ] && [ $tries -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	cpu="--daemon --socket $work/socket --device cpu --pool 16M"
	# Word splitting of the options is meant.
	# shellcheck disable=SC2086
	{
		expect 0 "cases on the cpu device" $cpu --all --quick --every 90
		[ "$(rows)" -gt 8 ] || complain "only $(rows) cases were timed on the cpu device"
		expect 0 "candidates on the cpu device" $cpu --all --choices --only "permute f16 6x65x2 "
		grep -q "the planner's" "$work/out" || complain "no candidate is the planner's own"
		expect 0 "a generic kernel" $cpu --all --generic --only "permute f16 6x65x2 "
		grep -Eq "^ +[0-9.]+ +[0-9.]+ .*, permute_(gather|tile_generic)<" "$work/out" ||
			complain "no generic kernel was timed"
		grep -q "^permute  *[1-9]" "$work/out" || complain "generic kernels are not summed up"
	}
	kill -TERM "$daemon"
	wait "$daemon"
	daemon=
fi

# ---- The fake driver ----

if [ -n "${FAKE_CUDA:-}" ]; then
	export LD_LIBRARY_PATH="$FAKE_CUDA" KILN_FAKE_CUDA_IMAGES=1
	small="--quick --pool 32M --objects $work/objects --json $work/json"
	# shellcheck disable=SC2086
	"$BENCH_KERNELS" $small --no-check >"$work/out" 2>"$work/err"
	status=$?
	if [ $status -eq 77 ]; then
		echo "no NVRTC: the fake driver was left out"
	else
		[ $status -eq 0 ] || complain "over the fake driver: exit status $status"
		[ "$(rows)" -gt 2 ] || complain "only $(rows) cases were timed over the fake driver"
		[ "$(grep -c '"us": 250.500' "$work/json")" -gt 2 ] || complain "times are not in the JSON"
		# shellcheck disable=SC2086
		expect 1 "kernels that do nothing" $small
		grep -q '^FAIL permute .* should be' "$work/out" || complain "what is wrong was not found"
		KILN_FAKE_CUDA=cuInit=100
		export KILN_FAKE_CUDA
		# shellcheck disable=SC2086
		expect 77 "no GPU" $small
	fi
fi
exit $failed
