#!/bin/sh
# test_remote.sh: what status and top say of the second tier, where nobody answers and where there
# is none; its password stands nowhere.
. "$(dirname "$0")/lib.sh"

"$KILND" --remote redis://u:sesame@h:1 --help | grep -q -- --remote-deadline || {
	echo "built without hiredis"
	exit 77
}

daemon
json 'j["remote"] == dict(state="off")' "$KILN" status
"$KILN" status | grep -qx 'remote         off' || fails "$("$KILN" status)"
"$KILN" key new alone >/dev/null || fails "key new"
"$KILN" stop >/dev/null
wait "$DAEMON"

daemon --remote "unix://u:sesame@$DIR/nothing"
tries=0
until "$KILN" status | grep -q ', away for ' || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
"$KILN" run permute --shape 8x9 --perm 1,0 >/dev/null || fails "run"
remote() {
	"$KILN" status | grep -A 2 '^remote ' |
		sed -E 's/away for .*, breaker (open|half-open)/away for TIME, breaker/'
}
prints 0 remote <<'END'
remote         unix:DIR/nothing?db=0, away for TIME, breaker
               it cannot be reached: No such file or directory
               hits 0, misses 0, refused 0, failures 0, skipped 1, written 0, queued 1
END
json 'j["remote"]["state"] == "away" and j["remote"]["seals"] == "alone"
	and j["remote"]["trusted"] == 1 and j["remote"]["queued"] == 1
	and j["remote"]["ask"]["count"] == 0 and j["counters"]["remote_skipped"] == 1
	and "sesame" not in json.dumps(j)' "$KILN" status
"$KILN" top --once --interval 100ms | grep -q ' REMOTE ' || fails "top has no column"
grep -q sesame "$DIR/log" && fails "the password is in the log"
tr '\0' ' ' <"/proc/$DAEMON/cmdline" | grep -q 'unix://u:\*\*\*\*\*\*@' ||
	fails "the password is in the arguments: $(tr '\0' ' ' <"/proc/$DAEMON/cmdline")"

# One that answers everything with an error that would clear the operator's screen.
"$KILN" stop >/dev/null
wait "$DAEMON"
python3 - "$DIR/redis" <<'PY' &
import os, socket, sys, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + ".new")
listener.listen()
os.rename(sys.argv[1] + ".new", sys.argv[1])
def serve(peer):
	while peer.recv(65536):
		peer.sendall(b"-LOADING \x1b[2J\xc2\x9b31m \xff\r\n")
while True:
	threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
PY
redis=$!
tries=0
until [ -S "$DIR/redis" ] || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
daemon --remote "unix://$DIR/redis" --log-level debug
tries=0
until "$KILN" status | grep -q 'LOADING' || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
"$KILN" status >"$DIR/out"
grep -qF 'LOADING \x1b[2J\u009b31m \xff' "$DIR/out" || fails "its error: $(cat -v "$DIR/out")"
cat "$DIR/out" "$DIR/log" | LC_ALL=C grep -q "$(printf '[\033\233\377]')" &&
	fails "control bytes of the Redis: $(cat -v "$DIR/out" "$DIR/log")"
kill "$redis"
finish
