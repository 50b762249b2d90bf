#!/bin/sh
# run.sh [--python VERSION] TEST...: files of tests of the Python package, on the package of a build
# tree (BUILD_DIR).  It must not install anything: scripts/setup.sh --tests makes the environments.
#
# --python  by another CPython, 3.10 or 3.13: the extension is built once for all of them
#
# Exit status: that of the tests; 77 where there is no environment for them, 2 usage.
set -eu

version=
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
test_torch* | test_autograd | test_patch)
	environment=$root/build/venv-torch
	path=$path:$root/tests/torch
	;;
test_docs | test_examples)
	# What needs torch is skipped where it is not.
	[ ! -e "$root/build/venv-torch/stamp" ] || environment=$root/build/venv-torch
	;;
esac
if ! [ -e "$environment/stamp" ]; then
	[ -z "$version" ] || {
		echo "run.sh: CPython $version is neither on PATH nor at pyenv's place, or has no NumPy"
		exit 77
	}
	echo "run.sh: there is no ${environment#"$root"/}:" \
		"sh scripts/setup.sh --tests, with --torch for torch" >&2
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
export PYTHONPATH="$path" PYTHONDONTWRITEBYTECODE=1
exec "$environment/bin/python" -m unittest -v "$@"
