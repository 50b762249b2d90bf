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
# Tests of the sandbox, and of what is said about it or is only so inside it.
sandboxed='sandbox|isolation|cli.test_status|test_child_faults'
# Where no file may grow, no counts can be written, and the program says so where it should not.
uncounted='cli.test_full'
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

sh scripts/setup.sh --tests || exit 1
if [ $report = 0 ]; then
	sh scripts/build.sh coverage -DKILN_BUILD_TESTS=ON || exit 1
	find "$build" -name '*.gcda' -delete
	KILN_SANITIZE=coverage
	export KILN_SANITIZE
	KILN_SANDBOX=off check -E "$sandboxed|$uncounted"
	check -R "$sandboxed"
fi

python3 tests/coverage/sum.py "$build" $least || failed=1
exit $failed
