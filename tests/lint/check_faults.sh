#!/bin/sh
# check_faults.sh: each row of a table in docs/faults.md names a test that is there.
. "$(dirname "$0")/lib.sh"

named_tests docs/faults.md 4 | finish faults
