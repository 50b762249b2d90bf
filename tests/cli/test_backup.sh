#!/bin/sh
# test_backup.sh: cache backup and restore: all rows with pins and uses, no key, and nothing from a
# file that others may have written, or that is damaged.
. "$(dirname "$0")/lib.sh"
export XDG_CONFIG_HOME="$DIR/config"
daemon

"$KILN" cache backup "$DIR/none" 2>"$DIR/err" && fails "a backup of nothing"
grep -q 'there is no kernel to back up: the cache is empty' "$DIR/err" || fails "$(cat "$DIR/err")"
"$KILN" key new mine >/dev/null || fails "key new"
"$KILN" run permute --shape 32x16 --perm 1,0 >/dev/null || fails "run"
"$KILN" run permute --shape 32x16 --perm 1,0 >/dev/null || fails "run"
"$KILN" run permute --shape 16x8 --perm 1,0 >/dev/null || fails "run"
key=$("$KILN" cache ls --sort hits --limit 1 | sed -n '2s/ .*//p')
"$KILN" cache pin "$key" >/dev/null || fails "pin"
list() {
	"$KILN" cache ls --json | python3 -c 'import json, sys
for row in sorted(json.load(sys.stdin)["rows"], key=lambda row: row["key"]):
    print(row["key"], row["hits"], row["used"], row["pinned"], row["bytes"])'
}
list >"$DIR/before"
prints 0 "$KILN" cache backup "$DIR/all.backup" <<'END'
wrote 2 kernels and 0 winners of tuning, SIZE, to 'DIR/all.backup'; keys are not in it
END
# winner CHOICE MICROS: one that was timed on a GPU that is not here.
winner() {
	cat >"$DIR/row" <<END
{"op": "permute", "model": "NVIDIA H200", "target": "sm_90", "choice": "$1", "micros": $2,
"own_micros": 4.5, "candidates": 3, "when": 1700000000, "version": "0.1.0",
"signature": "permute<2>"}
END
	tr -d '\n' <"$DIR/row" >"$DIR/rows"
	"$KILN" tune --import "$DIR/rows" >"$DIR/out" 2>&1 || fails "tune --import: $(cat "$DIR/out")"
}
winner tile64 2.25
winners() {
	"$KILN" tune --list --json | python3 -c 'import json, sys
for row in json.load(sys.stdin)["rows"]:
    print(sorted(row.items()))'
}
winners >"$DIR/winners"
grep -q tile64 "$DIR/winners" || fails "no winner: $(cat "$DIR/winners")"
json 'j["rows"] == 2 and j["winners"] == 1' "$KILN" cache backup "$DIR/all.backup"
[ "$(stat -c %a "$DIR/all.backup")" = 600 ] || fails "others may read the backup"
for file in "$DIR"/config/kiln/keys/*; do
	python3 -c 'import sys
key, backup = (open(path, "rb").read() for path in sys.argv[1:])
words = [word for word in key.split() if len(word) >= 16]
sys.exit(any(word in backup for word in words + [key]))' "$file" "$DIR/all.backup" ||
		fails "a key is in the backup"
done

# Into another cache: the same rows; a second time nothing is done.
"$KILN" stop >/dev/null || fails "stop"
wait "$DAEMON"
rm -rf "$DIR/cache"
daemon
prints 0 "$KILN" cache restore "$DIR/all.backup" <<'END'
restored 2 of 2 kernels and 1 of 1 winners of tuning from 'DIR/all.backup'; 0 and 0 were there
END
winners | diff "$DIR/winners" - >"$DIR/out" || fails "other winners: $(cat "$DIR/out")"
list | diff "$DIR/before" - >"$DIR/out" || fails "other rows: $(cat "$DIR/out")"
"$KILN" run permute --shape 32x16 --perm 1,0 --json >"$DIR/out" || fails "run"
grep -q '"origin":"hit"' "$DIR/out" || fails "compiled: $(cat "$DIR/out")"
# A winner that is there stays as it is, also on disk.
winner tile32 1.5
winners >"$DIR/winners"
json 'j["imported"] == 0 and j["present"] == 2 and j["winners"] == 1 and j["winners_taken"] == 0' \
	"$KILN" cache restore "$DIR/all.backup"
winners | diff "$DIR/winners" - >"$DIR/out" || fails "other winners: $(cat "$DIR/out")"
"$KILN" stop >/dev/null || fails "stop"
wait "$DAEMON"
daemon
winners | diff "$DIR/winners" - >"$DIR/out" || fails "other winners on disk: $(cat "$DIR/out")"

# refused WORD FILE: nothing of such a file gets in.
refused() {
	"$KILN" cache clear >/dev/null
	"$KILN" cache restore "$2" >"$DIR/out" 2>"$DIR/err" && fails "$1: was restored"
	grep -q "$1" "$DIR/err" || fails "not $1: $(cat "$DIR/err")"
}
"$KILN" cache unpin "$key" >/dev/null || fails "unpin"
chmod 660 "$DIR/all.backup"
refused 'may have been written by others' "$DIR/all.backup"
chmod 600 "$DIR/all.backup"
python3 -c 'import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[len(data) // 2] ^= 1
open(sys.argv[2], "wb").write(data)' "$DIR/all.backup" "$DIR/damaged"
refused 'is damaged' "$DIR/damaged"
head -c 200 "$DIR/all.backup" >"$DIR/short"
refused 'is damaged\|beginning of one\|cannot be read' "$DIR/short"
"$KILN" run permute --shape 32x16 --perm 1,0 >/dev/null || fails "run"
"$KILN" cache export "$DIR/pack" >/dev/null || fails "export"
refused 'does not begin as one' "$DIR/pack"
"$KILN" cache import "$DIR/all.backup" 2>"$DIR/err" && fails "a backup is no pack"
[ "$(list | wc -l)" = 0 ] || fails "something got in: $(list)"
finish
