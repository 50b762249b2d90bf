#!/bin/sh
# test_tune.sh: tune: what it prints, that winners are kept and used, and their table: list, export,
# import, forget.
. "$(dirname "$0")/lib.sh"
daemon

tune() {
	"$KILN" tune permute --shape "$@" --perm 0,2,1 --seconds 0
}

# The names of the candidates and their times are the planner's and the machine's: all lines, and
# what the table has, but not who wins.
report() {
	tune "$@" | sed -E -e 's/ +[0-9.]+ (us|ms|s) .*GB\/s  ?(.*)/ TIME/' -e 's/^(CHOICE).*/\1/' \
		-e 's/^(class|winner) .*/\1/' -e '/^[^ ]+.* TIME$/d' \
		-e 's/[0-9]+ rounds of [0-9]+ (.*) [0-9]+ sets/R rounds of L \1 N sets/'
}
prints 0 report 400x3x100 --dry-run <<'END'
CHOICE
device         cpu, x86-64 host (cpu)
class
timed          R rounds of L launches, over N sets of SIZE
winner
END
tune 400x3x100 --dry-run >"$DIR/out" || fails "tune --dry-run"
grep -q "the planner's own" "$DIR/out" || fails "which one is the planner's own: $(cat "$DIR/out")"
grep -q '^class          permute_.*<.*>$' "$DIR/out" || fails "no class: $(cat "$DIR/out")"
json 'j["rows"] == []' "$KILN" tune --list

tune 400x3x100 --json >"$DIR/tuned" || fails "tune --json"
python3 - "$DIR/tuned" <<'END' || fails "tune --json: $(cat "$DIR/tuned")"
import json, sys
j = json.load(open(sys.argv[1]))
rows = {c["choice"]: c for c in j["candidates"]}
assert j["op"] == "permute" and j["model"] == "x86-64 host" and j["target"] == "cpu"
assert j["sets"] > 1 and j["set_bytes"] == 2 * 4 * 120000 and j["rounds"] >= 3
assert len(rows) == len(j["candidates"]) and j["own"] == j["candidates"][0]["choice"]
own, winner = rows[j["own"]], rows[j["winner"]]
assert own["micros"] > 0 and own["ratio"] == 1
assert abs(own["gbps"] - 960000 / own["micros"] / 1e3) < 0.01 * own["gbps"] + 0.001
assert j["kept"] == (j["winner"] != j["own"])
assert j["winner"] == j["own"] or winner["micros"] < 0.9801 * own["micros"]
assert all(c["note"] != "wrong results" for c in rows.values())
END
"$KILN" tune --forget >/dev/null || fails "forget all"

# tune takes what programs asked for: each class once, with strides and alignment as they were, and
# no kernel whose choice is named.
"$KILN" stop >/dev/null || fails "stop"
wait "$DAEMON"
daemon
prints 0 "$KILN" tune --recorded <<'END'
nothing to tune: kilnd was asked for nothing with several candidates
END
for shape in 400x3x100 300x3x100; do
	"$KILN" run permute --shape "$shape" --perm 0,2,1 >/dev/null || fails "run permute"
done
"$KILN" compile softmax --operand f16:300x9:20,1@2 >/dev/null || fails "compile softmax"
"$KILN" run softmax --shape 300x20 --choice "$("$KILN" explain softmax --shape 300x20 --json |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][1])')" >/dev/null ||
	fails "run softmax with a choice"
"$KILN" tune --recorded --seconds 0 --dry-run --json >"$DIR/all" || fails "tune --recorded"
python3 - "$DIR/all" <<'END' || fails "tune --recorded: $(cat "$DIR/all")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [row["op"] for row in rows] == ["permute", "softmax"], rows
assert all(len(row["candidates"]) > 1 and row["rounds"] >= 3 for row in rows)
assert "20" in rows[1]["signature"]
END
json 'j["rows"] == []' "$KILN" tune --list

# A winner by hand, of the class that explain names: written, read, used by every batch.
"$KILN" explain permute --shape 400x3x100 --perm 0,2,1 --json >"$DIR/plan" || fails "explain"
python3 - "$DIR/plan" >"$DIR/rows" <<'END'
import json, sys
j = json.load(open(sys.argv[1]))
row = {"op": "permute", "model": j["model"], "target": j["target"], "choice": j["choices"][-1],
	"micros": 12.125, "own_micros": 16.5, "candidates": len(j["choices"]), "when": 1795219200,
	"version": "0.1.0", "signature": j["signature"]}
print(json.dumps(row))
print()
row.update(model='quoted "\\ model', choice="other")
print(json.dumps(row))
END
prints 0 "$KILN" tune --import "$DIR/rows" <<'END'
imported 2 from 'DIR/rows'
END
choice=$(sed -n '1s/.*"choice": "\([^"]*\)".*/\1/p' "$DIR/rows")
"$KILN" explain permute --shape 300x3x100 --perm 0,2,1 >"$DIR/out"
grep -qxF "tuned          $choice, 12.1 us against 16.5 (2026-11-21)" "$DIR/out" ||
	fails "explain does not name $choice: $(cat "$DIR/out")"
json "j['plan']['choice'] == '$choice' and j['tuned']['micros'] == 12.125" \
	"$KILN" explain permute --shape 300x3x100 --perm 0,2,1
"$KILN" run permute --shape 300x3x100 --perm 0,2,1 >"$DIR/out" || fails "run with a winner"
grep -q '^tuned ' "$DIR/out" || fails "run without its winner: $(cat "$DIR/out")"
list() {
	"$KILN" tune --list |
		sed -e 's/permute_[^ ]*<.*/CLASS/' -e "s/ $choice / CHOICE /" -e 's/  */ /g'
}
prints 0 list <<'END'
OP MODEL TARGET CHOICE TIME OWN DATE CLASS
permute quoted "\ model cpu other TIME TIME 2026-11-21 CLASS
permute x86-64 host cpu CHOICE TIME TIME 2026-11-21 CLASS
END
prints 0 "$KILN" tune --export "$DIR/exported" <<'END'
exported 2 to 'DIR/exported'
END
"$KILN" tune --export - | cmp - "$DIR/exported" || fails "export to standard output differs"
python3 - "$DIR/rows" "$DIR/exported" <<'END' || fails "export: $(cat "$DIR/exported")"
import json, sys
rows = [sorted(json.dumps(json.loads(l), sort_keys=True) for l in open(f) if l.strip())
	for f in sys.argv[1:]]
sys.exit(rows[0] != rows[1])
END

# Tuning again replaces the winner, or forgets it; forgetting is by class, or of all.
tune 400x3x100 --forget >"$DIR/out" || fails "forget one"
[ "$(cat "$DIR/out")" = 'forgot 1' ] || fails "forget one: $(cat "$DIR/out")"
json 'len(j["rows"]) == 1' "$KILN" tune --list
"$KILN" tune --import - <"$DIR/exported" >/dev/null || fails "import of what was exported"
json 'len(j["rows"]) == 2' "$KILN" tune --list
tune 400x3x100 --json >"$DIR/tuned" || fails "tune again"
kept=$(sed 's/.*"kept":\([01]\).*/\1/' "$DIR/tuned")
json "len(j['rows']) == 1 + $kept" "$KILN" tune --list
json 'j["removed"] >= 1' "$KILN" tune --forget
json 'j["rows"] == []' "$KILN" tune --list

# A candidate that does not compile is left out; the planner's own is in the cache already.
"$KILN" compile softmax --shape 400x7 >/dev/null || fails "compile softmax"
"$KILN" debug fail-compile 1 >/dev/null || fails "debug fail-compile"
"$KILN" tune softmax --shape 400x7 --seconds 0 --dry-run --json >"$DIR/tuned" 2>"$DIR/err" ||
	fails "tune with a candidate that does not compile: $(cat "$DIR/err")"
[ "$(grep -c '^kiln: tune: .* is left out: ' "$DIR/err")" -eq 1 ] ||
	fails "left out: $(cat "$DIR/err")"
python3 - "$DIR/tuned" <<'END' || fails "tune softmax: $(cat "$DIR/tuned")"
import json, sys
rows = json.load(open(sys.argv[1]))["candidates"]
bad = [c for c in rows if c["note"] == "does not compile"]
assert len(bad) == 1 and bad[0]["micros"] == 0 and len(rows) > 1
assert all(c["micros"] > 0 for c in rows if c not in bad)
END

# Nothing to choose, and what is refused.
prints 0 "$KILN" tune permute --shape 60x100 --perm 0,1 <<'END'
nothing to tune: variant copy has no kernel
END
prints 2 "$KILN" tune <<'END'
! kiln: 'kiln tune' needs OP or --recorded, --list, --export, --import, --forget: 'kiln help tune'
END
prints 2 "$KILN" tune --list --forget <<'END'
! kiln: 'kiln tune': --recorded, --list, --export, --import and --forget exclude each other
END
prints 2 "$KILN" tune permute --list <<'END'
! kiln: 'kiln tune permute': --recorded, --list, --export and --import take no OP; leave permute out
END
prints 1 "$KILN" tune --import "$DIR/none" <<'END'
! kiln: tune: 'DIR/none': No such file or directory
END
# bad LINE WORD: a file with this line is refused with a sentence that has the word.
bad() {
	printf '\n%s\n' "$1" >"$DIR/bad"
	"$KILN" tune --import "$DIR/bad" >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 1 ] && [ ! -s "$DIR/out" ] || fails "import of $1"
	grep -q "line 2: .*$2" "$DIR/err" || fails "import of $1 says: $(cat "$DIR/err")"
}
row=$(head -1 "$DIR/exported")
bad 'permute' 'braces'
bad '{"op" "permute"}' 'name'
bad '{"op": "permute"}' 'missing'
bad '{"op": "\u0041"}' 'value'
bad "${row%\}}, \"op\": \"x\"}" 'twice'
bad "${row%\}}, \"rows\": 1}" 'do not have'
bad "$row $row" 'end of the line'
bad "$(printf '%s' "$row" | sed 's/"micros": [0-9.]*/"micros": "x"/')" 'number'
bad "$(printf '%s' "$row" | sed 's/"micros": [0-9.]*/"micros": -1/')" 'micros'
json 'j["rows"] == []' "$KILN" tune --list
finish
