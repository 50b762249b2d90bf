#!/bin/sh
# build.sh: configures and builds one preset, with what scripts/setup.sh has put in place.
# It must not install anything.
#
#   sh scripts/build.sh PRESET [CMAKE-ARGUMENT...]        for example: dev -DKILN_WERROR=OFF
#
# KILN_TARGET names what is built of it; everything if it is not set.
#
# Exit status: that of the step that failed; 2 usage.
set -eu

if [ $# -lt 1 ]; then
	echo "usage: sh scripts/build.sh PRESET [CMAKE-ARGUMENT...]" >&2
	exit 2
fi
preset=$1
shift
cd "$(dirname "$0")/.."
# The presets say Ninja; a directory made by make before stays with make.
if [ -f "build/$preset/Makefile" ] || ! command -v ninja >/dev/null 2>&1; then
	set -- -G "Unix Makefiles" "$@"
fi
cmake --preset "$preset" "$@"
cmake --build "build/$preset" --target "${KILN_TARGET:-all}" \
	--parallel "$(nproc 2>/dev/null || echo 2)"
