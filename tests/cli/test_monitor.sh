#!/bin/sh
# test_monitor.sh: kiln monitor and kiln slow: what they show is what the daemon counts, and the
# parts of a time add up to it.
. "$(dirname "$0")/lib.sh"

export KILN_LANE=off
"$KILN" monitor --count 1 >"$DIR/out" 2>"$DIR/err" && fails "a monitor of no daemon"
grep -q "^kiln: monitor: " "$DIR/err" && [ "$(grep -c '^kiln' "$DIR/err")" -eq 1 ] ||
	fails "$(cat "$DIR/err")"
daemon
"$KILN" slow >"$DIR/out" || fails "slow"
[ "$(wc -l <"$DIR/out")" -eq 1 ] || fails "slow before the first request: $(cat "$DIR/out")"

# follows FILE ARGUMENT...: begins a monitor, and waits until it follows.
follows() {
	file=$1
	shift
	"$KILN" monitor "$@" >"$file" 2>"$DIR/err" &
	monitor=$!
	tries=0
	until [ -s "$file" ]; do
		"$KILN" run cumsum --shape 5x7 >/dev/null || fails "run cumsum"
		tries=$((tries + 1))
		[ $tries -lt 2000 ] || break
	done
}

# shown TEXT: waits until the monitor has shown a row with this text.
shown() {
	tries=0
	until grep -q "$1" "$DIR/rows" || [ $tries -gt 2000 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
}

follows "$DIR/rows" --json
for shape in 33x44 33x44 55x66; do
	"$KILN" run softmax --shape $shape --time 5 >/dev/null || fails "run"
done
"$KILN" run map 'y[i] = x[i] * secret' --shape x=1000 --set secret=2 >/dev/null || fails "run map"
shown '"submit","op":"map"'
# One that sleeps misses what is overwritten, and no other request waits for it.
kill -STOP $monitor
"$KILN" run permute --shape 4x6 --perm 1,0 --time 1200 >/dev/null || fails "run permute"
kill -CONT $monitor
shown '"submit","op":"permute"'
kill -INT $monitor
wait $monitor || fails "monitor: $? $(cat "$DIR/err")"
"$KILN" status --json >"$DIR/status"
python3 - "$DIR/rows" "$DIR/status" <<'END' || fails "$(tail -n 3 "$DIR/rows")"
import json, sys
*rows, last = [json.loads(line) for line in open(sys.argv[1])]
counted = {row["op"]: row for row in json.load(open(sys.argv[2]))["operators"]}
names = ["plan", "look", "remote", "compile", "load", "queue", "device"]
for row in rows:
    assert sum(row[name + "_us"] for name in names) == row["total_us"], row
    assert (row["compile_us"] > 0) == (row["origin"] in ("compiled", "shared")), row
    assert (row["device_us"] > 0) == (row["asked"] == "submit"), row
    assert row["program"] == "kiln" and row["uid"] >= 0 and row["status"] == 0, row
of = lambda op, asked: [row for row in rows if row["op"] == op and row["asked"] == asked]
assert len(of("softmax", "submit")) == counted["softmax"]["launches"], counted["softmax"]
compiled = [row for row in of("softmax", "prepare") if row["origin"] == "compiled"]
assert len(compiled) == counted["softmax"]["compiles"] > 0, (compiled, counted["softmax"])
assert {row["problem"] for row in of("softmax", "submit")} == {
    "x=f32:33x44 y=f32:33x44", "x=f32:55x66 y=f32:55x66"}
assert of("map", "submit") and not any(row["problem"] for row in rows if row["op"] == "map")
assert [row["number"] for row in rows] == sorted({row["number"] for row in rows})
# All requests since the first are shown or counted as lost.
assert last["requests"] == last["shown"] == len(rows) and last["lost"] > 0, last
assert rows[-1]["number"] - rows[0]["number"] + 1 == len(rows) + last["lost"], last
END

# The filters, and how it ends.
follows "$DIR/rows" --op cumsum --session kiln --count 2
"$KILN" run cumsum --shape 5x7 >/dev/null || fails "run cumsum"
wait $monitor || fails "monitor --count: $(cat "$DIR/err")"
[ "$(grep -c 'kiln uid [0-9]* [a-z]* cumsum x=f32:5x7' "$DIR/rows")" -eq 2 ] ||
	fails "$(cat "$DIR/rows")"
tail -n 1 "$DIR/rows" | grep -qE '^[0-9]+ requests in [0-9.]+ s, 2 shown$' ||
	fails "$(cat "$DIR/rows")"
"$KILN" monitor --slower-than 600s --seconds 1 >"$DIR/rows" &
monitor=$!
"$KILN" run cumsum --shape 5x7 >/dev/null || fails "run cumsum"
wait $monitor || fails "monitor --seconds"
grep -q ', 0 shown$' "$DIR/rows" || fails "$(cat "$DIR/rows")"

# The slowest, each once, and none after they are forgotten.
"$KILN" slow --json >"$DIR/slow" || fails "slow --json"
python3 - "$DIR/slow" <<'END' || fails "$(cat "$DIR/slow")"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
totals = [row["total_us"] for row in rows]
assert len(rows) == 32 and totals == sorted(totals, reverse=True), totals
assert len({row["number"] for row in rows}) == 32
assert all(sum(row["parts"].values()) == row["total_us"] for row in rows)
assert any(row["origin"] == "compiled" and row["parts"]["compile"] > 0 for row in rows), rows
END
"$KILN" slow --forget >"$DIR/out" || fails "slow --forget"
grep -qE 'compiled +[0-9]+ +kiln +prepare softmax x=f32' "$DIR/out" || fails "$(cat "$DIR/out")"
[ "$("$KILN" slow | wc -l)" -eq 1 ] || fails "they are not forgotten"
"$KILN" slow >/dev/full 2>"$DIR/err" && fails "a full disk"
grep -q "standard output cannot be written" "$DIR/err" || fails "$(cat "$DIR/err")"

# Calls through lanes, which a trace reads at the same time.
counted() {
	"$KILN" status --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["counters"]["launches"])'
}
unset KILN_LANE
follows "$DIR/rows" --json
"$KILN" slow --forget >/dev/null || fails "slow --forget"
launches=$(counted)
"$KILN" run softmax --shape 21x22 --time 100 --trace "$DIR/trace" --json >"$DIR/run" ||
	fails "run --trace"
# A monitor that sleeps meanwhile finds the calls of a program that has gone.
kill -STOP $monitor
"$KILN" run softmax --shape 21x22 --time 20 >/dev/null || fails "run"
kill -CONT $monitor
launches=$(($(counted) - launches))
tries=0
until [ "$(grep -c '"asked":"\(lane\|submit\)","op":"softmax"' "$DIR/rows")" -ge $launches ] ||
	[ $tries -gt 2000 ]; do
	sleep 0.02
	tries=$((tries + 1))
done
kill -INT $monitor
wait $monitor || fails "monitor: $? $(cat "$DIR/err")"
"$KILN" slow --json >"$DIR/slow" || fails "slow --json"
python3 - "$DIR/rows" "$DIR/run" "$DIR/slow" $launches <<'END' || fails "$(tail -n 3 "$DIR/rows")"
import json, sys
*rows, last = [json.loads(line) for line in open(sys.argv[1])]
run, slow = [json.load(open(name)) for name in sys.argv[2:4]]
softmax = [row for row in rows if row["op"] == "softmax" and row["asked"] in ("lane", "submit")]
lane = [row for row in softmax if row["asked"] == "lane"]
assert len(softmax) == int(sys.argv[4]) and last["lost"] == 0, (len(softmax), sys.argv[4], last)
assert len(lane) >= 100 and run["spans"] >= 100 and run["missed"] == 0, (len(lane), run)
for row in lane:
    assert row["total_us"] == row["device_us"] and row["status"] == 0, row
    assert row["program"] == "kiln" and row["problem"] == "x=f32:21x22 y=f32:21x22", row
    assert row["origin"] in ("loaded", "generic") and row["choice"], row
ends = [row["ended"] for row in lane]
assert all(one <= two + 0.05 for one, two in zip(ends, ends[1:])), ends
assert any(row["asked"] == "lane" for row in slow["rows"]), slow
END
export KILN_LANE=off

# Daemons that do not know the two requests: of the same release, and of another.
# refuses SENTENCE COMMAND CHANGE...: what the command says of a daemon to which all it says comes
# with these changes.
refuses() {
	printf 'kiln: %s\n' "$1" >"$DIR/wanted"
	command=$2
	shift 2
	between "$@"
	KILN_SOCKET="$DIR/between.sock" "$KILN" $command >"$DIR/out" 2>"$DIR/err" && fails "$command"
	between_ends
	[ ! -s "$DIR/out" ] || fails "$command: $(cat "$DIR/out")"
	diff -u "$DIR/wanted" "$DIR/err" || fails "$command"
}
version=$("$KILN" --version | sed -E 's/^[^0-9]*([0-9.]+).*/\1/;q')
other=$(echo "$version" | tr 0-9 9)
refuses "monitor: kilnd $version knows no request newest" monitor recent=newest
refuses "slow: kilnd $version knows no request last" slow slow=last
newer=", which libkiln $other has: stop this kilnd and start the one of that version"
refuses "monitor: kilnd $version knows no request newest$newer" monitor recent=newest \
	"$version=$other"
refuses "slow: kilnd $version knows no request last$newer" slow slow=last "$version=$other"
finish
