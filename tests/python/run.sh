#!/bin/sh
# run.sh [--python VERSION | --torch | --torch-old] TEST...: files of tests of the Python package,
# on the package of a build tree (BUILD_DIR).  It must not install anything: scripts/setup.sh makes
# the environments.
#
# --python  by another CPython, 3.10 or 3.13: the extension is built once for all of them
# --torch   where torch is, for tests that also run without
# --torch-old  where the oldest torch is that is supported
#
# KILN_PYTHON_DAEMON is the file of a daemon that daemon.sh started; without it the tests start one
# of their own.
#
# Exit status: that of the tests; 77 where there is no environment for them, 2 usage.
set -eu

version=
torch=
case ${1:-} in
--torch | --torch-old)
	torch=${1#--}
	shift
	;;
esac
if [ "${1:-}" = --python ] && [ $# -gt 2 ]; then
	version=$2
	shift 2
fi
[ $# -ge 1 ] || exit 2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
environment=$root/build/venv-python${version:+-$version}
path=$BUILD_DIR/python:$here
case $1 in
test_torch* | test_autograd* | test_patch*) torch=${torch:-torch} ;;
esac
[ -z "$torch" ] || {
	environment=$root/build/venv-$torch
	# Their tensors are small: threads of torch's own would wait for each other, busily.
	export OMP_NUM_THREADS=1
}
if ! [ -e "$environment/stamp" ]; then
	[ -z "$version" ] || {
		echo "run.sh: CPython $version is neither on PATH nor at pyenv's place, or has no NumPy"
		exit 77
	}
	echo "run.sh: there is no ${environment#"$root"/}:" \
		"sh scripts/setup.sh --tests${torch:+ --$torch}" >&2
	exit 77
fi
case ${KILN_SANITIZE:-} in
*address*)
	# The interpreter is not built with it, and what it never frees is not looked for.
	LD_PRELOAD=$(cc -print-file-name=libasan.so)
	ASAN_OPTIONS=detect_leaks=0:abort_on_error=0
	export LD_PRELOAD ASAN_OPTIONS
	;;
*thread*)
	echo "run.sh: an interpreter without ThreadSanitizer cannot load what is built with it" >&2
	exit 77
	;;
esac
cd "$here"
[ -z "${KILN_PYTHON_DAEMON:-}" ] || {
	KILN_PYTHON_TESTS=$(cat "$KILN_PYTHON_DAEMON")
	export KILN_PYTHON_TESTS
}
export PYTHONPATH="$path" PYTHONDONTWRITEBYTECODE=1
exec "$environment/bin/python" -m unittest -v "$@"
