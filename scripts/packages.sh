#!/bin/sh
# packages.sh: builds the packages kiln, libkiln0, libkiln-dev and python3-kiln for Debian, and
# shows them to lintian.
# It must not install anything.
#
#   sh scripts/packages.sh [--out DIRECTORY] [CMAKE-ARGUMENT...]
#
# --out  where the packages go; default build/packages/out.  Older ones there are removed.
#
# Exit status: 0 the packages are there and lintian found nothing, 1 not so, 2 usage.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/build/packages/out
if [ "${1-}" = --out ]; then
	[ $# -ge 2 ] || {
		echo "usage: sh scripts/packages.sh [--out DIRECTORY] [CMAKE-ARGUMENT...]" >&2
		exit 2
	}
	mkdir -p "$2"
	out=$(cd "$2" && pwd)
	shift 2
fi
cd "$root"
for tool in cpack dpkg-shlibdeps file; do
	command -v $tool >/dev/null 2>&1 || {
		echo "packages.sh: there is no $tool: apt-get install cmake dpkg-dev file" >&2
		exit 1
	}
done

cmake --preset packages -DPython_EXECUTABLE=/usr/bin/python3 "$@" >/dev/null
cmake --build build/packages --parallel "$(nproc 2>/dev/null || echo 2)"
rm -rf "$out"
cpack -G DEB --config build/packages/CPackConfig.cmake -B build/packages/cpack \
	>build/packages/cpack.log 2>&1 || {
	tail -n 20 build/packages/cpack.log
	exit 1
}
mkdir -p "$out"
mv build/packages/cpack/*.deb "$out/"
rm -rf build/packages/cpack
if command -v lintian >/dev/null 2>&1; then
	lintian --fail-on error,warning --allow-root "$out"/*.deb
else
	echo "packages.sh: there is no lintian: the packages are not checked"
fi
ls -l "$out"
