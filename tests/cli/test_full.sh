#!/bin/sh
# test_full.sh: a disk that is full: of the files that commands write, and of the cache.  Each says
# so in one sentence that names the file, ends with 1, and leaves nothing half written.
. "$(dirname "$0")/lib.sh"

daemon
"$KILN" run permute --shape 7x9 --perm 1,0 >"$DIR/out" 2>&1 || fails "run: $(cat "$DIR/out")"
key=$("$KILN" cache ls --json | sed -n 's/.*"key": *"\([0-9a-f]*\)".*/\1/p' | head -n 1)

# full FILE COMMAND...: no file may grow; the sentence names FILE, and there is none.
full() {
	file=$1
	shift
	(
		trap '' XFSZ
		ulimit -f 0
		exec "$@"
	) 2>&1 >/dev/null | cat >"$DIR/said"
	if [ "$(wc -l <"$DIR/said")" -ne 1 ] || ! grep -q "^kiln: .*File too large" "$DIR/said"; then
		fails "no room: $*: $(cat "$DIR/said")"
	fi
	grep -q "$file" "$DIR/said" || fails "$* does not name $file: $(cat "$DIR/said")"
	[ ! -s "$file" ] || fails "$* leaves $(ls -l "$file")"
	[ -z "$(find "$DIR" -name '*.part*' -o -name '*.new*' -o -name '*.tmp*')" ] ||
		fails "$* leaves $(find "$DIR" -name '*.part*')"
}

full "$DIR/m" "$KILN" record --output "$DIR/m"
full "$DIR/report" "$KILN" bugreport "$key" --output "$DIR/report"
full "$DIR/object" "$KILN" cache get "$key" --output "$DIR/object"
# Nor may memory that is shared as a file: what is copied to the daemon goes through such.
full 'no memory of [0-9]* bytes to move data through' "$KILN" run permute --shape 7x9 --perm 1,0
for words in status 'cache ls' devices 'cache show '"$key"; do
	# shellcheck disable=SC2086
	"$KILN" $words >/dev/full 2>"$DIR/err"
	[ $? -eq 1 ] || fails "$words to a full disk does not fail"
	grep -q "^kiln: standard output cannot be written" "$DIR/err" ||
		fails "$words: $(cat "$DIR/err")"
done

# The daemon's own: it goes on, and says what is wrong.
"$KILN" debug store-fault full || fails "store-fault"
"$KILN" run permute --shape 11x13 --perm 1,0 >"$DIR/out" 2>&1 || fails "run: $(cat "$DIR/out")"
tries=0
until "$KILN" status >"$DIR/out" && grep -q "in memory only, and written" "$DIR/out"; do
	tries=$((tries + 1))
	[ $tries -lt 2000 ] || { fails "no kernel is unsaved: $(cat "$DIR/out")" && break; }
	sleep 0.1
done
# A later write of the daemon fails as well, and its sentence takes the place of the first.
trouble="writing (a kernel )?to $DIR/cache/kiln.db failed: database or disk is full"
grep -qE "$trouble.*: make room on its disk" "$DIR/out" || fails "status: $(cat "$DIR/out")"
"$KILN" cache ls >"$DIR/out" 2>"$DIR/err" || fails "cache ls"
grep -qE "^kiln: cache ls: $trouble" "$DIR/err" || fails "cache ls: $(cat "$DIR/err")"
"$KILN" cache pin "$key" >"$DIR/out" 2>"$DIR/err" && fails "pin on a full disk"
grep -q "make room on its disk" "$DIR/err" || fails "pin: $(cat "$DIR/err")"
"$KILN" debug store-fault none && "$KILN" debug look || fails "look"
"$KILN" status >"$DIR/out"
grep -q "make room" "$DIR/out" && fails "it is not over: $(cat "$DIR/out")"
"$KILN" debug store-fault lost 2>"$DIR/err" && fails "a disk that is lost"
grep -q 'a disk cannot be "lost"; it can be none, full, readonly, failing or slow' "$DIR/err" ||
	fails "store-fault lost: $(cat "$DIR/err")"

finish
