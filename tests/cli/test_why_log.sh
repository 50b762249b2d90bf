#!/bin/sh
# test_why_log.sh: the daemon's log. At level debug it says which kernel each request got and why,
# and who came and went; at level info nothing of that. Each line of a file has the time.
. "$(dirname "$0")/lib.sh"

# has PATTERN: a line of the log is that, after the time, the process and the level.  A thread
# writes it, and the end of a session comes after its program's.
time='[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z'
has() {
	tries=0
	until grep -qE "^$time kilnd\[$DAEMON\] $1\$" "$DIR/log"; do
		tries=$((tries + 1))
		[ $tries -lt 2000 ] || break
		sleep 0.05
	done
	[ $tries -lt 2000 ] || fails "the log has no line '$1': $(cat "$DIR/log")"
}
run() {
	"$KILN" run permute --shape 64x48 --perm 1,0 >/dev/null || fails "run"
}

daemon --log-level debug
run
run
has "info kilnd .* serves $DIR/kiln.sock"
has 'debug process [0-9]+ is started: --role=compiler'
has 'debug session [0-9]+ \(pid [0-9]+, uid [0-9]+\) is there: libkiln .*, protocol 1, device cpu'
has 'debug session [0-9]+: permute for cpu: tile .*, key [0-9a-f]{12}: compiled after [0-9.]+ ms'
has 'debug session [0-9]+: permute for cpu: tile .*, key [0-9a-f]{12}: in memory after [0-9.]+ ms'
has 'debug worker [0-9]+ compiles permute_tile<.*> for cpu'
has 'debug worker [0-9]+ ends its compile after [0-9.]+ ms: done'
has 'debug session [0-9]+ \(pid [0-9]+, uid [0-9]+\) ends: 1 kernels asked for, [0-9]+ launches'
"$KILN" explain permute --shape 2x3 --perm 1,0 >/dev/null || fails "explain"
KILN_DEVICE=cuda:77 "$KILN" explain permute --shape 2x3 --perm 1,0 >/dev/null 2>&1
has 'debug session [0-9]+ \(pid [0-9]+, uid [0-9]+\) is refused: kilnd has no device "cuda:77".*'
# A program's own kernel has no name there.
printf '__global__ void secret(int *p) { *p = 1; }\n' >"$DIR/hidden.cu"
"$KILN" run raw "$DIR/hidden.cu" --entry secret --grid 1 --block 1 --random i32:4 >/dev/null ||
	fails "raw"
has 'debug session [0-9]+: a kernel of its own for cpu, key [0-9a-f]{12}: compiled after .* ms'
grep -qE 'secret|hidden' "$DIR/log" && fails "names that a program gave: $(cat "$DIR/log")"
"$KILN" status | grep -qx "log            $DIR/log, level debug" || fails "$("$KILN" status)"
"$KILN" status | grep -q '^ends' && fails "it ends by itself"
"$KILN" stop >/dev/null
wait "$DAEMON"
has 'info stopped'
grep -vqE '^[0-9-]{10}T[0-9:.]{12}Z kilnd\[[0-9]+\] (error|warn|info|debug) .' "$DIR/log" &&
	fails "a line without a time: $(cat "$DIR/log")"

# The log names kernels that were found on the disk.
daemon --log-level debug
run
has 'debug session [0-9]+: permute for cpu: tile .*, key [0-9a-f]{12}: on disk after [0-9.]+ ms'
"$KILN" stop >/dev/null
wait "$DAEMON"

# As objects: the same lines.
daemon --log-format json --log-level debug
run
"$KILN" debug kill executor >/dev/null
tries=0
until grep -q 'was killed by signal' "$DIR/log" || [ $tries -ge 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
"$KILN" stop >/dev/null
wait "$DAEMON"
python3 -c 'import json, re, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) > 10, rows
for row in rows:
	assert list(row) == ["time", "level", "pid", "message"], row
	assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["time"]), row
	assert row["level"] in ("error", "warn", "info", "debug"), row
	assert row["message"] and row["pid"] > 1, row
said = " / ".join(row["level"] + " " + row["message"] for row in rows)
for wanted in ("info kilnd .* serves", "debug session .*: permute for cpu: tile .*: on disk",
		"warn cpu: the device process of cpu was killed", "info stopped"):
	assert re.search(wanted, said), (wanted, said)' "$DIR/log" ||
	fails "not objects: $(cat "$DIR/log")"

daemon
run
grep -q ' debug ' "$DIR/log" && fails "debug at level info: $(cat "$DIR/log")"
"$KILN" stop >/dev/null
wait "$DAEMON"
DAEMON=

# One that a program started: where its log is, and when it ends.
"$KILN" run permute --shape 64x48 --perm 1,0 --autostart >/dev/null || fails "autostart"
"$KILN" status >"$DIR/out"
grep -qx "log            $DIR/kilnd.log, level info" "$DIR/out" || fails "$(cat "$DIR/out")"
grep -qx 'ends           after 600 s without a session (--idle-exit)' "$DIR/out" ||
	fails "$(cat "$DIR/out")"
grep -q ' info kilnd .* serves ' "$DIR/kilnd.log" || fails "no log: $(ls "$DIR")"
"$KILN" stop >/dev/null || fails "stop"
finish
