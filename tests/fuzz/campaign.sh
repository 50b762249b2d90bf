#!/bin/sh
# campaign.sh: fuzzes every target for a while, one after another, under AddressSanitizer and
# UndefinedBehaviorSanitizer, and prints a line for each: what was run, what it reached and held.
#
#   sh tests/fuzz/campaign.sh [--seconds N] [--seed S] [--work DIR] [TARGET...]
#
# Needs the fuzz preset: sh scripts/build.sh fuzz. Inputs that were new stay in DIR
# (build/fuzz/campaign), and the next campaign begins there; a crash is DIR/TARGET-crash-...
# Exit status: 0 nothing was found; 1 a crash, a hang, a leak, or memory or descriptors that grow;
# 2 usage.
set -eu
cd "$(dirname "$0")/../.."

seconds=60 seed=1 work=build/fuzz/campaign build=build/fuzz
memory_mb=2048 # of a process, beyond which it is taken for one that grows
usage() {
	echo "usage: sh tests/fuzz/campaign.sh [--seconds N] [--seed S] [--work DIR] [TARGET...]" >&2
	exit 2
}
number() {
	case $2 in
	'' | *[!0-9]*) echo "campaign.sh: $1 '$2': expected a whole number" >&2 && exit 2 ;;
	esac
}
while [ $# -gt 0 ]; do
	case $1 in
	--seconds | --seed | --work)
		[ $# -gt 1 ] || usage
		case $1 in
		--seconds) number "$1" "$2" && seconds=$2 ;;
		--seed) number "$1" "$2" && seed=$2 ;;
		*) work=$2 ;;
		esac
		shift 2
		;;
	-*) usage ;;
	*) break ;;
	esac
done
if [ $# -eq 0 ]; then
	for file in tests/fuzz/fuzz_*.c; do
		name=$(basename "$file" .c)
		set -- "$@" "${name#fuzz_}"
	done
fi
for target in "$@"; do
	[ -x "$build/bin/fuzz_$target" ] || {
		echo "campaign.sh: there is no $build/bin/fuzz_$target; sh scripts/build.sh fuzz" \
			"makes those there are" >&2
		exit 2
	}
done
mkdir -p "$work"
# Freed memory is not kept for long: growth is the program's own.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=1:quarantine_size_mb=16"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1"

held=0 memory=0
# Counts the memory and descriptors that a running process holds.
look() {
	held=$(find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l)
	memory=$(awk '/^VmRSS/ {print int($2 / 1024)}' "/proc/$1/status" 2>/dev/null || echo 0)
}

# fuzz TARGET SECONDS SEED: one process to its end.  Leaves its log, and what it held after two
# seconds and at the end, in first_* and last_*.
fuzz() {
	mkdir -p "$work/$1"
	"$build/bin/fuzz_$1" -seed="$3" -max_total_time="$2" -max_len=8192 -timeout=25 \
		-print_final_stats=1 -rss_limit_mb=$memory_mb -artifact_prefix="$work/$1-" \
		"$work/$1" "tests/fuzz/corpus/$1" >"$work/$1.log" 2>&1 &
	pid=$! first_fds='' first_memory='' last_fds=0 last_memory=0
	sleep 2
	while kill -0 $pid 2>/dev/null; do
		look $pid
		[ "${memory:-0}" -gt 0 ] && last_fds=$held last_memory=$memory
		[ -n "$first_fds" ] || first_fds=$last_fds first_memory=$last_memory
		sleep 1
	done
	wait $pid
}

figure() {
	sed -n "s/^stat::$1: *//p" "$work/$2.log" | tail -1
}

failed=0
line='%-10s %10s %7s %7s %7s %14s %9s %7s\n'
# The format is a variable so that the two fit.
# shellcheck disable=SC2059
printf "$line" target runs runs/s edges samples 'memory MiB' fds crashes
for target in "$@"; do
	left=$seconds runs=0 crashes=0 try=0
	# One that was found ends the process: the next goes on from what it had.
	while [ "$left" -gt 0 ] && [ "$try" -lt 5 ]; do
		began=$(date +%s)
		fuzz "$target" "$left" $((seed + try)) || crashes=$((crashes + 1))
		left=$((left - $(date +%s) + began))
		count=$(figure number_of_executed_units "$target")
		runs=$((runs + ${count:-0}))
		try=$((try + 1))
	done
	reached=$(grep -a -o 'cov: [0-9]*' "$work/$target.log" | tail -1)
	samples=$(grep -a -o 'corp: [0-9]*' "$work/$target.log" | tail -1)
	took=$((seconds > left ? seconds - left : 1))
	# shellcheck disable=SC2059
	printf "$line" "$target" "$runs" $((runs / took)) "${reached#cov: }" "${samples#corp: }" \
		"${first_memory:-?} -> $last_memory" "${first_fds:-?} -> $last_fds" "$crashes"
	if [ "$crashes" -gt 0 ] || [ "$last_fds" -gt $((${first_fds:-0} + 16)) ]; then
		failed=1
	fi
done
exit $failed
