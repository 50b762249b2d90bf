#!/bin/sh
# test_pack.sh: kernels go to a sealed file and into another cache.
. "$(dirname "$0")/lib.sh"
daemon

# sealed TEXT: without what differs from run to run.
sealed() {
	sed -E 's/\([0-9a-f]{16}\)/(ID)/; s/, [0-9.]+ KiB,/, SIZE,/; s/ on [0-9-]{10};/ on DATE;/' "$1"
}

"$KILN" compile softmax --shape 8x100 >/dev/null || fails "compile"
"$KILN" compile permute --shape 8x100 --perm 1,0 >/dev/null || fails "compile"
prints 1 "$KILN" cache export "$DIR/k.pack" <<'END'
! kiln: cache export: there is no secret key in DIR/config/kiln/keys: `kiln key new NAME` makes one
END
"$KILN" key new builder >/dev/null || fails "key new"
cd "$DIR" || exit 1
"$KILN" cache export k.pack >"$DIR/out" || fails "cache export"
prints 0 sealed "$DIR/out" <<'END'
exported 2 kernels and 0 winners of tuning, SIZE, to 'k.pack', sealed by key builder (ID)
END
json 'j["rows"] == 1 and j["key"] == "builder"' "$KILN" cache export one.pack --op softmax --days 30
prints 1 "$KILN" cache export none.pack --target sm_90 <<'END'
! kiln: cache export: there is no kernel to export: the cache has none of this kind
END
[ -e none.pack ] && fails "a pack of nothing"
ls "$DIR" | grep -q part && fails "a part is left"

"$KILN" cache clear >/dev/null
"$KILN" cache import k.pack >"$DIR/out" || fails "cache import"
sealed "$DIR/out" | sed "s/ from 'k.pack',/\n&/" >"$DIR/lines"
prints 0 cat "$DIR/lines" <<'END'
imported 2 of 2 kernels and 0 of 0 winners of tuning
 from 'k.pack', sealed by key builder (ID) on DATE; 0 and 0 were there
END
json 'j["imported"] == 0 and j["present"] == 1 and j["rows"] == 1' "$KILN" cache import one.pack
json 'len(j["rows"]) == 2' "$KILN" cache ls
"$KILN" compile softmax --shape 8x100 | grep -q '^origin *hit' ||
	fails "an imported kernel is not found"

# A winner of a tuned class goes with the kernels of its operator and target, and is used there.
"$KILN" explain permute --shape 8x100 --perm 1,0 --json >"$DIR/plan" || fails "explain"
python3 - "$DIR/plan" >"$DIR/rows" <<'END'
import json, sys
plan = json.load(open(sys.argv[1]))
print(json.dumps({"op": "permute", "model": plan["model"], "target": "cpu",
	"choice": plan["choices"][-1], "micros": 2.5, "own_micros": 4.5, "candidates": 3,
	"when": 1700000000, "version": "0.1.0", "signature": plan["signature"]}))
END
"$KILN" tune --import "$DIR/rows" >/dev/null || fails "tune --import"
json 'j["rows"] == 1 and j["winners"] == 0' "$KILN" cache export tuned.pack --op softmax
json 'j["rows"] == 2 and j["winners"] == 1' "$KILN" cache export tuned.pack
"$KILN" tune --forget >/dev/null || fails "forget"
json 'j["present"] == 2 and j["winners"] == 1 and j["winners_taken"] == 1' \
	"$KILN" cache import tuned.pack
"$KILN" explain permute --shape 8x100 --perm 1,0 | grep -q '^tuned .*2.5 us against 4.5' ||
	fails "a winner of a pack is not used"
"$KILN" cache import tuned.pack >"$DIR/out" || fails "import again"
grep -q "imported 0 of 2 kernels and 0 of 1 winners of tuning .*; 2 and 1 were there" "$DIR/out" ||
	fails "import again: $(cat "$DIR/out")"

printf x >>k.pack
prints 1 "$KILN" cache import k.pack <<'END'
! kiln: cache import: the pack k.pack is not sealed: it does not end in a seal of version 1
END
"$KILN" key distrust builder >/dev/null
"$KILN" cache import one.pack 2>"$DIR/err" && fails "a key that is not trusted"
grep -qE 'pack one.pack was sealed by key [0-9a-f]{16}, which is not trusted here:' "$DIR/err" ||
	fails "a key that is not trusted: $(cat "$DIR/err")"
prints 2 "$KILN" cache import - <<'END'
! kiln: '-': a pack is a file
END
prints 2 "$KILN" cache export k.pack --older-than soon <<'END'
! kiln: --older-than 'soon': expected a time, as 90s, 15m, 12h, 30d or 2w
END
prints 2 "$KILN" cache export k.pack --days 0 <<'END'
! kiln: --days '0': expected an integer from 1 to 36500
END
finish
