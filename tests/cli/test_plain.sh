#!/bin/sh
# test_plain.sh: no control bytes, no bidi overrides and no bytes that are no UTF-8 reach the
# terminal, the log or JSON: of a compiler's log, of names that a program gave, of the words of the
# command line itself.  The rest stays readable, and an object's bytes stay as they are.
. "$(dirname "$0")/lib.sh"

escape=$(printf '\033]0;x\007\033[2J')
c1=$(printf '\302\23331m')
bidi=$(printf '\342\200\256')
no_utf8=$(printf '\377\376')

# clean FILE...: all of it is UTF-8 that steers nothing.
clean() {
	python3 - "$@" <<'PY' || fails "control bytes in $*"
import sys
for path in sys.argv[1:]:
	text = open(path, "rb").read().decode()
	bad = [hex(ord(c)) for c in text if ord(c) < 32 and c not in "\n\t"
		or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2066\u2028\u200b"]
	if bad:
		print(path, bad[:4], repr(text[:300]))
		sys.exit(1)
PY
}

daemon --log-level debug
name="n$c1$bidi.cu"
printf '__global__ void k(int *p) { *p = 1; }\n#error no %s %s %s %s here\n' \
	"$escape" "$c1" "$bidi" "$no_utf8" >"$DIR/$name"
broken() {
	"$KILN" run raw "$DIR/$name" --entry k --grid 1 --block 1 --random i32:4 "$@" 2>"$DIR/err"
}
broken >"$DIR/out"
[ $? -eq 1 ] || fails "it compiles: $(cat "$DIR/out")"
clean "$DIR/err"
# The compiler may have words of its own for some of them.
grep -q u009b "$DIR/err" && grep -q u202e "$DIR/err" ||
	fails "nothing is said: $(cat "$DIR/err")"
broken --json >"$DIR/json"
clean "$DIR/json"
python3 -m json.tool "$DIR/json" >"$DIR/out" || fails "no JSON: $(cat "$DIR/json")"
grep -q 'u202e' "$DIR/out" || fails "$(cat "$DIR/out")"

# looks WORDS...: what the command prints is clean, as text and as JSON.
looks() {
	"$KILN" "$@" >"$DIR/out" 2>"$DIR/err"
	clean "$DIR/out" "$DIR/err"
	"$KILN" "$@" --json >"$DIR/json" 2>"$DIR/err"
	clean "$DIR/json" "$DIR/err"
	python3 -m json.tool "$DIR/json" >"$DIR/out" || fails "$*: no JSON"
}
key=$("$KILN" cache ls --failed --json | sed -n 's/.*"key": *"\([0-9a-f]*\)".*/\1/p' | head -n 1)
[ -n "$key" ] || fails "no failure is kept"
looks cache ls --failed
looks cache show "$key"
looks cache show "$key" --log --source --key
looks debug waits
looks status
looks faults ls
clean "$DIR/log"

# explain DEVICE
explain() {
	KILN_DEVICE=$1 "$KILN" explain permute --shape 2x3 --perm 1,0 >"$DIR/out" 2>"$DIR/err"
}
# Words of the command line, which no daemon saw: valid UTF-8 or not.
for word in "$escape" "$c1" "$bidi" "$no_utf8"; do
	"$KILN" cache show "$word" >"$DIR/out" 2>"$DIR/err" && fails "cache show: $(cat "$DIR/out")"
	clean "$DIR/out" "$DIR/err"
	"$KILN" warm "$DIR/$word" >"$DIR/out" 2>"$DIR/err" && fails "warm: $(cat "$DIR/out")"
	clean "$DIR/out" "$DIR/err"
	explain "cpu$word" && fails "explain: $(cat "$DIR/out")"
	clean "$DIR/out" "$DIR/err"
done
# A name that is too long is cut before a character.
explain "$(python3 -c 'print("cpu" + "\u20ac" * 40)')" && fails "explain: $(cat "$DIR/out")"
grep -q '€";' "$DIR/err" || fails "cut inside a character: $(cat "$DIR/err")"

# The bytes of an object, which are no text.
"$KILN" run permute --shape 7x9 --perm 1,0 >/dev/null || fails "run"
key=$("$KILN" cache ls --json | sed -n 's/.*"key": *"\([0-9a-f]*\)".*/\1/p' | head -n 1)
"$KILN" cache get "$key" >"$DIR/object" || fails "cache get"
"$KILN" cache get "$key" --output "$DIR/same" || fails "cache get --output"
[ -s "$DIR/object" ] && cmp "$DIR/object" "$DIR/same" || fails "an object is other bytes by a pipe"
finish
