#!/bin/sh
# test_launch.sh: bench_launch itself, without a GPU: what runs on the cpu device; over the fake
# driver, whose kernels do nothing, every row of the table; a stand-in of MPS, which is started and
# ended; processes that fail, which are told of.
#
# Needs BENCH_LAUNCH, KILND and KILN; FAKE_CUDA (a directory) for the fake driver.
set -u

work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-launch-test.XXXXXX") || exit 1
daemon=
failed=0

stop_daemon() {
	[ -n "$daemon" ] || return 0
	kill -TERM "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null
	daemon=
}

clean_up() {
	stop_daemon
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

complain() {
	echo "FAIL $*"
	failed=1
}

start_daemon() {
	"$KILND" --socket "$work/socket" --cache-dir "$work/cache" --device "$1" >"$work/log" 2>&1 &
	daemon=$!
	tries=0
	until "$KILN" --socket "$work/socket" devices --json 2>/dev/null | grep -q '"present"'; do
		tries=$((tries + 1))
		[ $tries -lt 200 ] || {
			complain "the daemon does not answer"
			exit 1
		}
		sleep 0.1
	done
}

# expect STATUS NAME ARGUMENT...: what bench_launch says is in $work/out
expect() {
	wanted=$1
	name=$2
	shift 2
	"$BENCH_LAUNCH" --socket "$work/socket" --quick "$@" >"$work/out" 2>&1
	got=$?
	[ $got -eq "$wanted" ] || {
		complain "$name: exit status $got instead of $wanted"
		tail -n 40 "$work/out"
	}
}

# row TEXT: the table has a row with a figure that begins so
row() {
	grep -qE "^  $1 +[0-9.]+ " "$work/out" || complain "no row \"$1\""
}

says() {
	grep -q -- "$1" "$work/out" || complain "nothing says \"$1\""
}

expect 2 "an unknown section" --only "one,nonsense"
says '--only names "nonsense"; there are'
expect 2 "side beside others" --only one,side
says 'side has daemons of its own'

# Nobody listens at the socket: side needs nobody.
expect 0 "side" --device cpu --only side
row "8 clients, --launchers 4"

# ---- The cpu device ----

start_daemon cpu
expect 0 "the cpu device" --device cpu --only many,fresh,idle,one,trace --json "$work/json"
for name in "1 process, Kiln" "8 processes, Kiln" "client without CUDA, from exec" \
	"8 idle clients: broker and device processes" "ring, launch and wait" \
	"batch, 64 queued, each" "graph, 64 queued, each" "launch and wait, traced"; do
	row "$name"
done
says "direct .*left out: it needs a GPU"
says "CuPy .*left out: it needs a GPU"
grep -q '"figure": ".*: client without CUDA, from exec".*"at_most": 5' "$work/json" ||
	complain "the aim is not in the JSON"
stop_daemon

# ---- The fake driver ----

if [ -n "${FAKE_CUDA:-}" ]; then
	export LD_LIBRARY_PATH="$FAKE_CUDA" KILN_FAKE_CUDA_IMAGES=1
	mkdir "$work/bin"
	# It notes what it is told, and runs until it is told to quit.
	cat >"$work/bin/nvidia-cuda-mps-control" <<-END
		#!/bin/sh
		pid="\$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
		if [ "\$*" = -d ]; then
			sleep 300 >/dev/null 2>&1 &
			echo \$! >"\$pid"
			echo "\$CUDA_MPS_PIPE_DIRECTORY" >"$work/mps"
		else
			cat >>"$work/mps"
			kill "\$(cat "\$pid")"
		fi
	END
	chmod +x "$work/bin/nvidia-cuda-mps-control"
	start_daemon cuda:0
	if ! "$KILN" --socket "$work/socket" compile permute --shape 2x3 --perm 1,0 --target sm_90 \
		>"$work/out" 2>&1; then
		echo "the fake driver was left out: $(tail -n 1 "$work/out")"
		exit $failed
	fi
	PATH=$work/bin:$PATH expect 0 "every way" --device cuda:0 --copies --only many,fresh,one,spread
	for name in "8 processes, own contexts" "8 processes, under MPS" "8 processes, Kiln" \
		"8 processes, Kiln beside MPS" "8 processes, 64 queued, under MPS" \
		"8 processes, 64 queued, Kiln beside MPS" "client that lends its memory, from exec" \
		"CUDA driver API, cubin ready, from main\\(\\)" "stream-ordered, launch and wait" \
		"local, launch and wait" "direct, 64 queued, each" "ring, launch and wait, p99.9"; do
		row "$name"
	done
	[ "$(tail -n 1 "$work/mps")" = quit ] || complain "MPS was not told to quit"
	[ ! -e "$(head -n 1 "$work/mps")" ] || complain "the directory of MPS is left"
	expect 1 "kernels that do nothing" --device cuda:0 --only one
	says "^FAIL .*the results are wrong"
	KILN_FAKE_CUDA=cuInit=100
	export KILN_FAKE_CUDA
	PATH=$work/bin:$PATH expect 1 "no GPU" --device cuda:0 --copies --only many,fresh
	says "^FAIL own contexts: 1 at once: cuInit: "
	says "^FAIL CUDA driver API, cubin ready: cuInit: "
	says "under MPS .*left out: cuInit: "
	row "8 processes, Kiln"
fi
exit $failed
