# lib.sh: what the tests of the kiln command share: a daemon of the test's own, and the comparison
# of what a command prints.  Sourced by test_*.sh; needs $KILN and $KILND.
set -u

[ -x "${KILN:-}" ] && [ -x "${KILND:-}" ] || {
	echo "KILN and KILND must name the programs"
	exit 1
}
DIR=$(mktemp -d /tmp/kiln-cli-XXXXXX) || exit 1
TOOLS=$(cd "$(dirname "$0")" && pwd) || exit 1
DAEMON=
failures=0
unset KILN_DEVICE KILN_AUTOSTART KILN_DAEMON KILN_DEBUG KILN_CLIENT_ON_MISS
export KILN KILND KILN_SOCKET="$DIR/kiln.sock" XDG_CONFIG_HOME="$DIR/config"
export XDG_CACHE_HOME="$DIR/caches" # of a daemon that a program starts

clean_up() {
	if [ -n "$DAEMON" ] && kill -TERM "$DAEMON" 2>/dev/null; then
		wait "$DAEMON"
	fi
	rm -rf "$DIR"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

# daemon [OPTION...]: starts one, and waits until it answers.  KILN_TEST_CACHE names a cache that
# outlives the test.
daemon() {
	"$KILND" --cache-dir "${KILN_TEST_CACHE:-$DIR/cache}" --device cpu --test-requests "$@" \
		2>"$DIR/log" &
	DAEMON=$!
	tries=0
	until "$KILN" status >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ $tries -gt 2000 ] || ! kill -0 "$DAEMON" 2>/dev/null; then
			echo "the daemon does not answer:"
			cat "$DIR/log"
			exit 1
		fi
		sleep 0.1
	done
}

# Replaces all that differs from run to run: process ids, times, keys, sizes, the directory.
normalise() {
	sed -E -e "s|$DIR|DIR|g" \
		-e 's/pid [0-9]+/pid N/' -e 's/process [0-9]+/process N/' \
		-e 's/[0-9]+(\.[0-9]+)? (us|ms|s|min|h|d)\b/TIME/g' \
		-e 's/[0-9]+(\.[0-9]+)? (B|KiB|MiB|GiB|GB\/s)( |,|$)/SIZE\3/g' \
		-e 's/\b[0-9a-f]{64}\b/KEY/g' \
		-e 's/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC/DATE/g' \
		-e 's/[[:space:]]+$//'
}

# prints STATUS COMMAND... : runs the command and compares its normalised output with standard
# input; what it says on stderr is marked with "! ".
prints() {
	wanted=$1
	shift
	cat >"$DIR/.expected"
	"$@" >"$DIR/.out" 2>"$DIR/.err" </dev/null
	got=$?
	{
		normalise <"$DIR/.out"
		normalise <"$DIR/.err" | sed 's/^/! /'
	} >"$DIR/.actual"
	if [ $got -ne "$wanted" ]; then
		echo "FAILED: status $got instead of $wanted: $*"
		cat "$DIR/.err"
		failures=$((failures + 1))
	fi
	if ! diff -u "$DIR/.expected" "$DIR/.actual"; then
		echo "FAILED: output of: $*"
		failures=$((failures + 1))
	fi
}

# fails MESSAGE: notes a failure.
fails() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

# file FILE TYPE SHAPE EXPRESSION: a .npy file in $DIR, whose element i is so much.
file() {
	(cd "$DIR" && python3 "$TOOLS/npy.py" write "$@") || fails "cannot make $1"
}

# is FILE TYPE SHAPE EXPRESSION [ALLOWED]: a .npy file in $DIR holds that.
is() {
	(cd "$DIR" && python3 "$TOOLS/npy.py" check "$@") >"$DIR/why" 2>&1 || fails "$(cat "$DIR/why")"
}

# json EXPRESSION COMMAND... : the command prints JSON, and the Python expression over it (j) holds.
json() {
	expression=$1
	shift
	if ! "$@" --json >"$DIR/json" 2>"$DIR/err" </dev/null; then
		fails "$* --json: $(cat "$DIR/err")"
		return
	fi
	python3 -c 'import json, sys
try:
	j = json.load(open(sys.argv[1]))
except ValueError:
	sys.exit(3)
sys.exit(not eval("(" + sys.argv[2] + ")"))' "$DIR/json" "$expression"
	case $? in
	0) ;;
	3) fails "$* --json prints no JSON: $(head -c 300 "$DIR/json")" ;;
	*) fails "$* --json: not $expression: $(head -c 2000 "$DIR/json")" ;;
	esac
}

# finish: the end of every test.
finish() {
	if [ $failures -ne 0 ]; then
		echo "$failures failure(s)"
		[ ! -s "$DIR/log" ] || sed 's/^/kilnd: /' "$DIR/log"
		exit 1
	fi
	exit 0
}

# between CHANGE...: starts between.py in front of the daemon, at $DIR/between.sock; between_ends
# ends it, and $DIR/between.out is what it has printed.
between() {
	rm -f "$DIR/between.sock" "$DIR/ends"
	mkfifo "$DIR/ends"
	python3 "$TOOLS/between.py" "$DIR/between.sock" "$KILN_SOCKET" "$@" <"$DIR/ends" \
		>"$DIR/between.out" &
	between=$!
	exec 3>"$DIR/ends"
	until [ -S "$DIR/between.sock" ] || ! kill -0 $between 2>/dev/null; do
		sleep 0.02
	done
}

between_ends() {
	exec 3>&-
	wait $between || fails "between.py"
}
