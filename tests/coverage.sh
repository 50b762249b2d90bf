#!/bin/sh
# coverage.sh: which lines of daemon/ and client/ the tests run.  Builds the preset coverage, runs
# the tests in it (unit, integration, cli, the fuzz corpora, the fake GPU), and prints a table by
# folder and by file.  No part of tests/run.sh, for the tests run as well without being counted.
#
#   sh tests/coverage.sh [--report]
#
# --report  sums up once more what the last run has counted
#
# Processes inside a sandbox can write no counts: --sandbox is off but in the tests of it.  What
# is killed by a test, or from outside, loses what it had counted; see tests/coverage/leave.c.
#
# Exit status: 0 when daemon/ and client/ reach 85 % each and all tests passed, 1 when not, 2 usage.
set -u

least=85
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
build=build/coverage
# Tests of the sandbox, and of what is said about it.
sandboxed='sandbox|isolation|cli.test_status'
failed=0
cd "$root" || exit 1

case ${1:-} in
'') report=0 ;;
--report) report=1 ;;
*)
	echo "usage: sh tests/coverage.sh [--report]" >&2
	exit 2
	;;
esac

# check CTEST-ARGUMENT...: runs tests.
check() {
	ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 600 \
		--parallel "$((2 * $(nproc 2>/dev/null || echo 2)))" \
		-LE '^(kernels|lint|install|bench|nvrtc)$' \
		"$@" || failed=1
}

sh scripts/setup.sh --tests --coverage || exit 1
if [ $report = 0 ]; then
	sh scripts/build.sh coverage -DKILN_BUILD_TESTS=ON || exit 1
	find "$build" -name '*.gcda' -delete
	KILN_SANITIZE=coverage
	export KILN_SANITIZE
	KILN_SANDBOX=off check -E "$sandboxed"
	check -R "$sandboxed"
fi

# filename,line_total,line_covered,line_percent,...
gcovr --root . --filter '(daemon|client)/' --object-directory "$build" \
	-j "$(nproc 2>/dev/null || echo 2)" --csv "$build/coverage.csv" "$build" || exit 1
awk -F, -v least=$least '
	function row(name, all, run) {
		printf "%6.1f %%  %6d of %6d  %s\n", all ? 100 * run / all : 100, run, all, name
	}
	NR == 1 { next }
	{
		folder = $1
		sub(/\/[^\/]*$/, "", folder)
		all[folder] += $2
		run[folder] += $3
		top = folder
		sub(/\/.*/, "", top)
		top_all[top] += $2
		top_run[top] += $3
		file[NR] = $1
		file_all[NR] = $2
		file_run[NR] = $3
	}
	END {
		for (i = 2; i <= NR; i++)
			row(file[i], file_all[i], file_run[i])
		print "\nfolders, without those inside them"
		for (folder in all)
			row(folder, all[folder], run[folder]) | "sort -k 6"
		close("sort -k 6")
		print "\nin all"
		for (top in top_all) {
			row(top, top_all[top], top_run[top])
			bad = bad || 100 * top_run[top] < least * top_all[top]
		}
		if (bad)
			printf "less than %d %%\n", least
		exit bad
	}' "$build/coverage.csv" || failed=1
exit $failed
