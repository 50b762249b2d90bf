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
exported 2 kernels, SIZE, to 'k.pack', sealed by key builder (ID)
END
json 'j["rows"] == 1 and j["key"] == "builder"' "$KILN" cache export one.pack --op softmax --days 30
prints 1 "$KILN" cache export none.pack --target sm_90 <<'END'
! kiln: cache export: there is no kernel to export: the cache has none of this kind
END
[ -e none.pack ] && fails "a pack of nothing"
ls "$DIR" | grep -q part && fails "a part is left"

"$KILN" cache clear >/dev/null
"$KILN" cache import k.pack >"$DIR/out" || fails "cache import"
prints 0 sealed "$DIR/out" <<'END'
imported 2 of 2 kernels from 'k.pack', sealed by key builder (ID) on DATE; 0 were there
END
json 'j["imported"] == 0 and j["present"] == 1 and j["rows"] == 1' "$KILN" cache import one.pack
json 'len(j["rows"]) == 2' "$KILN" cache ls
"$KILN" compile softmax --shape 8x100 | grep -q '^origin *hit' ||
	fails "an imported kernel is not found"

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
