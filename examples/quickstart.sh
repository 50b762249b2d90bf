#!/bin/sh
# quickstart.sh: from a fresh clone to kernels that ran.  Installs what is missing, builds Kiln,
# starts a daemon of its own, sends a picture through it from two processes, and stops the daemon.
#
#   sh examples/quickstart.sh
#
# Everything stays under build/; the kernel cache in build/quickstart/cache is kept, so that a
# second run finds its kernels there.  Exit status: 0 when every byte was right.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/build/quickstart
bin=$root/build/release/bin
daemon=
socket_dir=

say() {
	printf '\n== %s\n' "$*"
}

# Is the daemon's process alive?
alive() {
	[ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null
}

stop_daemon() {
	alive || return 0
	kill -TERM "$daemon" 2>/dev/null || true
	tries=0
	while alive && [ $tries -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	if alive; then
		echo "the daemon did not stop within 10 s; killing it"
		kill -KILL "$daemon" 2>/dev/null || true
	fi
	wait "$daemon" 2>/dev/null || true
	daemon=
}

clean_up() {
	status=$?
	trap - EXIT INT TERM HUP
	stop_daemon
	[ -z "$socket_dir" ] || rm -rf "$socket_dir"
	exit $status
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "1/4 what this machine needs"
sh "$root/scripts/setup.sh"

say "2/4 building (release preset, into build/release)"
sh "$root/scripts/build.sh" release

say "3/4 a daemon on a private socket"
mkdir -p "$here/cache"
chmod 700 "$here" "$here/cache"
KILN_SOCKET=$here/kiln.sock
if [ ${#KILN_SOCKET} -gt 100 ]; then
	# A socket's path has at most 107 bytes.
	socket_dir=$(mktemp -d /tmp/kiln-quickstart.XXXXXX)
	KILN_SOCKET=$socket_dir/kiln.sock
fi
export KILN_SOCKET
# kilnd finds libnvrtc in build/cuda and in the usual places; a toolkit elsewhere must be named.
KILN_CUDA_DIR=${KILN_CUDA_DIR:-${CUDA_HOME:-}}
export KILN_CUDA_DIR
if [ -S "$KILN_SOCKET" ] && timeout 10 "$bin/kiln" stop >/dev/null 2>&1; then
	echo "stopped the daemon that an earlier run had left on $KILN_SOCKET"
fi
"$bin/kilnd" --socket "$KILN_SOCKET" --cache-dir "$here/cache" --log-level warn \
	>"$here/kilnd.log" 2>&1 &
daemon=$!
tries=0
until timeout 5 "$bin/kiln" status >"$here/status.txt" 2>&1; do
	if ! alive || [ $tries -ge 150 ]; then
		echo "the daemon did not come up; its last words (all in $here/kilnd.log):"
		tail -n 10 "$here/kilnd.log"
		exit 1
	fi
	sleep 0.1
	tries=$((tries + 1))
done
# Compilers warm up after the start; their time is not the picture's.
tries=0
until grep -qE '^workers .*idle [1-9]' "$here/status.txt" || [ $tries -ge 200 ]; do
	sleep 0.1
	timeout 5 "$bin/kiln" status >"$here/status.txt" 2>&1 || true
	tries=$((tries + 1))
done
timeout 20 "$bin/kiln" devices

say "4/4 a picture there and back"
timeout 180 "$bin/photo" "$root/examples/data/photo.ppm" "$here"

printf '\nthe kernels that are cached now (kiln cache ls):\n'
timeout 20 "$bin/kiln" cache ls
stop_daemon
cat <<END

Done. Run it again: the same kernels come from the cache, and nothing is compiled.
To go on by hand:
  $bin/kilnd &
  $bin/kiln run permute --shape 64x3x512x512 --dtype f16 --perm 0,2,3,1 --time
  $bin/kiln help
END
