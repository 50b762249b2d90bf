#!/bin/sh
# test_random.sh: bench_random itself, without a GPU: that a seed's problems are the same each time
# and in every choice of operators, that all of them can be planned; and over the fake driver, that
# candidates are timed, and what is written of them.
#
# Needs BENCH_RANDOM; FAKE_CUDA (a directory) for the fake driver.
set -u

work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-random-test.XXXXXX") || exit 1
failed=0
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

complain() {
	echo "FAIL $*"
	failed=1
}

# expect STATUS FILE ARGUMENT...: what bench_random says is in $work/FILE
expect() {
	wanted=$1
	out=$work/$2
	shift 2
	"$BENCH_RANDOM" "$@" >"$out" 2>"$work/err"
	got=$?
	[ $got -eq "$wanted" ] || {
		complain "bench_random $*: exit status $got instead of $wanted"
		tail -n 20 "$out" "$work/err"
	}
}

expect 0 once --seed 7 --count 400 --dry-run
expect 0 again --seed 7 --count 400 --dry-run
expect 0 other --seed 8 --count 400 --dry-run
cmp -s "$work/once" "$work/again" || complain "a seed draws other problems the second time"
[ "$(grep -c '^[a-z]' "$work/once")" -eq 400 ] || complain "not all problems were planned"
grep '^[a-z]' "$work/once" | sort >"$work/all"
[ "$(uniq -d "$work/all" | wc -l)" -eq 0 ] || complain "a problem was drawn twice"
grep '^[a-z]' "$work/other" | sort | comm -12 - "$work/all" >"$work/both"
[ "$(wc -l <"$work/both")" -lt 20 ] || complain "two seeds draw the same problems"
expect 0 some --seed 7 --count 20 --op rms_norm,gather --dry-run
[ "$(grep '^[a-z]' "$work/some" | sort | comm -12 - "$work/all" | wc -l)" -eq 20 ] ||
	complain "an operator alone is drawn other problems than among all"
expect 0 candidates --seed 7 --count 20 --candidates --dry-run
[ "$(grep -c '^  ' "$work/candidates")" -gt 100 ] || complain "there are too few candidates"
expect 0 list --seed 7 --count 400 --list
if command -v python3 >/dev/null 2>&1; then
	python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' <"$work/list" ||
		complain "the list is not JSON"
fi
expect 2 out --nonsense
expect 2 out --op nonsense
expect 2 out --count 0

if [ -n "${FAKE_CUDA:-}" ]; then
	LD_LIBRARY_PATH="$FAKE_CUDA" KILN_FAKE_CUDA_IMAGES=1
	export LD_LIBRARY_PATH KILN_FAKE_CUDA_IMAGES
	"$BENCH_RANDOM" --seed 164 --op rms_norm --count 1 --candidates --no-check --pool 64M \
		--csv "$work/csv" >"$work/out" 2>"$work/err"
	status=$?
	if [ $status -eq 77 ]; then
		echo "no NVRTC: the fake driver was left out"
	else
		[ $status -eq 0 ] || complain "over the fake driver: exit status $status"
		[ "$(grep -c ',250.50,' "$work/csv")" -gt 4 ] || complain "times are not in the CSV file"
		grep -q '^op,dtype,shape,' "$work/csv" || complain "the CSV file has no names of columns"
		grep -Eq '^all +1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+' "$work/out" ||
			complain "the ratios are not summed up"
	fi
	[ $failed -eq 0 ] || tail -n 20 "$work/out" "$work/err"
fi
exit $failed
