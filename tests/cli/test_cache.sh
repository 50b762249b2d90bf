#!/bin/sh
# test_cache.sh: cache ls, show, get, verify, trim and clear.
. "$(dirname "$0")/lib.sh"
daemon

prints 0 "$KILN" cache <<'END'
KEY  OP  TARGET  BYTES  SIZE  HITS  USED  PIN  KERNEL
END
for rows in 11 12 13; do
	"$KILN" run permute --shape ${rows}0x90 --perm 1,0 >/dev/null || fails "run"
done
"$KILN" run permute --shape 120x90 --perm 1,0 >/dev/null || fails "run"

list() {
	"$KILN" cache ls --sort hits | sed -E -e 's/[0-9a-f]{12}/DIGITS/' \
		-e 's/ [0-9]{4,} +[0-9]{4,} / BYTES SIZE /' -e 's/<.*/<..>/' -e 's/  +/ /g'
}
prints 0 list <<'END'
KEY OP TARGET BYTES SIZE HITS USED PIN KERNEL
DIGITS permute cpu BYTES SIZE 1 TIME permute_tile<..>
DIGITS permute cpu BYTES SIZE 0 TIME permute_tile<..>
DIGITS permute cpu BYTES SIZE 0 TIME permute_tile<..>
END
json 'len(j["rows"]) == 3 and len(j["rows"][0]["key"]) == 64' "$KILN" cache ls
json 'len(j["rows"]) == 2' "$KILN" cache ls --limit 2
"$KILN" cache ls --limit 2 >"$DIR/out"
[ "$(tail -n 1 "$DIR/out")" = 'and 1 more: --limit N shows more than 2' ] ||
	fails "ls: rows are left out without a word: $(cat "$DIR/out")"
"$KILN" cache ls --limit 3 | grep -q more && fails "ls: more than all"
# What would go is told as ls tells it.
trim() {
	"$KILN" cache trim --rows 0 --dry-run | sed -E -e 's/[0-9a-f]{12}/DIGITS/' \
		-e 's/ [0-9]{4,} +[0-9]{4,} / BYTES SIZE /' -e 's/<.*/<..>/' -e 's/  +/ /g' | sort -r
}
prints 0 trim <<'END'
would remove 3, free SIZE, leave SIZE
KEY OP TARGET BYTES SIZE HITS USED PIN KERNEL
DIGITS permute cpu BYTES SIZE 1 TIME permute_tile<..>
DIGITS permute cpu BYTES SIZE 0 TIME permute_tile<..>
DIGITS permute cpu BYTES SIZE 0 TIME permute_tile<..>
END

key=$("$KILN" cache ls --sort hits --limit 1 | sed -n '2s/ .*//p')
show() {
	"$KILN" cache show "$key" | sed -n -E -e '/^$/q' -e 's/^((object|on disk) +)[0-9]+/\1N/' \
		-e 's/^(compiler +host) .*/\1/' \
		-e 's/(instantiation +[a-z_]+)<.*/\1<..>/' -e p
}
prints 0 show <<'END'
key            KEY
op             permute
instantiation  permute_tile<..>
target         cpu
object         N bytes
compiled in    TIME
created        DATE
last used      DATE
hits           1
on disk        N bytes
compiler       host
pinned         no
END
"$KILN" cache show "$key" | grep -q '^plan:$' || fails "show: no plan"
"$KILN" cache show "$key" | grep -qE '^(source|log|key text):$' && fails "show: too much"
"$KILN" cache show "$key" --source >"$DIR/out"
grep -q '^source:$' "$DIR/out" && grep -q permute_tile "$DIR/out" || fails "show --source"
"$KILN" cache show "$key" --log | grep -q '^log:$' || fails "show --log"
"$KILN" cache show "$key" --key | grep -q '^key text:$' || fails "show --key"
json 'j["key"].startswith("'"$key"'") and j["source"] and j["key_text"] and j["hits"] == 1' \
	"$KILN" cache show "$key"

# get: byte for byte, the size that show names, and never to a terminal.
"$KILN" cache get "$key" >"$DIR/object" || fails "get"
bytes=$("$KILN" cache show "$key" | sed -n 's/^object *\([0-9]*\) bytes/\1/p')
got=$(wc -c <"$DIR/object")
[ "$got" -eq "$bytes" ] || fails "get: $got bytes and not $bytes"
[ "$(head -c 4 "$DIR/object" | od -An -c | tr -d ' ')" = '177ELF' ] || fails "get: not an object"
"$KILN" cache get "$key" --output "$DIR/object2" || fails "get --output"
cmp "$DIR/object" "$DIR/object2" || fails "get --output differs"
json "j['object']['bytes'] == $bytes" "$KILN" cache get "$key"
python3 - "$KILN" "$key" >"$DIR/out" <<'END' || fails "get to a terminal: $(cat "$DIR/out")"
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
got = subprocess.run([sys.argv[1], "cache", "get", sys.argv[2]], stdout=theirs,
	stderr=subprocess.PIPE)
os.close(theirs)
print(got.returncode, got.stderr.decode())
sys.exit(got.returncode != 2 or "--output" not in got.stderr.decode())
END
"$KILN" cache get "$key" --output "$DIR/none/x" 2>"$DIR/err"
[ $? -eq 1 ] || fails "get into a directory that is not there"
"$KILN" cache get ffffffffffff >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] && [ ! -s "$DIR/out" ] || fails "get of a key that is not there"
grep -q 'ffffffffffff' "$DIR/err" || fails "get: $(cat "$DIR/err")"
"$KILN" cache get "$key" >/dev/full 2>"$DIR/err"
[ $? -eq 1 ] || fails "get to a full disk ends well"

# verify finds damage, and says which.
prints 0 "$KILN" cache verify <<'END'
checked 3, bad 0
END
"$KILN" debug corrupt "$key" || fails "debug corrupt"
"$KILN" cache verify >"$DIR/out"
[ $? -eq 1 ] || fails "verify of a damaged cache ends well"
head -1 "$DIR/out" | grep -qx 'checked 3, bad 1' || fails "verify: $(cat "$DIR/out")"
grep -q "^$key  bad: ." "$DIR/out" || fails "verify does not name the key: $(cat "$DIR/out")"
json 'j["checked"] == 2 and j["bad"] == 0' "$KILN" cache verify

prints 0 "$KILN" cache trim 1G <<'END'
removed 0, freed SIZE, left SIZE
END
json 'j["removed"] == 2 and j["bytes"] == 0' "$KILN" cache trim 0
"$KILN" run permute --shape 120x90 --perm 1,0 | grep -q '^origin         compiled$' ||
	fails "trimmed and found"
clear_cache() {
	"$KILN" cache clear | sed 's/, left .*//'
}
prints 0 clear_cache <<'END'
removed 1, freed SIZE
END
json 'j["removed"] == 0' "$KILN" cache clear
json 'len(j["rows"]) == 0' "$KILN" cache ls
finish
