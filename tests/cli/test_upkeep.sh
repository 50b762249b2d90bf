#!/bin/sh
# test_upkeep.sh: cache table, pin, unpin, trim by what rows are, and verify --recompile; a compiler
# that never makes the same object twice, and one that is not the one that made what is there.
. "$(dirname "$0")/lib.sh"

# The compiler of before and now: a stranger among them changes every object.
real=$(command -v g++ || command -v c++) || exit 77
cat >"$DIR/cxx" <<END
#!/bin/sh
$real "\$@" || exit
[ ! -s unit.so ] || head -c 8 /dev/urandom >>unit.so
END
chmod +x "$DIR/cxx"
daemon

for rows in 11 12 13; do
	"$KILN" run permute --shape ${rows}0x90 --perm 1,0 >/dev/null || fails "run"
done
"$KILN" run softmax --shape 64x512 >/dev/null || fails "run"
key=$("$KILN" cache ls --sort created --limit 1 | sed -n '2s/ .*//p')

# ---- table ----
"$KILN" cache table >"$DIR/out" || fails "table"
titles='REGS SPILLS SHARED LOCAL BYTES US TARGET COMPILER KEY OP KERNEL'
[ "$(head -1 "$DIR/out" | tr -s ' ')" = "$titles" ] || fails "table: $(cat "$DIR/out")"
line='^ +- +- +- +- +[0-9]+ +[0-9]+ +cpu +host [0-9a-f]{6} +[0-9a-f]{12} '
[ "$(grep -cE "$line" "$DIR/out")" -eq 4 ] ||
	fails "table: $(cat "$DIR/out")"
json 'len(j["rows"]) == 4 and all(r["registers"] == -1 and r["bytes"] > 0
	and r["compiler"].startswith("host ") for r in j["rows"])' "$KILN" cache table
json 'len(j["rows"]) == 1 and j["rows"][0]["op"] == "softmax"' "$KILN" cache table --op softmax
json 'len(j["rows"]) == 0' "$KILN" cache table --compare
json 'len(j["rows"]) == 0' "$KILN" cache table --target sm_90
json '[r["compile_micros"] for r in j["rows"]] ==
	sorted((r["compile_micros"] for r in j["rows"]), reverse=True)' "$KILN" cache table --sort time
json 'len(j["rows"]) == 2' "$KILN" cache table --limit 2

# ---- verify --recompile: the same bits ----
prints 0 "$KILN" cache verify --recompile 100% <<'END'
checked 4, bad 0
recompiled 4, differ 0, skipped 0
END
json 'j["checked"] == 4 and j["recompiled"] == 1 and j["differ"] == 0 and j["rows"] == []' \
	"$KILN" cache verify --recompile 5% --seed 7
json 'j["hits"] == 0' "$KILN" cache show "$key"

# A compiler that ends badly is told, and is no reason to remove what is there.
"$KILN" debug fail-compile 1
"$KILN" cache verify --recompile 100% >"$DIR/out"
[ $? -eq 1 ] || fails "a failed recompile ends well"
grep -q '^recompiled 4, differ 1, skipped 0$' "$DIR/out" || fails "failed: $(cat "$DIR/out")"
grep -qE '^[0-9a-f]{12}  failed: .' "$DIR/out" || fails "failed: $(cat "$DIR/out")"

# ---- pins ----
prints 0 "$KILN" cache pin "$key" <<END
pinned $key
END
"$KILN" cache show "$key" | grep -q '^pinned         yes$' || fails "show: not pinned"
"$KILN" cache ls | grep "^$key" | grep -q ' \* ' || fails "ls: not pinned: $("$KILN" cache ls)"
json 'j["cache"]["pinned"] == 1 and j["cache"]["cap_rows"] == 100000' "$KILN" status
"$KILN" cache pin ffff0000 2>"$DIR/err"
[ $? -eq 1 ] && grep -q 'no kernel in the cache has a key that begins with ffff0000' "$DIR/err" ||
	fails "pin of nothing: $(cat "$DIR/err")"

# ---- trim by what they are ----
json 'j["removed"] == 0 and j["left"] == 4' "$KILN" cache trim --target sm_90
json 'j["removed"] == 0' "$KILN" cache trim --compiler nvrtc
json 'j["removed"] == 0' "$KILN" cache trim --older-than 1h
"$KILN" cache trim --op permute --dry-run >"$DIR/out" || fails "dry run"
[ "$(grep -cE '^[0-9a-f]{12}  permute  cpu' "$DIR/out")" -eq 3 ] ||
	fails "dry run: $(cat "$DIR/out")"
tail -1 "$DIR/out" | grep -qE '^would remove 3, free .*, leave .*, 1 pinned$' ||
	fails "dry run: $(cat "$DIR/out")"
json 'j["removed"] == 1 and j["left"] == 4 and j["dry_run"] == 1' \
	"$KILN" cache trim --rows 3 --dry-run
json 'j["removed"] == 1 and j["left"] == 3' "$KILN" cache trim --rows 3
json 'j["removed"] == 2 and j["left"] == 1 and j["pinned"] == 1' "$KILN" cache trim --op permute
prints 0 "$KILN" cache clear <<'END'
removed 0, freed SIZE, left SIZE, 1 pinned
END
prints 0 "$KILN" cache unpin "$key" <<END
unpinned $key
END
json 'j["removed"] == 1 and j["bytes"] == 0 and j["left"] == 0' "$KILN" cache clear
"$KILN" cache unpin "$key" 2>"$DIR/err"
[ $? -eq 1 ] && grep -q "no pinned kernel has a key that begins with $key" "$DIR/err" ||
	fails "unpin of nothing: $(cat "$DIR/err")"

# ---- another compiler ----
again() {
	kill -TERM "$DAEMON"
	wait "$DAEMON" || fails "the daemon ended with $?"
	daemon
	"$KILN" run permute --shape 110x90 --perm 1,0 >/dev/null || fails "run"
}
"$KILN" run permute --shape 110x90 --perm 1,0 >/dev/null || fails "run"
export KILN_CXX="$DIR/cxx"
again
json 'len(j["rows"]) == 2 and j["rows"][0]["compared_with"] == "" and
	j["rows"][1]["compared_with"] == j["rows"][0]["key"]' "$KILN" cache table --compare
"$KILN" cache table --compare | grep -q '([+-]8)' || fails "table: $("$KILN" cache table)"
"$KILN" cache verify --recompile 100% >"$DIR/out"
[ $? -eq 1 ] || fails "other bits end well"
grep -q '^recompiled 1, differ 1, skipped 1$' "$DIR/out" || fails "differs: $(cat "$DIR/out")"
grep -qE '^[0-9a-f]{12}  differs: the objects, of [0-9]+ bytes, differ from byte [0-9]+ on ' \
	"$DIR/out" || fails "differs: $(cat "$DIR/out")"
grep -qE '^[0-9a-f]{12}  skipped: it was made by host .*, and here is host ' "$DIR/out" ||
	fails "skipped: $(cat "$DIR/out")"
json 'j["removed"] == 2' "$KILN" cache trim --compiler 'host '
finish
