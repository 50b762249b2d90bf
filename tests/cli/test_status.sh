#!/bin/sh
# test_status.sh: status, devices, ops and stop.
. "$(dirname "$0")/lib.sh"
daemon --max-sessions 17
"$KILN" run permute --shape 8x9 --perm 1,0 >/dev/null || fails "run"
"$KILN" run permute --shape 8x9 --perm 0,1 >/dev/null || fails "run"

status() {
	"$KILN" status | sed -E -e 's/(count|idle|started) [0-9]+/\1 N/g' -e 's/, up .*/, up TIME/' \
		-e '/^compilers/s/[0-9.]+ [KMG]?i?B/SIZE/g' \
		-e 's/^(nvrtc|c\+\+)( +)[^ ].*/\1\2FOUND/' -e 's/^(launchers +cpu:) [0-9]+/\1 N/' \
		-e 's/(landlock [0-9]+, seccomp|landlock [0-9]+|seccomp|none)$/HELD/' \
		-e '/^ +lacks /d' -e '/^ +(sm_[0-9]+ ?)+$/d'
}
# The daemon gives back a session's memory after the session has left.
tries=0
until "$KILN" status | grep -q 'inflight 0,' || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
prints 0 status <<'END'
kilnd          0.1.0, pid N, up TIME
socket         DIR/kiln.sock
log            DIR/log, level info
counters       requests 1, hits 0, shared 0, compiles 1, failures 0,
               remembered 0, frozen 0, copies 1, canceled 0, launches 12
hit rate       0.0 % of 1 request for a kernel
workers        count N, idle N, busy 0, started N, killed 0, recycled 0
compilers have SIZE; a compile takes SIZE (nvrtc), SIZE (c++)
nvrtc          FOUND
c++            FOUND
executors      cpu: pid N, ready, kernels 1, inflight 0, restarts 0
launchers      cpu: N
sandbox        auto: compilers HELD
               cpu (pid N) HELD
cache          1 kernels, SIZE
remote         off
END
json 'j["counters"]["compiles"] == 1 and j["server"]["socket"].endswith("kiln.sock")
	and j["cache"]["rows"] == 1 and len(j["limits"]) >= 7' "$KILN" status
# A line has 80 columns, but for paths and sentences, which are as long as they are.
"$KILN" status | awk 'length > 80 && !/^(socket|c\+\+) / { print; bad = 1 } END { exit bad }' ||
	fails "lines of more than 80 columns"
# Figures that prove themselves, and what each operator and session did.
json 'len(j["identities"]) >= 10
	and all(i["holds"] and i["left"] == i["right"] for i in j["identities"])
	and j["flights"] == [] and not any(j["busy"].values())' "$KILN" status
json '[(o["op"], o["compiles"]) for o in j["operators"]] == [("permute", 1)]
	and [s["requests"] for s in j["sessions"] if s["ended"]] == [0, 1]
	and j["older_sessions"]["requests"] == 0' "$KILN" status
json '0 < j["operators"][0]["micros"]["compile"]["p50"]
	and j["operators"][0]["micros"]["compile"]["count"] == 1
	and j["operators"][0]["micros"]["disk_hit"] == dict(count=0, p50=0, p99=0, max=0)' \
	"$KILN" status
"$KILN" status --limits | sed '1,/^$/d' >"$DIR/limits"
for line in 'LIMIT +VALUE  OPTION' 'sessions +17  --max-sessions' 'bytes +none  --max-bytes' \
	'message +1.0 MiB  --max-message'; do
	grep -qxE -e "$line" "$DIR/limits" || fails "limits: no $line in $(cat "$DIR/limits")"
done

"$KILN" devices >"$DIR/out" || fails "devices"
head -1 "$DIR/out" | grep -qx 'DEVICE  STATE    TARGET  *MEMORY  UUID  PCI BUS  MODEL' ||
	fails "$(cat "$DIR/out")"
grep -q '^cpu     present  cpu ' "$DIR/out" || fails "$(cat "$DIR/out")"
json 'j["rows"][0]["name"] == "cpu" and j["rows"][0]["state"] == "present"' "$KILN" devices

"$KILN" ops >"$DIR/out" || fails "ops"
sed -n '/^permute /,/^$/p' "$DIR/out" >"$DIR/permute"
[ "$(sed -n 1p "$DIR/permute")" = 'permute (x, y)' ] || fails "ops: $(cat "$DIR/permute")"
[ "$(grep -c '^  [^ ]' "$DIR/permute")" -eq 1 ] || fails "no summary: $(cat "$DIR/permute")"
grep -q '^    perm: ' "$DIR/permute" || fails "no attribute: $(cat "$DIR/permute")"
# All operators that run takes, and no others; map has a command of its own.  Each attribute is on a
# line of its own.
grep -oE '^[a-z_]+ \(' "$DIR/out" | tr -d ' (' | sort >"$DIR/names"
"$KILN" help run >"$DIR/help"
{
	sed -n '/^operators/,/^$/s/^  \([a-z_][a-z_]*\) .*/\1/p' "$DIR/help"
	sed -n 's/^usage: kiln run \(map\) .*/\1/p' "$DIR/help"
} | sort | cmp -s - "$DIR/names" ||
	fails "ops and run do not know the same: $(cat "$DIR/names")"
sed -n '/^layer_norm /,/^$/p' "$DIR/out" | grep -q '^    axes: ' || fails "ops: layer_norm"
json '"permute" in [r["name"] for r in j["rows"]]' "$KILN" ops

"$KILN" help requests >"$DIR/out" || fails "help requests"
for request in hello info submit cache.ls debug stop; do
	grep -qE "^$request " "$DIR/out" ||
	fails "help requests does not know $request: $(cat "$DIR/out")"
done

prints 0 "$KILN" stop <<'END'
stopped process N
END
# It is gone when stop returns.
kill -0 "$DAEMON" 2>/dev/null && {
	state=$(sed 's/.*) \(.\).*/\1/' "/proc/$DAEMON/stat")
	[ "$state" = Z ] || fails "the daemon is still there ($state)"
}
[ ! -e "$KILN_SOCKET" ] || fails "the socket is still there"
wait "$DAEMON" || fails "the daemon ended with $?"
DAEMON=

daemon
json 'j["pid"] > 1' "$KILN" stop
wait "$DAEMON"
DAEMON=
"$KILN" stop 2>"$DIR/err"
[ $? -eq 1 ] || fails "stop without a daemon"

# run may start one, if it is told to.
export KILN_CACHE_DIR="$DIR/cache" KILN_DEVICES=cpu KILN_DAEMON="$KILND"
"$KILN" run permute --shape 8x9 --perm 1,0 >/dev/null 2>&1 && fails "run started a daemon unasked"
KILN_AUTOSTART=1 "$KILN" run permute --shape 8x9 --perm 1,0 --no-autostart >/dev/null 2>&1 &&
	fails "run started a daemon in spite of --no-autostart"
"$KILN" run permute --shape 8x9 --perm 1,0 2>&1 | grep -q -- '--autostart' || fails "no remedy"
"$KILN" status 2>&1 | grep -q -- '--autostart' && fails "a remedy that status does not have"
"$KILN" status 2>&1 | grep -q KILN_CONNECT && fails "a constant of C, to somebody in a shell"
KILN_AUTOSTART=1 "$KILN" status 2>&1 | grep -q "^kiln: 'kiln status' never starts a daemon" ||
	fails "KILN_AUTOSTART is ignored without a word"
"$KILN" run permute --shape 8x9 --perm 1,0 --autostart >"$DIR/out" || fails "autostart"
grep -q '^origin         hit$' "$DIR/out" || fails "$(cat "$DIR/out")"
"$KILN" stop >/dev/null || fails "stop of the daemon that run started"
KILN_AUTOSTART=1 "$KILN" explain permute --shape 8x9 --perm 1,0 >/dev/null || fails "KILN_AUTOSTART"
"$KILN" stop >/dev/null || fails "stop of the daemon that explain started"
[ ! -e "$KILN_SOCKET" ] || fails "the socket is still there"
finish
