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
until "$KILN" status | grep -q ', away for ' || [ $tries -gt 100 ]; do
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
finish
