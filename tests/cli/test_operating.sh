#!/bin/sh
# test_operating.sh: what docs/operations.md says of operating a shared cache, line by line, in a
# home that is empty.  A line whose comment says "refused" ends with 1, any other with 0.
. "$(dirname "$0")/lib.sh"

command -v redis-server >/dev/null || {
	echo "there is no redis-server (sh scripts/setup.sh --tests)"
	exit 77
}
"$KILND" --help | grep -q -- --remote || {
	echo "built without hiredis"
	exit 77
}
unset KILN_SOCKET XDG_CONFIG_HOME XDG_CACHE_HOME XDG_RUNTIME_DIR
mkdir "$DIR/home"
export HOME="$DIR/home" KILN_DAEMON="$KILND"
PATH=$(dirname "$KILN"):$PATH

awk '/^## / { on = /Operating a shared cache/ } /^```/ { code = on && /^```sh$/; next } code' \
	"$TOOLS/../../docs/operations.md" >"$DIR/lines"
count=$(wc -l <"$DIR/lines")
[ "$count" -ge 25 ] || fails "docs/operations.md has only $count lines of it"

# Ends the processes that a part leaves behind if it fails before its end.
stop_all() {
	for socket in "$HOME"/fleet/*.sock; do
		case $socket in
		*/redis.sock) redis-cli -s "$socket" shutdown nosave ;;
		*) kiln --socket "$socket" --no-autostart stop ;;
		esac
	done >/dev/null 2>&1
	clean_up
}
trap stop_all EXIT

# counter NAME: of the daemon that the lines speak to.
counter() {
	kiln status --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["counters"][sys.argv[1]])' "$1"
}

# is_now NAME VALUE
is_now() {
	got=$(counter "$1")
	[ "$got" = "$2" ] || fails "after '$line': $1 is $got, not $2"
}

# written: the second tier is written to in the background.
written() {
	tries=0
	until [ "$(counter remote_written)" = 1 ] || [ $tries -gt 2000 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	is_now remote_written 1
}

while read -r line <&3; do
	wanted=0
	case $line in *'# refused') wanted=1 ;; esac
	eval "$line" >"$DIR/out" 2>&1 </dev/null
	got=$?
	[ $got -eq $wanted ] || fails "status $got of: $line: $(cat "$DIR/out")"
	case $line in
	'kiln warm app.manifest')
		is_now compiles 0
		is_now disk_hits 2
		;;
	*'# refused')
		grep -q 'kiln compile softmax' "$DIR/out" || fails "no remedy: $(cat "$DIR/out")"
		is_now frozen 1
		is_now compiles 0
		;;
	'kiln compile softmax'*) written ;;
	*gpu-2*) host=2 ;;
	'kiln status')
		[ "${host:-1}" = 1 ] || is_now remote_hits 1
		[ "${host:-1}" = 1 ] || is_now compiles 0
		;;
	esac
done 3<"$DIR/lines"
finish
