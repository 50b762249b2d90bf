#!/bin/sh
# check_pages.sh: docs/cli.md, docs/options.md and the manuals have what the programs' own tables
# have, and the manuals are well formed.
. "$(dirname "$0")/lib.sh"

same() {
	[ -z "$2" ] || python3 scripts/pages.py "$1" "$2" --check "$3" 2>&1
}

{
	same cli "${KILN:-}" docs/cli.md
	same options "${KILND:-}" docs/options.md
	same man-cli "${KILN:-}" docs/man/kiln.1
	same man-options "${KILND:-}" docs/man/kilnd.8
	! command -v mandoc >/dev/null || mandoc -T lint docs/man/*.[1-8] | sed 's/^mandoc: //'
} | finish pages
