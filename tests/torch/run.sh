#!/bin/sh
# run.sh [OPTION...]: opinfo.py by the Python that has PyTorch, with the dev preset's programs if
# no others are named; skipped where that Python is not there.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../build/venv-torch
if ! sed '$d' "$venv/stamp" 2>/dev/null | cmp -s - "$here/requirements.txt"; then
	echo "build/venv-torch is not there, or of other versions: sh scripts/setup.sh --torch makes it"
	exit 77
fi
dev=$here/../../build/dev
export KILND="${KILND:-$dev/bin/kilnd}" LIBKILN="${LIBKILN:-$dev/lib/libkiln.so}"
exec env PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$here/opinfo.py" "$@"
