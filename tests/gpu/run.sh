#!/bin/sh
# run.sh: everything that needs a GPU: the list of cases, every result judged, the first tensor of
# a program without CUDA, the examples, figures, and processes that die.  Starts a daemon of its own
# with its own cache.  It needs nothing but the programs: it runs from a portable tree elsewhere.
#
#   sh tests/gpu/run.sh [--quick] [--bench | --only-bench | --tune-report | --examples | --shapes]
#                       [--generic] [--copies] [--ops LIST] [--device NAME] [--soak SECONDS]
#                       [--two]
#
# --quick       small cases only, fewer repetitions, small examples
# --bench       times every case beside a copy, PyTorch and Liger-Kernel, where python3 has them
# --only-bench  that alone
# --tune-report times all candidates of every case, and nothing else
# --generic     runs the list of cases by the generic kernels, times them beside the planner's own,
#               and nothing else
# --shapes      first calls of shapes never seen, beside torch.compile's, and nothing else
# --examples    runs every example at its full size, and nothing else; otherwise they are small
# --ops         only cases of these operators: "softmax,layer_norm"
# --copies      what needs no kernel, for a stand-in of the driver that runs none
# --device      another device than cuda:0; "cpu" tries the script out where there is no GPU
# --two         two GPUs at once (--device cuda:0,cuda:1): what both do beside what one does, copies
#               from one to the other, one that is killed, the list of cases on both; nothing else
# --soak        runs tests/soak/run.sh for so long, with $KILN_SOAK more options, and nothing else
#
# A test that is not reached within $KILN_GPU_SECONDS (470) counts as failed.
# Programs are looked for in $KILN_BIN, in bin/ of the tree this script lies in, and in the build
# directories of the source tree; cubins of benchmarks that were made before, in its objects/.
# Figures go to $OUT/gpu.jsonl if OUT is set, tables and PyTorch's times to files beside it.
# Exit status: 0 when nothing failed, 1 when something did, 2 usage, 77 no GPU.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd) || exit 1
quick=
copies=
ops=
bench=0
tune=0
generic=0
examples=0
shapes=0
pair=0
soak=
tests=1
device=
budget=${KILN_GPU_SECONDS:-470}
passed=0
failed=0
around=
started=$(date +%s)

usage() {
	sed -n 's/^# \{0,1\}//; 6,25p' "$0"
}

while [ $# -gt 0 ]; do
	case $1 in
	--quick) quick=--quick ;;
	--bench) bench=1 ;;
	--copies) copies=--copies ;;
	--only-bench)
		bench=1
		tests=0
		;;
	--tune-report)
		tune=1
		tests=0
		;;
	--generic)
		generic=1
		tests=0
		;;
	--shapes)
		shapes=1
		tests=0
		;;
	--examples)
		examples=1
		tests=0
		;;
	--two)
		pair=1
		tests=0
		;;
	--device | --ops | --soak)
		if [ $# -lt 2 ]; then
			usage >&2
			exit 2
		fi
		case $1 in
		--device) device=$2 ;;
		--ops) ops="--ops $2" ;;
		--soak) soak=$2 ;;
		esac
		shift
		;;
	-h | --help) usage; exit 0 ;;
	*)
		echo "run.sh: unknown option '$1'; these are known:" >&2
		usage >&2
		exit 2
		;;
	esac
	shift
done

[ -n "$device" ] || device=$([ $pair = 1 ] && echo cuda:0,cuda:1 || echo cuda:0)
# Both of a pair may be one device, to try the script out.
first_device=${device%%,*}
second_device=${device##*,}

bin=
for candidate in "${KILN_BIN:-}" "$root/bin" "$root/build/release/bin" \
	"$root/build/portable/bin" "$root/build/dev/bin"; do
	if [ -n "$candidate" ] && [ -x "$candidate/kilnd" ] && [ -x "$candidate/gpu_cases" ]; then
		bin=$candidate
		break
	fi
done
if [ -z "$bin" ]; then
	echo "run.sh: kilnd and gpu_cases are in no build directory: build one, or set KILN_BIN" >&2
	exit 1
fi

# ---- The soak, which starts its own --------------------------------------------------------------

if [ -n "$soak" ]; then
	report=$(mktemp -d "${TMPDIR:-/tmp}/kiln-gpu.XXXXXX") || exit 1
	trap 'rm -rf "$report"' EXIT
	# Word splitting of the options is meant.
	# shellcheck disable=SC2086
	{
		KILN_BIN=$bin sh "$root/tests/soak/run.sh" --seconds "$soak" --device "$device" $copies \
			${OUT:+--json "$OUT/soak.json"} ${KILN_SOAK:-} 2>&1
		echo $? >"$report/status"
	} | tee "$report/text"
	log=$(sed -n "s/^soak: the daemon's log is //p" "$report/text")
	if [ -n "${OUT:-}" ]; then
		cp "$report/text" "$OUT/soak.txt"
		[ ! -f "$log" ] || cp "$log" "$OUT/kilnd.log"
	fi
	exit "$(cat "$report/status")"
fi

# ---- A daemon of our own -------------------------------------------------------------------------

work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-gpu.XXXXXX") || exit 1
daemon=
json=
if [ -n "${OUT:-}" ] && [ -d "${OUT:-}" ]; then
	json=$OUT/gpu.jsonl
	: >"$json"
fi

stop_daemon() {
	[ -n "$daemon" ] || return 0
	kill -TERM "$daemon" 2>/dev/null
	tries=0
	while kill -0 "$daemon" 2>/dev/null && [ $tries -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -KILL "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null
	daemon=
}

clean_up() {
	stop_daemon
	if [ $failed -gt 0 ] && [ -f "$work/log" ]; then
		echo "-- the daemon's last lines"
		tail -n 20 "$work/log"
		[ -z "${OUT:-}" ] || cp "$work/log" "$OUT/kilnd.log"
	fi
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

start_daemon() {
	served=$device
	[ "$first_device" != "$second_device" ] || served=$first_device
	"$bin/kilnd" --socket "$work/socket" --cache-dir "$work/cache" --device "$served" \
		--specialize eager --test-requests >>"$work/log" 2>&1 &
	daemon=$!
	tries=0
	while [ $tries -lt 300 ]; do
		"$bin/kiln" --socket "$work/socket" status >/dev/null 2>&1 && return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
		tries=$((tries + 1))
	done
	echo "run.sh: kilnd does not answer; its last lines:"
	tail -n 10 "$work/log"
	return 1
}

# ---- Running and counting ------------------------------------------------------------------------

# Adds what a program's last line says: "name: 12 passed, 0 failed".
count() {
	line=$(grep -E '^[a-z_]+: [0-9]+ passed, [0-9]+ failed$' "$1" | tail -n 1)
	if [ -n "$line" ]; then
		passed=$((passed + $(echo "$line" | sed 's/.*: \([0-9]*\) passed.*/\1/')))
		failed=$((failed + $(echo "$line" | sed 's/.*, \([0-9]*\) failed$/\1/')))
	else
		failed=$((failed + 1))
		echo "FAIL $2 ended without its count"
	fi
}

# limited SECONDS COMMAND...: killed if it takes longer, or if all of this takes too long
limited() {
	left=$((budget - $(date +%s) + started))
	if [ $left -le 0 ]; then
		echo "FAIL not reached within $budget s: $2"
		return 124
	fi
	[ "$1" -gt $left ] || left=$1
	shift
	timeout -k 5 $left "$@"
}

# one NAME SECONDS PROGRAM ARGUMENT...
one() {
	name=$1
	seconds=$2
	program=$3
	shift 3
	echo "-- $name"
	limited "$seconds" $around "$bin/$program" --socket "$work/socket" --device "$device" \
		${json:+--json "$json"} $quick $copies $ops "$@" >"$work/out" 2>&1
	status=$?
	cat "$work/out"
	[ $status -ne 124 ] || echo "FAIL $name was stopped after $seconds s"
	count "$work/out" "$name"
}

# apart NAME SECONDS PROGRAM ARGUMENT...: as one, in PID, IPC and mount namespaces of its own
apart() {
	for way in "" "--user --map-current-user"; do
		# Word splitting of the ways is meant.
		# shellcheck disable=SC2086
		if unshare $way --pid --ipc --mount --mount-proc --fork true 2>/dev/null; then
			around="unshare $way --pid --ipc --mount --mount-proc --fork --kill-child"
			one "$@"
			around=
			return
		fi
	done
	echo "-- $1: left out, for unshare may not make namespaces here"
}

# two NAME SECONDS PROGRAM ARGUMENT...: two processes at once, the second from the list's end
two() {
	name=$1
	seconds=$2
	program=$3
	shift 3
	echo "-- $name, two processes"
	cores=$(nproc 2>/dev/null || echo 2)
	limited "$seconds" "$bin/$program" --socket "$work/socket" --device "$first_device" \
		--threads $(((cores + 1) / 2)) $quick $copies $ops --seed 11 "$@" >"$work/out.1" 2>&1 &
	first=$!
	limited "$seconds" "$bin/$program" --socket "$work/socket" --device "$second_device" \
		--threads $(((cores + 1) / 2)) $quick $copies $ops --seed 12 --reverse "$@" \
		>"$work/out.2" 2>&1
	wait $first
	for out in "$work/out.1" "$work/out.2"; do
		head -n 40 "$out"
		count "$out" "$name"
	done
}

# ---- The parts -----------------------------------------------------------------------------------

# device_is_present NAME: a device process takes a moment to say what its GPU is.
device_is_present() {
	tries=0
	while [ $tries -lt 300 ]; do
		state=$("$bin/kiln" --socket "$work/socket" devices --json |
			sed -n "s/.*\"name\": \"$1\"[^}]*\"state\": \"\([a-z]*\)\".*/\1/p")
		[ "$state" = unknown ] || break
		sleep 0.1
		tries=$((tries + 1))
	done
	"$bin/kiln" --socket "$work/socket" devices
	[ "$state" = present ]
}

start_daemon || exit 1
echo "-- device"
for name in $first_device $([ "$first_device" = "$second_device" ] || echo "$second_device"); do
	device_is_present "$name" && continue
	if [ $pair = 1 ]; then
		echo "run.sh: --two needs two GPUs, and the daemon cannot use $name (above it says why)"
	else
		echo "run.sh: the daemon cannot use device $name here (above it says why)"
	fi
	exit 77
done

# example PROGRAM ARGUMENT...: prints what it printed
example() {
	program=$1
	shift
	echo "-- example: $program $*"
	(
		export KILN_SOCKET="$work/socket" KILN_DEVICE="$device"
		limited 60 "$bin/$program" "$@" 2>&1
	)
	verdict "example $program" $?
}

# run_examples [--small]: all that examples/README.md lists
run_examples() {
	for program in permute softmax layer_norm streams raw; do
		example $program
	done
	example photo "$root/examples/data/photo.ppm" "$work"
	for program in attention_mask gather_ways online_norms giou_loss permutations; do
		example $program "$@"
	done
}

run_tests() {
	if [ -z "$copies" ]; then
		one "what a call costs" 120 gpu_latency
		one "first tensor of a program without CUDA" 60 gpu_first
		one "kernels of one's own" 90 gpu_raw
		[ -n "$ops" ] || run_examples --small
	fi
	two "the list of cases, memory held by the daemon" 150 gpu_cases --memory held --seconds 140
	one "a quarter of the list, in graphs" 90 gpu_cases --graph --seconds 80
	case $device in
	cuda*)
		two "the list of cases, lent memory" 150 gpu_cases --memory lent --seconds 140
		one "a quarter of the list, memory lent by descriptor" 90 gpu_cases --memory exported \
			--seconds 80
		one "pools" 60 gpu_pools
		one "launches in the program's own context" 60 gpu_local
		one "order with the program's own streams" 90 gpu_order
		one "a quarter of the list, memory lent from a pool" 90 gpu_cases --memory pool \
			--seconds 80
		one "processes that die, memory lent from a pool" 90 gpu_faults --memory pool
		;;
	esac
	one "processes that die" 90 gpu_faults
	apart "a client in namespaces of its own" 60 gpu_apart
	case $device$quick$copies in
	cuda:[0-9] | cuda:[0-9][0-9])
		one "beyond 2^31 elements" 240 gpu_cases --huge --seconds 220
		;;
	esac

	echo "-- cache"
	if "$bin/kiln" --socket "$work/socket" cache verify; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
}

# by_uuid NAME: a launch on the device that the beginning of this one's UUID names
by_uuid() {
	uuid=$("$bin/kiln" --socket "$work/socket" devices --json |
		sed -n "s/.*\"name\": \"$1\"[^}]*\"uuid\": \"\([^\"]*\)\".*/\1/p" | cut -c 1-12)
	echo "-- $1 as $uuid"
	limited 30 "$bin/kiln" --socket "$work/socket" --device "$uuid" run softmax --shape 64x512
	verdict "$1 as $uuid" $?
}

# equals NAME: equal programs that launch on that device; how many launches in all
equals() {
	limited 40 "$bin/bench_launch" --only fair --socket "$work/socket" --device "$1"
}

# run_two: two devices, which share the daemon alone.  Most important first: time may run out.
run_two() {
	pair_device=$first_device,$second_device
	one "two devices at once" 120 gpu_two --device "$pair_device"
	case $first_device$copies in
	cuda:*[0-9])
		by_uuid "$first_device"
		[ "$first_device" = "$second_device" ] || by_uuid "$second_device"
		echo "-- 8, 16 and 64 programs on $first_device alone, then as many on each"
		equals "$first_device"
		equals "$second_device" >"$work/out.2" 2>&1 &
		second=$!
		equals "$first_device"
		wait $second
		cat "$work/out.2"
		;;
	esac
	# Half of what is left for each, of which kernels are compiled in some.
	seconds=$(((budget - $(date +%s) + started) / 2))
	two "the list of cases on both devices" $seconds gpu_cases --memory held \
		--seconds $((seconds * 3 / 4))
	case $first_device in
	cuda*) two "the list of cases on both devices, lent memory" $seconds gpu_cases \
		--memory lent --seconds $((seconds * 3 / 4)) ;;
	esac
	echo "-- devices and their processes"
	"$bin/kiln" --socket "$work/socket" devices
	"$bin/kiln" --socket "$work/socket" cache verify
	verdict "cache verify" $?
}

# ---- Benchmarks ----------------------------------------------------------------------------------

# verdict NAME STATUS
verdict() {
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL $1"
	fi
}

# kept NAME: shows a table, and keeps it
kept() {
	cat "$work/$1"
	[ -z "${OUT:-}" ] || cp "$work/$1" "$OUT/$1.txt"
}

# kernels SECONDS ARGUMENT...: bench_kernels for the operators wanted; it stops by itself in time
kernels() {
	seconds=$((budget - $(date +%s) + started - 15))
	[ $seconds -lt "$1" ] || seconds=$1
	[ $seconds -gt 0 ] || seconds=1
	shift
	limited $((seconds + 30)) "$bin/bench_kernels" --device "$device" --seconds "$seconds" \
		${json:+--json "$json"} $quick $ops "$@"
}

run_torch() {
	liger=
	python3 -c 'import liger_kernel' 2>/dev/null && liger=--liger
	echo "-- PyTorch${liger:+ and Liger-Kernel}"
	"$bin/bench_kernels" --list $quick $ops >"$work/list"
	limited $((torch_seconds + 60)) python3 "$root/tests/bench/torch_times.py" \
		--seconds "$torch_seconds" $liger <"$work/list" >"$work/torch" 2>"$work/torch.err"
	grep '^torch_times' "$work/torch.err" | tail -n 12
	[ -z "${OUT:-}" ] || cp "$work/torch" "$OUT/torch.tsv"
	torch=$work/torch
}

run_bench() {
	echo "-- cold specializations beside NVRTC's trivial kernel"
	limited 100 "$bin/bench_compile" --limit 6 $ops >"$work/compile" 2>&1
	verdict bench_compile $?
	kept compile
	torch=
	torch_seconds=170
	[ -z "$quick" ] || torch_seconds=20
	case $device in
	cpu)
		one "launches" 60 bench_launch --quick
		echo "-- kernels on the cpu device, which is not fast"
		kernels 100 --daemon --socket "$work/socket" --pool 16M --quick >"$work/daemon"
		verdict "bench_kernels --daemon" $?
		kept daemon
		;;
	*)
		one "launches, beside programs that have CUDA themselves" 170 bench_launch
		one "launches while another brings new kernels" 120 bench_quiet
		one "compiler workers" 240 bench_pool
		if python3 -c 'import torch' 2>/dev/null; then
			run_torch
		fi
		echo "-- kernels beside a copy of the same bytes"
		kernels 120 --objects "$objects" ${torch:+--torch "$torch"} >"$work/direct"
		verdict bench_kernels $?
		kept direct
		echo "-- one in eight through the daemon"
		kernels 40 --daemon --socket "$work/socket" --every 8 ${torch:+--torch "$torch"} \
			>"$work/daemon"
		verdict "bench_kernels --daemon" $?
		kept daemon
		;;
	esac
}

# The whole report goes to $OUT; shown are its last lines, where a candidate beats the planner's.
run_tune() {
	echo "-- all candidates"
	kernels $((budget - 60)) --choices --objects "$objects" >"$work/choices"
	verdict "bench_kernels --choices" $?
	if [ -n "${OUT:-}" ]; then
		cp "$work/choices" "$OUT/choices.txt"
		grep -E '^  WRONG' "$work/choices" | sort | uniq -c | sort -rn | head -n 20
		sed -n '/^operator /,$p' "$work/choices"
	else
		cat "$work/choices"
	fi
}

# The list of cases by generic kernels, then both kernels of every case that is timed.
run_generic() {
	two "the list of cases, generic kernels" 150 gpu_cases --generic --memory held --seconds 140
	case $device in
	cpu) return ;;
	esac
	echo "-- generic kernels beside the planner's own"
	kernels $((budget - $(date +%s) + started - 30)) --generic --objects "$objects" >"$work/generic"
	verdict "bench_kernels --generic" $?
	kept generic
}

# Each way has a daemon of its own.
run_shapes() {
	echo "-- shapes never seen"
	many=500
	[ -z "$quick" ] || many=20
	limited 240 "$bin/bench_shapes" --device "$device" --count $many ${json:+--json "$json"} $ops \
		>"$work/shapes" 2>&1
	verdict bench_shapes $?
	kept shapes
	if python3 -c 'import torch' 2>/dev/null; then
		"$bin/bench_shapes" --list --count $many $ops >"$work/shapes.list"
		limited 240 python3 "$root/tests/bench/torch_shapes.py" --seconds 200 \
			<"$work/shapes.list" >"$work/torch_shapes" 2>&1
		verdict torch_shapes $?
		kept torch_shapes
	fi
}

small=
[ -z "$quick" ] || small=--small
objects=$work/objects
[ ! -d "$root/objects" ] || objects=$root/objects
[ $tests = 0 ] || run_tests
[ $pair = 0 ] || run_two
[ $bench = 0 ] || run_bench
[ $shapes = 0 ] || run_shapes
[ $tune = 0 ] || run_tune
[ $generic = 0 ] || run_generic
[ $examples = 0 ] || run_examples $small

stop_daemon
if [ -e "$work/socket" ]; then
	echo "FAIL kilnd left its socket behind"
	failed=$((failed + 1))
fi
echo "$((passed)) passed, $((failed)) failed, $(($(date +%s) - started)) s"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
