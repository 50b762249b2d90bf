#!/bin/sh
# test_python.sh PROGRAM ARGUMENT...: a benchmark of the Python package, on the package of a build
# tree (BUILD_DIR) and the torch of build/venv-torch.
# It must not install anything: scripts/setup.sh --torch makes the environment.
#
# Exit status: that of the program; 77 where what it needs is not there.
set -eu

program=$SOURCE_DIR/tests/bench/$1
environment=$SOURCE_DIR/build/venv-torch
shift
if ! [ -e "$environment/stamp" ]; then
	echo "test_python.sh: there is no $environment: sh scripts/setup.sh --torch" >&2
	exit 77
fi
case ${KILN_SANITIZE:-} in
*address* | *thread*)
	echo "test_python.sh: tests/python runs the package with sanitizers; this would time them" >&2
	exit 77
	;;
esac
export PYTHONPATH="$BUILD_DIR/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
exec "$environment/bin/python" "$program" "$@"
