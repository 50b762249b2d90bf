#!/bin/sh
# run.sh: the soak: many client processes of mixed work on a daemon of their own, all from one seed,
# while processes are killed and frozen by chance.  It must hold that no byte is wrong, that every
# status is a documented one that a death explains, that the daemon's figures add up, that nothing
# hangs, grows or is left, and that the GPU's memory is back where it was.  A failure is printed
# with seed, client and step, which --repeat makes again.
# It needs nothing but the programs: it runs from a portable tree elsewhere.
#
#   sh tests/soak/run.sh [--seconds N] [--clients N] [--steps N] [--seed N] [--device NAME]
#                        [--kill-every MS] [--copies] [--repeat CLIENT:STEP[:COUNT]] [--json FILE]
#
# --seconds     how long (60), without the beginning and the end
# --clients     client processes (16)
# --steps       no more than so many steps of each client
# --seed        of all that is random (1)
# --device      cpu (default) or cuda:0
# --kill-every  how often a process is killed or frozen, on average (800); 0: never
# --copies      for a stand-in of the driver that runs no kernels: what they write is not judged
# --repeat      that client alone, COUNT steps from STEP on, and nobody is killed; with exact
#               kernels, or as $KILN_SPECIALIZE says
# --json        writes the report for programs to FILE
#
# Programs are looked for in $KILN_BIN, in bin/ of the tree this script lies in, and in the build
# directories of the source tree.  If something failed, the daemon's log stays where the report
# says.
# Exit status: 0 all held, 1 something did not, 2 usage.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd) || exit 1

for option in "$@"; do
	case $option in
	-h | --help)
		sed -n '2,27s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	esac
done

for candidate in "${KILN_BIN:-}" "$root/bin" "$root/build/release/bin" \
	"$root/build/portable/bin" "$root/build/dev/bin"; do
	if [ -n "$candidate" ] && [ -x "$candidate/kilnd" ] && [ -x "$candidate/soak" ]; then
		exec "$candidate/soak" "$@"
	fi
done
echo "run.sh: kilnd and soak are in no build directory: build one, or set KILN_BIN" >&2
exit 1
