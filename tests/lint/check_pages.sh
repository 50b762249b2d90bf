#!/bin/sh
# check_pages.sh: docs/cli.md and docs/options.md have what the programs' own tables have.
. "$(dirname "$0")/lib.sh"

{
	[ -z "${KILN:-}" ] ||
		python3 scripts/pages.py cli "$KILN" --check docs/cli.md 2>&1
	[ -z "${KILND:-}" ] ||
		python3 scripts/pages.py options "$KILND" --check docs/options.md 2>&1
} | finish pages
