#!/bin/sh
# test_doctor.sh: 'kiln doctor' without a daemon, with a sound one, and with one in trouble.
. "$(dirname "$0")/lib.sh"

# says STATUS PATTERN...: what doctor prints has lines like these
says() {
	wanted=$1
	shift
	"$KILN" doctor >"$DIR/doctor" 2>&1
	got=$?
	[ $got -eq "$wanted" ] || fails "doctor: status $got, not $wanted: $(cat "$DIR/doctor")"
	for pattern in "$@"; do
		grep -qE "$pattern" "$DIR/doctor" || fails "doctor: no '$pattern': $(cat "$DIR/doctor")"
	done
}

says 1 '^wrong  daemon    no kilnd answers at .*kiln.sock' '^ {17}to do: start one: '
"$KILN" doctor --json >"$DIR/json"
python3 -c 'import json, sys
wrong = [f["about"] for f in json.load(sys.stdin)["findings"] if f["state"] == "wrong"]
sys.exit(wrong != ["daemon"])' <"$DIR/json" || fails "as JSON: $(cat "$DIR/json")"

daemon
says 0 '^fine   daemon    kilnd 0.1.0, pid [0-9]+, answers at ' '^fine   device    cpu is ' \
	'^fine   NVRTC     (has not been asked for yet$|nvrtc )' \
	'^fine   C\+\+       (has not been asked|host )' \
	'^fine   cache     0 kernels in .*, .* left on its disk$' '^(fine|look)   sandbox   mode auto'
grep -q '^wrong' "$DIR/doctor" && fails "a sound daemon: $(cat "$DIR/doctor")"
"$KILN" run permute --shape 8x9 --perm 1,0 >/dev/null || fails "no kernel"
says 0 '^fine   C\+\+       host ' '^fine   cache     1 kernels? in '
(ulimit -n 200 && "$KILN" doctor) >"$DIR/doctor"
grep -q '^look   limits    a process may have 200 descriptors here' "$DIR/doctor" ||
	fails "few descriptors: $(cat "$DIR/doctor")"
mkdir "$DIR/mps"
: >"$DIR/mps/control"
CUDA_MPS_PIPE_DIRECTORY=$DIR/mps "$KILN" doctor >"$DIR/doctor"
grep -q "^look   MPS       an MPS server may run here ($DIR/mps/control)" "$DIR/doctor" ||
	fails "MPS: $(cat "$DIR/doctor")"

# A daemon that stands still is there: another one would not start.
kill -STOP "$DAEMON"
"$KILN" --timeout 500ms doctor >"$DIR/doctor"
kill -CONT "$DAEMON"
grep -q '^wrong  daemon    kilnd at .* did not answer "hello" before the deadline$' "$DIR/doctor" &&
	grep -q '^ *to do: let it run if it is stopped (kill -CONT)' "$DIR/doctor" ||
	fails "a daemon that is stopped: $(cat "$DIR/doctor")"

# A device process that ends by a fault leaves a word for whoever asks.
"$KILN" debug kill executor >/dev/null || fails "debug kill"
tries=0
until { "$KILN" faults ls | grep -q 'killed by signal 9' &&
	"$KILN" status | grep -q 'cpu: pid [0-9]*, ready'; } || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
says 0 '^look   faults    1 process of kilnd has ended by a fault since it began$' \
	'to do: kiln faults ls'
"$KILN" stop >/dev/null || fails "stop"

# A host without a GPU: the device that is not there is named once, and is nothing wrong.
if ! [ -e /proc/driver/nvidia/version ]; then
	export KILN_LIBCUDA="$DIR/no-libcuda.so"
	wait "$DAEMON"
	daemon --device auto
	"$KILN" run permute --shape 8x9 --perm 1,0 >/dev/null || fails "no kernel without a GPU"
	says 0 '^look   device    cuda:0 is absent: ' '^fine   device    cpu is '
	[ "$(grep -c 'cuda:0' "$DIR/doctor")" = 1 ] || fails "without a GPU: $(cat "$DIR/doctor")"
	"$KILN" stop >/dev/null || fails "stop"
fi
finish
