#!/bin/sh
# daemon.sh start|stop: one daemon for the Python tests that ask for none of their own, so that each
# kernel is compiled once for all of them, and kept in build/kernels-python for the next run and for
# the other presets, one after another: a cache has one daemon.  BUILD_DIR/python-daemon names the
# folder of its socket.  It must not know a test.
set -eu

noted=$BUILD_DIR/python-daemon
folder=$(cat "$noted" 2>/dev/null) || folder=

# Stops a daemon, which may be that of a run that was interrupted, and waits until it has gone.
stop() {
	[ -n "$folder" ] || return 0
	KILN_SOCKET=$folder/kiln.sock "$KILN" stop >/dev/null 2>&1 || true
	tries=0
	while kill -0 "$(cat "$folder/pid" 2>/dev/null)" 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -le 2000 ] || {
			echo "daemon.sh: the daemon of $folder does not end"
			exit 1
		}
		sleep 0.1
	done
	rm -rf "$folder" "$noted"
}

case ${1:-} in
stop)
	grep -E 'ERROR|Sanitizer' "$folder/log" && wrong=1 || wrong=0
	stop
	exit $wrong
	;;
start) stop ;;
*) exit 2 ;;
esac
folder=$(mktemp -d /tmp/kiln-python-XXXXXX)
here=$(cd "$(dirname "$0")" && pwd)
export KILN_SOCKET="$folder/kiln.sock" KILN_CACHE_DIR="$here/../../build/kernels-python"
[ -n "${KILN_CXX:-}" ] || ! command -v g++ >/dev/null || export KILN_CXX="$here/quick_cxx.sh"
setsid "$KILND" --cache-bytes 134217728 --idle-exit 900 >/dev/null 2>"$folder/log" </dev/null &
echo $! >"$folder/pid"
echo "$folder" >"$noted"
tries=0
until "$KILN" status >/dev/null 2>&1; do
	tries=$((tries + 1))
	if [ $tries -gt 2000 ] || ! kill -0 "$(cat "$folder/pid")" 2>/dev/null; then
		echo "daemon.sh: the daemon does not answer:"
		cat "$folder/log"
		exit 1
	fi
	sleep 0.1
done
