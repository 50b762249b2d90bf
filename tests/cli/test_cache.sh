#!/bin/sh
# test_cache.sh: cache ls, show, get, verify, trim and clear.
. "$(dirname "$0")/lib.sh"
daemon

prints 0 "$KILN" cache <<'END'
KEY  OP  TARGET  OBJECT  DISK  HITS  USED  PIN  KERNEL
END
for rows in 8 12 16; do
	"$KILN" run permute --shape ${rows}0x90 --perm 1,0 >/dev/null || fails "run"
done
"$KILN" run permute --shape 120x90 --perm 1,0 >/dev/null || fails "run"

list() {
	"$KILN" cache ls --sort hits | sed -E -e 's/[0-9a-f]{12}/DIGITS/' \
		-e 's/<.*/<..>/' -e 's/  +/ /g'
}
prints 0 list <<'END'
KEY OP TARGET OBJECT DISK HITS USED PIN KERNEL
DIGITS permute cpu SIZE SIZE 1 TIME permute_shift<..>
DIGITS permute cpu SIZE SIZE 0 TIME permute_shift<..>
DIGITS permute cpu SIZE SIZE 0 TIME permute_shift<..>
END
json 'len(j["rows"]) == 3 and len(j["rows"][0]["key"]) == 64' "$KILN" cache ls
json 'len(j["rows"]) == 2' "$KILN" cache ls --limit 2
"$KILN" cache ls --limit 2 >"$DIR/out"
[ "$(tail -n 1 "$DIR/out")" = 'and 1 more: --limit N shows more than 2' ] ||
	fails "ls: rows are left out without a word: $(cat "$DIR/out")"
"$KILN" cache ls --limit 3 | grep -q more && fails "ls: more than all"
# trim lists the rows that would go as ls lists them.
trim() {
	"$KILN" cache trim --rows 0 --dry-run | sed -E -e 's/[0-9a-f]{12}/DIGITS/' \
		-e 's/<.*/<..>/' -e 's/  +/ /g' | sort -r
}
prints 0 trim <<'END'
would remove 3, free SIZE, leave SIZE
KEY OP TARGET OBJECT DISK HITS USED PIN KERNEL
DIGITS permute cpu SIZE SIZE 1 TIME permute_shift<..>
DIGITS permute cpu SIZE SIZE 0 TIME permute_shift<..>
DIGITS permute cpu SIZE SIZE 0 TIME permute_shift<..>
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
instantiation  permute_shift<..>
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
grep -q '^source:$' "$DIR/out" && grep -q permute_shift "$DIR/out" || fails "show --source"
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
# Kernels by what people call them: a statement, a file with its macros.
"$KILN" run map 'y[i,j] = x[i,j] * s + 3' --shape x=8x16 --set s=2.5 >/dev/null || fails "map"
printf '__global__ void scale(float *y, float a) { y[threadIdx.x] = a; }\n' >"$DIR/scale.cu"
"$KILN" compile raw "$DIR/scale.cu" --entry scale --macro M=2 >/dev/null || fails "raw"
"$KILN" cache ls --op map | grep -q ' y\[i,j\] = x\[i,j\] \* s + 3$' || fails "a map's statement"
"$KILN" cache ls --op raw | grep -q " scale of $DIR/scale.cu -DM=2\$" || fails "a raw one's file"
json 'len(j["rows"]) == 1 and j["all"] == 1 and j["op"] == "map"' "$KILN" cache ls --op map

# On a terminal: rows that fit it, and say so; colours unless NO_COLOR says otherwise.
on_terminal() {
	python3 -c 'import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if not pid:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execvp(sys.argv[1], sys.argv[1:])
out = b""
try:
    while piece := os.read(fd, 4096):
        out += piece
except OSError:
    pass
os.waitpid(pid, 0)
print(out.decode().replace("\r", ""), end="")' "$@"
}
TERM=xterm NO_COLOR=1 on_terminal "$KILN" cache ls >"$DIR/out"
awk 'length > 80' "$DIR/out" | grep -q . && fails "wider than its terminal: $(cat "$DIR/out")"
grep -q 'cut to 80 columns' "$DIR/out" || fails "cuts without a word: $(cat "$DIR/out")"
escape=$(printf '\033')
grep -q "$escape" "$DIR/out" && fails "colours in spite of NO_COLOR"
TERM=xterm on_terminal env -u NO_COLOR "$KILN" cache ls | grep -q "^$escape\[1mKEY" ||
	fails "no colours on a terminal"
"$KILN" cache ls | grep -q "$escape" && fails "colours in a pipe"
finish
