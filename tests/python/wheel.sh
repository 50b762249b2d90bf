#!/bin/sh
# wheel.sh BUILD: the wheel of a build tree, which scripts/wheel.sh checks, is installed into an
# empty environment and computes: its own daemon is started, in a home that knows nothing of this
# project.  NumPy comes from build/venv-python.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
numpy=$root/build/venv-python
if ! [ -e "$numpy/stamp" ]; then
	echo "wheel.sh: no build/venv-python, so the wheel is not tried: sh scripts/setup.sh --tests"
	exit 0
fi
home=$(mktemp -d /tmp/kiln-wheel-XXXXXX)
fresh=$home/venv

# kiln's programs and Python's, with nothing of this shell's environment.
alone() {
	env -i PATH="$fresh/bin:/usr/bin:/bin" HOME="$home" XDG_RUNTIME_DIR="$home" \
		timeout 120 "$@"
}
trap 'alone kiln stop >/dev/null 2>&1 || true; rm -rf "$home"' EXIT

sh "$root/scripts/wheel.sh" --out "$home" --build "$build" || {
	[ $? -eq 3 ] || exit 1
	echo "wheel.sh: the wheel is not tried"
	exit 0
}
"$numpy/bin/python" -m venv --without-pip "$fresh"
"$numpy/bin/python" -m pip --python "$fresh/bin/python" install --quiet --no-deps --no-index \
	--disable-pip-version-check "$home"/kiln_jit-*.whl
"$numpy/bin/python" -c 'import numpy, os; print(os.path.dirname(numpy.__path__[0]))' \
	>"$(echo "$fresh"/lib/python3*/site-packages)/numpy.pth"

program="import kiln, numpy; print(kiln.softmax(numpy.ones((2, 3), 'f4')))"
expected='[[0.33333334 0.33333334 0.33333334]
 [0.33333334 0.33333334 0.33333334]]'
got=$(alone python -c "$program")
if [ "$got" != "$expected" ]; then
	echo "wheel.sh: $program printed $got"
	exit 1
fi
pid=$(alone python -c "import kiln; print(kiln.Client().request('info')['server']['pid'])")
case $(readlink "/proc/$pid/exe") in
"$fresh"/*) ;;
*)
	echo "wheel.sh: the daemon is $(readlink "/proc/$pid/exe"), and not the wheel's"
	exit 1
	;;
esac
alone kiln --version
