#!/bin/sh
# check_objects.sh: what the built objects take from each other: no room takes from one above it,
# few files need each other, and each such ring has its reason in docs/architecture.md.
. "$(dirname "$0")/lib.sh"

[ -d "$BUILD_DIR/daemon" ] || skip "$BUILD_DIR has no objects"
python3 tests/lint/objects.py "$BUILD_DIR" docs/architecture.md 2>&1 | finish objects
